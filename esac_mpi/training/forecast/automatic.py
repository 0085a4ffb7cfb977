"""What is "auto", resolved at a run's first start: by its ranks, and an update's time on rank 0.

A run that goes on keeps what it was resolved to, on any ranks: a resolved configuration gives the
same bits on all.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from esac_mpi import learners
from esac_mpi.algorithms import ALGORITHMS, esac_timing
from esac_mpi.comm.contracts import World
from esac_mpi.config import AUTO, NAMES, Config, amend, automatic, check, resolve_on_ranks, value_of
from esac_mpi.envs import Env, TaskError, probe, refuse_errors
from esac_mpi.host import process_state
from esac_mpi.play.params import Params, make_params
from esac_mpi.record import settings_of
from esac_mpi.training.active_run import run_directory
from esac_mpi.training.forecast import measured

ROUNDS = 5  # of playing and of updating, taking turns; the fastest counts, as other work only adds
PLAYING, UPDATING = 0.1, 0.2  # of a round [s]
FIRST = 250  # steps of a member's episode that are played at most
COSTS = {"update_cost", "critic_cost"}
PLACES = ("learner.device", "learner.kernels")


def resolve(
    config: Config, env: Env, world: World, fresh: bool
) -> tuple[dict[str, Any], list[str]]:
    """Resolve what is "auto", {dotted name: value}, on rank 0, and say so; as a run has it.

    Raises ConfigError, Refused, Unreadable, and what a learner is refused with.
    """
    names, learning = automatic(config), ALGORITHMS[config.algorithm].DECLARES.learning
    places = [name for name in PLACES if learning and value_of(config, name) == AUTO]
    if world.rank or not (names or places):
        return {}, []
    other = config.own.follows or (None if fresh else run_directory(config))
    run = settings_of(Path(other)) if other else None
    settled = resolve_on_ranks(config, world.size, run)
    whole = amend(config, settled)
    check(whole)
    if run and not automatic(whole):  # else one of another algorithm, which is refused
        said = [f"as the run began: {_words(settled)}"] if settled else []
        return settled | choose_places(whole, places, run), said
    said = []
    if learning and "learner.kernels" in places:
        whole = learners.resolve_auto(whole, learning.learner(whole))
    if "learner.device" in places and sees_a_gpu(whole):
        with refuse_unmeasured(env):
            device, why = choose_device(whole, env)
        whole = amend(whole, {"learner.device": device})
        said = [why]
    why = ""
    if costs := [name for name in names if name.rpartition(".")[2] in COSTS]:
        with refuse_unmeasured(env):
            values, updating = measure_costs(whole, env)
        settled |= {name: values[name] for name in costs}
        why = f" and {1 / updating:,.0f} updates/s of this core" if updating else ""
    if settled:
        keeps = "The run keeps them. Other runs have the same bits only with the same values"
        said.insert(0, f"chosen for {world.size} rank(s){why}: {_words(settled)}. {keeps}")
    return settled | {name: value_of(whole, name) for name in places}, said


@contextmanager
def refuse_unmeasured(env: Env) -> Iterator[None]:
    """Raise TaskError for a task or learner that fails while it is measured: no run has begun."""
    try:
        with refuse_errors(env.id):
            yield
    except learners.LearnerNotFinite as error:
        told = f"{env.id}: {error}, while it was measured, so nothing was created"
        raise TaskError(f"{told}: lower its learning rate, or scale the task's numbers") from error


def choose_places(config: Config, places: list[str], run: Config) -> dict[str, Any]:
    """Choose a run's kernels, and its device where that is here."""
    found: dict[str, Any] = {}
    if "learner.kernels" in places:
        found["learner.kernels"] = run.learner.kernels
    device = run.learner.device
    if "learner.device" in places and (device == "cpu" or sees_a_gpu(amend(config, found))):
        found["learner.device"] = device
    return found


def _words(settled: dict[str, Any]) -> str:
    return " ".join(f"--{name} {value:g}" for name, value in settled.items())


def sees_a_gpu(config: Config) -> bool:
    """Tell whether torch has a GPU here, once it has the kernels that the configuration names."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    assert learning is not None
    learners.prepare(config, learning.learner(config))
    return bool(learners.load("gpu").is_there())


def choose_device(config: Config, env: Env) -> tuple[str, str]:
    """Measure the learner on the CPU and on the GPU; choose the faster one, and say why."""
    if config.learner.precision == "tf32":
        return "cuda", "learner on the GPU, which alone has learner.precision = tf32"
    seconds = {}
    for device in ("cpu", "cuda"):
        there = make_params(amend(config, {"learner.device": device}), env)
        try:
            with process_state.preserve_state():
                ready = measured.prepare(there, env)
                seconds[device] = min(sum(measured.measure(ready, UPDATING)) for _ in rounds())
        except learners.NoDevice as error:
            return "cpu", f"learner on the CPU: {error}"
        del ready
        learners.clear()
    device = "cuda" if seconds["cuda"] < seconds["cpu"] else "cpu"
    rates = ", ".join(
        f"{1 / max(each, 1e-9):,.0f} steps and updates/s on {name}"
        for name, each in seconds.items()
    )
    return device, f"learner on {device}, the faster one for these networks: {rates}"


def remark_at_start(config: Config, ranks: int) -> str:
    """Log a remark if phases are timed for another number of ranks."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    has_phases = f"{config.algorithm}.phase_timing" in NAMES and learning is not None
    esac, workers = config.esac, ranks - 1
    if not workers or not has_phases or not esac_timing.is_virtual(esac) or esac.workers == workers:
        return ""
    said = f"phases are timed for {esac.workers} rank(s) beside the learner's, here are {workers}"
    return f"{said}; a run begun anew could have --fresh --esac.workers {workers}"


def round_digits(cost: float) -> float:
    """Round to two digits."""
    return float(f"{cost:.2g}")


def measure_costs(config: Config, env: Env) -> tuple[dict[str, float], float]:
    """Measure updates in steps of the task, or in updates of an individual, {dotted name: cost}.

    Returns the time of an update [s], too, 0 where there are none.
    """
    share = config.sac.updates_per_step
    individuals = ALGORITHMS[config.algorithm].DECLARES.operators(config) == "individuals"
    if not (share or individuals):
        return {"esac.update_cost": 0.0}, 0.0
    params = make_params(config, env)
    probe.probe(env)  # which says what is wrong with a task
    with process_state.preserve_state():
        ready = measured.prepare(params, env)
        found = [(step_seconds(params, env), *measured.measure(ready, UPDATING)) for _ in rounds()]
    step, playing, updating = (min(each) for each in zip(*found, strict=True))
    del ready
    learners.clear()
    if individuals:
        training = measured.seconds(config, params.layout)["training"]
        costs = {
            "aes_rl.update_cost": round_digits(training / step),
            "aes_rl.critic_cost": round_digits(updating / training),
        }
        return costs, updating
    cost = updating + (playing - step) / share  # a phase's own steps cost one of the task's each
    return {"esac.update_cost": round_digits(max(cost, 0.0) / step)}, updating


def rounds() -> Iterator[int]:
    """Count the rounds: none is begun after measured.LONG, as where a step takes long."""
    began = time.perf_counter()
    for k in range(ROUNDS):
        if not k or time.perf_counter() < began + measured.LONG:
            yield k


def step_seconds(params: Params, env: Env) -> float:
    """Measure a step of the task and policy, the start of an episode shared out [s]."""
    seconds, steps = measured.episodes(params, env, PLAYING, cap=FIRST).sum(axis=0)
    return float(seconds / steps)
