"""Defaults, a preset, a file and what is named beside it, in this order: one configuration.

It keeps beside its values the names of those that a person said (Config.said). A run's own file
means its values as they are. Where another algorithm or preset is named beside it, what was said
goes on, and all else is resolved anew. Whether it can be run say the bounds at its fields, then the
rules of its tables.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from esac_mpi.config.automatic import estimate
from esac_mpi.config.bounds import Bound, is_text
from esac_mpi.config.fields import (
    DEFAULTS,
    NAMES,
    amend,
    as_text,
    choices,
    flatten,
    marks,
    value_of,
)
from esac_mpi.config.files import SAID, UNSAVED, from_table, read_file
from esac_mpi.config.presets import Settings, complete_half, pairs, preset
from esac_mpi.config.reads import COMMON, find_unread, reads, tables
from esac_mpi.config.whole import Config, ConfigError, table_of
from esac_mpi.host import log, paths

PATHS = ("run_dir", "start_from", "aes_rl.replay")
BY_PRESET = ("esac.preset", "erl.preset")
CHOICES = ("algorithm", *BY_PRESET)  # they set others
BUDGET = [name for name in NAMES if name.startswith("budget.")]
USUAL = "budget.nominal_steps"  # the limit that a run has by default
Hear = Callable[[str], None]
# members in the place of a population that is "auto": what has no room in these has none in fewer
LARGE = 1000


def resolve_all(file: Settings, named: Settings, who: str, source: str, warn: Hear) -> Config:
    """Resolve defaults, preset, a file and what is named beside it, in this order.

    Both are {dotted name: value}. who: says what is named, in messages. source: the file. `warn`
    hears what the file sets in vain. Raises ConfigError, also for what is named and the run would
    not read.
    """
    refuse_empty(named, file, who)
    file, named = expand_home(file), expand_home(named)
    config = resolve(file, named)
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    refuse_unread(config, named, who)
    if is_anew(file, named) and (vain := find_idle(config)):  # of a run's own it was told once
        warn(f"{source}: this run does not read {', '.join(vain)}")
    return config


def resolve_given(
    config: Config | str | os.PathLike[str] | None, given: Mapping[str, Any]
) -> Config:
    """Change a file, another configuration or the defaults by settings of Python.

    Warns of what is set in vain. Raises ConfigError.
    """
    who = "settings"
    if isinstance(config, Config):
        found = change(config, settings(given, who, dict(flatten(config))), who)
        if unread := find_idle(found):
            log.warn(f"Config: this run does not read {', '.join(unread)}")
        return found
    source = "" if config is None else os.fspath(config)
    file = {} if config is None else read_file(source)
    return resolve_all(file, settings(given, who, file), who, source, log.warn)


def change(config: Config, named: Settings, who: str) -> Config:
    """Change a configuration by settings, as a run's own file is. Raises ConfigError.

    Of one that a person built every field counts as said: a preset beside it is refused, as it
    would set nothing.
    """
    file = settings(dict(flatten(config)), who)
    if config.said is not None:
        return resolve_all(file | {SAID: config.said}, named, who, "", lambda text: None)
    for name in BY_PRESET:
        value = named.get(name, file[name])
        if value != DEFAULTS[name]:
            remedy = f"give no Config, and name it in the settings: {{{name!r}: {value!r}, ...}}"
            raise ConfigError(f"{who}: {name} = {value}: sets no field of a Config; {remedy}")
    return replace(resolve_all(file | {SAID: NAMES}, named, who, "", lambda text: None), said=None)


def resolve(file: Settings, named: Settings) -> Config:
    """Resolve a file and what is named beside it, unchecked."""
    explicit = {*file.get(SAID, file), *UNSAVED}  # of a run's own file what it lists, else all
    said = {name: value for name, value in file.items() if name in explicit - {SAID}}
    given = said | named
    if is_anew(file, named):
        values: Settings = {USUAL: 0} if any(name in given for name in BUDGET) else {}
        own = SAID in file and file.get("algorithm") == "esac"
        if own and not any(_differs(file, named, name) for name in BY_PRESET):
            halves = pairs(given.get("algorithm", Config.algorithm))
            values |= {esac: file[esac] for _, esac in halves if esac in file}  # as "auto" was, say
        values = complete_half(values | preset(given) | given)
    else:
        values = preset(file) | file | named
        limited = any(named.get(name) for name in BUDGET)
        if limited and not any(name in said for name in BUDGET):
            values[USUAL] = named.get(USUAL, 0)
    names = given.keys() - set(UNSAVED)
    return amend(Config(), values | {SAID: tuple(name for name in NAMES if name in names)})


def is_anew(file: Settings, named: Settings) -> bool:
    """Tell whether presets are resolved anew: not in a run's own file that has them."""
    return SAID not in file or any(_differs(file, named, name) for name in CHOICES)


