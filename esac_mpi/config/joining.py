"""One configuration of what a file says and what a person sets beside it: on the command line, or in a call from Python."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import DEFAULTS, NAMES, flatten, updated, value_of
from esac_mpi.config.files import from_table
from esac_mpi.config.halves import from_esac, told_of_half
from esac_mpi.config.readings import preset
from esac_mpi.config.reads import unread
from esac_mpi.config.rules import check
from esac_mpi.config.sources import resolved, set_in_vain, without_reading
from esac_mpi.config.whole import Config, table_of

Hear = Callable[[str], None]


def joined(file: dict[str, Any], named: dict[str, Any], who: str, source: str, say: Hear, warn: Hear) -> Config:
    """Resolve defaults, reading, a file and what is named beside it, both {dotted name: value}, in this order.

    who: says what is named, in messages. source: the file. `say` hears what es takes from [esac], `warn` what the file sets in
    vain. Raises ConfigError, also for what is named and the run would not read.
    """
    refuse_empty(named, who)
    config = resolved(file, named)
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    refuse_unread(config, named, who)
    taken = from_esac(file, named)
    if told := told_of_half(taken, source):
        say(told)
    if idle := set_in_vain(config, file, taken):
        warn(f"{source}: this run does not read {', '.join(idle)}")
    return config


def changed(config: Config, named: dict[str, Any], who: str) -> Config:
    """Return a configuration, whole as it is, with what is named in its place. Raises ConfigError, as `joined` does."""
    refuse_empty(named, who)
    whole = settings(dict(flatten(config)), who)  # what a person built of it is checked, too
    kept = without_reading(whole, named)
    found = updated(Config(), {**({} if kept is whole else preset({**whole, **named})), **kept, **named})
    check(found)
    refuse_empty_reading(found, who)
    refuse_unread(found, named, who)
    return found


def refuse_empty(named: Mapping[str, Any], who: str) -> None:
    """Raise ConfigError where a name of a place is empty, as a variable is that nobody set."""
    for name, meant in (("run_dir", "the directory of the run"), ("start_from", "what the run begins from")):
        if named.get(name) == "":
            raise ConfigError(f"{who}: {'--from' if name == 'start_from' else name} is empty; name {meant}, or leave it out")


def refuse_empty_reading(config: Config, who: str) -> None:
    """Raise ConfigError where a configuration has the name of a reading, and nothing of what that sets."""
    for name in ("esac.reading", "erl.reading"):
        sets = {field: value for field, value in preset({"algorithm": config.algorithm, name: value_of(config, name)}).items()}
        own = {field for field in sets if sets[field] != preset({"algorithm": config.algorithm}).get(field, DEFAULTS[field])}
        if own and not any(value_of(config, field) == sets[field] for field in own):
            reading = value_of(config, name)
            remedy = f"name it in the settings, {{{name!r}: {reading!r}}}"
            raise ConfigError(f"{who}: {name} = {reading}: this Config has that name, and no field that it sets; {remedy}")


def settings(given: Mapping[str, Any], who: str, kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
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
        told.append(f"{dashes}{name}: {why}" + (f"; did you mean {dashes}{own}?" if own in NAMES and own != name else ""))
    if told:
        raise ConfigError(f"{who}: {'; '.join(told)}")
