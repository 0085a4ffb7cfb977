"""Keyword arguments of a task (task.kwargs): refused in a sentence where it does not take them."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from esac_mpi.envs import TaskError, UnstablePhysics, nearest

OURS = {  # name: why it is not for a user to set
    "id": "task.id says it",
    "disable_env_checker": "the start has a check of its own (docs/tasks.md)",
    "render_mode": "nothing is drawn in training; esac-mpi render draws",
    "random": "seeds are addressed by episode",
}


@contextmanager
def taken(id: str, kwargs: Mapping[str, Any], maker: Callable[[], Any]) -> Iterator[None]:
    """Make a task in here: what goes wrong with keyword arguments is a TaskError that names them.

    maker: returns the function that takes them, whose names are compared.
    """
    for name in kwargs.keys() & OURS.keys():
        raise TaskError(f"{id}: task.kwargs.{name} cannot be set: {OURS[name]}.")
    try:
        if kwargs:
            _refuse_words(id, kwargs, _parameters(maker))
        yield
    except (TaskError, UnstablePhysics):
        raise
    except Exception as error:
        if not kwargs:
            raise
        first = (
            str(error).partition(" was raised from the environment creator")[0].partition("\n")[0]
        )
        said = first.rstrip(".") or type(error).__name__
        hint = _nearest(said, _parameters(maker))
        raise TaskError(
            f"{id} cannot be made with task.kwargs = {json.dumps(kwargs)}: {said}.{hint}"
        ) from error


def _parameters(maker: Callable[[], Any]) -> dict[str, Any]:
    """Return {name: default} of what a maker takes; empty where it does not tell."""
    try:
        found = inspect.signature(maker()).parameters.values()
    except Exception:  # of an id or a module that does not exist, which is told otherwise
        return {}
    return {
        one.name: one.default
        for one in found
        if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
    }


def _refuse_words(id: str, kwargs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raise TaskError for a text where the default is a number: it would fail only in its steps."""
    for name, value in kwargs.items():
        default = parameters.get(name)
        if isinstance(value, str) and isinstance(default, int | float):
            raise TaskError(
                f"{id}: task.kwargs.{name} = {value!r}: expected a value like its default, "
                f"{default!r}."
            )


def _nearest(said: str, parameters: Mapping[str, Any]) -> str:
    """Return a hint at the parameter that an unexpected one may have meant."""
    unexpected = re.search(r"unexpected keyword argument '(.+?)'", said)
    there = f"It takes {', '.join(parameters)}."
    return f" {nearest(unexpected[1], parameters, there)}" if unexpected and parameters else ""
