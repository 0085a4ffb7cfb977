"""The history of a run: the newest rows in memory, older ones in closed segments that never change.

So neither memory nor what a checkpoint writes grows with the generations. A file's manifest
(attribute `history`, JSON) names the segments before its own rows; a file without one has all rows
itself.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.host.errors import Unreadable
from esac_mpi.record import files
from esac_mpi.record.files import TAIL, Arrays, Image, Joined, missing_value, nest, select_group

HISTORY = "history"  # folder of the segments, and attribute of the files that name them
SEGMENT_BYTES = 2**25  # of the rows of a segment

Shapes = dict[str, tuple[int, ...]]  # of a row, by the names of the columns


@dataclass(frozen=True)
class Closed:
    """A closed segment: rows [start, stop) of all columns that there were."""

    index: int
    start: int
    stop: int
    sha256: str  # of its HDF5 image
    shapes: Shapes

    @property
    def name(self) -> str:
        """Path from the run directory."""
        return f"{HISTORY}/segment-{self.index:08d}-{self.sha256[:8]}.h5"


def manifest(closed: Sequence[Closed]) -> dict[str, str]:
    """Return the attribute that names the segments; none where there are none."""
    kinds: list[Shapes] = []
    for segment in closed:
        if segment.shapes not in kinds:
            kinds.append(segment.shapes)
    named = [[s.start, s.stop, s.sha256, kinds.index(s.shapes)] for s in closed]
    return {HISTORY: json.dumps({"rows": kinds, "segments": named})} if closed else {}


def closed_of(attributes: Mapping[str, Any]) -> list[Closed]:
    """Return the segments that a file's attributes name."""
    if HISTORY not in attributes:
        return []
    found = json.loads(attributes[HISTORY])
    kinds = [{name: tuple(shape) for name, shape in kind.items()} for kind in found["rows"]]
    named = enumerate(found["segments"])
    return [Closed(i, start, stop, sha, kinds[kind]) for i, (start, stop, sha, kind) in named]


def check(run: Path, closed: Sequence[Closed]) -> None:
    """Raise Unreadable unless the segments are there and, by header and size, the ones named."""
    for segment in closed:
        files.check(run / segment.name, segment.sha256)


def read(run: Path, segment: Closed, names: Sequence[str]) -> Arrays:
    """Read a segment's columns, verified when this process first reads it. Raises Unreadable."""
    path = run / segment.name
    with files.opened(path) as stream:
        about = path.stat()
        _verify(path, segment.sha256, (about.st_ino, about.st_size, about.st_mtime_ns))
        with files.open_file(path, stream) as file:
            there = [name for name in names if name in segment.shapes]
            return {name: files.array_of(file, name) for name in there}


@lru_cache(maxsize=10_000)
def _verify(path: Path, sha256: str, _about: tuple[int, int, int]) -> None:
    with files.opened(path) as stream:
        if files.verify(path, stream).sha256 != sha256:
            raise Unreadable(f"{path}: not the file that was named")


