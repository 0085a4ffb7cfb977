"""What a run leaves on disk: checkpoints, metrics, status and the best policy. Only rank 0 comes here.

Files are published whole, never appended in place: an HDF5 image built in memory, its sha256 in a 512-byte user block, a
temporary name, fsync, rename, fsync of the directory. So every name holds a complete file at every moment, h5py opens it as
it is, and a reader that has it open never disturbs the run. run.lock is held (fcntl) as long as the run lives.
"""

import errno
import fcntl
import hashlib
import io
import json
import logging
import math
import os
import re
import shutil
import socket
import time
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import h5py
import numpy as np

from esac_mpi.config import WARN, Config, ConfigError, differences, from_table, read_toml, to_toml, updated

SCHEMA = 1  # version of what the files hold
SEGMENT = 10_000  # transitions of a replay segment
USER_BLOCK = 512  # bytes before the HDF5 image
PUBLISH_EVERY = 30.0  # least time between two metrics.h5 [s]

CHECKPOINT, PREVIOUS, METRICS = "checkpoint.h5", "checkpoint_prev.h5", "metrics.h5"
CONFIG, STATUS, POLICY, LOCK, REPLAY = "config.toml", "status.json", "policy.h5", "run.lock", "replay"

logger = logging.getLogger(__name__)
Arrays = dict[str, np.ndarray]


class Refused(Exception):
    """This directory must not be used for this run; nothing was changed. Exit code 2."""


class Unreadable(Exception):
    """A file is damaged, or no checkpoint can be read; nothing was changed. Exit code 65."""


class OtherSchema(Unreadable):
    """A sound file of another version of esac_mpi."""


class Unsaved(Exception):
    """A file could not be written; the one it would have replaced stays. Exit code 74."""


class Replay(Protocol):
    """A ring of transitions, addressed by how many were added before."""

    added: int
    capacity: int

    def rows(self, start: int, stop: int) -> Mapping[str, np.ndarray]:
        """Return transitions [start, stop) by name, each [stop - start, ...]."""

    def restore(self, start: int, rows: Mapping[str, np.ndarray]) -> None:
        """Put transitions back at their places; `added` becomes start + their number."""


# Files


def publish(path: Path, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any], previous: bool = False) -> str:
    """Replace `path` by an HDF5 file of the arrays and attributes; return the sha256 of its image.

    Array names may contain '/'. previous=True keeps the file that was there under its name with _prev. Raises Unsaved.
    """
    image = _image(arrays, attributes)
    sha256 = hashlib.sha256(image).hexdigest()
    _replace(path, (_user_block(SCHEMA, len(image), sha256), image), previous)
    return sha256


