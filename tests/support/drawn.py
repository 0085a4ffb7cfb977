"""Random numbers that a test has chosen."""

from typing import Any

import numpy as np


class Drawn:
    """Stands for a generator: gives one of its entries at each call, and keeps the calls."""

    def __init__(self, *numbers: Any) -> None:
        self._numbers = list(numbers)
        self.calls: list[tuple[Any, ...]] = []

    def _next(self, *bounds: Any, **shape: Any) -> np.ndarray:
        self.calls.append(bounds)
        numbers = np.asarray(self._numbers.pop(0))
        return numbers if numbers.size else numbers.astype(np.int64)

    integers = random = uniform = standard_normal = permutation = choice = _next

    @property
    def spent(self) -> bool:
        """Whether all numbers have been asked for."""
        return not self._numbers
