"""What the tables of all algorithms with a population share: by what they select."""

from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import NonNegativeOr
from esac_mpi.config.table import Table

SURVIVAL: Literal["survival"] = "survival"


@dataclass(frozen=True)
class Selecting(Table):
    """A table with a fitness, which all selection goes by."""

    reward_shift: Annotated[float | Literal["survival"], NonNegativeOr(SURVIVAL)] = 0.0
    """What each step takes from the fitness, by which members are compared: return - reward_shift * length
    [reward]. Evaluations, rows and learners have the task's own returns and rewards. survival: the task's
    bonus for staying alive, 0 where it has none; the run's config.toml has the number. ARS: the bonus."""

    @property
    def shift(self) -> float:
        """What each step takes from the fitness, once the task is known."""
        assert not isinstance(self.reward_shift, str), "reward_shift is still open"
        return self.reward_shift