def read(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays and attributes of a published file. Raises Unreadable, saying what is wrong with it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    _check(path, content)
    arrays: Arrays = {}

    def collect(name: str, node: h5py.Group | h5py.Dataset) -> None:
        if isinstance(node, h5py.Dataset):
            arrays[name] = np.asarray(node.asstr()[()], str) if h5py.check_string_dtype(node.dtype) else np.asarray(node[()])

    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            file.visititems(collect)
            return arrays, {name: v.item() if isinstance(v, np.generic) else v for name, v in file.attrs.items()}
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise Unreadable(f"{path}: damaged: {error}") from error


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the sha256 over names, dtypes, shapes and little-endian bytes, in the order of the names."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        sha256.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def _image(arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any]) -> bytes:
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            array = np.asarray(array)
            if array.dtype.kind == "U":
                file.create_dataset(name, data=array.astype(object), dtype=h5py.string_dtype())
            else:
                file.create_dataset(name, data=array)
        for name, value in attributes.items():
            file.attrs[name] = value.encode(errors="replace").decode() if isinstance(value, str) else value
        file.flush()
        return file.id.get_file_image()


def _user_block(schema: int, size: int, sha256: str) -> bytes:
    text = f"esac_mpi\nschema {schema}\nbytes {size}\nsha256 {sha256}\n"
    check = hashlib.sha256(text.encode()).hexdigest()[:16]  # a flipped bit must not look like another schema
    return f"{text}check {check}\n".encode().ljust(USER_BLOCK, b"\0")


def _check(path: Path, content: bytes) -> None:
    """Raise Unreadable unless the content agrees with its user block."""
    block, image = content[:USER_BLOCK], memoryview(content)[USER_BLOCK:]
    found = re.match(rb"esac_mpi\nschema (\d+)\nbytes (\d+)\nsha256 ([0-9a-f]{64})\n", block)
    if found is None:
        raise Unreadable(f"{path}: not a file of esac_mpi, or its first bytes are damaged ({len(content):,} bytes)")
    schema, size, sha256 = int(found[1]), int(found[2]), found[3].decode()
    if block != _user_block(schema, size, sha256):
        raise Unreadable(f"{path}: its first {USER_BLOCK} bytes are damaged")
    if schema != SCHEMA:
        raise OtherSchema(f"{path}: schema {schema}, written by another version of esac_mpi; this one reads schema {SCHEMA}")
    if len(image) != size:
        raise Unreadable(f"{path}: truncated: {len(image):,} of {size:,} bytes")
    if hashlib.sha256(image).hexdigest() != sha256:
        raise Unreadable(f"{path}: damaged: its sha256 differs from the one written with it")


def _replace(path: Path, parts: Iterable[bytes], previous: bool = False) -> None:
    parts = tuple(parts)
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if previous and path.exists():
            _keep(path)
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise Unsaved(f"{path}: {error.strerror}; needed {sum(map(len, parts)):,} bytes, free {_free(path)}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _keep(path: Path) -> None:
    """Give the file its second name, *_prev, without a moment in which the first is missing."""
    previous = path.with_name(f"{path.stem}_prev{path.suffix}")
    link = path.with_name(f"{previous.name}.tmp.{os.getpid()}")
    try:
        os.link(path, link)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        os.replace(path, previous)  # no hard links here: until the next rename, *_prev is the one to read
        return
    os.replace(link, previous)
    with suppress(FileNotFoundError):
        link.unlink()  # rename does nothing where both names are one file already


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(directory)


def _free(path: Path) -> str:
    try:
        return f"{shutil.disk_usage(path.parent).free:,} bytes"
    except OSError as error:
        return f"unknown ({error.strerror})"


# The lock


def _lock(path: Path, create: bool) -> int:
    """Return the descriptor of the locked run.lock, its content untouched. Raises Refused, naming the holder."""
    descriptor = os.open(path / LOCK, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
    for attempt in range(5):  # a reader that asks whether the run lives holds the lock for an instant
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                logger.warning("%s: no locks on this file system (%s); start no second run here", path, error.strerror)
                return descriptor
        time.sleep(0.05 * attempt)
    host, pid, since = [*os.pread(descriptor, 1000, 0).decode(errors="replace").split(), "?", "?", "?"][:3]
    os.close(descriptor)
    raise Refused(
        f"{path}: in use by another run: host {host}, pid {pid}, since {since}. Wait for its end, "
        f"stop it (on {host}: kill {pid}), or choose another --run-dir"
    )


def _unlocked(path: Path) -> bool:
    """Return whether certainly nobody holds the lock of a directory that another process may be running in."""
    try:
        with open(path / LOCK, "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# Checkpoints


@dataclass(frozen=True)
class Segment:
    """A closed, published part of the replay ring."""

    index: int  # of SEGMENT transitions each, counted from the first transition ever
    start: int  # first transition it holds: index * SEGMENT, or later if the ring had lost some
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
    history: Arrays = field(default_factory=dict)
    replay_tail: Arrays = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    replay_bounds: tuple[int, int] = (0, 0)  # first and one past the last transition held


def _config(text: str, source: Path) -> Config:
    try:
        return updated(Config(), from_table(tomllib.loads(text), str(source)))
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{source}: its configuration is not valid TOML: {error}") from error


def _part(arrays: Arrays, *groups: str, keep: bool = False) -> Arrays:
    """Return the arrays below the groups, by name without the group unless keep."""
    return {n if keep else n.partition("/")[2]: a for n, a in arrays.items() if n.partition("/")[0] in groups}


def _read_checkpoint(source: Path) -> Checkpoint:
    """Read a checkpoint and verify the segments it names. Raises Unreadable."""
    arrays, attributes = read(source)
    if not {"generation", "config", "replay"} <= attributes.keys():
        raise Unreadable(f"{source}: not a checkpoint")
    replay = json.loads(attributes["replay"])
    checkpoint = Checkpoint(
        attributes["generation"], _part(arrays, "state"), _part(arrays, "learner"), _config(attributes["config"], source),
        attributes, source, _part(arrays, "metrics", "timing", keep=True), _part(arrays, "replay_tail"),
        [Segment(*entry) for entry in replay["segments"]], tuple(replay["bounds"]),
    )  # fmt: skip
    for segment in checkpoint.segments:
        _read_segment(source.parent, segment)
    return checkpoint


def _read_segment(run: Path, segment: Segment) -> Arrays:
    path = run / REPLAY / segment.name
    rows, _ = read(path)
    if digest(rows) != segment.sha256:
        raise Unreadable(f"{path}: not the file that the checkpoint names")
    return rows


def _history(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Return history and attributes as last published, or of the newest checkpoint; empty in a run that has neither."""
    try:
        return read(path / METRICS)
    except Unreadable as error:
        checkpoint = _newest(path)
        if checkpoint is None:
            return {}, {}
        logger.warning("%s; the history comes from %s", error, checkpoint.source)
        return checkpoint.history, {**checkpoint.attributes, "checkpoint_generation": checkpoint.generation}


def _status(path: Path) -> dict[str, Any]:
    try:
        return json.loads((path / STATUS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        logger.warning("%s: %s; going on without it", path / STATUS, error)
        return {}


def _newest(path: Path) -> Checkpoint | None:
    """Return the newest valid checkpoint, None in a new directory. Raises Unreadable, Refused."""
    problems: list[str] = []
    for file in (path / CHECKPOINT, path / PREVIOUS):
        if not file.exists():
            continue
        try:
            checkpoint = _read_checkpoint(file)
        except (OtherSchema, ConfigError) as error:
            raise Refused(f"{error}. Continue with that version, or choose --fresh or another --run-dir") from error
        except Unreadable as error:
            problems.append(str(error))
            continue
        for problem in problems:
            logger.warning("%s; going on from %s, generation %d", problem, file, checkpoint.generation)
        return checkpoint
    if (path / METRICS).exists() and not problems:
        problems = [f"{path / METRICS} is there, but no checkpoint"]
    if problems:
        raise Unreadable(f"{path}: no readable checkpoint: {'; '.join(problems)}. --fresh starts over and moves this run aside")
    return None


# Directories


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in (LOCK, CHECKPOINT, PREVIOUS, METRICS))


def _check_place(path: Path) -> None:
    """Refuse a directory that is not ours or cannot be written."""
    if path.exists():
        if not path.is_dir():
            raise Refused(f"{path}: not a directory; choose another --run-dir")
        if any(path.iterdir()) and not _is_run(path):
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
        raise Refused(f"{path} holds a run of other settings:{listing}\nChoose --fresh (moves it aside) or another --run-dir")


def _move_aside(path: Path) -> None:
    number = next(n for n in range(1, 10**6) if not os.path.lexists(f"{path}.old-{n}"))
    os.rename(path, f"{path}.old-{number}")
    logger.info("the old run was moved to %s.old-%d", path, number)


# History


class _Rows:
    """Columns that grow by one row a generation; the first row fixes names, shapes and dtypes.

    ragged: values are float64 and one-dimensional ones may change their length; columns are padded with NaN.
    """

    def __init__(self, ragged: bool = False) -> None:
        self._columns: Arrays = {}
        self._ragged = ragged
        self.count = 0

    def load(self, columns: Arrays) -> None:
        self._columns = {name: column.copy() for name, column in columns.items()}
        self.count = min((len(column) for column in columns.values()), default=0)

    @property
    def columns(self) -> Arrays:
        return {name: column[: self.count] for name, column in self._columns.items()}

    def fitted(self, row: Mapping[str, Any]) -> Arrays:
        """Return the row as arrays that fit the columns. Raises ValueError."""
        values = {name: np.asarray(value, np.float64 if self._ragged else None) for name, value in row.items()}
        if not self._columns:
            if bad := [name for name, value in values.items() if value.dtype.kind not in "biuf"]:
                raise ValueError(f"not a number: {', '.join(bad)}")
            self._columns = {name: np.zeros((64, *value.shape), value.dtype) for name, value in values.items()}
        elif values.keys() != self._columns.keys():
            raise ValueError(f"row names differ from the first row's: {sorted(values.keys() ^ self._columns.keys())}")
        return {name: self._fitted(name, value) for name, value in values.items()}

    def append(self, fitted: Arrays) -> None:
        for name, value in fitted.items():
            column = self._columns[name]
            if self.count == len(column):
                column = self._columns[name] = np.concatenate([column, np.zeros_like(column)])
            column[self.count] = value
        self.count += 1

    def _fitted(self, name: str, value: np.ndarray) -> np.ndarray:
        column = self._columns[name]
        if self._ragged and value.ndim == column.ndim - 1 == 1:
            width = max(len(value), column.shape[1])
            self._columns[name] = np.pad(column, ((0, 0), (0, width - column.shape[1])), constant_values=np.nan)
            return np.pad(value, (0, width - len(value)), constant_values=np.nan)
        if value.shape != column.shape[1:] or not np.can_cast(value.dtype, column.dtype, "same_kind"):
            raise ValueError(
                f"{name}: expected {column.dtype} {list(column.shape[1:])} as in the first row, "
                f"got {value.dtype} {list(value.shape)}"
            )
        return value


class Run:
    """The directory of one run, held by rank 0 from begin() to close().

    restored: the checkpoint to go on from, None in a new run. dropped: rows that metrics.h5 had beyond it.
    complete: whether status.json called the run complete when it was taken up.
    """

    def __init__(self, path: Path, config: Config, provenance: Mapping[str, str | int | float]) -> None:
        self.path = Path(path).resolve()
        self.config = config
        self.restored: Checkpoint | None = None
        self.dropped = 0
        self.complete = False
        self._metrics, self._timing = _Rows(), _Rows(ragged=True)
        self._final: Arrays = {}
        self._segments: dict[int, Segment] = {}  # published ones that the ring still needs, by index
        self._named: set[str] = set()  # files of replay/ that the newest checkpoint names
        self._sound = False  # whether checkpoint.h5 is worth keeping as the previous one
        self._attributes: dict[str, Any] = {**provenance, "config": to_toml(config)}
        self._hashes: dict[str, Any] = {}  # checkpoint_generation, theta_sha256, state_sha256
        self._published = -math.inf
        self._lock = -1
        self._token = f"{socket.gethostname()} {os.getpid()} {datetime.now(UTC).isoformat()}\n".encode()

    @classmethod
    def begin(cls, path: Path, config: Config, provenance: Mapping[str, str | int | float], fresh: bool = False) -> "Run":
        """Make the directory, or go on in it; take its lock. Raises Refused or Unreadable, with nothing created or changed.

        fresh moves an old run aside to <name>.old-<N>. Raises Unsaved if the disk is full.
        """
        run = cls(path, config, provenance)
        try:
            _check_place(run.path)
            if (run.path / LOCK).exists():
                run._lock = _lock(run.path, create=False)
            if fresh and run.path == Path.cwd():
                raise Refused(f"{run.path}: --fresh cannot move the directory it is started in; start it elsewhere")
            if fresh and run.path.exists() and any(run.path.iterdir()):
                _move_aside(run.path)
                run.close()
            run.restored = _newest(run.path)
            _compare(run.path, run.restored, config)
            run._take()
        except OSError as error:
            run.close()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unsaved(f"{run.path}: {error.strerror}") from error
            raise Refused(f"{run.path}: {error.strerror}; choose another --run-dir") from error
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: Path) -> "RunFiles":
        """Read a run's files, also while it runs, without a lock. Raises Refused if it is not a run; Unreadable."""
        path = Path(path)
        if not path.is_dir() or not _is_run(path):
            raise Refused(f"{path}: not a run directory of esac_mpi")
        arrays, attributes = _history(path)
        config = _config(attributes["config"], path) if attributes else updated(Config(), read_toml(path / CONFIG))
        return RunFiles(path, _status(path), config, attributes, arrays)

    def _take(self) -> None:
        """Claim the directory, clean up and load the history."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._lock < 0:
            self._lock = _lock(self.path, create=True)
        os.pwrite(self._lock, self._token, 0)
        os.ftruncate(self._lock, len(self._token))
        for leftover in (*self.path.glob("*.tmp.[0-9]*"), *(self.path / REPLAY).glob("*.tmp.[0-9]*")):
            leftover.unlink()
        if self.restored is not None:
            self._load(self.restored)
            self.complete = _status(self.path).get("status") == "complete"
        if self.restored is None:
            self.write_config()

    def write_config(self) -> None:
        """Write config.toml, the resolved configuration. Raises Unsaved."""
        _replace(self.path / CONFIG, [to_toml(self.config).encode(errors="replace")])

    def _load(self, checkpoint: Checkpoint) -> None:
        self._metrics.load(_part(checkpoint.history, "metrics"))
        self._timing.load(_part(checkpoint.history, "timing"))
        self._segments = {segment.index: segment for segment in checkpoint.segments}
        self._named = {segment.name for segment in checkpoint.segments}
        self._sound = checkpoint.source.name == CHECKPOINT
        self._hashes = {k: checkpoint.attributes[k] for k in ("theta_sha256", "state_sha256")}
        self._hashes["checkpoint_generation"] = checkpoint.generation
        try:
            arrays = read(self.path / METRICS)[0]
        except Unreadable as error:
            logger.warning("%s; the history comes from the checkpoint", error)
            return
        rows = max((len(column) for column in _part(arrays, "metrics").values()), default=0)
        self.dropped = max(0, rows - self._metrics.count)
        if rows == self._metrics.count:
            self._final = _part(arrays, "final")

    @property
    def history(self) -> Arrays:
        """metrics/<name> and timing/<name>, each [generations, ...]."""
        parts = (("metrics", self._metrics), ("timing", self._timing))
        return {f"{group}/{name}": column for group, rows in parts for name, column in rows.columns.items()}

    def append(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Add one generation: `row` is science and reproducible bit by bit, `timing` depends on the machine.

        Raises ValueError for names or shapes other than the first row's; timing arrays may change their length.
        """
        fitted, times = self._metrics.fitted(row), self._timing.fitted(timing)
        self._metrics.append(fitted)
        self._timing.append(times)
        self._final = {}

    def last_row(self, prefix: str = "") -> Arrays:
        """Return the metrics of the last generation whose names begin with the prefix; empty before the first."""
        columns = self._metrics.columns if self._metrics.count else {}
        return {name: column[-1] for name, column in columns.items() if name.startswith(prefix)}

    @property
    def wall_seconds(self) -> float:
        """timing/wall_seconds of the last generation, 0 before the first [s]."""
        columns = self._timing.columns if self._timing.count else {}
        return float(columns["wall_seconds"][-1]) if "wall_seconds" in columns else 0.0

    def final(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the evaluation at the end of a run, apart from the rows; it lasts until a row is added."""
        self._final = {name: np.asarray(array) for name, array in arrays.items()}
        self.publish_metrics(force=True)

    def checkpoint(
        self, generation: int, state: Mapping[str, np.ndarray], learner: Mapping[str, np.ndarray], replay: Replay | None = None
    ) -> None:
        """Save the complete state and the history; the checkpoint before it stays as checkpoint_prev.h5. Raises Unsaved."""
        segments, bounds, tail, content = self._store_replay(replay) if replay is not None else ([], (0, 0), {}, {})
        saved = {**_under("state", state), **_under("learner", learner), **_under("replay_tail", tail)}
        actor = next(state[name] for name in ("theta_es", "theta", "theta_sac") if name in state)
        theta = np.ascontiguousarray(actor, "<f4")
        hashes = {
            "theta_sha256": hashlib.sha256(theta.tobytes()).hexdigest(),
            "state_sha256": digest({**saved, **content}),
        }
        manifest = {"bounds": bounds, "segments": [[s.index, s.start, s.sha256] for s in segments]}
        attributes = {**self._attributes, **hashes, "generation": generation, "replay": json.dumps(manifest)}
        self._publish(CHECKPOINT, {**saved, **self.history}, attributes, previous=self._sound)
        names = {segment.name for segment in segments}
        self._delete_segments(keep=names | self._named)
        self._sound, self._named = True, names
        self._hashes = {**hashes, "checkpoint_generation": generation}
        self.publish_metrics(force=True)

    def _store_replay(self, replay: Replay) -> tuple[list[Segment], tuple[int, int], Arrays, Arrays]:
        """Publish newly closed segments; return those the ring still needs, its bounds, the open tail, and digests.

        The digests cover exactly the rows in the ring, whenever checkpoints were made.
        """
        first, stop = max(0, replay.added - replay.capacity), replay.added
        closed = range(first // SEGMENT, stop // SEGMENT)
        content: Arrays = {"replay/bounds": np.array([first, stop])}
        for index in closed:
            if index not in self._segments:
                self._segments[index] = self._close_segment(replay, index, max(index * SEGMENT, first))
            whole = first <= index * SEGMENT
            sha256 = self._segments[index].sha256 if whole else digest(replay.rows(first, (index + 1) * SEGMENT))
            content[f"replay/{index}"] = np.frombuffer(bytes.fromhex(sha256), np.uint8)
        self._segments = {index: self._segments[index] for index in closed}
        tail = replay.rows(max(first, stop // SEGMENT * SEGMENT), stop)
        return list(self._segments.values()), (first, stop), dict(tail), content

    def _close_segment(self, replay: Replay, index: int, start: int) -> Segment:
        rows = replay.rows(start, (index + 1) * SEGMENT)
        try:
            (self.path / REPLAY).mkdir(exist_ok=True)
        except OSError as error:
            raise Unsaved(f"{self.path / REPLAY}: {error.strerror}") from error
        segment = Segment(index, start, digest(rows))
        self._publish(f"{REPLAY}/{segment.name}", rows, {"start": start})
        return segment

    def _delete_segments(self, keep: set[str]) -> None:
        for file in (self.path / REPLAY).glob("segment-*.h5"):
            if file.name not in keep:
                with suppress(OSError):  # tried again at the next checkpoint
                    file.unlink()

    def restore_replay(self, replay: Replay) -> None:
        """Put the transitions of the restored checkpoint back, oldest first. Raises Unreadable."""
        if self.restored is None:
            return
        first, stop = self.restored.replay_bounds
        for segment in self.restored.segments:
            lost = max(0, first - segment.start)
            rows = _read_segment(self.path, segment)
            replay.restore(segment.start + lost, {name: column[lost:] for name, column in rows.items()})
        start = max(first, stop // SEGMENT * SEGMENT)
        if start < stop:
            replay.restore(start, self.restored.replay_tail)

    def publish_metrics(self, force: bool = False) -> None:
        """Replace metrics.h5, at most every 30 s unless forced; a failure is a warning.

        Nothing is published before the first checkpoint: metrics without one mean that it was lost.
        """
        now = time.monotonic()
        if not self._hashes or (now < self._published + PUBLISH_EVERY and not force):
            return
        self._published = now
        try:
            attributes = {**self._attributes, **self._hashes, "generation": self._metrics.count}
            self._publish(METRICS, {**self.history, **_under("final", self._final)}, attributes)
        except Unsaved as error:
            logger.warning("%s", error)

    def save_policy(self, theta: np.ndarray, attributes: Mapping[str, Any]) -> None:
        """Replace policy.h5: theta [d] and what it takes to play it. Raises Unsaved."""
        self._publish(POLICY, {"theta": theta}, attributes)

    def status(self, status: str, generation: int, **more: Any) -> None:
        """Replace status.json, the authority on how a run ended. Raises Unsaved, but only warns while running."""
        start = self.restored.generation if self.restored is not None else 0
        host, pid = self._token.decode().split()[:2]
        entries = {"status": status, "generation": generation, "progress": generation - start, "host": host, "pid": int(pid)}
        entries["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        if self._hashes.get("checkpoint_generation") == generation:
            entries |= self._hashes
        try:
            self._guard()
            _replace(self.path / STATUS, [(json.dumps(_plain(entries | more), indent=1) + "\n").encode()])
        except Unsaved as error:
            if status != "running":
                raise
            logger.warning("%s", error)

    def close(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _publish(
        self, name: str, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, Any], previous: bool = False
    ) -> None:
        self._guard()
        publish(self.path / name, arrays, attributes, previous)

    def _guard(self) -> None:
        """Raise Refused if another run took the directory: locks do not reach every file system, or run.lock was removed."""
        try:
            ours = os.pread(self._lock, 1000, 0) == self._token
            with suppress(FileNotFoundError):
                ours &= os.path.samestat(os.stat(self.path / LOCK), os.fstat(self._lock))
        except OSError as error:
            raise Unsaved(f"{self.path / LOCK}: {error.strerror}") from error
        if not ours:
            raise Refused(f"{self.path}: another run has taken this directory; this one stops without writing")


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


@dataclass
class RunFiles:
    """A run as its files show it."""

    path: Path
    status: dict[str, Any]  # of status.json
    config: Config
    attributes: dict[str, Any]  # provenance; generation; theta_sha256 and state_sha256 at checkpoint_generation
    history: Arrays  # metrics/<name> and timing/<name>, each [generations, ...]; final/<name>

    @property
    def state(self) -> str:
        """running, complete, requeue, failed, or dead: "running" although its process has ended."""
        status = self.status.get("status", "running")
        if status != "running":
            return status
        here = self.status.get("host") == socket.gethostname()
        if here and self.status.get("pid") == os.getpid():
            return status  # and closing run.lock would drop this process's lock
        return "dead" if _unlocked(self.path) else status
