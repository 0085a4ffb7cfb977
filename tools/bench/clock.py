"""The computed clock against the measured one: of two ranks from one, and the other way."""

from collections.abc import Iterator

import numpy as np

from esac_mpi.analysis.clock import generation_ends
from esac_mpi.record import RunFiles
from tools.bench.measurement import Figure
from tools.bench.program import INTERVAL, duration, learner_phase, run_program, span

FIRST = 2 * INTERVAL  # generations that are left out: the first phase warms up
CHEETAH, HOPPER = "HalfCheetah-v5", "Hopper-v5"
ES = "--algorithm", "es", "--es.population_size", 20
ESAC = "--algorithm", "esac", "--esac.population_size", 20, *learner_phase(500, 0.5)
KINDS: dict[str, tuple[object, ...]] = {  # by name the task and the options; 30 generations
    f"ES {CHEETAH}": (CHEETAH, *ES),
    f"ES {HOPPER}": (HOPPER, *ES, "--es.sigma", 0.05),
    f"ESAC {CHEETAH}": (CHEETAH, *ESAC),
    f"ESAC {CHEETAH}, lag {INTERVAL}": (CHEETAH, *ESAC, "--esac.learner_lag", INTERVAL),
    f"PDERL {CHEETAH}": (
        CHEETAH, "--algorithm", "pderl", "--erl.memory_size", 2000, "--erl.updates_per_step", 0.05,
    ),
    f"SAC {CHEETAH}": (
        CHEETAH, "--algorithm", "sac", "--sac.steps_per_generation", 200, "--sac.start_steps", 0,
    ),
    f"TD3 {CHEETAH}, episodes on ranks": (
        CHEETAH, "--algorithm", "td3", "--td3.episodes_on", "ranks",
        "--td3.episodes_per_generation", 4, "--td3.start_steps", 400, "--td3.updates_per_step", 0.2,
    ),
}  # fmt: skip


def measurements(quick: bool, rounds: int) -> Iterator[Figure]:
    """Measure every kind on one and two ranks; yield what each says of the other."""
    horizon, episodes = (50, 2) if quick else (500, 10)
    common = (
        "--policy.hidden", 64, 64, "--evaluation.every", 2,
        "--evaluation.episodes", episodes, "--task.horizon", horizon,
        "--checkpoint.every_generations", 10,
    )  # fmt: skip
    for name, (task, *own) in KINDS.items():
        generations = 8 if quick else 30 if name.startswith("ES") else 20
        line = (*common, "--budget.generations", generations, "--task.id", task, *own)
        turns = range(rounds or (1 if quick else 3))
        yield from compare(name, [[run_program(r, *line) for r in (1, 2)] for _ in turns], FIRST)


def compare(name: str, pairs: list[list[RunFiles]], first: int) -> Iterator[Figure]:
    """Yield the seconds after the `first` of either run, and what is computed from each."""
    for place, ranks in enumerate((1, 2)):
        case = f"{name} ranks={ranks}"
        measured = np.array([span(pair[place], first) for pair in pairs])
        yield Figure(case, "generations", "s", measured)
        if ranks == 1:  # much less than 1: other work was going on
            used = [pair[0].columns["timing/seconds_processor"][first:].sum() for pair in pairs]
            yield Figure(case, "processor time / that", "ratio", used / measured)
        for told, of in (("itself", place), (str(3 - ranks), 1 - place)):
            found = [duration(generation_ends(pair[of], ranks), first) for pair in pairs]
            yield Figure(case, f"computed from {told} / measured", "ratio", found / measured, True)
