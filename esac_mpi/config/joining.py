"""One configuration of what a file says and what a person sets beside it: on the command line, or in a call from Python."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import NAMES, flatten, updated, value_of
from esac_mpi.config.files import from_table
from esac_mpi.config.halves import from_esac, told_of_half
from esac_mpi.config.reads import unread
from esac_mpi.config.rules import check
from esac_mpi.config.sources import (
    names_alone,
    resolved,
    set_in_vain,
    without_default_budget,
    without_reading,
)
from esac_mpi.config.whole import Config, table_of
from esac_mpi.host import paths

PATHS = ("run_dir", "start_from", "aes_rl.replay")
Hear = Callable[[str], None]


def joined(
    file: dict[str, Any], named: dict[str, Any], who: str, source: str, say: Hear, warn: Hear
) -> Config:
    """Resolve defaults, reading, a file and what is named beside it, both {dotted name: value}, in this order.

    who: says what is named, in messages. source: the file. `say` hears what es takes from [esac], `warn` what the file sets in
    vain. Raises ConfigError, also for what is named and the run would not read.
    """
    refuse_empty(named, file, who)
    file, named = expanded(file, source), expanded(named, who)
    config = resolved(file, named)
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    refuse_unread(config, named, who)
    if without_default_budget(file, named) is not file:
        usual = file["budget.nominal_steps"]
        say(
            f"{source}: budget.nominal_steps = {usual:,}, the default's, counts no more beside another; name it to keep it"
        )
    taken = from_esac(without_reading(file, named), named)
    if told := told_of_half(taken, source):
        say(told)
    if idle := set_in_vain(config, file, taken):
        warn(f"{source}: this run does not read {', '.join(idle)}")
    return config


def changed(config: Config, named: dict[str, Any], who: str) -> Config:
    """Return a configuration, whole as it is, with what is named in its place. Raises ConfigError, as `joined` does."""
    whole = settings(dict(flatten(config)), who)  # what a person built of it is checked, too
    refuse_empty(named, whole, who)
    whole, named = expanded(whole, who), expanded(named, who)
    kept = without_reading(whole, named)
    budget = {
        name: value for name, value in whole.items() if name.startswith("budget.")
    }  # which stays what it is
    found = (
        updated(Config(), {**whole, **named})
        if kept is whole
        else resolved(kept, {**budget, **named})
    )
    check(found)
    for name in names_alone(dict(flatten(found))):
        reading = value_of(found, name)
        remedy = f"name it in the settings, {{{name!r}: {reading!r}}}"
        raise ConfigError(
            f"{who}: {name} = {reading}: this Config has that name, and no field that it sets; {remedy}"
        )
    refuse_unread(found, named, who)
    return found


def expanded(values: dict[str, Any], who: str) -> dict[str, Any]:
    """Return {dotted name: value} with the home directory in place of ~ in paths. Raises ConfigError."""

    def kind(problem: str) -> ConfigError:
        return ConfigError(f"{who}: {problem}" if who else problem)

    return values | {name: paths.expanded(values[name], kind) for name in PATHS if name in values}


def refuse_empty(named: Mapping[str, Any], there: Mapping[str, Any], who: str) -> None:
    """Raise ConfigError where a name of a place is empty, as a variable is that nobody set; there: what it goes before.

    A source that stands there is taken away by an empty one.
    """
    empty = [name for name in ("run_dir", "start_from") if named.get(name) == ""]
    if empty and (empty[0] == "run_dir" or not there.get("start_from")):
        words = {
            "run_dir": ("--run-dir", "the directory of the run"),
            "start_from": ("--from", "what the run begins from"),
        }
        option, meant = words[empty[0]]
        called = option if who == "command line" else empty[0]
        raise ConfigError(f"{who}: {called} is empty; name {meant}, or leave it out")


def settings(
    given: Mapping[str, Any], who: str, kwargs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return {dotted name: value} of dotted names or tables, with the values of Python and numpy. Raises ConfigError.

    kwargs: see from_table.
    """
    return from_table(plain(given), who, kwargs)


def plain(value: Any) -> Any:
    """Return a value of Python or numpy as TOML has it."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [plain(entry) for entry in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def refuse_unread(config: Config, named: Iterable[str], who: str) -> None:
    """Raise ConfigError where a field is set that this run does not read."""
    told, dashes = [], "--" if who == "command line" else ""
    for name, why in unread(config, named).items():
        own = f"{table_of(config.algorithm)}.{name.rpartition('.')[2]}"
        told.append(
            f"{dashes}{name}: {why}"
            + (f"; did you mean {dashes}{own}?" if own in NAMES and own != name else "")
        )
    if told:
        raise ConfigError(f"{who}: {'; '.join(told)}")
