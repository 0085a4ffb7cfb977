"""The newest rows of a run's history in memory: one row a generation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from esac_mpi.record.files import Arrays, missing_value


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
        values = {
            name: np.asarray(value, np.float64 if self._ragged else None)
            for name, value in row.items()
        }
        new = values.keys() - self._columns.keys() if self._loaded or not self._columns else set()
        if bad := [
            name for name in values if name in new and values[name].dtype.kind not in "biuf"
        ]:
            raise ValueError(f"not a number: {', '.join(bad)}")
        if apart := values.keys() ^ (self._columns.keys() | new):
            raise ValueError(f"row names differ from the first row's: {sorted(apart)}")
        rows = max(64, self.count + 1)
        for name, value in values.items():
            if name in new:
                self._columns[name] = np.full(
                    (rows, *value.shape), missing_value(value.dtype), value.dtype
                )
        return {name: self._fitted(name, value) for name, value in values.items()}

    def append(self, fitted: Arrays) -> None:
        """Add a row. Raises ValueError for names or shapes other than the first row\'s."""
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
                self._columns[name] = np.pad(
                    column, ((0, 0), (0, len(value) - width)), constant_values=np.nan
                )
            return np.pad(value, (0, max(0, width - len(value))), constant_values=np.nan)
        if value.shape != column.shape[1:] or not np.can_cast(
            value.dtype, column.dtype, "same_kind"
        ):
            raise ValueError(
                f"{name}: expected {column.dtype} {list(column.shape[1:])} as in the first row, "
                f"got {value.dtype} {list(value.shape)}"
            )
        return value
