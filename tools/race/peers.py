"""A competitor's process, `python -m tools.race.peers PLAN.json`: ours, SB3's or its like, PGPE."""

import json
import logging
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import esac_mpi
from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.play.params import make_policy
from tools.race.field import OWN
from tools.race.running import Act, Plan, Teller

SUITE = "dm_control/"
OF_SPEED = {"center_learning_rate": 0.75, "radius_init": 15.0}  # of PGPE, times max_speed
OF_PROBLEM = "observation_normalization", "decrease_rewards_by"


def ours(plan: Plan, teller: Teller) -> None:
    """Train on all ranks until the race is over; rank 0 is looked at after generations."""
    module, seen = ALGORITHMS[plan.settings["algorithm"]], dict[str, Any]()
    make = module.generation

    def generation(params: Any, state: Any, world: Any, env: Any, learner: Any = None) -> Any:
        if not seen and world.rank == 0:
            teller.begin()
        seen.update(params=params, state=state, env=env)
        return make(params, state, world, env, learner)

    def over(row: dict[str, Any]) -> bool:
        if not teller.due:
            return False
        state = seen["state"]
        acts = {name: make_act(theta, **seen) for name, theta in state.policies.items()}
        return bool(acts) and teller.look(acts, state.counters.env_steps)

    setattr(module, "generation", generation)  # noqa: B010 - mypy: a module's function
    try:
        given = {**plan.settings, "seed": plan.seed}
        esac_mpi.train(None, given, run_dir=f"{plan.folder}/run", callback=over, quiet=True)
    finally:
        setattr(module, "generation", make)  # noqa: B010


def make_act(theta: np.ndarray, params: Any, state: Any, env: Any) -> Act:
    """Return the function by which a policy of the state acts in evaluations."""
    declared = ALGORITHMS[params.config.algorithm].DECLARES
    policy = make_policy(params, env, state.normaliser(params.config), declared.output).set(theta)
    return lambda observations: np.stack([policy(row).copy() for row in observations])


def sb3(plan: Plan, teller: Teller) -> None:
    """Train until the race is over, or to the end of the zoo's budget."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(threads(plan))
    settings = dict(plan.settings)
    steps = int(settings.pop("n_timesteps"))
    model = make_learner(plan, settings)

    def act(observations: np.ndarray) -> np.ndarray:
        normaliser = model.get_vec_normalize_env()
        seen = observations if normaliser is None else normaliser.normalize_obs(observations)
        return model.predict(seen, deterministic=True)[0]

    class Looking(BaseCallback):
        def _on_training_start(self) -> None:
            teller.begin()

        def _on_step(self) -> bool:
            return not (teller.due and teller.look({"": act}, self.num_timesteps))

    model.learn(steps, callback=Looking())
    model.env.close()


def threads(plan: Plan) -> int:
    """Return torch's threads: two, if they are there, for networks and batches of 256."""
    wide = plan.competitor.endswith(OWN) and plan.algorithm != "PPO"  # has batches of 32 and 64
    return min(plan.cores, 2) if wide else 1


def make_learner(plan: Plan, settings: dict[str, Any]) -> Any:
    """Return a learner of stable-baselines3 or of a library that has its interface.

    Its environments are in this process, as in the zoo.
    """
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    environments, normalised = settings.pop("n_envs", 1), settings.pop("normalize", False)
    env: Any = make_vec_env(partial(training_env, plan.task), environments, seed=plan.seed)
    if normalised:
        env = VecNormalize(env, **({"gamma": settings["gamma"]} if "gamma" in settings else {}))
    if (noise := settings.pop("noise_std", None)) is not None:
        size = env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), noise * np.ones(size))
    if str(rate := settings.get("learning_rate", "")).startswith("lin_"):
        initial = float(rate.removeprefix("lin_"))
        settings["learning_rate"] = lambda left: initial * left
    networks = {**settings.pop("policy_kwargs", {}), "net_arch": settings.pop("net_arch")}
    if "activation_fn" in networks:
        networks["activation_fn"] = getattr(nn, networks["activation_fn"])
    kind = getattr(import_module(plan.library), plan.algorithm)
    return kind("MlpPolicy", env, seed=plan.seed, device="cpu", policy_kwargs=networks, **settings)


def pgpe(plan: Plan, teller: Teller) -> None:
    """Search until the race is over, an actor a core; the centre is looked at."""
    import torch
    from evotorch import algorithms
    from evotorch.neuroevolution import GymNE

    # of its actors too; a problem's own seed stops them (0.6.1), and start states have none
    torch.manual_seed(plan.seed)
    if plan.cores > 1:
        import ray

        ray.init(num_cpus=plan.cores, include_dashboard=False, logging_level=logging.ERROR)
    settings = dict(plan.settings)
    own = {name: settings.pop(name) for name in OF_PROBLEM if name in settings}
    env: Any = partial(training_env, plan.task) if plan.task.startswith(SUITE) else plan.task
    actors = plan.cores if plan.cores > 1 else None
    problem = GymNE(env, settings.pop("network"), num_actors=actors, **own)
    speed = settings.pop("max_speed")
    settings |= {name: factor * speed for name, factor in OF_SPEED.items()}
    searcher = getattr(algorithms, plan.algorithm)(
        problem, stdev_learning_rate=0.1, stdev_max_change=0.2, optimizer="clipup",
        optimizer_config={"max_speed": speed, "momentum": 0.9}, **settings,
    )  # fmt: skip

    def centre() -> Act:
        policy = problem.to_policy(searcher.status["center"])  # standardises as its actors do

        def act(observations: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return policy(torch.as_tensor(observations)).numpy()

        return act

    teller.begin()
    over = False
    while not over:
        searcher.step()
        steps = problem.status["total_interaction_count"]
        over = teller.due and teller.look({"": centre()}, steps)


def training_env(task: str) -> Any:
    """Return a task for a peer: as Gymnasium makes it, or dm_control's in its terms."""
    if not task.startswith(SUITE):
        import gymnasium

        return gymnasium.make(task)
    return adapt(envs.make(task))


def adapt(env: envs.Env) -> Any:
    """Return an environment of ours in Gymnasium's terms, seeded at its first reset."""
    import gymnasium

    from esac_mpi.envs import spaces

    class Adapted(gymnasium.Env[np.ndarray, np.ndarray]):
        observation_space = spaces.observations(env.observation_size)
        action_space = gymnasium.spaces.Box(env.low, env.high)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.observation = env.reset(int(self.np_random.integers(2**31)))
            return self.observation, {}

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            try:
                taken = np.asarray(action, np.float32)
                self.observation, reward, terminated, truncated = env.step(taken)
            except envs.UnstablePhysics:  # an end of the episode without a reward
                return self.observation, 0.0, False, True, {}
            return self.observation, reward, terminated, truncated, {}

    return Adapted()


def main() -> None:
    """Run the competitor of a plan."""
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    globals()[plan.program](plan, Teller(plan))


if __name__ == "__main__":
    main()
