"""Read a run for analysis: while it runs, killed, from a read-only copy, of older versions.

Nothing here locks a file or writes one. The history comes from metrics.h5, or from the newest sound
checkpoint. A file's sha256 is verified when the run is opened, and again when a later reading finds
that the run has published since.
"""

import json
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from esac_mpi.config import Config
from esac_mpi.host.errors import INSTALL, OtherSchema, Refused, Unreadable
from esac_mpi.host.paths import read_path
from esac_mpi.host.run_directory import METRICS, POLICY, SHOWN, STATUS, is_run, is_there
from esac_mpi.record import checkpoints, files, history, lock
from esac_mpi.record.checkpoints import Checkpoint, config_of
from esac_mpi.record.files import TAIL, Arrays
from esac_mpi.record.history import Closed
from esac_mpi.record.status import read_status

if TYPE_CHECKING:
    import pandas


logger = logging.getLogger(__name__)


class Columns(Mapping[str, np.ndarray]):
    """A history's arrays by name: metrics/<name>, timing/<name> [generations, ...], final/<name>.

    A missing name is a KeyError that names the file and its schema. All arrays have the generations
    that were there when the run was opened. Raises Unreadable if the file has since been damaged,
    removed, or replaced by one with fewer generations.
    """

    schema: int
    """Version of what the file holds."""

    def __init__(self, source: Path | None = None) -> None:
        """Verify the file and list its arrays. Raises Unreadable."""
        self.source = source
        self.attributes: dict[str, Any] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.closed: list[Closed] = []  # segments that hold the rows before the file's own
        self.schema, self._sha256 = files.SCHEMA, ""  # until one is read
        self._read: Arrays = {}
        if source is not None:
            with files.opened(source) as stream:
                self.schema, self._sha256 = files.verify(source, stream)
                with files.open_file(source, stream) as file:
                    self.attributes = files.attributes_of(file)
                    self.closed, self.shapes = _listed(file)
            history.check(source.parent, self.closed)
        rows = [shape[0] for name, shape in self.shapes.items() if name.startswith("metrics/")]
        self.generations = max(rows, default=0)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            # small ones together: opening costs more than reading
            narrow = self.scalars if name in self.scalars else [name]
            self._read |= self.read(narrow)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # without reading it

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    @property
    def scalars(self) -> list[str]:
        """Names of the columns of one number a generation."""
        return [name for name, s in self.shapes.items() if len(s) == 1 and not is_final(name)]

    def read(self, names: Iterable[str]) -> Arrays:
        """Return these arrays, read from the file and not kept."""
        names = list(names)
        if missing := [name for name in names if name not in self.shapes]:
            has = ", ".join(self.shapes) or "nothing yet"
            raise KeyError(f"{self}: no {', '.join(missing)}; it has {has}")
        if not names or self.source is None:
            return {}
        with files.opened(self.source) as stream:
            closed = self._current(stream, names)
            tail = f"{TAIL}/" if closed else ""
            paths = {name: name if is_final(name) else tail + name for name in names}
            with files.open_file(self.source, stream) as file:
                found = {name: files.array_of(file, path) for name, path in paths.items()}
        return self._joined(closed, found)

    def _joined(self, closed: list[Closed], found: Arrays) -> Arrays:
        """Return whole columns from the segments and the rows that follow them."""
        assert self.source is not None
        before = closed[-1].stop if closed else 0
        columns = [name for name in found if not is_final(name)]
        for name in columns:
            tail = found[name][: max(0, self.generations - before)]
            shape = self.generations, *tail.shape[1:]
            found[name] = np.full(shape, files.missing_value(tail.dtype), tail.dtype)
            found[name][before:] = tail
        for segment in closed if columns else ():
            rows = slice(segment.start, min(segment.stop, self.generations))
            if segment.start < self.generations:
                for name, array in history.read(self.source.parent, segment, columns).items():
                    # narrower where there were fewer ranks
                    part = (rows, *map(slice, array.shape[1:]))
                    found[name][part] = array[: rows.stop - rows.start]
        return found

    def _current(self, stream: BinaryIO, names: list[str]) -> list[Closed]:
        """List the file's segments; verify one published since, which its header tells."""
        assert self.source is not None
        if files.header(self.source, stream).sha256 == self._sha256:
            return self.closed
        stream.seek(0)
        files.verify(self.source, stream)
        with files.open_file(self.source, stream) as file:
            closed, now = _listed(file)
        if any(
            name not in now or (not is_final(name) and now[name][0] < self.generations)
            for name in names
        ):
            told = "the run has gone back or gone on without it since it was opened"
            raise Unreadable(f"{self.source}: {told}; open it again")
        return closed

    def __str__(self) -> str:
        if self.source is None:
            return "a run that has published nothing"
        return f"{self.source} (schema {self.schema})"


def is_final(name: str) -> bool:
    """Tell whether a dataset is of a last evaluation, and has no row a generation."""
    return name.startswith("final/")


def _listed(file: Any) -> tuple[list[Closed], dict[str, tuple[int, ...]]]:
    """Return the segments that a file names, and the shapes of whole columns."""
    closed = history.closed_of(files.attributes_of(file))
    before = closed[-1].stop if closed else 0
    shapes = {}
    for name, shape in files.datasets(file[TAIL] if closed else file).items():
        if name.startswith(("metrics/", "timing/")):
            shapes[name] = (before + shape[0], *shape[1:])
    final = {name: shape for name, shape in files.datasets(file).items() if is_final(name)}
    return closed, shapes | final


