"""Measure speed: ours against peers in the same run, taking turns, as ratios with minimum, median and maximum over rounds.

    python tools/bench.py NAME [--json] [--quick] [--rounds N]

rollout      closed-loop control steps/s of one rank over bare mj_step replaying the same actions from the same states; beside a
             torch module in a loop and EvoTorch's GymNE. Resets and bookkeeping count on our side and the peers', never on the
             replay's.                                                                                     about 4 minutes
generation   seconds per generation by part, idle fraction of the ranks, time outside episodes             about 6 minutes
learner      SAC updates/s: ours, stable-baselines3's SAC, a CleanRL-style eager loop                      about 3 minutes
rivals       TD3 and DDPG updates/s: ours, stable-baselines3's                                             about 1 minute
startup      seconds from a rank's start to its first episode, resident memory                             about 1 minute
scaling      seconds per generation at every rank count here, and a SIMULATION beyond (simulation.py)       about 6 minutes
             [--task ID] [--latency S] [--bandwidth BYTES/S] [--cores-per-node N] [--out FILE.png]
history      an append, a publication, a checkpoint and rank 0's memory, to 100,000 generations            about 5 minutes

--json prints one JSON object a line and measurement: benchmark, case, figure, unit, min, median, max, rounds, simulation (true:
not measured). --quick takes seconds and shows that it works; its figures mean little. Times are for 2 cores. The peers come
with `pip install esac_mpi[bench]`; what is not installed is left out, and said. Nothing else should run meanwhile.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before numpy: one BLAS thread
    os.environ[_name] = "1"

import argparse  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import shutil  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import asdict, dataclass, replace  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import growth  # noqa: E402
import numpy as np  # noqa: E402
import simulation  # noqa: E402
from here import look_here  # noqa: E402

from esac_mpi import affinity, config, envs, learners, rollout  # noqa: E402
from esac_mpi.policy import Layout, Policy  # noqa: E402
from esac_mpi.record import Run, RunFiles  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
Timed = tuple[int, float]  # what was done (steps, updates), and in how many seconds


@dataclass(frozen=True)
class Measurement:
    """A figure with its spread over the rounds; `simulation`: computed by a model, not measured."""

    benchmark: str
    case: str
    figure: str
    unit: str
    min: float
    median: float
    max: float
    rounds: int
    simulation: bool = False

    def line(self) -> str:
        """Return a row of the table for people."""
        spread = "  ".join(f"{value:>10,.4g}" for value in (self.min, self.median, self.max))
        return f"{self.case:<46}  {self.figure:<47}  {spread}  {self.unit}{', SIMULATION' * self.simulation}"


HEADER = f"{'case':<46}  {'figure':<47}  {'min':>10}  {'median':>10}  {'max':>10}  unit"


def measured(benchmark: str, case: str, figure: str, unit: str, values: Any, simulation: bool = False) -> Measurement:
    """Return the measurement of these values, one for each round."""
    found = np.asarray(values, float).ravel()
    least, median, most = np.quantile(found, (0, 0.5, 1)).tolist()
    return Measurement(benchmark, case, figure, unit, least, median, most, found.size, simulation)


def say(message: str) -> None:
    """Say something beside the measurements."""
    print(message, file=sys.stderr, flush=True)


def installed(library: str) -> bool:
    """Return whether a peer is installed; say if not."""
    found = importlib.util.find_spec(library) is not None
    if not found:
        say(f"{library} is not installed and left out: pip install esac_mpi[bench]")
    return found


def turns(competitors: dict[str, Callable[[], Timed]], rounds: int) -> dict[str, np.ndarray]:
    """Let the competitors take turns, one turn each unmeasured first; return the rates of each, [rounds] [1/s]."""
    rates: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(rounds + 1):
        for name, work in competitors.items():
            count, seconds = work()
            if turn:
                rates[name].append(count / seconds)
    return {name: np.array(values) for name, values in rates.items()}


def against(benchmark: str, case: str, rates: dict[str, np.ndarray], unit: str) -> Iterator[Measurement]:
    """Yield each competitor's rate and the ratios of the first one, ours, to every other."""
    ours, *others = rates
    for name, values in rates.items():
        yield measured(benchmark, case, name, unit, values)
    for name in others:
        yield measured(benchmark, case, f"{ours} / {name}", "ratio", rates[ours] / rates[name])


# ---- rollout