def _differs(file: Settings, named: Settings, name: str) -> bool:
    return name in named and named[name] != file.get(name, DEFAULTS[name])


def find_idle(config: Config) -> list[str]:
    """Name the fields that were said in a configuration and that its run does not read.

    But for defaults, and for what a half of ESAC has taken over.
    """
    said = NAMES if config.said is None else config.said
    values = dict(flatten(config))
    taken = {esac for own, esac in pairs(config.algorithm) if values[own] == values[esac]}
    names = [name for name in said if values[name] != DEFAULTS[name] and name not in taken]
    return list(find_unread(config, names))


def expand_home(values: Settings) -> Settings:
    """Put the home directory in place of ~ in paths. Raises ConfigError."""
    there = [name for name in PATHS if name in values]
    return values | {name: paths.expand_home(values[name], ConfigError) for name in there}


def refuse_empty(named: Mapping[str, Any], there: Mapping[str, Any], who: str) -> None:
    """Raise ConfigError where a place's name is empty, as a variable is that nobody set.

    there: what it goes before; a source that stands there is taken away by an empty one.
    """
    empty = [name for name in ("run_dir", "start_from") if named.get(name) == ""]
    if there.get("start_from") and "start_from" in empty:
        empty.remove("start_from")
    if empty:
        raise ConfigError(f"{who}: {empty[0]} is empty; name a place, or leave it out")


def settings(given: Mapping[str, Any], who: str, beside: Settings | None = None) -> Settings:
    """Check dotted names or tables, with values of Python and numpy; return {dotted name: value}.

    beside: see from_table. Raises ConfigError, for former names too.
    """
    return from_table(to_plain(given), who, beside, former=False)


def to_plain(value: Any) -> Any:
    """Return a value of Python or numpy as TOML has it."""
    if isinstance(value, Mapping):
        return {name: to_plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [to_plain(entry) for entry in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def refuse_unread(config: Config, named: Iterable[str], who: str) -> None:
    """Raise ConfigError where a field is set that this run does not read."""
    told, dashes = [], "--" if who == "command line" else ""
    for name, why in find_unread(config, named).items():
        own = f"{table_of(config.algorithm)}.{name.rpartition('.')[2]}"
        is_read = own in NAMES and not find_unread(config, [own])
        like = f"; did you mean {dashes}{own}?" if is_read else ""
        told.append(f"{dashes}{name}: {why}{like}")
    if told:
        raise ConfigError(f"{who}: {'; '.join(told)}")


def check(config: Config) -> None:
    """Raise ConfigError unless every field, and every combination of fields, can be run."""
    for problem in problems(config):
        raise ConfigError(problem)


def problems(config: Config) -> Iterator[str]:
    """Yield what is wrong; only the first is sure, as rules expect values within their bounds."""
    for name, value in flatten(config):
        if not reads(config.algorithm, name):
            continue
        if isinstance(value, str) and name not in UNSAVED and not is_text(value):
            told = "not UTF-8, so that no file of the run could hold it; give it another name"
            yield f"{name} = {value!r}: {told}"
        if isinstance(value, str) and value in choices(name):
            continue
        bounds = [mark for mark in marks(name) if isinstance(mark, Bound)]
        for v in value if isinstance(value, tuple) else (value,):
            yield from (f"{name} = {v!r}: {told}" for b in bounds if (told := b.problem(v)))
    config = estimate(config, LARGE)
    for table in (*COMMON, *tables(config.algorithm)):
        for names, wrong in getattr(config, table).problems(table, config):
            dotted = [name if "." in name else f"{table}.{name}" for name in names.split()]
            found = (f"{name} = {as_text(value_of(config, name))}" for name in dotted)
            yield f"{', '.join(found) or table}: {wrong}"
