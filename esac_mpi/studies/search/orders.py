"""What a task of a search asks its ranks for, and what they answer."""

from collections.abc import Generator
from typing import NamedTuple

from esac_mpi.config import Config
from esac_mpi.training.loop import Listener


class Order(NamedTuple):
    """A training that a task asks its ranks for."""

    config: Config
    listener: Listener | None
    command: list[str]  # for the run's files


class Ending(NamedTuple):
    """How a training ended. of_settings, of_machine: what was at fault, if known."""

    code: int
    said: str = ""
    of_settings: bool = False
    of_machine: bool = False
    wished: bool = False  # whether a rank wishes to stop


Trainings = Generator[Order, Ending, int]  # one after the other, and the exit code
