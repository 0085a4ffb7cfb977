"""A generation of PDERL by part, on 1 and 2 ranks, and against the serial order of the public code, piece by piece and whole."""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.benchmarks import competitors
from esac_mpi.benchmarks.measurement import Measurement, Timed, against, turns
from esac_mpi.benchmarks.program import recorded
from esac_mpi.benchmarks.serial import BATCH, HIDDEN, MUTATION_BATCH, Serial
from esac_mpi.config import Config, updated
from esac_mpi.policy import Layout, Policy
from esac_mpi.record import RunFiles
from esac_mpi.rollout import explore
from esac_mpi.selection import Kind

TASK, STEPS = "HalfCheetah-v5", 1000
FULL = 2  # generations until memories are full
MEMORY, EPOCHS = FULL * STEPS, 48  # a quarter of the paper's memory and four times its epochs: about as many steps a child
IMITATIONS = EPOCHS * (MEMORY // BATCH)  # steps of a child
RATE = 0.05  # updates a step: the paper's 1 would take minutes a generation
PIECES = "steps", "children", "mutations", "updates"
Pieces = dict[str, Callable[[], Timed]]


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure pieces in turn with those of the serial order; then generations of the program, which consist of them."""
    import torch

    torch.set_num_threads(1)
    rounds, seconds, generations, steps = options.rounds or 2, 0.7, FULL + 3, STEPS
    if options.quick:
        rounds, seconds, generations, steps = 1, 0.01, 4, 50
    serial: dict[str, np.ndarray] = {}
    ours, theirs = our_pieces(seconds, steps), serial_pieces(seconds, steps)
    for name in PIECES:
        rates = turns({"ours": ours[name], "serial": theirs[name]}, rounds)
        yield from against("pderl", f"{name}, one after another", rates, f"{name}/s")
        serial[name] = rates["serial"]
    cases: dict[tuple[int, float], list[RunFiles]] = {(1, RATE): [], (2, RATE): [], (2, 0.0): []}
    for _ in range(rounds):
        for (ranks, rate), runs in cases.items():
            runs.append(run(ranks, generations, steps, rate))
    first = min(FULL, generations - 2)
    for (ranks, rate), runs in cases.items():
        yield from described(f"updates_per_step={rate:g} ranks={ranks}", runs, first, serial)
    one, *others = ([np.median(children(run, first)) for run in runs] for runs in cases.values())
    for (ranks, rate), found in zip(list(cases)[1:], others, strict=True):
        case = f"updates_per_step={rate:g} ranks={ranks}"
        yield Measurement.of("pderl", case, "children/s / those on 1 rank", "ratio", np.divide(found, one))


def timed(work: Callable[[], object], count: int, seconds: float) -> Callable[[], Timed]:
    """Return a turn: `work()`, which makes so many, repeated for so many seconds."""

    def turn() -> Timed:
        start, made = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            work()
            made += count
        return made, time.perf_counter() - start

    return turn


def our_pieces(seconds: float, steps: int) -> Pieces:
    """Return turns of our pieces."""
    actor = {"policy.hidden": HIDDEN, "policy.activation": "tanh", "policy.layer_norm": True}
    config = updated(Config(), {"algorithm": "pderl", "erl.distillation_epochs": EPOCHS, **actor})
    layout = Layout((competitors.OBSERVATION, *HIDDEN, competitors.ACTION), layer_norm=True)
    operators, random = learners.load("operators").GeneticOperators(config, layout), np.random.default_rng(0)
    first, second = layout.initial(0, 0), layout.initial(0, 1)
    states = random.standard_normal((MEMORY, competitors.OBSERVATION), dtype=np.float32)
    critic = random.uniform(-0.1, 0.1, operators.critic_size).astype(np.float32)
    env, ones = envs.make(TASK, steps), np.ones(competitors.ACTION)
    acts = Policy(layout, "tanh", "tanh", -ones, ones).set(first)

    return {
        "steps": timed(lambda: explore(env, acts, 0), steps, seconds),
        "children": timed(lambda: operators.distilled((first, second), first, states, critic, random), 1, seconds),
        "mutations": timed(lambda: operators.proximal(first, states[:MUTATION_BATCH], random), 1, seconds),
        "updates": competitors.ours("erl", HIDDEN, BATCH, "cpu", 1, seconds, actor),
    }


def serial_pieces(seconds: float, steps: int) -> Pieces:
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
        ranks, "--algorithm", "pderl", "--task.id", TASK, "--task.horizon", steps, "--budget.generations", generations,
        "--evaluation.every", generations + 1, "--evaluation.episodes", 1, "--checkpoint.every_generations", 0,
        "--erl.updates_per_step", rate, "--erl.memory_size", MEMORY, "--erl.distillation_epochs", EPOCHS,
    )  # fmt: skip


def described(case: str, runs: list[RunFiles], first: int, serial: dict[str, np.ndarray]) -> Iterator[Measurement]:
    """Yield the parts of the generations after the `first`, and the time of the same pieces in the serial order over theirs."""
    whole = np.array([np.diff(run.columns["timing/wall_seconds"])[first - 1 :] for run in runs])
    names = {
        "evaluate": "episodes", "plan": "selection and memories", "offspring": "children and mutations",
        "phase": "learner's phase", "learn": "waiting for the rest of it", "update": "writing the population",
        "record": "writing the run",
    }  # fmt: skip
    for column, name in names.items():
        yield Measurement.of("pderl", case, name, "s", [run.columns[f"timing/seconds_{column}"][first:] for run in runs])
    yield Measurement.of("pderl", case, "whole", "s", whole)
    yield Measurement.of("pderl", case, "children/s", "1/s", [children(run, first) for run in runs])
    in_turn = [sum(counts(run, first)[name] / serial[name][i] for name in PIECES) for i, run in enumerate(runs)]
    yield Measurement.of("pderl", case, "the serial order / whole", "ratio", np.sum(in_turn, axis=1) / whole.sum(axis=1))


def children(run: RunFiles, first: int) -> np.ndarray:
    """Return the children made in a second of the part that makes them, of each generation after the `first`."""
    return counts(run, first)["children"] / run.columns["timing/seconds_offspring"][first:]


def counts(run: RunFiles, first: int) -> dict[str, np.ndarray]:
    """Return how many pieces each generation after the `first` consisted of."""
    rows = {name: run.columns[f"metrics/{name}"] for name in ("slot_kind", "mutated", "gradient_updates", "nominal_steps")}
    updates, steps = (np.diff(rows[name], prepend=0) for name in ("gradient_updates", "nominal_steps"))
    made = steps, (rows["slot_kind"] == Kind.CHILD).sum(axis=1), rows["mutated"].sum(axis=1), updates
    return {name: values[first:] for name, values in zip(PIECES, made, strict=True)}
