"""Policies beside their parents: returns in parts of the first parent's, and where they go."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from esac_mpi.analysis.densities import Grid, density, difference, divergence, grid
from esac_mpi.analysis.messages import Unusable, note, some
from esac_mpi.analysis.tables import Row


@dataclass(frozen=True)
class Relative:
    """A policy among its relatives: the parents, then what was made of them."""

    group: int  # number of the pair of parents, or of the parent
    name: str
    slots: tuple[int, ...]  # of its parents in the population; its own, of a parent
    returns: np.ndarray  # float64 [episodes], nan where unstable
    # float32 [n, 2] that it visited, two of their dimensions; [0, 2] where nobody looked
    states: np.ndarray

    @property
    def parent(self) -> bool:
        """Whether it is one of those that the others of its group were made of."""
        return self.name.startswith("parent")

    @property
    def mean(self) -> float:
        """Mean return, nan where an episode was unstable."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of its returns (n - 1), nan of a single one."""
        return float(self.returns.std(ddof=1)) if len(self.returns) > 1 else np.nan


@dataclass(frozen=True)
class Visits:
    """Where a policy goes, beside where its parents go."""

    relative: Relative
    density: np.ndarray  # [CELLS, CELLS]
    parents: np.ndarray  # [CELLS, CELLS] the mean of its parents' densities
    cells: Grid

    @property
    def kl(self) -> float:
        """KL(parents || policy) [nats]."""
        return divergence(self.parents, self.density)

    @property
    def difference(self) -> float:
        """Share of its visits that go elsewhere."""
        return difference(self.parents, self.density)


def groups(relatives: Iterable[Relative]) -> list[list[Relative]]:
    """Return the relatives of each pair or parent."""
    return [list(group) for _, group in groupby(relatives, lambda one: one.group)]


def normalised(relatives: Sequence[Relative]) -> list[float]:
    """Return mean returns in parts of that of the first of their group; nan where not positive."""
    found = []
    for group in groups(relatives):
        first = group[0].mean
        found += [one.mean / first if first > 0 else np.nan for one in group]
    return found


def tell_not_positive(relatives: Sequence[Relative]) -> None:
    """Name the groups whose returns cannot be normalised."""
    if without := [group[0].group for group in groups(relatives) if not group[0].mean > 0]:
        note(f"not normalised, the first parent's mean return is not positive: {some(without)}")


def visits(relatives: Sequence[Relative]) -> list[Visits]:
    """Return where relatives go, each group on a grid of its own. Raises Unusable."""
    found = []
    for group in groups(relatives):
        if not all(len(one.states) > 1 for one in group):
            raise Unusable(f"group {group[0].group}: no density of fewer than two visited states")
        cells = grid([one.states for one in group])
        densities = [density(one.states, cells) for one in group]
        parents = np.mean(
            [d for d, one in zip(densities, group, strict=True) if one.parent], axis=0
        )
        found += [Visits(one, d, parents, cells) for one, d in zip(group, densities, strict=True)]
    return found


def rows(relatives: Sequence[Relative], seen: Sequence[Visits] = ()) -> list[Row]:
    """Return a row for each relative."""
    found: list[Row] = []
    for i, (one, part) in enumerate(zip(relatives, normalised(relatives), strict=True)):
        numbers = {
            "mean": one.mean,
            "std": one.std,
            "normalised": part,
            "kl": np.nan,
            "difference": np.nan,
        }
        if seen:
            numbers |= {"kl": seen[i].kl, "difference": seen[i].difference}
        found.append(
            {
                "group": one.group,
                "policy": one.name,
                "slots": " ".join(map(str, one.slots)),
                "episodes": len(one.returns),
                "unstable": int(np.isnan(one.returns).sum()),
                **{name: float(f"{value:.6g}") for name, value in numbers.items()},
            }
        )
    return found
