"""Control steps/s of one rank against bare physics, the library's steps, torch, and EvoTorch."""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.rollout import play
from tools.bench.measurement import Figure, Timed, Turns, compare_rates, is_installed, turns

DM = "cheetah-run", "walker-walk", "humanoid-run"
SMALL = """acrobot-swingup ball_in_cup-catch cartpole-swingup cheetah-run finger-spin
finger-turn_hard fish-swim hopper-hop manipulator-bring_ball pendulum-swingup point_mass-easy
reacher-hard swimmer-swimmer6"""
CASES = [
    *(
        (f"{task}-v5", width)
        for task in ("HalfCheetah", "Walker2d", "Humanoid", "Swimmer") for width in (512, 256, 64)
    ),
    *((f"dm_control/{task}-v0", 512) for task in DM),
    *((f"dm_control/{task}-v0", 64) for task in SMALL.split()),
    ("InvertedDoublePendulum-v5", 64), ("Hopper-v5", 64),
]  # fmt: skip
TOY = [("HalfCheetah-v5", 64), ("dm_control/cheetah-run-v0", 64)]


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure the closed loop against bare physics, library's steps, a torch module, EvoTorch."""
    import torch

    torch.set_num_threads(1)
    evotorch = is_installed("evotorch")
    horizon, least = (50, 50) if quick else (0, 2000)
    for task, width in TOY if quick else CASES:
        contest = Contest(task, width, horizon, least)
        competitors: Turns = {
            "closed loop": partial(contest.evaluate, contest.env), "bare physics": contest.physics,
            "library's steps": partial(contest.evaluate, contest.stepped),
            "torch module": contest.torch_loop,
            "resets": contest.resets,
        }  # fmt: skip
        if evotorch and not task.startswith("dm_control/"):
            competitors["EvoTorch"] = contest.evotorch()
        rates = turns(competitors, rounds or (1 if quick else 5))
        resets, case = rates.pop("resets"), f"{task} {width}x{width}"
        yield from compare_rates(case, rates, "control steps/s")
        share = rates["closed loop"] / resets
        yield Figure(case, "resets / closed loop", "ratio", share)
        ratio = rates["closed loop"] / (1 - share) / rates["bare physics"]
        yield Figure(case, "closed loop without resets / bare physics", "ratio", ratio)


class Contest:
    """One task and one policy, played `least` steps or more a turn from the same start states."""

    def __init__(self, task: str, width: int, horizon: int, least: int) -> None:
        self.task, self.least = task, least
        self.env = envs.make(task, horizon)
        self.stepped = envs.make(task, horizon)  # as where a task has no closed loop
        vars(self.stepped)["closed_loop"] = None
        self.layout = Layout((self.env.observation_size, width, width, self.env.action_size))
        self.theta = self.layout.initial(0, 0)
        bounds = self.env.low, self.env.high
        self.policy = Policy(self.layout, "relu", "tanh", *bounds).set(self.theta)
        self.plain = Plain(task)
        self.recorded = self._record()

    def evaluate(self, env: envs.Env) -> Timed:
        """Play as an evaluating rank does."""
        start, steps, seed = time.perf_counter(), 0, 0
        while steps < self.least:
            steps += play(env, self.policy, seed).episodic_length
            seed += 1
        return steps, time.perf_counter() - start

    def resets(self) -> Timed:
        """Make the resets of `evaluate` alone; count the steps of their episodes."""
        start = time.perf_counter()
        for seed in range(len(self.recorded)):
            self.env.reset(seed)
        return sum(len(actions) for _, actions in self.recorded), time.perf_counter() - start

    def physics(self) -> Timed:
        """Replay the recorded episodes' physics alone; resets are not timed."""
        seconds, step = 0.0, self.plain.bare_step
        for state, actions in self.recorded:
            self.plain.restore(state)
            start = time.perf_counter()
            for action in actions:
                step(action)
            seconds += time.perf_counter() - start
        return sum(len(actions) for _, actions in self.recorded), seconds

    def torch_loop(self) -> Timed:
        """Play the library's own environment with a torch module."""
        import torch

        module, env, horizon = self.module(), self.plain, self.env.horizon
        start, steps, seed = time.perf_counter(), 0, 0
        with torch.no_grad():
            while steps < self.least:
                observation, ended, length = env.reset(seed), False, 0
                while not ended and length < horizon:
                    action = module(torch.as_tensor(observation, dtype=torch.float32)).numpy()
                    observation, ended = env.step(action)
                    length += 1
                steps, seed = steps + length, seed + 1
        return steps, time.perf_counter() - start

    def evotorch(self) -> Callable[[], Timed]:
        """Return EvoTorch's evaluation of one solution after another."""
        import torch
        from evotorch.neuroevolution import GymNE

        logging.getLogger("evotorch").setLevel(logging.WARNING)

        lasts = {"num_actors": None, "episode_length": self.env.horizon}
        problem = GymNE(self.task, lambda: self.module(), **lasts)
        theta = torch.from_numpy(self.theta)

        def evaluate() -> Timed:
            before, start = problem.interaction_count, time.perf_counter()
            while problem.interaction_count - before < self.least:
                batch = problem.generate_batch(1)
                batch.set_values(theta[None])
                problem.evaluate(batch)
            return problem.interaction_count - before, time.perf_counter() - start

        return evaluate

    def module(self) -> Any:
        """Return the policy as a torch module, its parameters in the order of theta."""
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        for layer in self.layout.layers(self.theta):
            layers += [nn.Linear(*layer.weight.shape[::-1]), nn.ReLU()]
        module = nn.Sequential(*layers[:-1], nn.Tanh())
        half, centre = (self.env.high - self.env.low) / 2, (self.env.high + self.env.low) / 2
        if (half != 1).any() or centre.any():
            module.append(_affine(half, centre))
        nn.utils.vector_to_parameters(torch.from_numpy(self.theta.copy()), module.parameters())
        return module

    def _record(self) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        """Return the start state and the actions of the episodes that `evaluate` plays."""
        episodes: list[tuple[np.ndarray, list[np.ndarray]]] = []
        while sum(len(actions) for _, actions in episodes) < self.least:
            seed, actions = len(episodes), list[np.ndarray]()

            def keep(action: np.ndarray, kept: list[np.ndarray] = actions) -> None:
                kept.append(action.astype(float))

            play(self.env, self.policy, seed, disturb=keep)
            self.plain.reset(seed)
            episodes.append((self.plain.state(), actions))
        return episodes


