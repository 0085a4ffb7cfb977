"""The history of a run in memory: one row a generation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from esac_mpi.record.files import Arrays


class Rows:
    """Columns that grow by one row a generation; the first row fixes names, shapes and dtypes.

    ragged: values are float64 and one-dimensional ones may change their length; columns are padded with NaN.
    """

    def __init__(self, ragged: bool = False) -> None:
        self._columns: Arrays = {}
        self._ragged = ragged
        self.count = 0

    def load(self, columns: Arrays) -> None:
        """Go on after the rows of these columns."""
        self._columns = {name: column.copy() for name, column in columns.items()}
        self.count = min((len(column) for column in columns.values()), default=0)

    @property
    def columns(self) -> Arrays:
        """The rows, by name, each [rows, ...]."""
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
        """Add a row. Raises ValueError for names or shapes other than the first row\'s."""
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
