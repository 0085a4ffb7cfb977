"""What a run leaves on disk: checkpoints, metrics, status and the best policy. Only rank 0 comes here.

Files are published whole, never appended in place (files.py), so that a reader who has one open never disturbs the run.
run.lock is held as long as the run lives (lock.py). What is read back is in checkpoints.py.
"""

import errno
import hashlib
import json
import logging
import math
import os
import shlex
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.config import WARN, Config, ConfigError, as_words, differences, load, read_toml, to_toml, updated
from esac_mpi.record import lock, reading, replays, task
from esac_mpi.record.checkpoints import (
    CHECKPOINT,
    METRICS,
    PREVIOUS,
    REPLAY,
    STATUS,
    Checkpoint,
    Replay,
    Segment,
    newest,
    read_status,
)
from esac_mpi.record.errors import Refused, Unreadable, Unsaved
from esac_mpi.record.files import Arrays, Image, digest, free, image, publish, replace, store
from esac_mpi.record.files import read as read  # for others
from esac_mpi.record.history import HISTORY, History, manifest
from esac_mpi.record.lock import LOCK
from esac_mpi.record.reading import CONFIG, POLICY, Columns, RunFiles, is_run

SEGMENT = 10_000  # transitions of a replay segment
PUBLISH_EVERY = 30.0  # least time between two metrics.h5 [s]

logger = logging.getLogger(__name__)


