"""Keyword arguments of a task (task.kwargs): refused in a sentence where it does not take them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from esac_mpi.envs import TaskError, UnstablePhysics

OURS = {  # name: why it is not for a user to set
    "id": "task.id says it",
    "disable_env_checker": "the start has a check of its own (docs/tasks.md)",
    "render_mode": "nothing is drawn in training; esac-mpi render draws",
    "random": "seeds are addressed by episode",
}


@contextmanager
def taken(id: str, kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Make a task in here: what goes wrong with keyword arguments is a TaskError that has them."""
    for name in kwargs.keys() & OURS.keys():
        raise TaskError(f"{id}: task.kwargs.{name} cannot be set: {OURS[name]}.")
    try:
        yield
    except (TaskError, UnstablePhysics):
        raise
    except Exception as error:
        if not kwargs:
            raise
        first = str(error).partition(" was raised from the environment creator")[0]
        said = first.partition("\n")[0].rstrip(".") or type(error).__name__
        raise TaskError(
            f"{id} cannot be made with task.kwargs = {json.dumps(kwargs)}: {said}."
        ) from error
