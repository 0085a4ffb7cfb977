"""The computed clock against the measured one: from a run on one rank that of two, and the other way, pairs in turn."""

import argparse
from collections.abc import Iterator

import numpy as np

from esac_mpi.analysis.clock import Machine, computed
from esac_mpi.record import RunFiles
from tools.bench.measurement import Measurement
from tools.bench.program import INTERVAL, learner_phase, recorded

FIRST = 2 * INTERVAL  # generations that are left out: the first phase warms up
PHASE = 500, 0.5  # steps of a learner phase, and updates per step
CHEETAH, HOPPER = "HalfCheetah-v5", "Hopper-v5"


def kinds() -> dict[str, tuple[object, ...]]:
    """Return what is run: by name the options."""
    esac = ("--algorithm", "esac", "--esac.population_size", 20, *learner_phase(*PHASE))
    alone = ("--budget.generations", 20, "--task.id", CHEETAH)
    erl = ("--erl.memory_size", 2000, "--erl.updates_per_step", 0.05)
    return {
        f"ES {CHEETAH}": ("--task.id", CHEETAH, "--algorithm", "es", "--es.population_size", 20),
        f"ES {HOPPER}": ("--task.id", HOPPER, "--algorithm", "es", "--es.population_size", 20, "--es.sigma", 0.05),
        f"ESAC {CHEETAH}": ("--task.id", CHEETAH, *esac),
        f"ESAC {CHEETAH}, lag {INTERVAL}": ("--task.id", CHEETAH, *esac, "--esac.learner_lag", INTERVAL),
        f"PDERL {CHEETAH}": (*alone, "--algorithm", "pderl", *erl),
        f"SAC {CHEETAH}": (*alone, "--algorithm", "sac", "--sac.steps_per_generation", 200, "--sac.start_steps", 0),
        f"TD3 {CHEETAH}, episodes on ranks": (
            *alone, "--algorithm", "td3", "--td3.episodes_on", "ranks", "--td3.episodes_per_generation", 4,
            "--td3.start_steps", 400, "--td3.updates_per_step", 0.2,
        ),
    }  # fmt: skip


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure every kind on one and on two ranks, in turn; yield what each says of the other over what that took."""
    rounds = options.rounds or 3
    common: tuple[object, ...] = (
        "--policy.hidden", 64, 64, "--evaluation.every", 2, "--evaluation.episodes", 10, "--task.horizon", 500,
        "--checkpoint.every_generations", 10,
    )  # fmt: skip
    generations = 30
    if options.quick:
        rounds, generations = 1, 8
        common = (
            *common[:3],
            "--evaluation.every",
            2,
            "--evaluation.episodes",
            2,
            "--task.horizon",
            50,
        )
    for name, own in kinds().items():
        limit = (
            ()
            if "--budget.generations" in own and not options.quick
            else ("--budget.generations", generations)
        )
        own = own[2:] if own[0] == "--budget.generations" and options.quick else own
        pairs = [
            [recorded(ranks, *common, *limit, *own) for ranks in (1, 2)] for _ in range(rounds)
        ]
        yield from compared(name, pairs)


def compared(name: str, pairs: list[list[RunFiles]]) -> Iterator[Measurement]:
    """Yield the seconds of runs on one and on two ranks, and what is computed for either from the other."""
    for place, ranks in enumerate((1, 2)):
        measured = np.array([span(pair[place].columns["timing/wall_seconds"]) for pair in pairs])
        own = np.array([span(computed(pair[place], Machine(ranks))) for pair in pairs])
        other = np.array([span(computed(pair[1 - place], Machine(ranks))) for pair in pairs])
        case = f"{name} ranks={ranks}"
        yield Measurement.of("clock", case, "generations", "s", measured)
        if (
            ranks == 1
        ):  # much less than 1: other work was going on, and the measured clocks are not those of this machine
            share = [
                pair[0].columns["timing/seconds_processor"][FIRST:].sum() for pair in pairs
            ] / measured
            yield Measurement.of("clock", case, "processor time / that", "ratio", share)
        yield Measurement.of(
            "clock",
            case,
            "computed from itself / measured",
            "ratio",
            own / measured,
            simulation=True,
        )
        yield Measurement.of(
            "clock",
            case,
            f"computed from {3 - ranks} / measured",
            "ratio",
            other / measured,
            simulation=True,
        )


def span(ends: np.ndarray) -> float:
    """Return the time of the generations that count, given when each ended [s]."""
    return float(ends[-1] - ends[FIRST - 1])
