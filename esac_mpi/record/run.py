"""A run on disk, as rank 0 keeps it: what it goes on from, its rows, its checkpoints, its end."""

import hashlib
import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config import Config, to_toml
from esac_mpi.host.errors import Away, Barred, Refused, Unreadable, Unsaved
from esac_mpi.host.run_directory import CHECKPOINT, CONFIG, LOCK, METRICS, POLICY, PREVIOUS
from esac_mpi.record import directory_check, lock, reading, replays
from esac_mpi.record.checkpoints import REPLAY, Checkpoint, Segment, newest
from esac_mpi.record.files import Arrays, digest, image, nest, replace, select_group
from esac_mpi.record.history import HISTORY, History, manifest
from esac_mpi.record.lock import RunLock
from esac_mpi.record.reading import Columns, RunFiles
from esac_mpi.record.replays import Replay
from esac_mpi.record.status import describe_death, now, read_status, starts, write_status, writer

PUBLISH_EVERY = 30.0  # least time between two metrics.h5 [s]
Origin = Mapping[str, str | int | float]  # where a run comes from: machine, versions, task, by name

logger = logging.getLogger(__name__)


class Run:
    """The directory of one run, held by rank 0 from begin() to close().

    restored: the checkpoint to go on from, None in a new run. dropped: rows that metrics.h5 had
    beyond it. complete: whether status.json called the run complete when it was taken up.
    task_changed: what has changed of its task since the checkpoint, by directory_check.WORDS.
    aside: where an old run was moved, or would be. starts: starts in a row, this one included,
    since the newest checkpoint's generation last grew, or since the run said that it had failed or
    was complete. died: a sentence about the process before, if it ended without a word; else
    empty.
    sound: whether checkpoint.h5 is the newest checkpoint, worth keeping as the previous one.
    token: what run.lock holds while this run has it. checkpoint_seconds, checkpoint_bytes: what the
    last checkpoint took and wrote, with its segments and metrics.h5 [s, bytes].
    """

    def __init__(self, path: Path, config: Config, origin: Origin) -> None:
        self.path = Path(os.path.realpath(path))  # of links in a circle, too
        self.config = config
        self.restored: Checkpoint | None = None
        self.dropped = 0
        self.complete = False
        self.task_changed: list[str] = []
        self.aside: Path | None = None
        self.starts, self.died = 1, ""
        self.checkpoint_seconds, self.checkpoint_bytes = 0.0, 0
        self.start = str(origin.get("start", ""))  # where it began, JSON; "" for nowhere else
        self._since = 0  # generation of the newest checkpoint at this start
        self._lock = RunLock(self.path)
        self.token = self._lock.token
        self._history = History()
        self._shown: set[str] = set()  # segments of the history that metrics.h5 names
        self._final: Arrays = {}
        # published ones that the ring still needs, by index
        self._segments: dict[int, Segment] = {}
        self._named: set[str] = set()  # files of replay/ that the newest checkpoint names
        self.sound = False
        self._attributes: dict[str, Any] = {**origin, "config": to_toml(config)}
        self._hashes: dict[str, Any] = {}  # checkpoint_generation, theta_sha256, state_sha256
        self._published = -math.inf

    @classmethod
    def begin(cls, path: Path, config: Config, origin: Origin, fresh: bool = False) -> "Run":
        """Make the directory or go on in it, locked. Raises Refused, Unreadable with no change.

        fresh moves an old run aside to <name>.old-<N>. Raises Unsaved if the disk is full.
        """
        run = cls(path, config, origin)
        with directory_check.translate_errors(run.path), ExitStack() as undo:
            undo.callback(run.close)
            directory_check.check(run.path)
            if (run.path / LOCK).exists():
                run._lock.take(create=False)
            run.aside = directory_check.name_aside(run.path) if fresh else None
            if run.aside:
                os.rename(run.path, run.aside)
                logger.info("the old run was moved to %s", run.aside)
                run._lock.let_go()
            run._find()
            run._take()
            undo.pop_all()
        return run

    @classmethod
    def foresee(cls, path: Path, config: Config, origin: Origin, fresh: bool = False) -> "Run":
        """Foresee the run that begin() would take up, without history; nothing is made.

        A run that holds it is waited for as begin() does. Raises what begin() would.
        """
        run = cls(path, config, origin)
        with directory_check.translate_errors(run.path):
            directory_check.check(run.path)
            if (run.path / LOCK).exists():
                lock.ask(run.path)
            run.aside = directory_check.name_aside(run.path) if fresh else None
            if not run.aside:
                run._find()
                run._look_back(read_status(run.path))
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFiles:
        """Read a run's files, without a lock. Raises Refused, Unreadable, ConfigError."""
        return reading.open_run(path)

    def _find(self) -> None:
        """Find the checkpoint to go on from. Raises Refused for another run or task, Unreadable."""
        self.restored = newest(self.path)
        settled = self._attributes.get("settled", "")
        directory_check.compare(self.path, self.restored, self.config, settled)
        if self.restored is not None:
            self.start = self._attributes["start"] = self.restored.attributes.get("start", "")
            self._compare_task(self.restored)

    def _compare_task(self, restored: Checkpoint) -> None:
        """Find what changed of the task since the checkpoint; refuse it by task.changed."""
        was, others = restored.attributes, "--fresh (moves it aside) or another --run-dir"
        sizes = [about.get("sizes") for about in (was, self._attributes)]
        if None not in sizes and sizes[0] != sizes[1]:
            told = f"whose networks have {sizes[0]} units from observations to actions"
            raise Refused(
                f"{self.path} holds a run of another task, {told}, here {sizes[1]}. Choose {others}"
            )
        self._attributes["settled"] = was.get("settled", "")
        self.task_changed = directory_check.task_changes(was, self._attributes)
        if self.config.task.changed == "refuse" and self.task_changed:
            told = (
                f"{self.path} holds a run of another task; changed: {'; '.join(self.task_changed)}"
            )
            goes_on = "--task.changed warn (goes on; the best policy begins anew)"
            raise Refused(f"{told}.\nChoose {goes_on}, {others}")
        listed = [was["task_changes"]] if was.get("task_changes") else []
        if self.task_changed:
            changed = ", ".join(self.task_changed)
            listed.append(f"after generation {restored.generation}: {changed}")
        if listed:  # at all starts so far
            self._attributes["task_changes"] = "; ".join(listed)

    def _take(self) -> None:
        """Claim the directory, clean up and load the history."""
        if self._lock.claim():  # another start may have been here while its lock was waited for
            self._find()
        for folder in (self.path, self.path / REPLAY, self.path / HISTORY):
            for leftover in folder.glob("*.tmp.[0-9]*"):
                leftover.unlink(missing_ok=True)  # another start's look at the server's clock
        last = read_status(self.path)
        if self.restored is not None:
            self._load(self.restored)
        else:
            self.write_config()
        self._look_back(last)
        self._lock.keep_beating()
        if not self.complete:
            best = {"best_return": last["best_return"]} if "best_return" in last else {}
            self.status("running", self._since, **best)

    def _look_back(self, last: Mapping[str, Any]) -> None:
        """Count this start by what status.json said last, and learn from that how the run ended."""
        self.complete = self.restored is not None and last.get("status") == "complete"
        self._since = self.restored.generation if self.restored is not None else 0
        self.starts, self.died = starts(last, self._since), describe_death(last)

    def write_config(self) -> None:
        """Write config.toml, the resolved configuration. Raises Unsaved."""
        replace(self.path / CONFIG, [to_toml(self.config).encode(errors="replace")])

    def _load(self, checkpoint: Checkpoint) -> None:
        self._history.load(checkpoint.closed, checkpoint.history)
        checkpoint.history = {}  # `restored` lives as long as the run
        self._segments = {segment.index: segment for segment in checkpoint.segments}
        self._named = {f"{REPLAY}/{segment.name}" for segment in checkpoint.segments}
        self.sound = checkpoint.source.name == CHECKPOINT
        self._hashes = {k: checkpoint.attributes[k] for k in ("theta_sha256", "state_sha256")}
        self._hashes["checkpoint_generation"] = checkpoint.generation
        try:
            shown = Columns(self.path / METRICS)
            final = shown.read(name for name in shown if name.startswith("final/"))
        except Away:
            raise
        except Unreadable as error:
            logger.warning("%s; the history comes from the checkpoint", error)
            return
        self._shown = {segment.name for segment in shown.closed}
        self.dropped = max(0, shown.generations - self.generations)
        current = shown.generations == self.generations
        self._final = select_group(final, "final") if current else {}

    @property
    def saved_generation(self) -> int:
        """The generation of the newest checkpoint, 0 before the first."""
        return int(self._hashes.get("checkpoint_generation", 0))

    @property
    def generations(self) -> int:
        """Rows of the history."""
        return self._history.generations

    @property
    def published(self) -> Columns:
        """The history in metrics.h5, dropped rows included, until replaced. Raises Unreadable."""
        return Columns(self.path / METRICS)

    def append(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Add a generation: `row` is reproducible bit by bit, `timing` depends on the machine.

        Raises ValueError for names or shapes other than the first row's; timing arrays may change
        their length.
        """
        rows = self._history
        fitted, times = rows.metrics.fitted(row), rows.timing.fitted(timing)
        rows.metrics.append(fitted)
        rows.timing.append(times)
        self._final = {}

    def last_row(self, prefix: str = "") -> Arrays:
        """Look up the last generation's metrics whose names begin with the prefix."""
        columns = self._history.metrics.columns if self.generations else {}
        return {name: column[-1] for name, column in columns.items() if name.startswith(prefix)}

    @property
    def wall_seconds(self) -> float:
        """timing/wall_seconds of the last generation, 0 before the first [s]."""
        columns = self._history.timing.columns if self.generations else {}
        return float(columns["wall_seconds"][-1]) if "wall_seconds" in columns else 0.0

    def final(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store a run's last evaluation, apart from the rows; it lasts until a row is added."""
        self._final = {name: np.asarray(array) for name, array in arrays.items()}
        self.publish_metrics(force=True)

    def checkpoint(
        self,
        generation: int,
        state: Mapping[str, np.ndarray],
        learner: Mapping[str, np.ndarray],
        replay: Replay | None = None,
        pending: Mapping[str, np.ndarray] | None = None,
        theta: np.ndarray | None = None,
    ) -> None:
        """Save state and history; the last checkpoint stays as checkpoint_prev.h5. Raises Unsaved.

        pending: what is known of the last generation where its row cannot be made yet; given back
        as restored.pending, no part of state_sha256. theta: the policy that theta_sha256 is of;
        without it the state's theta_es.
        """
        start, written = time.monotonic(), self._lock.written
        ring = replays.Stored({}, (0, 0), {}, {})
        if replay is not None:
            # what somebody has deleted to make room is published again
            known, folder = self._segments.items(), self.path / REPLAY
            self._segments = {i: s for i, s in known if os.path.exists(folder / s.name)}
            ring = replays.store(replay, self._segments, self._lock.store)
        self._segments = ring.segments
        saved = nest("state", state) | nest("learner", learner) | nest("replay_tail", ring.tail)
        actor = np.ascontiguousarray(state["theta_es"] if theta is None else theta, "<f4")
        hashes = {
            "theta_sha256": hashlib.sha256(actor.tobytes()).hexdigest(),
            "state_sha256": digest({**saved, **ring.content}),
        }
        self._history.close(self._lock.store)
        attributes = {**self._attributes, **hashes, **manifest(self._history.closed)}
        attributes |= {"generation": generation, "replay": ring.manifest}
        names = {f"{REPLAY}/{segment.name}" for segment in ring.segments.values()}
        self._named |= names  # the file may be in its place although publishing fails
        arrays = {**saved, **nest("pending", pending or {}), **self._history.stored()}
        self._lock.store(CHECKPOINT, image(arrays, attributes), previous=self.sound)
        self._lock.delete_segments(REPLAY, keep=self._named)
        self.sound, self._named = True, names
        self._hashes = {**hashes, "checkpoint_generation": generation}
        self.publish_metrics(force=True)
        closed = {segment.name for segment in self._history.closed}
        self._lock.delete_segments(HISTORY, keep=self._shown | closed)
        self.checkpoint_seconds = time.monotonic() - start
        self.checkpoint_bytes = self._lock.written - written

    def restore_replay(self, replay: Replay) -> None:
        """Put the transitions of the restored checkpoint back, oldest first.

        Where one of its segments is damaged, `restored` becomes the checkpoint before. Raises
        Unreadable if that is no better.
        """
        if self.restored is None:
            return
        try:
            replays.fill(replay, self.path, self.restored)
        except Unreadable as error:
            if self.restored.source.name == PREVIOUS or isinstance(error, Barred):
                raise
            replays.fill(replay, self.path, self._go_back(str(error)))

    def _go_back(self, problem: str) -> Checkpoint:
        """Restore the checkpoint before the newest one. Raises Unreadable, Refused."""
        before = newest(self.path, problem)
        assert before is not None
        directory_check.compare(self.path, before, self.config)
        self.restored, self._since = before, before.generation
        self._compare_task(before)
        self._load(before)
        return before

    def publish_metrics(self, force: bool = False) -> None:
        """Replace metrics.h5, at most every 30 s unless forced; a failure is a warning.

        Nothing is published before the first checkpoint: metrics without one mean that it was lost.
        """
        now = time.monotonic()
        if not self._hashes or (now < self._published + PUBLISH_EVERY and not force):
            return
        self._published = now
        try:
            self._history.close(self._lock.store)
            closed = self._history.closed
            attributes = {**self._attributes, **self._hashes, **manifest(closed)}
            attributes["generation"] = self.generations
            arrays = {**self._history.tail, **nest("final", self._final)}
            # the file may be in its place although publishing fails
            self._shown |= {segment.name for segment in closed}
            self._lock.store(METRICS, image(arrays, attributes, self._history.joined()))
            self._shown = {segment.name for segment in closed}
        except Unsaved as error:
            logger.warning("%s", error)

    def save_policy(
        self, theta: np.ndarray, attributes: Mapping[str, Any], normaliser: Arrays | None = None
    ) -> None:
        """Replace policy.h5: theta [d] and what it takes to play it. Raises Unsaved.

        normaliser: normaliser_mean and normaliser_std [o], as datasets: an attribute holds 64 KB.
        """
        self._lock.store(POLICY, image({"theta": theta, **(normaliser or {})}, attributes))

    def status(self, status: str, generation: int, **more: Any) -> None:
        """Replace status.json, which says how a run ended. Raises Unsaved; warns while running."""
        start = self.restored.generation if self.restored is not None else 0
        entries = {"status": status, "generation": generation, "progress": generation - start}
        entries |= {**writer(self.token), "time": now()}
        entries |= {"starts": self.starts, "since": self._since}
        if self._hashes.get("checkpoint_generation") == generation:
            entries |= self._hashes
        try:
            self._lock.guard()
            write_status(self.path, entries | more)
        except Unsaved as error:
            if status != "running":
                raise
            logger.warning("%s", error)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()