class Rows:
    """Columns that grow by one row a generation; the first row fixes names, shapes and dtypes.

    ragged: values are float64 and one-dimensional ones may change their length; columns are padded
    with NaN. The first row after `load` may have columns that are new (of a later version);
    `missing` stands in their earlier rows.
    """

    def __init__(self, ragged: bool = False) -> None:
        self._columns: Arrays = {}
        self._ragged = ragged
        self._loaded = False  # whether no row was added since
        self.count = 0

    def load(self, columns: Arrays) -> None:
        """Go on after the rows of these columns, which become this one's."""
        self._columns = dict(columns)
        self.count = min((len(column) for column in columns.values()), default=0)
        self._loaded = bool(columns)

    @property
    def columns(self) -> Arrays:
        """The rows, by name, each [rows, ...]."""
        return {name: column[: self.count] for name, column in self._columns.items()}

    @property
    def row_bytes(self) -> int:
        """What a row takes [bytes]."""
        return sum(column[:1].nbytes for column in self._columns.values())

    def drop(self, count: int) -> None:
        """Forget the oldest rows; their memory is free after `trim`."""
        self._columns = {name: column[count:] for name, column in self._columns.items()}
        self.count -= count

    def trim(self) -> None:
        """Take no more memory than the rows need."""
        self._columns = {name: column.copy() for name, column in self.columns.items()}

    def fitted(self, row: Mapping[str, Any]) -> Arrays:
        """Return the row as arrays that fit the columns. Raises ValueError."""
        dtype = np.float64 if self._ragged else None
        values = {name: np.asarray(value, dtype) for name, value in row.items()}
        new = values.keys() - self._columns.keys() if self._loaded or not self._columns else set()
        if bad := [n for n, v in values.items() if n in new and v.dtype.kind not in "biuf"]:
            raise ValueError(f"not a number: {', '.join(bad)}")
        if apart := values.keys() ^ (self._columns.keys() | new):
            raise ValueError(f"row names differ from the first row's: {sorted(apart)}")
        rows = max(64, self.count + 1)
        for name, value in values.items():
            if name in new:
                shape = rows, *value.shape
                self._columns[name] = np.full(shape, missing_value(value.dtype), value.dtype)
        return {name: self._fitted(name, value) for name, value in values.items()}

    def append(self, fitted: Arrays) -> None:
        """Add a row. Raises ValueError for names or shapes other than the first row's."""
        for name, value in fitted.items():
            column = self._columns[name]
            if self.count == len(column):
                more = np.zeros((max(64, self.count), *column.shape[1:]), column.dtype)
                column = self._columns[name] = np.concatenate([column, more])
            column[self.count] = value
        self.count += 1
        self._loaded = False

    def _fitted(self, name: str, value: np.ndarray) -> np.ndarray:
        column = self._columns[name]
        if self._ragged and value.ndim == column.ndim - 1 == 1:
            width = column.shape[1]
            if len(value) > width:
                wider = (0, 0), (0, len(value) - width)
                self._columns[name] = np.pad(column, wider, constant_values=np.nan)
            return np.pad(value, (0, max(0, width - len(value))), constant_values=np.nan)
        if value.shape != column.shape[1:] or not np.can_cast(
            value.dtype, column.dtype, "same_kind"
        ):
            wanted = f"{column.dtype} {list(column.shape[1:])} as in the first row"
            got = f"{value.dtype} {list(value.shape)}"
            raise ValueError(f"{name}: expected {wanted}, got {got}")
        return value


class History:
    """What a run adds rows to; rank 0's."""

    def __init__(self) -> None:
        self.metrics, self.timing = Rows(), Rows(ragged=True)
        self.closed: list[Closed] = []
        self._joined: dict[str, Joined] = {}

    def load(self, closed: Sequence[Closed], tail: Arrays) -> None:
        """Go on after these segments and their following rows, metrics/<name> and timing/<name>."""
        self.metrics.load(select_group(tail, "metrics"))
        self.timing.load(select_group(tail, "timing"))
        self.closed, self._joined = list(closed), {}

    @property
    def generations(self) -> int:
        """Rows, closed ones included."""
        return self._before + self.metrics.count

    @property
    def _before(self) -> int:
        return self.closed[-1].stop if self.closed else 0

    @property
    def tail(self) -> Arrays:
        """The rows that are in memory, metrics/<name> and timing/<name>, each [rows, ...]."""
        return nest("metrics", self.metrics.columns) | nest("timing", self.timing.columns)

    def stored(self) -> Arrays:
        """Return the tail by the names that it has in a checkpoint."""
        return nest(TAIL, self.tail) if self.closed else self.tail

    def close(self, store: Callable[[str, Image], None]) -> None:
        """Publish the oldest rows as segments until less than one is left, or the last row."""
        rows = max(1, SEGMENT_BYTES // max(1, self.metrics.row_bytes + self.timing.row_bytes))
        if self.metrics.count <= rows:
            return
        while self.metrics.count > rows:
            arrays = {name: column[:rows] for name, column in self.tail.items()}
            start, index = self._before, len(self.closed)
            made = files.image(arrays, {"start": start, "stop": start + rows})
            shapes = {name: column.shape[1:] for name, column in arrays.items()}
            segment = Closed(index, start, start + rows, made.sha256, shapes)
            store(segment.name, made)
            self.closed.append(segment)
            self.metrics.drop(rows)
            self.timing.drop(rows)
        self.metrics.trim()
        self.timing.trim()

    def joined(self) -> dict[str, Joined]:
        """How the columns of metrics.h5 are put together; nothing before the first segment.

        They are kept, as to map 100 segments anew at each publication takes a second.
        """
        if not self.closed:
            return {}
        for name, column in self.tail.items():
            joined = self._joined.setdefault(name, Joined(column.dtype))
            for segment in self.closed:
                if segment.start < joined.rows:
                    continue
                if name in segment.shapes:
                    shape = (segment.stop - segment.start, *segment.shapes[name])
                    joined.add(segment.name, name, segment.start, shape)
                joined.rows = segment.stop
        return self._joined
