"""A learner of stable-baselines3 in the race, with the settings of its zoo."""

from functools import partial
from typing import Any

import numpy as np

from tools.bench.race.places import training_env
from tools.bench.race.running import Plan, Teller


def run(plan: Plan, teller: Teller) -> None:
    """Train until the race is over, or to the end of the zoo's budget."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    torch.set_num_threads(1)  # networks this small are faster so; more cores are for environments
    settings = dict(plan.settings)
    steps = int(settings.pop("n_timesteps"))
    model = made(plan, settings)

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


def made(plan: Plan, settings: dict[str, Any]) -> Any:
    """Return the learner in its environments."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    environments, normalised = settings.pop("n_envs", 1), settings.pop("normalize", False)
    env: Any = make_vec_env(
        partial(training_env, plan.task), environments, seed=plan.seed
    )  # in this process, as in its zoo
    if normalised:
        env = VecNormalize(env, **({"gamma": settings["gamma"]} if "gamma" in settings else {}))
    if (noise := settings.pop("noise_std", None)) is not None:
        size = env.action_space.shape[0]
        settings["action_noise"] = NormalActionNoise(np.zeros(size), noise * np.ones(size))
    if str(rate := settings.get("learning_rate", "")).startswith("lin_"):
        settings["learning_rate"] = partial(scaled, float(rate.removeprefix("lin_")))
    networks = dict(settings.pop("policy_kwargs", {}))
    if "activation_fn" in networks:
        networks["activation_fn"] = getattr(nn, networks["activation_fn"])
    return getattr(stable_baselines3, plan.algorithm)(
        "MlpPolicy",
        env,
        seed=plan.seed,
        device="cpu",
        policy_kwargs={**networks, "net_arch": plan.hidden},
        **settings,
    )


def scaled(initial: float, left: float) -> float:
    """Return a rate that falls to 0 with the share of the budget that is left."""
    return initial * left