def _affine(half: np.ndarray, centre: np.ndarray) -> Any:
    """Return a torch module without parameters: half * x + centre."""
    import torch

    class Affine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = torch.from_numpy(half), torch.from_numpy(centre)

        def forward(self, x: Any) -> Any:
            return torch.addcmul(self.shift, self.scale, x)

    return Affine()


class Plain:
    """A task as its library makes it, without us, and its physics."""

    def __init__(self, task: str) -> None:
        import mujoco

        self._mujoco = mujoco
        self._dm = task.startswith("dm_control/")
        if self._dm:
            from dm_control import suite

            domain, name = task.removeprefix("dm_control/").removesuffix("-v0").split("-", 1)
            self._env: Any = suite.load(
                domain.replace("-", "_"), name.replace("-", "_"), task_kwargs={"random": 0}
            )
            physics, self._substeps = self._env.physics, int(self._env._n_sub_steps)
            self._model, self._data = physics.model.ptr, physics.data.ptr
        else:
            import gymnasium

            self._env = gymnasium.make(task)
            plain: Any = self._env.unwrapped
            self._model, self._data, self._substeps = plain.model, plain.data, plain.frame_skip
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION

    def reset(self, seed: int) -> np.ndarray:
        """Start the episode of a seed; return its observation."""
        if not self._dm:
            return self._env.reset(seed=seed)[0]
        self._env.task.random.seed(seed)
        return _concatenated(self._env.reset().observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, bool]:
        """Take an action; return the observation and whether the episode has ended."""
        if not self._dm:
            observation, _, terminated, truncated, _ = self._env.step(action)
            return observation, terminated or truncated
        timestep = self._env.step(action)
        return _concatenated(timestep.observation), timestep.last()

    def state(self) -> np.ndarray:
        """Return all that the physics goes on from."""
        state = np.zeros(self._mujoco.mj_stateSize(self._model, self._kind))
        self._mujoco.mj_getState(self._model, self._data, state, self._kind)
        return state

    def restore(self, state: np.ndarray) -> None:
        """Put the physics back."""
        self._mujoco.mj_setState(self._model, self._data, state, self._kind)

    def bare_step(self, action: np.ndarray) -> None:
        """Advance the physics by one control step, and nothing else."""
        self._data.ctrl[:] = action
        self._mujoco.mj_step(self._model, self._data, nstep=self._substeps)


def _concatenated(observation: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in observation.values()])
