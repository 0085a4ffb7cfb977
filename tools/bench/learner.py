"""SAC updates/s, sampling included: ours, stable-baselines3's, SBX's, a CleanRL-style loop.

All from random transitions of HalfCheetah's sizes. And SAC's own steps/s, in C and by numpy.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.config import Config, amend
from esac_mpi.host import cooperative
from esac_mpi.operators.policy import Layout
from tools.bench.measurement import Figure, Timed, Turns, compare_rates, is_installed, turns

OBSERVATION = 17  # of HalfCheetah-v5
ACTION = 6
STORED = 10_000  # transitions to sample from


class Size(NamedTuple):
    """Hidden layers and batch of a competitor, where it learns, and for how long a turn."""

    hidden: tuple[int, ...]
    batch: int
    device: str = "cpu"
    threads: int = 1
    seconds: float = 0.7

    def __str__(self) -> str:
        return f"{len(self.hidden)}x{self.hidden[0]} batch={self.batch}"


TASKS = [  # whose own steps are measured
    "HalfCheetah-v5", "Hopper-v5", "LunarLanderContinuous-v3", "dm_control/cartpole-swingup-v0"
]  # fmt: skip
NETS = [
    Size((32,) * 2, 128),
    Size((64,) * 2, 64),
    Size((64,) * 2, 256),
    Size((256,) * 2, 64),
    Size((256,) * 2, 256),
    Size((512,) * 2, 256),
]


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure SAC updates/s, sampling included, on one and on two threads."""
    for net in NETS[: 1 if quick else None]:
        for threads in (1, 2)[: 1 if quick else None]:
            size = net._replace(threads=threads, seconds=0.05 if quick else net.seconds)
            with on_cores(threads):
                rates = turns(competitors(size), rounds or (1 if quick else 5))
            case = f"threads={threads} {size}"
            yield from compare_rates(case, rates, "updates/s")
            for peer in ("stable-baselines3", "SBX"):
                if {"ours compiled", peer} <= rates.keys():
                    ratio = rates["ours compiled"] / rates[peer]
                    yield Figure(case, f"ours compiled / {peer}", "ratio", ratio)
    if learners.load("cpu").KIND:
        size = Size((64,) * 2, 64, seconds=0.05 if quick else 0.7)
        for task in TASKS[: 1 if quick else None]:
            steps = {
                name: lazily(partial(own_steps, task, size, kernels))
                for name, kernels in (("in C", "compiled"), ("by numpy", "torch"))
            }
            rates = turns(steps, rounds or (1 if quick else 5))
            yield from compare_rates(f"{task} 2x64", rates, "own steps/s")


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Let what begins meanwhile have so many cores, for each of which JAX has a thread."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def competitors(size: Size) -> Turns:
    """Return the turns of ours and of its peers, made when they are first taken."""
    by_torch = {"learner.kernels": "torch"}  # else auto is the compiled ones
    found: Turns = {"ours": lazily(partial(ours, "sac", size, by_torch))}
    on_cpu = size.device == "cpu"
    if on_cpu and learners.load("cpu").KIND:
        found["ours compiled"] = lazily(partial(ours, "sac", size, {"learner.kernels": "compiled"}))
    if is_installed("stable_baselines3"):
        found["stable-baselines3"] = lazily(partial(rival, "stable_baselines3", size))
    if on_cpu and size.threads == 1 and is_installed("sbx"):
        found["SBX"] = lazily(partial(rival, "sbx", size, at_once=50))
    found["CleanRL-style"] = lazily(partial(eager_sac, size))
    if on_cpu:
        return found
    for precision in ("tf32", "bf16"):
        turn = partial(ours, "sac", size, {"learner.precision": precision})
        found[f"ours {precision}"] = lazily(turn)
    return {name: repeating(turn, name.startswith("ours")) for name, turn in found.items()}


def repeating(take: Callable[[], Timed], ours: bool) -> Callable[[], Timed]:
    """Return a turn with torch's determinism, which all share, on for ours alone."""
    import torch

    def turn() -> Timed:
        torch.set_deterministic_debug_mode("error" if ours else "default")
        return take()

    return turn


def lazily(make: Callable[[], Callable[[], Timed]]) -> Callable[[], Timed]:
    """Return a competitor's turn that is made when it is first taken."""
    made: list[Callable[[], Timed]] = []

    def turn() -> Timed:
        if not made:
            made.append(make())
        return made[0]()

    return turn


def chunks(update: Callable[[int], int], size: Size, at_once: int = 100) -> Callable[[], Timed]:
    """Return a turn of `update(count)`, `at_once` of them on a GPU, whose end is waited for."""
    import torch

    count = 10 if size.device == "cpu" else at_once

    def work() -> Timed:
        torch.set_num_threads(size.threads)
        start, made = time.perf_counter(), 0
        while time.perf_counter() - start < size.seconds:
            made += update(count)
        return made, time.perf_counter() - start

    return work


def transitions() -> Iterator[tuple[np.ndarray, np.ndarray, float, np.ndarray]]:
    """Yield random transitions: observation, action, reward, next observation."""
    random = np.random.default_rng(0)
    for _ in range(STORED):
        observations = random.standard_normal((2, OBSERVATION), dtype=np.float32)
        action = random.uniform(-1, 1, ACTION).astype(np.float32)
        yield observations[0], action, float(random.standard_normal()), observations[1]


