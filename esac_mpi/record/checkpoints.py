"""Checkpoints as read: the newest sound one, with the history and the replay that it names."""

import json
import logging
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config import Config, ConfigError, amend, from_table, read_toml
from esac_mpi.host.errors import Away, Barred, OtherSchema, Refused, Unreadable
from esac_mpi.host.run_directory import CHECKPOINT, CONFIG, METRICS, POLICY, PREVIOUS
from esac_mpi.record import files, history
from esac_mpi.record.files import TAIL, Arrays, read, select_group
from esac_mpi.record.history import Closed

REPLAY = "replay"  # folder of the replay's segments

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Segment:
    """A closed, published part of the replay ring."""

    index: int  # of replays.SEGMENT transitions each, counted from the first transition ever
    start: int  # first transition it holds, later than where it begins if the ring had lost some
    sha256: str  # digest of its rows

    @property
    def name(self) -> str:
        """File name in replay/."""
        return f"segment-{self.index:08d}-{self.sha256[:8]}.h5"


@dataclass
class Checkpoint:
    """A complete state, as read from `source`."""

    generation: int
    state: Arrays
    learner: Arrays
    config: Config
    attributes: dict[str, Any]
    source: Path
    closed: list[Closed] = field(default_factory=list)  # segments of the history
    # the rows after them, metrics/<name> and timing/<name>
    history: Arrays = field(default_factory=dict)
    replay_tail: Arrays = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    replay_bounds: tuple[int, int] = (0, 0)  # first and one past the last transition held
    pending: Arrays = field(default_factory=dict)  # of a generation whose row was not made yet

    @property
    def wall_seconds(self) -> float:
        """For how long the run has trained, 0 before the first generation [s]."""
        column = self.history.get("timing/wall_seconds", np.zeros(0))
        return float(column[-1]) if len(column) else 0.0


def config_of(text: str, source: Path) -> Config:
    """Return the configuration that a file holds as TOML. Raises Unreadable, ConfigError."""
    try:
        return amend(Config(), from_table(tomllib.loads(text), str(source)))
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{source}: its configuration is not valid TOML: {error}") from error


def settings_in(run: Path) -> Config:
    """Read the configuration in a run's own config.toml. Raises ConfigError."""
    return amend(Config(), read_toml(run / CONFIG))


def read_checkpoint(source: Path) -> Checkpoint:
    """Read a checkpoint, and the headers of the segments that it names. Raises Unreadable."""
    arrays, attributes = read(source)
    if not {"generation", "config", "replay"} <= attributes.keys():
        raise Unreadable(f"{source}: not a checkpoint")
    replay, closed = json.loads(attributes["replay"]), history.closed_of(attributes)
    tail = select_group(arrays, TAIL) if closed else arrays
    checkpoint = Checkpoint(
        generation=attributes["generation"],
        state=select_group(arrays, "state"),
        learner=select_group(arrays, "learner"),
        config=config_of(attributes["config"], source),
        attributes=attributes,
        source=source,
        closed=closed,
        history={n: a for n, a in tail.items() if n.startswith(("metrics/", "timing/"))},
        replay_tail=select_group(arrays, "replay_tail"),
        segments=[Segment(*entry) for entry in replay["segments"]],
        replay_bounds=tuple(replay["bounds"]),
        pending=select_group(arrays, "pending"),
    )
    history.check(source.parent, closed)
    for segment in checkpoint.segments:
        files.check(source.parent / REPLAY / segment.name)
    return checkpoint


def newest(path: Path, problem: str = "", remedy: str = "") -> Checkpoint | None:
    """Return the newest valid checkpoint, None in a new directory. Raises Unreadable, Refused.

    The replay's segments are verified when they are loaded (Run.restore_replay), since that reads
    them. problem: what was wrong with the newest one's; then the one before is returned.
    remedy: what to do without one, where that is not to begin the run anew.
    """
    problems = [problem] if problem else []
    for file in (path / CHECKPOINT, path / PREVIOUS)[len(problems) :]:
        if not file.exists():
            continue
        try:
            found = read_checkpoint(file)
        except (OtherSchema, ConfigError) as error:
            own = "Continue with that version, or choose --fresh or another --run-dir"
            raise Refused(f"{error}. {remedy or own}") from error
        except Away:
            raise
        except Barred as error:  # it may be sound: an older one would take its place
            raise Barred(f"{error}; the run goes on once it can be read") from error
        except Unreadable as error:
            problems.append(str(error))
            continue
        for problem in problems:
            logger.warning("%s; going on from %s, generation %d", problem, file, found.generation)
        return found
    later = [path / name for name in (METRICS, POLICY) if (path / name).exists()]
    if later and not problems:  # a copy of a part, say
        problems = [f"{later[0]} is there, but no checkpoint"]
    if problems:
        own = "--fresh starts over and moves this run aside"
        told = f"{path}: no readable checkpoint: {'; '.join(problems)}"
        raise Unreadable(f"{told}. {remedy or own}")
    return None
