"""A run at work: what it is made of on one rank, how far it is, and how it is saved."""

import json
import math
import shlex
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.world import World
from esac_mpi.config import Config
from esac_mpi.host import log
from esac_mpi.host.invocation import call_of
from esac_mpi.host.run_directory import CHECKPOINT, LOCK, METRICS, PREVIOUS, holds, is_there
from esac_mpi.operators.policy import Policy, round_inward
from esac_mpi.play import state
from esac_mpi.play.counters import Best
from esac_mpi.record import Run, Unsaved
from esac_mpi.record.files import nest, select_group
from esac_mpi.record.status import fail_from
from esac_mpi.training import provenance
from esac_mpi.training.ended import last_words, reason

RECENT = 20  # generations by which the next ones are judged
RETRY = 60.0  # longest time until a checkpoint that could not be written is tried again [s]


@dataclass
class Job:
    """All that a run is made of, on one rank. `run`, `learner`, `display`: None but on rank 0."""

    config: Config
    world: World
    env: envs.Env
    params: Any
    state: Any
    policy: Policy
    learner: Any
    run: Run | None = None
    display: log.Display | None = None
    # row and timing of a generation without its evaluation
    unevaluated: tuple[dict[str, Any], dict[str, Any]] | None = None
    trained: float = 0.0  # by rank 0's clock, over all starts, if the budget has such a limit [s]
    limit: str = ""  # what sets the deadline, in a few words
    deadline: float = math.inf  # when the batch job must be over, by rank 0's clock [s]
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))  # of generations
    said: Counter[str] = field(default_factory=Counter)  # how often there was what to say, by what
    number: str = ""  # which one of the task was not finite, once that was told; equal on all ranks
    unstable: int = 0  # unstable episodes when last asked which number was not finite
    listener: Callable[[dict[str, Any]], object] | None = None  # hears of generations, on rank 0
    has_listener: bool = False  # whether rank 0 has one
    saving: list[tuple[float, int]] = field(default_factory=list)  # checkpoints' [s, bytes]
    slowest: float = 0.0  # of rank 0's, as of its last row [s]
    # since when no checkpoint could be written; inf: the last one was [s]
    unsaved: float = math.inf

    @property
    def algorithm(self) -> Any:
        """The algorithm's module."""
        return ALGORITHMS[self.config.algorithm]

    @property
    def evaluated(self) -> bool:
        """Whether this generation is one of those that are evaluated."""
        return self.state.generation % self.config.evaluation.every == 0


def run_directory(config: Config) -> Path:
    """Name the run directory: the one named, or a name made of task, algorithm and seed."""
    task = config.task.id.replace("/", "-").replace(":", "-")
    return Path(config.run_dir or f"runs/{task}-{config.algorithm}-seed{config.seed}")


def at_end(job: Job) -> bool:
    """Tell whether the budget is spent, and no generation is left that was begun and given up."""
    return progress(job) >= 1 and job.state.is_between


def progress(job: Job, trained: float | None = None) -> float:
    """Measure how much of the budget is spent; 1 or more is the end. trained: job's if None [s]."""
    counters = job.state.counters
    steps = counters.env_steps, counters.nominal_steps
    trained = job.trained if trained is None else trained
    return job.config.budget.spent(job.state.generation, *steps, trained)


def check_directory_is_shared(job: Job) -> None:
    """Warn if a node does not see the run directory: a restart there would not find the run."""
    place = (job.run.path / LOCK, job.run.token) if job.run else None
    blind = blind_hosts(job.world, place)
    if blind and job.run:
        again = "started again with its first rank there, the run would begin anew"
        log.warn(f"{', '.join(blind)} cannot see {job.run.path}: {again}")


def blind_hosts(world: World, file: tuple[Path, bytes] | None) -> list[str]:
    """List the hosts that do not see rank 0's file, path and content. All ranks call this."""
    path, content = world.from_root(file)
    # one rank of each other node looks: rank 0 would drop a lock that it holds by closing the file
    looks = world.node > 0 and world.local == 0
    seen = not looks or holds(path, content, world.clock)
    return sorted({world.hosts[rank] for rank, here in enumerate(world.gather(seen)) if not here})


def save_policy(job: Job, best: Best) -> None:
    """Write policy.h5. Rank 0 only."""
    assert job.run is not None
    policy, task = job.policy, job.config.task
    own = getattr(job.env, "own_bounds", None) or (policy.low, policy.high)
    low, high = round_inward(*own)  # who plays it elsewhere may have no clip
    about = {
        "sizes": np.array(policy.layout.sizes),
        "activation": policy.activation,
        "output": policy.output,
        "layer_norm": int(policy.layout.layer_norm),
        "linear": float(policy.layout.linear),
        "low": low,
        "high": high,
        "discrete": int(envs.is_discrete(job.env)),
        "task": task.id,
        "task_kwargs": json.dumps(task.kwargs),
        "horizon": task.horizon,
        "policy": best.policy,
        "generation": best.generation,
        "episodic_return": best.episodic_return,
        "versions": provenance.versions(job.config.algorithm),
    }
    seen = {}
    if best.normaliser.size:
        seen = dict(zip(("normaliser_mean", "normaliser_std"), best.normaliser, strict=True))
    job.run.save_policy(best.theta, about, seen)