def ours(name: str, size: Size, changes: dict[str, Any]) -> Callable[[], Timed]:
    """Return a turn of our learner: whole phases with 50 updates a step."""
    fields = {
        "policy.hidden": size.hidden, f"{name}.batch_size": size.batch,
        f"{name}.start_steps": 0, f"{name}.updates_per_step": 50.0,
        "learner.threads": size.threads, "learner.device": size.device, **changes,
    }  # fmt: skip
    learner = made(name, fields, (OBSERVATION, *size.hidden, ACTION))
    for observation, action, reward, next_observation in transitions():
        learner.replay.add(observation, action, reward, next_observation, False)
    phases, nothing = iter(range(10**9)), np.zeros((0, learner.replay.width), np.float32)

    def update(count: int) -> int:
        taken = learner.take([(nothing, 0.0, max(1, count // 50))], next(phases))
        return cooperative.run(taken).gradient_updates

    return chunks(update, size, at_once=500)


def made(name: str, fields: dict[str, Any], sizes: tuple[int, ...]) -> Any:
    """Make a learner of ours."""
    config = amend(Config(), {"sac.lr_sac": 1e-3, **fields})
    layout = Layout(sizes, config.policy.layer_norm, config.policy.path_gain(sizes[0]))
    return learners.make(name, config, layout, layout.initial(0, 0))


def own_steps(task: str, size: Size, kernels: str) -> Callable[[], Timed]:
    """Return a turn of SAC's own steps without updates, observations standardised."""
    env, phases = envs.make(task), iter(range(10**9))
    fields = {
        "policy.hidden": size.hidden, "sac.batch_size": size.batch, "sac.start_steps": 0,
        "sac.updates_per_step": 0.0, "learner.kernels": kernels,
    }  # fmt: skip
    learner = made("sac", fields, (env.observation_size, *size.hidden, env.action_size))
    sums = np.outer([100.0, 0.0, 100.0], np.ones(env.observation_size))

    def step(_: int) -> int:
        return cooperative.run(learner.begin(env, next(phases), 0, 1000, True, sums)).env_steps

    return chunks(step, size)


def rival(library: str, size: Size, at_once: int = 0) -> Callable[[], Timed]:
    """Return a turn of the SAC of stable-baselines3, or of SBX, which has its interface.

    at_once: updates of a call of `train`, in JAX one compiled program.
    """
    import gymnasium
    from stable_baselines3.common.logger import configure

    class Spaces(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

    model = import_module(library).SAC(
        "MlpPolicy", Spaces(), batch_size=size.batch,
        buffer_size=STORED, device=size.device, ent_coef=0.2,
        policy_kwargs={"net_arch": list(size.hidden)},
    )  # fmt: skip
    model.set_logger(configure(None, []))
    for observation, action, reward, next_observation in transitions():
        moved = observation[None], next_observation[None], action[None]
        model.replay_buffer.add(*moved, np.array([reward]), np.zeros(1), [{}])

    def update(count: int) -> int:
        model.train(at_once or count, size.batch)
        return at_once or count

    return chunks(update, size)


class Eager:
    """SAC in the manner of CleanRL's sac_continuous_action.py: an update of eager calls."""

    def __init__(self, size: Size) -> None:
        from torch import optim

        self.size = size
        self.actor = self._network(OBSERVATION, 2 * ACTION)
        critics = [self._network(OBSERVATION + ACTION, 1) for _ in range(4)]
        self.qf1, self.qf2, self.target1, self.target2 = critics
        both = [*self.qf1.parameters(), *self.qf2.parameters()]
        self.q_optimizer = optim.Adam(both, lr=3e-4)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=3e-4)
        self.columns = [np.array(c, np.float32) for c in zip(*transitions(), strict=True)]
        self.random = np.random.default_rng(0)

    def _network(self, fan_in: int, fan_out: int) -> Any:
        from torch import nn

        layers: list[nn.Module] = []
        for sizes in pairwise((fan_in, *self.size.hidden, fan_out)):
            layers += [nn.Linear(*sizes), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).to(self.size.device)

    def get_action(self, observation: Any) -> tuple[Any, Any]:
        """Return sampled actions and their log-probabilities."""
        import torch
        from torch.distributions import Normal

        mean, log_std = self.actor(observation).chunk(2, -1)
        normal = Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        x = normal.rsample()
        action = torch.tanh(x)
        log_prob = normal.log_prob(x) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(1, keepdim=True)

    def update(self) -> None:
        """Update critics, actor and targets from one batch."""
        import torch
        from torch.nn.functional import mse_loss

        rows = self.random.integers(STORED, size=self.size.batch)
        batch = (torch.as_tensor(c[rows], device=self.size.device) for c in self.columns)
        observation, action, reward, following = batch
        with torch.no_grad():
            next_action, next_log_prob = self.get_action(following)
            joined = torch.cat([following, next_action], 1)
            least = torch.min(self.target1(joined), self.target2(joined)) - 0.2 * next_log_prob
            target = reward + 0.99 * least.view(-1)
        joined = torch.cat([observation, action], 1)
        q_loss = mse_loss(self.qf1(joined).view(-1), target) + mse_loss(
            self.qf2(joined).view(-1), target
        )
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()
        made, log_prob = self.get_action(observation)
        joined = torch.cat([observation, made], 1)
        actor_loss = (0.2 * log_prob - torch.min(self.qf1(joined), self.qf2(joined))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        for follower, leader in ((self.target1, self.qf1), (self.target2, self.qf2)):
            for slow, fast in zip(follower.parameters(), leader.parameters(), strict=True):
                slow.data.copy_(0.005 * fast.data + 0.995 * slow.data)


def eager_sac(size: Size) -> Callable[[], Timed]:
    """Return a turn of its updates."""
    import torch

    eager = Eager(size)

    def update(count: int) -> int:
        for _ in range(count):
            eager.update()
        if size.device == "cuda":
            torch.cuda.synchronize()
        return count

    return chunks(update, size)