def _check_place(path: Path) -> None:
    """Refuse a directory that is not ours or cannot be written."""
    if path.exists():
        if not path.is_dir():
            raise Refused(f"{path}: not a directory; choose another --run-dir")
        if any(path.iterdir()) and not is_run(path):
            raise Refused(f"{path}: not empty, and not a run of esac_mpi; choose another --run-dir")
    place = next(p for p in (path.absolute(), *path.absolute().parents) if p.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise Refused(f"{path}: no permission to write in {place}; choose another --run-dir")


def _compare(path: Path, restored: Checkpoint | None, config: Config) -> None:
    """Refuse to continue a run under other settings; warn where bits may differ but meaning does not."""
    if restored is not None:
        old = restored.config
    elif (path / CONFIG).exists():
        try:
            old = updated(Config(), read_toml(path / CONFIG))
        except ConfigError as error:
            raise Refused(f"{error}. Choose --fresh or another --run-dir") from error
    else:
        return
    changed = differences(old, config)
    for name in changed.keys() & WARN:
        logger.warning("%s was %r, is now %r: going on, bits may differ", name, *changed.pop(name))
    if changed:
        listing = "".join(f"\n  {name}: {was!r} -> {now!r}" for name, (was, now) in changed.items())
        raise Refused(
            f"{path} holds a run of other settings:{listing}\nChoose --fresh (moves it aside) or another --run-dir"
            f"{_way_on(path, old)}"
        )


def _way_on(path: Path, old: Config) -> str:
    """Return the advice with which the run goes on as it is; empty where its config.toml cannot be used."""
    words = ["python", "-m", "esac_mpi", str(path / CONFIG)]
    try:
        written = updated(Config(), read_toml(path / CONFIG))  # perhaps edited since: what was changed is named back
        edited = {name: was for name, (_, was) in differences(written, old).items() if name not in WARN}
        words += [word for name, was in edited.items() for word in (f"--{name}", *as_words(was))]
        load(words[3:])
    except (ConfigError, SystemExit):
        return ""
    return f".\nTo go on with the run as it is, with any launcher: {shlex.join(words)}"


def _move_aside(path: Path) -> None:
    number = next(n for n in range(1, 10**6) if not os.path.lexists(f"{path}.old-{n}"))
    os.rename(path, f"{path}.old-{number}")
    logger.info("the old run was moved to %s.old-%d", path, number)


class Run:
    """The directory of one run, held by rank 0 from begin() to close().

    restored: the checkpoint to go on from, None in a new run. dropped: rows that metrics.h5 had beyond it.
    complete: whether status.json called the run complete when it was taken up.
    task_changed: what has changed of its task since the checkpoint, by task.WORDS.
    starts: starts in a row, this one included, since the newest checkpoint's generation last grew, or since the run said
    that it had failed or was complete. died: a sentence about the process before, if it ended without a word; else empty.
    token: what run.lock holds while this run has it. Nobody may open that file in this process: to close it would drop the lock.
    checkpoint_seconds, checkpoint_bytes: what the last checkpoint took and wrote, with its segments and metrics.h5 [s, bytes].
    """

    def __init__(self, path: Path, config: Config, provenance: Mapping[str, str | int | float]) -> None:
        self.path = Path(path).resolve()
        self.config = config
        self.restored: Checkpoint | None = None
        self.dropped = 0
        self.complete = False
        self.task_changed: list[str] = []
        self.starts, self.died = 1, ""
        self.checkpoint_seconds, self.checkpoint_bytes = 0.0, 0
        self._since = 0  # generation of the newest checkpoint at this start
        self._written = 0  # bytes published so far
        self._closed = threading.Event()
        self._history = History()
        self._shown: set[str] = set()  # segments of the history that metrics.h5 names
        self._final: Arrays = {}
        self._segments: dict[int, Segment] = {}  # published ones that the ring still needs, by index
        self._named: set[str] = set()  # files of replay/ that the newest checkpoint names
        self._sound = False  # whether checkpoint.h5 is worth keeping as the previous one
        self._attributes: dict[str, Any] = {**provenance, "config": to_toml(config)}
        self._hashes: dict[str, Any] = {}  # checkpoint_generation, theta_sha256, state_sha256
        self._published = -math.inf
        self._lock = -1
        self.token = f"{socket.gethostname()} {os.getpid()} {datetime.now(UTC).isoformat()}\n".encode()

    @classmethod
    def begin(cls, path: Path, config: Config, provenance: Mapping[str, str | int | float], fresh: bool = False) -> "Run":
        """Make the directory, or go on in it; take its lock. Raises Refused or Unreadable, with nothing created or changed.

        fresh moves an old run aside to <name>.old-<N>. Raises Unsaved if the disk is full.
        """
        run = cls(path, config, provenance)
        try:
            _check_place(run.path)
            if (run.path / LOCK).exists():
                run._lock = lock.take(run.path, create=False)
            if fresh and run.path == Path.cwd():
                raise Refused(f"{run.path}: --fresh cannot move the directory it is started in; start it elsewhere")
            if fresh and run.path.exists() and any(run.path.iterdir()):
                _move_aside(run.path)
                run._let_go()
            run.restored = newest(run.path)
            _compare(run.path, run.restored, config)
            run._compare_task()
            run._take()
        except OSError as error:
            run.close()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unsaved(f"{run.path}: {error.strerror}; free {free(run.path)}") from error
            raise Refused(f"{run.path}: {error.strerror}; choose another --run-dir") from error
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunFiles:
        """Read a run's files, also while it runs, without a lock. Raises Refused if it is not a run; Unreadable, ConfigError."""
        return reading.open_run(Path(path))

    def _compare_task(self) -> None:
        """Find out what has changed of the task since the checkpoint; refuse that, unless task.changed lets it be."""
        if self.restored is None:
            return
        was = self.restored.attributes
        self.task_changed = task.changes(was, self._attributes)
        if self.config.task.changed == "refuse":
            task.refuse(self.path, self.task_changed)
        if told := task.told(was, self.restored.generation, self.task_changed):
            self._attributes["task_changes"] = told

    def _take(self) -> None:
        """Claim the directory, clean up and load the history."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._lock < 0:
            self._lock = lock.take(self.path, create=True)
        os.pwrite(self._lock, self.token, 0)
        os.ftruncate(self._lock, len(self.token))
        for place in (self.path, self.path / REPLAY, self.path / HISTORY):
            for leftover in place.glob("*.tmp.[0-9]*"):
                leftover.unlink()
        last = read_status(self.path)
        if self.restored is not None:
            self._load(self.restored)
            self.complete = last.get("status") == "complete"
        else:
            self.write_config()
        self._count(last)

    def _count(self, last: Mapping[str, Any]) -> None:
        """Count this start by what status.json said last, and write there that it was made; a complete run stays complete."""
        self._since = self.restored.generation if self.restored is not None else 0
        before, since = (last[name] if type(last.get(name)) is int else -1 for name in ("starts", "since"))
        if last.get("status") in ("running", "requeue") and self._since <= since:
            self.starts = max(before, 0) + 1
        if last.get("status") == "running":
            host, pid, when = (last.get(name, "unknown") for name in ("host", "pid", "time"))
            self.died = (
                f"the run before this one ended without a word (host {host}, pid {pid}, status of {when}): "
                "killed, out of memory, its node lost, or an error that its output tells"
            )
        threading.Thread(target=self._keep_beating, name="heartbeat", daemon=True).start()
        if not self.complete:
            self.status("running", self._since, **{name: last[name] for name in ("best_return",) if name in last})

    def write_config(self) -> None:
        """Write config.toml, the resolved configuration. Raises Unsaved."""
        replace(self.path / CONFIG, [to_toml(self.config).encode(errors="replace")])

    def _load(self, checkpoint: Checkpoint) -> None:
        self._history.load(checkpoint.closed, checkpoint.history)
        checkpoint.history = {}  # `restored` lives as long as the run
        self._segments = {segment.index: segment for segment in checkpoint.segments}
        self._named = {f"{REPLAY}/{segment.name}" for segment in checkpoint.segments}
        self._sound = checkpoint.source.name == CHECKPOINT
        self._hashes = {k: checkpoint.attributes[k] for k in ("theta_sha256", "state_sha256")}
        self._hashes["checkpoint_generation"] = checkpoint.generation
        try:
            shown = Columns(self.path / METRICS)
            final = shown.read(name for name in shown if name.startswith("final/"))
        except (Unreadable, OSError) as error:
            logger.warning("%s; the history comes from the checkpoint", error)
            return
        self._shown = {segment.name for segment in shown.closed}
        self.dropped = max(0, shown.generations - self.generations)
        if shown.generations == self.generations:
            self._final = {name.partition("/")[2]: array for name, array in final.items()}

    @property
    def generations(self) -> int:
        """Rows of the history."""
        return self._history.generations

    @property
    def tail(self) -> Arrays:
        """The rows that are in no closed segment yet, metrics/<name> and timing/<name>, each [rows, ...]."""
        return self._history.tail

    def append(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Add one generation: `row` is science and reproducible bit by bit, `timing` depends on the machine.

        Raises ValueError for names or shapes other than the first row's; timing arrays may change their length.
        """
        rows = self._history
        fitted, times = rows.metrics.fitted(row), rows.timing.fitted(timing)
        rows.metrics.append(fitted)
        rows.timing.append(times)
        self._final = {}

    def last_row(self, prefix: str = "") -> Arrays:
        """Return the metrics of the last generation whose names begin with the prefix; empty before the first."""
        columns = self._history.metrics.columns if self.generations else {}
        return {name: column[-1] for name, column in columns.items() if name.startswith(prefix)}

    @property
    def wall_seconds(self) -> float:
        """timing/wall_seconds of the last generation, 0 before the first [s]."""
        columns = self._history.timing.columns if self.generations else {}
        return float(columns["wall_seconds"][-1]) if "wall_seconds" in columns else 0.0

    def final(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the evaluation at the end of a run, apart from the rows; it lasts until a row is added."""
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
        """Save the complete state and the history; the checkpoint before it stays as checkpoint_prev.h5. Raises Unsaved.

        pending: what is known of the last generation where its row cannot be made yet; given back as restored.pending, no
        part of state_sha256. theta: the policy that theta_sha256 is of; without it the state's theta_es.
        """
        start, written = time.monotonic(), self._written
        ring = replays.Stored({}, (0, 0), {}, {})
        if replay is not None:
            ring = replays.store(replay, SEGMENT, self._segments, self._store_closed)
        self._segments = ring.segments
        saved = {**_under("state", state), **_under("learner", learner), **_under("replay_tail", ring.tail)}
        actor = np.ascontiguousarray(state["theta_es"] if theta is None else theta, "<f4")
        hashes = {
            "theta_sha256": hashlib.sha256(actor.tobytes()).hexdigest(),
            "state_sha256": digest({**saved, **ring.content}),
        }
        self._history.close(self._store_closed)
        rows, named = self._history.stored(), manifest(self._history.closed)
        attributes = {**self._attributes, **hashes, **named, "generation": generation, "replay": ring.manifest}
        names = {f"{REPLAY}/{segment.name}" for segment in ring.segments.values()}
        self._named |= names  # the file may be in its place although publishing fails
        self._publish(CHECKPOINT, {**saved, **_under("pending", pending or {}), **rows}, attributes, previous=self._sound)
        self._delete_segments(REPLAY, keep=self._named)
        self._sound, self._named = True, names
        self._hashes = {**hashes, "checkpoint_generation": generation}
        self.publish_metrics(force=True)
        self._delete_segments(HISTORY, keep=self._shown | {segment.name for segment in self._history.closed})
        self.checkpoint_seconds, self.checkpoint_bytes = time.monotonic() - start, self._written - written

    def _store_closed(self, name: str, made: Image) -> None:
        """Publish a segment in its folder."""
        folder = (self.path / name).parent
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise Unsaved(f"{folder}: {error.strerror}") from error
        self._store(name, made)

    def _delete_segments(self, folder: str, keep: set[str]) -> None:
        for file in (self.path / folder).glob("segment-*.h5"):
            if f"{folder}/{file.name}" not in keep:
                with suppress(OSError):  # tried again at the next checkpoint
                    file.unlink()

    def restore_replay(self, replay: Replay) -> None:
        """Put the transitions of the restored checkpoint back, oldest first.

        Where one of its segments is damaged, `restored` becomes the checkpoint before. Raises Unreadable if that is no better.
        """
        if self.restored is None:
            return
        try:
            replays.fill(replay, SEGMENT, self.path, self.restored)
        except Unreadable as error:
            if self.restored.source.name == PREVIOUS:
                raise
            self._go_back(str(error))
            replays.fill(replay, SEGMENT, self.path, self.restored)

    def _go_back(self, problem: str) -> None:
        """Restore the checkpoint before the newest one. Raises Unreadable, Refused."""
        before = newest(self.path, problem)
        assert before is not None
        _compare(self.path, before, self.config)
        self.restored, self._since = before, before.generation
        self._compare_task()
        self._load(before)

    def publish_metrics(self, force: bool = False) -> None:
        """Replace metrics.h5, at most every 30 s unless forced; a failure is a warning.

        Nothing is published before the first checkpoint: metrics without one mean that it was lost.
        """
        now = time.monotonic()
        if not self._hashes or (now < self._published + PUBLISH_EVERY and not force):
            return
        self._published = now
        try:
            self._history.close(self._store_closed)
            closed = self._history.closed
            attributes = {**self._attributes, **self._hashes, **manifest(closed), "generation": self.generations}
            arrays = {**self._history.tail, **_under("final", self._final)}
            self._shown |= {segment.name for segment in closed}  # the file may be in its place although publishing fails
            self._store(METRICS, image(arrays, attributes, self._history.joined()))
            self._shown = {segment.name for segment in closed}
        except Unsaved as error:
            logger.warning("%s", error)

    def save_policy(
        self, theta: np.ndarray, attributes: Mapping[str, Any], normaliser: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Replace policy.h5: theta [d] and what it takes to play it. Raises Unsaved.

        normaliser: normaliser_mean and normaliser_std [o], as datasets: an attribute holds 64 KB.
        """
        self._publish(POLICY, {"theta": theta, **(normaliser or {})}, attributes)

    def status(self, status: str, generation: int, **more: Any) -> None:
        """Replace status.json, the authority on how a run ended. Raises Unsaved, but only warns while running."""
        start = self.restored.generation if self.restored is not None else 0
        host, pid = self.token.decode().split()[:2]
        entries = {"status": status, "generation": generation, "progress": generation - start, "host": host, "pid": int(pid)}
        entries |= {"time": datetime.now(UTC).isoformat(timespec="seconds"), "starts": self.starts, "since": self._since}
        if self._hashes.get("checkpoint_generation") == generation:
            entries |= self._hashes
        try:
            self._guard()
            self._write_status((json.dumps(_plain(entries | more), indent=1) + "\n").encode())
        except Unsaved as error:
            if status != "running":
                raise
            logger.warning("%s", error)

    def _write_status(self, text: bytes) -> None:
        """Replace status.json; where that fails, remove it first: no status is better than an old one, and its place may do."""
        try:
            replace(self.path / STATUS, [text])
        except Unsaved:
            with suppress(OSError):
                (self.path / STATUS).unlink()
            replace(self.path / STATUS, [text])

    def close(self) -> None:
        """Release the lock."""
        self._closed.set()
        self._let_go()

    def _let_go(self) -> None:
        if self._lock >= 0:
            lock.release(self._lock, self.token)
            self._lock = -1

    def beat(self) -> None:
        """Touch run.lock: the sign of life where the file system has no locks."""
        with suppress(OSError):
            os.utime(self._lock)

    def _keep_beating(self) -> None:
        while not self._closed.wait(lock.BEAT):
            self.beat()

    def _publish(
        self, name: str, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any], previous: bool = False
    ) -> None:
        self._guard()
        self._written += publish(self.path / name, arrays, attributes, previous)

    def _store(self, name: str, made: Image) -> None:
        self._guard()
        self._written += store(self.path / name, made)

    def _guard(self) -> None:
        """Touch run.lock; raise Refused if another run took it: locks do not reach every file system, or it was removed."""
        try:
            ours = os.pread(self._lock, 1000, 0) == self.token
            with suppress(FileNotFoundError):
                ours &= os.path.samestat(os.stat(self.path / LOCK), os.fstat(self._lock))
        except OSError as error:
            raise Unsaved(f"{self.path / LOCK}: {error.strerror}") from error
        if not ours:
            raise Refused(f"{self.path}: another run has taken this directory; this one stops without writing")
        self.beat()


def _under(group: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {f"{group}/{name}": np.asarray(array) for name, array in arrays.items()}


def _plain(value: Any) -> Any:
    """Return the value as JSON has it: NaN and infinities become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