def checkpoint_if_due(job: Job, tried: tuple[int, float]) -> tuple[int, float]:
    """Save the state when it is time; return the last try (generation, clock). Rank 0 only."""
    assert job.run is not None
    due, since = job.config.checkpoint, job.world.clock() - tried[1]
    made = job.state.generation - tried[0]
    by_generation = due.every_generations and made >= due.every_generations
    by_time = due.every_minutes and since >= 60 * due.every_minutes
    again = math.isfinite(job.unsaved) and since >= min(RETRY, 60 * due.unsaved_minutes or RETRY)
    if not (by_generation or by_time or again):
        return tried
    if save(job, "running") or job.run.saved_generation == job.state.generation:
        job.unsaved = math.inf
    else:
        give_up_unsaved(job)
    return job.state.generation, job.world.clock()


def give_up_unsaved(job: Job) -> None:
    """Say what is saved where a checkpoint failed; end the run after unsaved_minutes."""
    now, minutes = job.world.clock(), job.config.checkpoint.unsaved_minutes
    first = not math.isfinite(job.unsaved)
    job.unsaved = min(job.unsaved, now)
    limit = f"{minutes:g} min (checkpoint.unsaved_minutes)"
    if minutes and now - job.unsaved >= 60 * minutes and not job.world.stop.wished:
        ends = f"nothing could be saved for {limit}: the run ends; {describe_saved(job)}"
        log.warn(f"generation {job.state.generation}: {ends}")
        job.world.stop.wish(f"before that nothing could be saved for {limit}")
    elif first:
        ends = f"; the run ends where nothing can be saved for {limit}" if minutes else ""
        log.warn(f"generation {job.state.generation} is not saved; {describe_saved(job)}{ends}")


def describe_saved(job: Job) -> str:
    """Say which generation is saved, and in which file. Rank 0 only."""
    assert job.run is not None
    place, names = job.run.path, (CHECKPOINT, PREVIOUS) if job.run.sound else (PREVIOUS,)
    file = next((place / name for name in names if is_there(place / name)), None)
    if not file:
        return f"nothing is saved in {place}"
    return f"saved is generation {job.run.saved_generation}, in {file}"


def say_files(path: Path, generation: int, policy: bool) -> None:
    """Say where those results are that exist. policy: whether policy.h5 has the best one."""
    files = {"results": path / METRICS} | ({"best policy": path / "policy.h5"} if policy else {})
    if found := [f"{what} {file}" for what, file in files.items() if is_there(file)]:
        log.say(f"  {', '.join(found)}")
    if generation and is_there(path / METRICS):
        log.say(f"  curve   {call_of('plot')} {shlex.quote(str(path))}")


def save(job: Job, status: str, best: Best | None = None, final: Best | None = None) -> bool:
    """Write state and status; tell whether that worked. The older checkpoint stays till then.

    best, final: of a run at its end.
    """
    run = job.run
    assert run is not None
    parts = gather_checkpoint(job)
    if not attempt(lambda: run.checkpoint(job.state.generation, *parts)):
        return False
    job.saving.append((run.checkpoint_seconds, run.checkpoint_bytes))
    return attempt(lambda: run.status(status, job.state.generation, **results(job, best, final)))


def attempt(write: Callable[[], None]) -> bool:
    """Write something; return whether that worked, and warn if not. Rank 0 only."""
    try:
        write()
    except Unsaved as error:
        log.warn(str(error))
        return False
    return True


def fail(job: Job, error: BaseException | None = None) -> None:
    """Say on disk that the run failed, and why, if that is possible. Rank 0 only."""
    assert job.run is not None
    if job.display:
        job.display.close()
    with suppress(Exception):
        if error is None:
            job.run.status("failed", job.run.saved_generation)
            return
        job.world.record(last_words(error), "")
        if why := reason(error):
            job.run.status("failed", job.run.saved_generation, reason=why)


def let_ranks_record(job: Job) -> None:
    """Let every rank keep its last words in log.txt, and in status.json why the run failed."""
    world = job.world
    path, token = world.from_root((job.run.path, job.run.token) if job.run else None)

    def record(words: str, why: str) -> None:
        log.append_error(path / "log.txt", world.rank, words)
        if why:
            fail_from(path, token, world.rank, why)

    world.record = record


def results(job: Job, best: Best | None = None, final: Best | None = None) -> dict[str, Any]:
    """Return the run's results for status.json."""
    found = {"best_return": (best or job.state.best).episodic_return}
    return {**found, "final_return": final.episodic_return} if final and final.policy else found


def gather_checkpoint(job: Job) -> tuple[Any, ...]:
    """Gather a checkpoint: state, learner, replay, pending generation, the policy that counts."""
    learner = job.learner
    replay = None if learner is None else learner.stored_replay
    row, timing = job.unevaluated or ({}, {})
    pending = nest("metrics", row) | nest("timing", timing)
    arrays = state.arrays(job.state, replay=replay)  # without the replay's transitions
    theta = next(iter(job.state.policies.values()))
    return arrays, {} if learner is None else learner.arrays(), replay, pending, theta


def pending_row(pending: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read the row and timing of a checkpoint's pending generation, None where there is none."""
    if not pending:
        return None
    row, timing = (select_group(pending, group) for group in ("metrics", "timing"))
    return {name: a[()] for name, a in row.items()}, {name: a[()] for name, a in timing.items()}