def bench_rollout(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the closed loop against bare physics, a torch module in a loop, and EvoTorch."""
    import torch

    torch.set_num_threads(1)
    tasks = ("HalfCheetah-v5", "Walker2d-v5", "Humanoid-v5", "Swimmer-v5")
    cases = [(task, width) for task in tasks for width in (512, 256, 64)]
    cases += [(f"dm_control/{task}-v0", 512) for task in ("cheetah-run", "walker-walk", "humanoid-run")]
    evotorch = installed("evotorch")
    if options.quick:
        cases = [("HalfCheetah-v5", 64), ("dm_control/cheetah-run-v0", 64)]
    for task, width in cases:
        horizon, least, rounds = (50, 50, 1) if options.quick else (0, 2000, options.rounds or 5)
        contest = Contest(task, width, horizon, least)
        competitors = {"closed loop": contest.ours, "bare physics": contest.physics, "torch module": contest.torch_loop}
        if evotorch and not task.startswith("dm_control/"):
            competitors["EvoTorch"] = contest.evotorch()
        rates = turns({**competitors, "resets": contest.resets}, rounds)
        resets, case = rates.pop("resets"), f"{task} {width}x{width}"
        yield from against("rollout", case, rates, "control steps/s")
        share = rates["closed loop"] / resets
        yield measured("rollout", case, "resets / closed loop", "ratio", share)
        ratio = rates["closed loop"] / (1 - share) / rates["bare physics"]
        yield measured("rollout", case, "closed loop without resets / bare physics", "ratio", ratio)


class Contest:
    """One task and one policy, played `least` steps or more a turn; from the same start states, but for EvoTorch's own."""

    def __init__(self, task: str, width: int, horizon: int, least: int) -> None:
        self.task, self.least = task, least
        self.env = envs.make(task, horizon)
        self.layout = Layout((self.env.observation_size, width, width, self.env.action_size))
        self.theta = self.layout.initial(0, 0)
        self.policy = Policy(self.layout, "relu", "tanh", self.env.low, self.env.high).set(self.theta)
        self.plain = Plain(task)
        self.recorded = self._record()

    def ours(self) -> Timed:
        """Play as an evaluating rank does."""
        start, steps, seed = time.perf_counter(), 0, 0
        while steps < self.least:
            steps += rollout.play(self.env, self.policy, seed).episodic_length
            seed += 1
        return steps, time.perf_counter() - start

    def resets(self) -> Timed:
        """Make the resets of `ours` alone; count the steps of their episodes."""
        start = time.perf_counter()
        for seed in range(len(self.recorded)):
            self.env.reset(seed)
        return sum(len(actions) for _, actions in self.recorded), time.perf_counter() - start

    def physics(self) -> Timed:
        """Replay the recorded episodes without policy, rewards and observations; resets are not timed."""
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
        """Return EvoTorch's evaluation of one solution after another, counted by its own counter."""
        import torch
        from evotorch.neuroevolution import GymNE

        logging.getLogger("evotorch").setLevel(logging.WARNING)

        problem = GymNE(self.task, lambda: self.module(), num_actors=None, episode_length=self.env.horizon)
        theta = torch.from_numpy(self.theta)

        def play() -> Timed:
            before, start = problem.interaction_count, time.perf_counter()
            while problem.interaction_count - before < self.least:
                batch = problem.generate_batch(1)
                batch.set_values(theta[None])
                problem.evaluate(batch)
            return problem.interaction_count - before, time.perf_counter() - start

        return play

    def module(self) -> Any:
        """Return the policy as a torch module, its parameters in the order of theta."""
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(self.layout.sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        module = nn.Sequential(*layers[:-1], nn.Tanh())
        half, centre = (self.env.high - self.env.low) / 2, (self.env.high + self.env.low) / 2
        if (half != 1).any() or centre.any():
            module.append(_affine(half, centre))
        nn.utils.vector_to_parameters(torch.from_numpy(self.theta.copy()), module.parameters())
        return module

    def _record(self) -> list[tuple[np.ndarray, list[np.ndarray]]]:
        """Return the start state and the actions of the episodes that `ours` plays."""
        episodes: list[tuple[np.ndarray, list[np.ndarray]]] = []
        while sum(len(actions) for _, actions in episodes) < self.least:
            seed, actions = len(episodes), [np.zeros(0)][:0]
            rollout.play(self.env, _Recorder(self.policy, actions), seed)  # type: ignore[arg-type]
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


class _Recorder:
    """A policy that keeps its actions."""

    def __init__(self, policy: Policy, actions: list[np.ndarray]) -> None:
        self._policy, self._actions = policy, actions

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        action = self._policy(observation)
        self._actions.append(np.array(action, np.float64))
        return action


class Plain:
    """A task as its library makes it, without us, and its physics."""

    def __init__(self, task: str) -> None:
        import mujoco

        self._mujoco = mujoco
        self._dm = task.startswith("dm_control/")
        if self._dm:
            from dm_control import suite

            domain, name = task.removeprefix("dm_control/").removesuffix("-v0").split("-", 1)
            self._env: Any = suite.load(domain.replace("-", "_"), name.replace("-", "_"), task_kwargs={"random": 0})
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


# ---- the program, as a process


def launch(ranks: int, program: Sequence[str], *arguments: object) -> None:
    """Run a Python program on a number of ranks to its end. Raises RuntimeError with its output if it fails."""
    ours = Path(sys.executable).parent / "mpirun"
    mpirun = str(ours) if ours.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise RuntimeError("no mpirun here: pip install esac_mpi[mpich], or load the cluster's MPI")
    line = [mpirun, "-n", str(ranks), sys.executable, *program, *map(str, arguments)]
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(line, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}")


def train(ranks: int, algorithm: str, task: str, n: int, generations: int, *more: object) -> RunFiles:
    """Run the program in a temporary directory; return what it left there."""
    with tempfile.TemporaryDirectory() as place:
        launch(
            ranks, ["-m", "esac_mpi"], "--run-dir", f"{place}/run", "--algorithm", algorithm, "--task.id", task,
            f"--{algorithm}.population_size", n, "--budget.generations", generations, "--evaluation.every", generations + 1,
            "--evaluation.episodes", 1, "--display.style", "plain", "--checkpoint.every_generations", 0, *more,
        )  # fmt: skip
        run = Run.open(Path(place) / "run")
        list(run.columns.values())  # read now: the directory goes
        return run


def column(run: RunFiles, name: str) -> np.ndarray:
    """Return a timing of each generation but the first, mean over ranks where there are several, [generations - 1] [s]."""
    values = run.columns[f"timing/{name}"][1:].astype(float)
    return np.nanmean(values.reshape(len(values), -1), axis=1)


def dimension(run: RunFiles) -> int:
    """Return the number of parameters of a run's policy."""
    env = envs.make(run.config.task.id)
    return Layout((env.observation_size, *run.config.policy.hidden, env.action_size)).d


def parts(run: RunFiles) -> dict[str, np.ndarray]:
    """Return the seconds of each part of the generations but the first, mean over the ranks, [generations - 1].

    waiting: for the slowest rank's last member. exchange: from there to the end of the evaluation on rank 0.
    """
    busy, most = column(run, "busy_mean"), column(run, "busy_max")
    evaluate = np.maximum(column(run, "seconds_evaluate"), most)
    noise = column(run, "seconds_noise") / column(run, "busy_ranks")
    found = {"noise": noise, "episodes": busy - noise, "waiting": most - busy, "exchange": evaluate - most}
    later = {name: f"seconds_{name}" for name in ("plan", "update", "learn", "record")}
    return {**found, **{name: column(run, key) for name, key in later.items() if f"timing/{key}" in run.columns}}


def idle(run: RunFiles) -> np.ndarray:
    """Return 1 - busy / time of the evaluation, of each generation but the first and each rank, [generations - 1, ranks]."""
    busy = run.columns["timing/busy_seconds"][1:]
    wall = np.maximum(run.columns["timing/seconds_evaluate"][1:], busy.max(axis=1))
    return 1 - busy / wall[:, None]


# ---- generation


STANDUP = "HumanoidStandup-v5"  # the parameters of Humanoid-v5, and no fall ends an episode


def bench_generation(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the parts of a generation at 1 and 2 ranks, and the idle time where episodes differ in length."""
    short = learner_phase(100, 0.05)
    big = [("es", STANDUP, 50, 2), ("es", "HalfCheetah-v5", 50, 4), ("esac", "HalfCheetah-v5", 50, 4)]
    variable = [("es", task, n, 8 if n > 8 else 20) for task in ("Hopper-v5", "Walker2d-v5") for n in (8, 50)]
    rounds = options.rounds or 2
    more: tuple[object, ...] = ()
    if options.quick:
        big, variable, rounds = [("es", "HalfCheetah-v5", 4, 3)], [("es", "Hopper-v5", 4, 3)], 1
        more = ("--task.horizon", 20, "--policy.hidden", 8, 8)
    for algorithm, task, n, generations in big:
        extra = (*more, *(short if algorithm == "esac" else ()))
        by_ranks: dict[int, list[RunFiles]] = {1: [], 2: []}
        for _ in range(rounds):
            for ranks, runs in by_ranks.items():
                runs.append(train(ranks, algorithm, task, n, generations, *extra))
        for ranks, runs in by_ranks.items():
            yield from describe_generation(f"{algorithm} {task} n={n} ranks={ranks}", runs)
    for algorithm, task, n, generations in variable:
        runs = [train(2, algorithm, task, n, generations, *more) for _ in range(rounds)]
        yield from describe_idle(f"{algorithm} {task} n={n} ranks=2", runs)


def describe_generation(case: str, runs: list[RunFiles]) -> Iterator[Measurement]:
    """Yield the parts of a case's generations, the share outside episodes, and idle time."""
    d = dimension(runs[0])
    found = [parts(run) for run in runs]
    case = f"{case} d={d:,}"
    for name in found[0]:
        yield measured("generation", case, name, "s", np.concatenate([part[name] for part in found]))
    wall = np.concatenate([np.diff(run.columns["timing/wall_seconds"]) for run in runs])
    learning = np.concatenate([part.get("learn", np.zeros(1)) + 0 * part["episodes"] for part in found])
    episodes = np.concatenate([part["episodes"] for part in found])
    yield measured("generation", case, "whole", "s", wall)
    yield measured("generation", case, "outside episodes and learner / episodes", "ratio", (wall - learning) / episodes - 1)
    yield from describe_idle(case, runs)


def describe_idle(case: str, runs: list[RunFiles]) -> Iterator[Measurement]:
    """Yield the idle fraction of each rank, and the spread of the episodes' lengths that makes it."""
    waits = np.concatenate([idle(run) for run in runs])
    lengths = np.concatenate([run.columns["metrics/length"][1:].ravel() for run in runs])
    yield measured("generation", case, "episode length", "steps", lengths)
    for rank, values in enumerate(waits.T):
        yield measured("generation", case, f"idle fraction of rank {rank}", "ratio", values)


# ---- learner


def bench_learner(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure SAC updates/s, sampling included, on each device and number of threads."""
    import torch

    devices = [("cpu", threads) for threads in (1, 2)] + [("cuda", 1)] * torch.cuda.is_available()
    nets, rounds, seconds = [((32, 32), 128), ((256, 256), 256), ((512, 512), 256)], options.rounds or 5, 0.7
    if options.quick:
        devices, nets, rounds, seconds = devices[:1], nets[:1], 1, 0.05
    baselines = installed("stable_baselines3")
    for hidden, batch in nets:
        for device, threads in devices:
            competitors: dict[str, Callable[[], Timed]] = {}
            competitors["ours"] = ours("sac", hidden, batch, device, threads, seconds, {})
            if device == "cuda" or options.bf16:
                competitors["ours bf16"] = ours("sac", hidden, batch, device, threads, seconds, {"learner.precision": "bf16"})
            if baselines:
                competitors["stable-baselines3"] = sb3("sac", hidden, batch, device, threads, seconds)
            competitors["CleanRL-style"] = eager_sac(hidden, batch, device, threads, seconds)
            rates = turns(competitors, rounds)
            case = f"{device} threads={threads} {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("learner", case, rates, "updates/s")
            for name in list(competitors)[1:]:
                if name.startswith("ours") and baselines:
                    ratio = rates[name] / rates["stable-baselines3"]
                    yield measured("learner", case, f"{name} / stable-baselines3", "ratio", ratio)


def bench_rivals(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure TD3 and DDPG updates/s, sampling included, on one thread; an update of TD3 is one of its critics."""
    nets, rounds, seconds = [((32, 32), 128), ((256, 256), 256)], options.rounds or 5, 0.7
    if options.quick:
        nets, rounds, seconds = nets[:1], 1, 0.05
    for name in ("td3", "ddpg"):
        for hidden, batch in nets:
            competitors = {"ours": ours(name, hidden, batch, "cpu", 1, seconds, {})}
            if installed("stable_baselines3"):
                competitors["stable-baselines3"] = sb3(name, hidden, batch, "cpu", 1, seconds)
            case = f"{name} cpu threads=1 {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("rivals", case, turns(competitors, rounds), "updates/s")


OBSERVATION, ACTION, STORED = 17, 6, 10_000  # observation, action of HalfCheetah-v5; transitions to sample from


class Idle:
    """An environment that costs nothing: what a phase plays in it is no part of what is measured."""

    id, observation_size, action_size, horizon, unstable = "Idle-v0", OBSERVATION, ACTION, 10**9, False
    low, high = -np.ones(ACTION, np.float32), np.ones(ACTION, np.float32)
    _observation = np.zeros(OBSERVATION, np.float32)

    def reset(self, seed: int) -> np.ndarray:
        """Return zeros, float32 [observation]."""
        return self._observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Go on for ever."""
        return self._observation, 0.0, False, False


def chunks(update: Callable[[int], int], threads: int, seconds: float) -> Callable[[], Timed]:
    """Return a turn: `update(count)` repeated for so many seconds with so many torch threads; it returns the updates made."""
    import torch

    def work() -> Timed:
        torch.set_num_threads(threads)
        start, made = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            made += update(10)
        return made, time.perf_counter() - start

    return work


def transitions() -> Iterator[tuple[np.ndarray, np.ndarray, float, np.ndarray]]:
    """Yield random transitions: observation, action, reward, next observation."""
    random = np.random.default_rng(0)
    for _ in range(STORED):
        observations = random.standard_normal((2, OBSERVATION), dtype=np.float32)
        action = random.uniform(-1, 1, ACTION).astype(np.float32)
        yield observations[0], action, float(random.standard_normal()), observations[1]


def ours(
    name: str, hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float, changes: dict[str, Any]
) -> Callable[[], Timed]:
    """Return a turn of our learner: whole phases with 50 updates a step, so that their playing is about nothing."""
    fields = {
        "policy.hidden": hidden, f"{name}.batch_size": batch, f"{name}.start_steps": 0, f"{name}.updates_per_step": 50.0,
        "learner.threads": threads, "learner.device": device, **changes,
    }  # fmt: skip
    layout = Layout((OBSERVATION, *hidden, ACTION))
    learner = learners.make(name, config.updated(config.Config(), fields), layout, layout.initial(0, 0))
    for observation, action, reward, next_observation in transitions():
        learner.replay.add(observation, action, reward, next_observation, False)
    phases = iter(range(10**9))

    def update(count: int) -> int:
        return learner.phase(Idle(), next(phases), 0, max(1, count // 50), True).gradient_updates

    return chunks(update, threads, seconds)


def sb3(name: str, hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float) -> Callable[[], Timed]:
    """Return a turn of stable-baselines3's train; its DDPG has no weight decay, where ours has."""
    import gymnasium
    import stable_baselines3
    from stable_baselines3.common.logger import configure

    class Spaces(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

    model = getattr(stable_baselines3, name.upper())(
        "MlpPolicy", Spaces(), batch_size=batch, buffer_size=STORED, device=device, policy_kwargs={"net_arch": list(hidden)},
        **({"ent_coef": 0.2} if name == "sac" else {}),
    )  # fmt: skip
    model.set_logger(configure(None, []))
    assert model.replay_buffer is not None
    for observation, action, reward, next_observation in transitions():
        moved = observation[None], next_observation[None], action[None]
        model.replay_buffer.add(*moved, np.array([reward]), np.zeros(1), [{}])

    def update(count: int) -> int:
        model.train(count, batch)
        return count

    return chunks(update, threads, seconds)


def eager_sac(hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float) -> Callable[[], Timed]:
    """Return a turn of an update loop in the manner of CleanRL's sac_continuous_action.py: modules, Normal, two optim.Adam."""
    import torch
    from torch import nn, optim
    from torch.distributions import Normal
    from torch.nn import functional

    def network(sizes: tuple[int, ...]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        return nn.Sequential(*layers[:-1]).to(device)

    actor = network((OBSERVATION, *hidden, 2 * ACTION))
    qf1, qf2, target1, target2 = (network((OBSERVATION + ACTION, *hidden, 1)) for _ in range(4))
    q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=3e-4)
    actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
    columns = [np.array(c, np.float32) for c in zip(*transitions(), strict=True)]
    random = np.random.default_rng(0)

    def get_action(observation: Any) -> tuple[Any, Any]:
        mean, log_std = actor(observation).chunk(2, -1)
        normal = Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        x = normal.rsample()
        action = torch.tanh(x)
        return action, (normal.log_prob(x) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)

    def one() -> None:
        rows = random.integers(STORED, size=batch)
        observation, action, reward, following = (torch.as_tensor(c[rows], device=device) for c in columns)
        with torch.no_grad():
            next_action, next_log_prob = get_action(following)
            joined = torch.cat([following, next_action], 1)
            least = torch.min(target1(joined), target2(joined)) - 0.2 * next_log_prob
            target = reward + 0.99 * least.view(-1)
        joined = torch.cat([observation, action], 1)
        q_loss = functional.mse_loss(qf1(joined).view(-1), target) + functional.mse_loss(qf2(joined).view(-1), target)
        q_optimizer.zero_grad()
        q_loss.backward()
        q_optimizer.step()
        made, log_prob = get_action(observation)
        joined = torch.cat([observation, made], 1)
        actor_loss = (0.2 * log_prob - torch.min(qf1(joined), qf2(joined))).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        for follower, leader in ((target1, qf1), (target2, qf2)):
            for slow, fast in zip(follower.parameters(), leader.parameters(), strict=True):
                slow.data.copy_(0.005 * fast.data + 0.995 * slow.data)

    def update(count: int) -> int:
        for _ in range(count):
            one()
        if device == "cuda":
            torch.cuda.synchronize()
        return count

    return chunks(update, threads, seconds)


# ---- startup

# The program with a look at its own process: seconds since the process began [s] and memory [MB], at each episode's start.
SINCE = """
import json, os, sys, time
def look():
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    seconds = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    lines = dict(line.split(":") for line in open("/proc/self/status") if line.startswith(("VmRSS", "VmHWM", "RssAnon")))
    return {"seconds": seconds, **{name: int(value.split()[0]) / 1024 for name, value in lines.items()}}
"""
PROBE = f"""{SINCE}
from esac_mpi import __main__, envs
make, seen = envs.make, []
def watched(*arguments):
    env = make(*arguments)
    reset = env.reset
    def first(seed):
        seen.append(look())
        return reset(seed)
    env.reset = first
    return env
envs.make = watched
place, *arguments = sys.argv[1:]
code = __main__.main(arguments)
from mpi4py import MPI
json.dump([seen[0], {{**seen[-1], "VmHWM": look()["VmHWM"]}}], open(f"{{place}}/rank{{MPI.COMM_WORLD.rank}}.json", "w"))
sys.exit(code)
"""
EVOTORCH = f"""{SINCE}
import torch
from torch import nn
from evotorch.neuroevolution import GymNE
network = "Linear(obs_length, 512) >> ReLU() >> Linear(512, 512) >> ReLU() >> Linear(512, act_length)"
problem = GymNE("HalfCheetah-v5", network, num_actors=None, episode_length=100)
batch, first = problem.generate_batch(1), look()
problem.evaluate(batch)
json.dump([first, look()], open(sys.argv[1] + "/rank0.json", "w"))
"""


def bench_startup(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure the time to the first episode and the memory of a rank that evaluates and of rank 0."""
    rounds, tasks = (
        (1, ("HalfCheetah-v5",)) if options.quick else (options.rounds or 4, ("HalfCheetah-v5", "dm_control/cheetah-run-v0"))
    )
    evotorch = not options.quick and installed("evotorch")
    for task in tasks:
        looks: dict[str, list[list[dict[str, float]]]] = {}
        for _ in range(rounds):
            for algorithm in ("es", "esac"):
                for rank, look in enumerate(startup_looks(algorithm, task)):
                    role = "rank 0" if rank == 0 else "an evaluating rank"
                    looks.setdefault(f"{algorithm} {task}: {role}", []).append(look)
            if evotorch and not task.startswith("dm_control/"):
                looks.setdefault(f"EvoTorch {task}: its process", []).append(one_look())
        for case, found in looks.items():
            yield measured("startup", case, "start of process to first episode", "s", [first["seconds"] for first, _ in found])
            for name, figure in (("VmRSS", "resident at the end"), ("VmHWM", "resident at most"), ("RssAnon", "its own pages")):
                yield measured("startup", case, figure, "MB", [last[name] for _, last in found])


def startup_looks(algorithm: str, task: str) -> list[list[dict[str, float]]]:
    """Run two generations on 2 ranks; return what each rank saw at its first episode and at the end."""
    phases = ("--esac.gradient_interval", 1, "--esac.sac_episodes", 1, "--esac.sac_min_steps", 300, "--sac.updates_per_step", 0.1)
    with tempfile.TemporaryDirectory() as place:
        launch(
            2, ["-c", PROBE], place, "--run-dir", f"{place}/run", "--algorithm", algorithm, "--task.id", task,
            "--task.horizon", 100, "--budget.generations", 2, f"--{algorithm}.population_size", 10, "--evaluation.every", 10,
            "--evaluation.episodes", 2, "--display.style", "plain",
            *(phases if algorithm == "esac" else ()),
        )  # fmt: skip
        return [json.loads((Path(place) / f"rank{rank}.json").read_text()) for rank in range(2)]


def one_look() -> list[dict[str, float]]:
    """Return what EvoTorch's process saw at its first episode and at the end."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-c", EVOTORCH, place], check=True, capture_output=True)
        return json.loads((Path(place) / "rank0.json").read_text())


# ---- scaling

POPULATIONS = (50, 500, 5000)
CORES = len(affinity.cores())
INTERVAL = 2  # generations between the measured learner phases
SHORT = 1000, 0.3  # steps of the measured learner phases, and updates per step: a whole one takes minutes


@dataclass(frozen=True)
class Kind:
    """What is run: an algorithm, and the learner_lag of ESAC."""

    name: str
    algorithm: str
    lag: int | None = None


KINDS = [Kind("ES", "es"), Kind("ESAC, lag 0", "esac", 0), Kind(f"ESAC, lag {INTERVAL}", "esac", INTERVAL)]
Point = tuple[Kind, int]  # and a number of ranks


def bench_scaling(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure generations at each number of ranks here; simulate them, and those of a cluster."""
    n, generations, rounds, phase = 50, 8, options.rounds or 1, learner_phase(*SHORT)
    more: tuple[object, ...] = ()
    if options.quick:
        n, generations, rounds, more = 8, 8, 1, ("--task.horizon", 20, "--policy.hidden", 8, 8)
        phase = (*learner_phase(20, 0.1), "--sac.batch_size", 16)
    runs: dict[Point, list[RunFiles]] = {}
    for _ in range(rounds):
        for ranks in [r for r in (2**i for i in range(13)) if r < CORES] + [CORES]:
            for kind in KINDS:
                lag = (*phase, "--esac.learner_lag", kind.lag) if kind.lag is not None else ()
                run = train(ranks, kind.algorithm, options.task, n, generations, *more, *lag)
                runs.setdefault((kind, ranks), []).append(run)
    costs = {kind.algorithm: costs_of(runs[kind, 1]) for kind in KINDS if not kind.lag}
    yield from check_model(runs, costs, n, options)
    played = np.concatenate([cost.durations for cost in costs.values()])  # so that both replay the same episodes
    costs = {algorithm: replace(cost, durations=played, noise=costs["es"].noise) for algorithm, cost in costs.items()}
    yield from predict(runs, costs, options)


def learner_phase(steps: int, rate: float) -> tuple[object, ...]:
    """Return the options of a learner phase of about so many steps, with so many updates a step, every INTERVAL generations."""
    return (
        "--esac.gradient_interval", INTERVAL, "--esac.p_sac_decay", 1e12, "--esac.sac_episodes", 1,
        "--esac.sac_min_steps", steps, "--sac.updates_per_step", rate,
        "--sac.start_steps", 0,
    )  # fmt: skip


def wall(run: RunFiles) -> np.ndarray:
    """Return the seconds of whole generations, in whole intervals, after the first phase has warmed up and been merged."""
    return np.diff(run.columns["timing/wall_seconds"])[2 * INTERVAL - 1 :]


def costs_of(runs: list[RunFiles]) -> simulation.Costs:
    """Return what the parts cost on one rank: medians, and the durations of all episodes."""
    d = dimension(runs[0])
    found = [parts(run) for run in runs]
    n = runs[0].columns["metrics/length"].shape[1]

    def median(name: str) -> float:
        return float(np.median(np.concatenate([part.get(name, np.zeros(1)) for part in found])))

    lengths = [run.columns["metrics/length"][2:].astype(float) for run in runs]  # of the generations but the first two
    per_step = [part["episodes"][1:] / length.sum(axis=1) for part, length in zip(found, lengths, strict=True)]
    durations = np.concatenate([(length * s[:, None]).ravel() for length, s in zip(lengths, per_step, strict=True)])
    seconds_per_step = float(np.median(np.concatenate(per_step)))
    costs = simulation.Costs(
        durations, d, noise=median("noise") / (n * d), update=median("update") / (n // 2 * d), plan=median("plan"),
        record=median("record"), seconds_per_step=seconds_per_step,
    )  # fmt: skip
    return learner_costs(costs, runs, float(np.concatenate(lengths).mean()))


def learner_costs(costs: simulation.Costs, runs: list[RunFiles], length: float) -> simulation.Costs:
    """Add what a learner phase costs; a whole one has the steps and updates of the runs' own configuration, but not SHORT's."""
    if runs[0].config.algorithm != "esac":
        return costs
    seconds, steps, updates = np.sum([phase_totals(run) for run in runs], axis=0)
    esac, sac = config.ESAC(), config.SAC()
    whole = round(max(esac.sac_episodes * length, esac.sac_min_steps))
    return replace(
        costs, phase_steps=whole, phase_updates=round(whole * sac.updates_per_step),
        seconds_per_update=max(0.0, seconds - steps * costs.seconds_per_step) / max(updates, 1),
    )  # fmt: skip


def phase_counts(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and updates [2, phases] of all learner phases but the first, and the rows in which they entered [phases]."""
    counts = np.diff([run.columns[f"metrics/{c}"] for c in ("env_steps_learner", "gradient_updates")], prepend=0, axis=1)
    rows = np.flatnonzero(counts[0])[1:]
    return counts[:, rows], rows


def phase_totals(run: RunFiles) -> tuple[float, int, int]:
    """Return seconds, environment steps and updates of a run's learner phases but the first."""
    counts, rows = phase_counts(run)
    return float(run.columns["timing/seconds_phase"][rows].sum()), *counts.sum(axis=1).tolist()


def cluster(options: argparse.Namespace, ranks: int) -> simulation.Cluster:
    """Return the simulated cluster."""
    return simulation.Cluster(ranks, options.cores_per_node, options.latency, options.bandwidth)


def check_model(
    runs: dict[Point, list[RunFiles]], costs: dict[str, simulation.Costs], n: int, options: argparse.Namespace
) -> Iterator[Measurement]:
    """Yield the measured generations and how far the model, made from one rank, is from them."""
    for (kind, ranks), found in runs.items():
        seconds = np.array([wall(run) for run in found])
        case = f"{kind.name} {options.task} n={n} ranks={ranks}"
        yield measured("scaling", case, "generation", "s", seconds)
        own = costs[kind.algorithm]
        if kind.lag is not None:  # the phases that were measured, not whole ones
            steps, updates = phase_counts(found[0])[0].mean(axis=1)
            own = replace(own, phase_steps=int(steps), phase_updates=int(updates))
        here = simulation.Cluster(ranks, cores_per_node=ranks)
        predicted = simulation.simulate(n, here, own, simulation.Schedule(kind.lag, INTERVAL), cycles=10).mean()
        yield measured("scaling", case, "simulated / measured", "ratio", predicted / seconds.mean(axis=1), simulation=True)


def predict(
    runs: dict[Point, list[RunFiles]], costs: dict[str, simulation.Costs], options: argparse.Namespace
) -> Iterator[Measurement]:
    """Yield simulated generations up to 4,096 ranks; print the assumptions and draw the picture."""
    g = config.ESAC().gradient_interval
    tell_assumptions(costs, g, options)
    ranks = [2**i for i in range(0, 13, 4 if options.quick else 1)]
    populations = POPULATIONS[:1] if options.quick else POPULATIONS
    curves: dict[int, dict[str, np.ndarray]] = {}
    for population in populations:
        found = [simulated(population, cluster(options, r), costs, g) for r in ranks]
        curves[population] = {"ranks": np.array(ranks), **{k: np.array([f[k].mean() for f in found]) for k in found[0]}}
        for r, values in zip(ranks, found, strict=True):
            yield from describe_point(population, r, values, costs["esac"], g)
    points: dict[str, list[tuple[int, float]]] = {}
    for (kind, r), made in runs.items():
        if kind.lag is None:  # the measured learner phases are short ones
            points.setdefault(kind.name, []).append((r, float(np.median([wall(run) for run in made]))))
    config_here = runs[KINDS[0], 1][0].config
    hidden = "x".join(map(str, config_here.policy.hidden))
    title = f"SIMULATION: {options.task}, {hidden}; ESAC with a phase of {costs['esac'].phase:.0f} s every {g} generations"
    simulation.draw(curves, {} if options.quick else points, title, options.out)
    say(f"simulation drawn in {options.out}")


FLOOR = "max(ES, phase / g)"


def simulated(n: int, place: simulation.Cluster, costs: dict[str, simulation.Costs], g: int) -> dict[str, np.ndarray]:
    """Return the simulated seconds per generation of ES, and of ESAC with learner_lag 0 and g."""
    es = simulation.simulate(n, place, costs["es"], simulation.Schedule(None, g))
    return {
        "ES": es,
        "ESAC, lag 0": simulation.simulate(n, place, costs["esac"], simulation.Schedule(0, g)),
        f"ESAC, lag {g}": simulation.simulate(n, place, costs["esac"], simulation.Schedule(g, g)),
        FLOOR: np.maximum(es, costs["esac"].phase / g),
    }


def describe_point(n: int, ranks: int, seconds: dict[str, np.ndarray], costs: simulation.Costs, g: int) -> Iterator[Measurement]:
    """Yield what is simulated of one population on one number of ranks."""
    case = f"n={n} ranks={ranks}"
    for name in ("ES", "ESAC, lag 0", f"ESAC, lag {g}"):
        yield measured("scaling", case, name, "s", seconds[name], simulation=True)
    lagged, es, floor = (seconds[name].mean() for name in (f"ESAC, lag {g}", "ES", FLOOR))
    yield measured("scaling", case, f"ESAC, lag {g} / {FLOOR}", "ratio", lagged / floor, simulation=True)
    work = max(floor, es + costs.phase / (g * ranks))  # a core that learns does not evaluate
    yield measured("scaling", case, f"ESAC, lag {g} / max(that, work / ranks)", "ratio", lagged / work, simulation=True)
    if ranks in (64, 1024):
        rates = simulation.updates_per_second(es, costs, g)
        for name, rate in zip(("", ", its playing counted"), rates, strict=True):
            yield measured("scaling", case, f"learner no floor from{name}", "updates/s", rate, simulation=True)


def tell_assumptions(costs: dict[str, simulation.Costs], g: int, options: argparse.Namespace) -> None:
    """Say what the simulation takes for granted, and with which numbers."""
    es, esac = costs["es"], costs["esac"]
    say("The rest is a SIMULATION. It takes for granted that:")
    for assumption in simulation.ASSUMPTIONS:
        say(f"- {assumption}")
    say(
        f"- network: latency {options.latency:g} s, {options.bandwidth:g} bytes/s, {options.cores_per_node} cores a node, "
        f"barrier step {simulation.Cluster(1).barrier:g} s\n"
        f"- measured here on one rank: d {es.d:,}; episodes {np.mean(es.durations):.4f} s (from {np.min(es.durations):.4f} to "
        f"{np.max(es.durations):.4f}, {es.durations.size} of them); noise {es.noise * 1e9:.1f} ns a parameter and member; update "
        f"{es.update * 1e9:.1f} (ESAC {esac.update * 1e9:.1f}) ns a parameter and slot; plan {es.plan * 1e3:.2f} ms; record "
        f"{es.record * 1e3:.1f} ms\n"
        f"- learner phase every {g} generations: {esac.phase_steps:,} steps of {esac.seconds_per_step * 1e6:.0f} us and "
        f"{esac.phase_updates:,} updates of {esac.seconds_per_update * 1e3:.2f} ms = {esac.phase:.1f} s"
    )


# ---- command line

# ---- history


def bench_history(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure what the history of a run costs as it grows."""
    cases, marks = (((4, 2),), (5, 10)) if options.quick else (((50, 16), (500, 64)), (1_000, 10_000, 100_000))
    for n, ranks in cases:
        with tempfile.TemporaryDirectory() as place:
            for generation, figures in growth.grow(Path(place) / "run", n, ranks, marks):
                case = f"n={n} ranks={ranks} generations={generation:,}"
                for name, (unit, values) in figures.items():
                    yield measured("history", case, name, unit, values)


BENCHMARKS: dict[str, Callable[[argparse.Namespace], Iterator[Measurement]]] = {
    "rollout": bench_rollout,
    "generation": bench_generation,
    "learner": bench_learner,
    "rivals": bench_rivals,
    "startup": bench_startup,
    "scaling": bench_scaling,
    "history": bench_history,
}


def main(argv: list[str]) -> int:
    """Run a benchmark; print its measurements as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--quick", action="store_true", help="seconds in place of minutes, to see that it works")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each competitor; 0 = the benchmark's own number")
    parser.add_argument("--bf16", action="store_true", help="learner: bf16 on the CPU, too; minutes where it has no units for it")
    parser.add_argument("--task", default="HalfCheetah-v5", help="scaling: whose episodes and learner are measured")
    parser.add_argument("--latency", type=float, default=simulation.Cluster.latency, help="scaling: of a message [s]")
    parser.add_argument("--bandwidth", type=float, default=simulation.Cluster.bandwidth, help="scaling: of the network [bytes/s]")
    parser.add_argument("--cores-per-node", type=int, default=simulation.Cluster.cores_per_node, help="scaling: ranks of a node")
    parser.add_argument("--out", type=Path, default=Path("runs/scaling.png"), help="scaling: the picture")
    options = parser.parse_args(argv)
    look_here()
    if not options.json:
        print(HEADER, flush=True)
    for measurement in BENCHMARKS[options.name](options):
        print(json.dumps(asdict(measurement)) if options.json else measurement.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