@dataclass
class RunFiles:
    """A run as its files show it.

    path: its directory, as given; another current directory later is no other run. status: what
    status.json has. config: its settings. columns: its history.
    """

    path: Path
    status: dict[str, Any]
    config: Config
    columns: Columns

    def __post_init__(self) -> None:
        self._place = Path(os.path.abspath(self.path))

    @property
    def provenance(self) -> dict[str, Any]:
        """Machine, versions, command, and hashes at checkpoint_generation; or {}."""
        attributes, source = self.columns.attributes, self.columns.source
        if source is not None and source.name != METRICS:
            return {**attributes, "checkpoint_generation": attributes["generation"]}
        return attributes

    @property
    def start(self) -> dict[str, Any]:
        """From which run or policy this one began, and what it took; or {}."""
        return json.loads(self.provenance.get("start") or "{}")

    @property
    def generation(self) -> int:
        """Generations in the published history."""
        return self.columns.generations

    @property
    def state(self) -> str:
        """running, complete, requeue, failed, pruned, dead: ended without a word; or unknown."""
        status = self.status.get("status", "running")
        if status != "running":
            return status
        writer = self.status.get("host"), self.status.get("pid")
        # of this process: closing run.lock would drop its lock
        if writer == (socket.gethostname(), os.getpid()) or not lock.is_free(self._place):
            return status
        # it may have ended since it was opened, and said so
        last = read_status(self._place, again=True)
        if not last and is_there(self._place / STATUS):
            return "unknown"
        status = last.get("status", status)
        return "dead" if status == "running" else status

    @cached_property
    def history(self) -> "pandas.DataFrame":
        """The scalar columns, a row a generation: <metric>, timing/<name>. Needs pandas."""
        try:
            import pandas  # only who asks for the table pays for it
        except ImportError as error:
            told = f"Run.history needs pandas: {INSTALL} '.[analysis]'; Run.columns has arrays"
            raise ImportError(told) from error
        names = self.columns.scalars
        arrays = {name.removeprefix("metrics/"): self.columns[name] for name in names}
        index = pandas.Index(arrays.pop("generation", np.zeros(0, np.int64)), name="generation")
        return pandas.DataFrame(arrays, index=index)

    def members(self, name: str) -> np.ndarray:
        """Read one number a member, [generations, n]: "fitness", "length", "timing/member_seconds".

        The array is read at each call and not kept. Raises KeyError, naming the file, its schema
        and what it has; Unreadable.
        """
        full = name if "/" in name else f"metrics/{name}"
        if len(self.columns.shapes.get(full, (0, 0))) != 2:
            wide = [n for n, shape in self.columns.shapes.items() if len(shape) == 2]
            told = f"{name} is one number a generation; those with more are {', '.join(wide)}"
            raise KeyError(f"{self.columns}: {told}")
        return self.columns.read([full])[full]

    def newest(self) -> Checkpoint | None:
        """Read the newest sound checkpoint, None for none. Raises Refused, Unreadable."""
        return checkpoints.newest(self._place)

    @property
    def policy(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The arrays and attributes of policy.h5, None before an evaluation. Raises Unreadable."""
        file = self._place / POLICY
        return files.read(file) if file.exists() else None


def open_run(place: str | os.PathLike[str]) -> RunFiles:
    """Open a run's files. Raises Refused, for no run or a newer one; Unreadable; ConfigError."""
    path = read_path(place, Refused)
    try:
        there = path.is_dir() and is_run(path)
    except OSError as error:  # somebody else's, a stale mount, a name that is too long
        raise Unreadable(f"{path}: {error.strerror}") from error
    if not there:
        raise Refused(f"{path}: {_no_run(path)}")
    columns = _newest(Path(os.path.abspath(path)))
    if columns.source is None:
        config = checkpoints.settings_in(path)
    else:
        config = config_of(columns.attributes["config"], columns.source)
    return RunFiles(path, read_status(path), config, columns)


def _no_run(path: Path) -> str:
    """Say why a path is no run: nothing is there, or it holds runs, or is a file of one."""
    if not is_there(path):
        return "no such directory"
    said = "not a run directory of esac_mpi"
    if is_run(path.parent):
        return f"{said}, but {path.parent} is one"
    if os.path.isfile(path):
        return f"{said}, but a file; */ in place of * takes directories alone"
    with suppress(OSError):
        if runs := sum(map(is_run, path.iterdir())):
            return f"{said}; it holds {runs}: {path}/*/"
    return said


def _newest(path: Path) -> Columns:
    """Read the history last published, or the newest sound checkpoint's; empty for neither."""
    problems: list[str] = []
    for file in filter(is_there, (path / name for name in SHOWN)):
        try:
            columns = Columns(file)
        except OtherSchema as error:
            raise Refused(str(error)) from error
        except Unreadable as error:
            problems.append(str(error))
        else:
            for problem in problems:
                logger.warning("%s; the history comes from %s", problem, columns.source)
            return columns
    if problems:
        raise Unreadable(f"{path}: nothing readable: {'; '.join(problems)}")
    return Columns()
