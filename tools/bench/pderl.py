"""A generation of PDERL by part, and against the serial order of the public code."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.config import Config, updated
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.operators.selection import Kind
from esac_mpi.play.rollout import explore
from esac_mpi.record import RunFiles
from tools.bench import learner
from tools.bench.measurement import Figure, Timed, Turns, against, turns
from tools.bench.program import recorded, span
from tools.bench.serial import BATCH, HIDDEN, MUTATION_BATCH, Serial

TASK, STEPS = "HalfCheetah-v5", 1000
FULL = 2  # generations until memories are full
# a quarter of the paper's memory and four times its epochs: about as many steps a child
MEMORY, EPOCHS = FULL * STEPS, 48
IMITATIONS = EPOCHS * (MEMORY // BATCH)  # steps of a child
RATE = 0.05  # updates a step: the paper's 1 would take minutes a generation
PIECES = "steps", "children", "mutations", "updates"
PARTS = {
    "evaluate": "episodes", "plan": "selection and memories",
    "offspring": "children and mutations", "phase": "learner's phase",
    "learn": "waiting for the rest of it",
    "update": "writing the population", "record": "writing the run",
}  # fmt: skip


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure pieces in turn with the serial order's; then generations of the program."""
    import torch

    torch.set_num_threads(1)
    seconds, generations, steps = (0.01, 4, 50) if quick else (0.7, FULL + 3, STEPS)
    rounds = rounds or (1 if quick else 2)
    rates: dict[str, dict[str, np.ndarray]] = {"ours": {}, "serial": {}}
    ours, theirs = our_pieces(seconds, steps), serial_pieces(seconds, steps)
    for name in PIECES:
        found = turns({"ours": ours[name], "serial": theirs[name]}, rounds)
        yield from against(f"{name}, one after another", found, f"{name}/s")
        for whose, values in found.items():
            rates[whose][name] = values
    cases: dict[tuple[int, float], list[RunFiles]] = {}
    for _ in range(rounds):
        for ranks, rate in ((1, RATE), (2, RATE), (2, 0.0)):
            cases.setdefault((ranks, rate), []).append(run(ranks, generations, steps, rate))
    first = min(FULL, generations - 2)
    for (ranks, rate), runs in cases.items():
        case = f"updates_per_step={rate:g} ranks={ranks}"
        yield from described(case, runs, first, rates["serial"])
    made = counts(cases[1, RATE][0], first)
    for rate in (RATE, 1.0):
        done = {**made, "updates": rate * made["steps"]}
        ratio = in_turn(done, rates["serial"]) / in_turn(done, rates["ours"])
        case = f"updates_per_step={rate:g}"
        yield Figure(case, "the serial order / ours in that order", "ratio", ratio)


def in_turn(made: dict[str, np.ndarray], rates: dict[str, np.ndarray]) -> np.ndarray:
    """Return how long pieces take one after another, by the rates of each round [rounds] [s]."""
    return np.sum([made[name].sum() / rates[name] for name in PIECES], axis=0)


def timed(work: Callable[[], object], count: int, seconds: float) -> Callable[[], Timed]:
    """Return a turn: `work()`, which makes so many, repeated for so many seconds."""

    def turn() -> Timed:
        start, made = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            work()
            made += count
        return made, time.perf_counter() - start

    return turn


def our_pieces(seconds: float, steps: int) -> Turns:
    """Return turns of our pieces."""
    actor = {"policy.hidden": HIDDEN, "policy.activation": "tanh", "policy.layer_norm": True}
    config = updated(Config(), {"algorithm": "pderl", "erl.distillation_epochs": EPOCHS, **actor})
    layout = Layout((learner.OBSERVATION, *HIDDEN, learner.ACTION), layer_norm=True)
    operators = learners.load("offspring").GeneticOperators(config, layout)
    random, first = np.random.default_rng(0), layout.initial(0, 0)
    parents = first, layout.initial(0, 1)
    states = random.standard_normal((MEMORY, learner.OBSERVATION), dtype=np.float32)
    critic = random.uniform(-0.1, 0.1, operators.critic_size).astype(np.float32)
    env, ones, some = envs.make(TASK, steps), np.ones(learner.ACTION), states[:MUTATION_BATCH]
    acts = Policy(layout, "tanh", "tanh", -ones, ones).set(first)
    born = lambda: operators.distilled(parents, first, states, critic, random)  # noqa: E731
    return {
        "steps": timed(lambda: explore(env, acts, 0), steps, seconds),
        "children": timed(born, 1, seconds),
        "mutations": timed(lambda: operators.proximal(first, some, random), 1, seconds),
        "updates": learner.ours("erl", learner.Size(HIDDEN, BATCH, seconds=seconds), actor),
    }


def serial_pieces(seconds: float, steps: int) -> Turns:
    """Return turns of the public code's pieces."""
    serial = Serial(TASK)
    return {
        "steps": timed(lambda: serial.episode(steps), steps, seconds),
        "children": timed(lambda: serial.child(IMITATIONS), 1, seconds),
        "mutations": timed(serial.mutation, 1, seconds),
        "updates": timed(serial.update, 1, seconds),
    }


def run(ranks: int, generations: int, steps: int, rate: float) -> RunFiles:
    """Run the program for so many generations with `rate` updates a step; return what it left."""
    return recorded(
        ranks, "--algorithm", "pderl", "--task.id", TASK,
        "--task.horizon", steps, "--budget.generations", generations,
        "--evaluation.every", generations + 1,
        "--evaluation.episodes", 1, "--checkpoint.every_generations", 0,
        "--erl.updates_per_step", rate, "--erl.memory_size", MEMORY,
        "--erl.distillation_epochs", EPOCHS,
    )  # fmt: skip


def described(
    case: str, runs: list[RunFiles], first: int, serial: dict[str, np.ndarray]
) -> Iterator[Figure]:
    """Yield the parts of generations after the `first`, and the serial order's time over theirs."""
    for column, name in PARTS.items():
        lasted = [run.columns[f"timing/seconds_{column}"][first:] for run in runs]
        yield Figure(case, name, "s", lasted)
    whole = [np.diff(run.columns["timing/wall_seconds"])[first - 1 :] for run in runs]
    yield Figure(case, "whole", "s", whole)
    parts = [run.columns["timing/seconds_offspring"][first:] for run in runs]
    born = [counts(run, first)["children"] / part for run, part in zip(runs, parts, strict=True)]
    yield Figure(case, "children/s", "1/s", born)
    at_work = [run.columns["timing/offspring_seconds"][first:].sum(axis=1) for run in runs]
    yield Figure(case, "ranks at work on them, mean", "ranks", np.divide(at_work, parts))
    serially = [in_turn(counts(run, first), serial)[i] for i, run in enumerate(runs)]
    ratio = np.divide(serially, [span(run, first) for run in runs])
    yield Figure(case, "the serial order / whole", "ratio", ratio)


def counts(run: RunFiles, first: int) -> dict[str, np.ndarray]:
    """Return how many pieces each generation after the `first` consisted of."""
    columns = run.columns
    children = (columns["metrics/slot_kind"] == Kind.CHILD).sum(axis=1)
    steps = np.diff(columns["metrics/nominal_steps"], prepend=0)
    updates = np.diff(columns["metrics/gradient_updates"], prepend=0)
    made = steps, children, columns["metrics/mutated"].sum(axis=1), updates
    return {name: values[first:] for name, values in zip(PIECES, made, strict=True)}
