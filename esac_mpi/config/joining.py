"""One configuration of what a file says and what a person sets beside it: on the command line, or in a call from Python."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import NAMES, flatten, updated
from esac_mpi.config.files import from_table
from esac_mpi.config.halves import from_esac, told_of_half
from esac_mpi.config.reads import unread
from esac_mpi.config.rules import check
from esac_mpi.config.sources import resolved, set_in_vain
from esac_mpi.config.whole import Config, table_of

Hear = Callable[[str], None]


def joined(file: dict[str, Any], named: dict[str, Any], who: str, source: str, say: Hear, warn: Hear) -> Config:
    """Resolve defaults, reading, a file and what is named beside it, both {dotted name: value}, in this order.

    who: says what is named, in messages. source: the file. `say` hears what es takes from [esac], `warn` what the file sets in
    vain. Raises ConfigError, also for what is named and the run would not read.
    """
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
    found = updated(Config(), {**settings(dict(flatten(config)), who), **named})  # what a person built of it is checked, too
    check(found)
    refuse_unread(found, named, who)
    return found


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
