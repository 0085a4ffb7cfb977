"""Defaults, a preset, a file and what is named beside it, in this order: one configuration.

It keeps beside its values the names of those that a person said (Config.said). A run's own file
means its values as they are. Where another algorithm or preset is named beside it, what was said
goes on, and all else is resolved anew.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np

from esac_mpi.config.fields import DEFAULTS, NAMES, flatten, shown, updated
from esac_mpi.config.files import SAID, UNSAVED, from_table
from esac_mpi.config.names import known
from esac_mpi.config.presets import Settings, halved, pairs, preset
from esac_mpi.config.reads import unread
from esac_mpi.config.rules import check
from esac_mpi.config.whole import Config, ConfigError, table_of
from esac_mpi.host import paths

PATHS = ("run_dir", "start_from", "aes_rl.replay")
BY_PRESET = ("esac.preset", "erl.preset")
CHOICES = ("algorithm", *BY_PRESET)  # they set others
BUDGET = [name for name in NAMES if name.startswith("budget.")]
USUAL = "budget.nominal_steps"  # the limit that a run has by default
Hear = Callable[[str], None]


def joined(file: Settings, named: Settings, who: str, source: str, say: Hear, warn: Hear) -> Config:
    """Resolve defaults, preset, a file and what is named beside it, in this order.

    Both are {dotted name: value}. who: says what is named, in messages. source: the file. `say`
    hears what es takes from [esac], `warn` what the file sets in vain. Raises ConfigError, also for
    what is named and the run would not read.
    """
    refuse_empty(named, file, who)
    file, named = expanded(file, source), expanded(named, who)
    config = resolved(file, named)
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    refuse_unread(config, named, who)
    if is_whole(file) and USUAL not in named and file.get(USUAL, 0) != config.budget.nominal_steps:
        usual = f"{USUAL} = {file[USUAL]:,}, the default's, counts no more beside another"
        say(f"{source}: {usual}; name it to keep it")
    if is_anew(file, named):  # of a run's own it was told once
        if told := of_half(config, source):
            say(told)
        if idle := in_vain(config, said_in(file)):
            warn(f"{source}: this run does not read {', '.join(idle)}")
    return config


def changed(config: Config, named: Settings, who: str) -> Config:
    """Change a configuration, taken whole but for another preset's settings. Raises ConfigError."""
    whole = settings(dict(flatten(config)), who)  # what a person built of it is checked, too
    refuse_empty(named, whole, who)
    whole, named = expanded(whole, who), expanded(named, who)
    hollow = names_alone(whole)
    whole[SAID] = (*(config.said or ()), *unlike_presets(whole))
    again = {name for name in BY_PRESET if _differs(whole, named, name)} | (hollow & named.keys())
    found = resolved(whole, named, anew=bool(again))
    found = updated(found, {name: named.get(name, whole[name]) for name in BUDGET})
    check(found)
    for name in hollow - named.keys():
        remedy = f"name it in the settings, {{{name!r}: {whole[name]!r}}}"
        lacks = f"this Config has that name, and no field that it sets; {remedy}"
        raise ConfigError(f"{who}: {name} = {whole[name]}: {lacks}")
    refuse_unread(found, named, who)
    return found


def resolved(file: Settings, named: Settings, anew: bool | None = None) -> Config:
    """Resolve a file and what is named beside it, unchecked. anew: presets, too (None: is_anew)."""
    said = said_in(file)
    given = said | named
    if is_anew(file, named) if anew is None else anew:
        values: Settings = {USUAL: 0} if any(name in given for name in BUDGET) else {}
        if is_whole(file) and not any(_differs(file, named, name) for name in BY_PRESET):
            halves = pairs(given.get("algorithm", Config.algorithm))
            values |= {esac: file[esac] for _, esac in halves}  # as "auto" was resolved, say
        values = halved(values | preset(given) | given)
    else:
        values = preset(file) | file | named
        limited = any(named.get(name) for name in BUDGET)
        if limited and not any(name in said for name in BUDGET):
            values[USUAL] = named.get(USUAL, 0)
    names = given.keys() - set(UNSAVED)
    return updated(Config(), values | {SAID: tuple(name for name in NAMES if name in names)})


def is_whole(file: Settings) -> bool:
    """Tell whether a file is a run's own, which has the tables of all algorithms."""
    return SAID in file or all(own in file for own, _ in pairs("es"))


def is_anew(file: Settings, named: Settings) -> bool:
    """Tell whether presets are resolved anew: not in a run's own file that has them."""
    return not is_whole(file) or any(_differs(file, named, name) for name in CHOICES)


def _differs(file: Settings, named: Settings, name: str) -> bool:
    return name in named and named[name] != file.get(name, DEFAULTS[name])


def said_in(file: Settings) -> Settings:
    """Pick what a person said in a file: all of it, or what a run's own lists."""
    values = {name: value for name, value in file.items() if name != SAID}
    if not is_whole(file):
        return values
    said = file[SAID] if SAID in file else unlike_presets(values)
    return {name: value for name, value in values.items() if name in said or name in UNSAVED}


def unlike_presets(values: Settings) -> list[str]:
    """Name the values that no preset has so, in old files and in a script's Config."""
    algorithm = values.get("algorithm", Config.algorithm)
    usual = preset(values) | {own: values.get(esac) for own, esac in pairs(algorithm)}
    return [
        name
        for name, value in values.items()
        if value not in (DEFAULTS[name], usual.get(name, DEFAULTS[name]))
    ]


def names_alone(whole: Settings) -> set[str]:
    """Name the presets of which a configuration has the name, and nothing of what they set."""
    algorithm, found = {"algorithm": whole["algorithm"]}, set()
    for name in BY_PRESET:
        plain, sets = preset(algorithm), preset({**algorithm, name: whole[name]})
        own = [field for field in sets if sets[field] != plain.get(field, DEFAULTS[field])]
        if own and not any(whole[field] == sets[field] for field in own):
            found.add(name)
    return found


def of_half(config: Config, source: str) -> str:
    """Say what a half of ESAC has taken from [esac] of a file; "" where that is its defaults."""
    values, said = dict(flatten(config)), config.said or ()
    taken = [
        f"{own.partition('.')[2]} = {shown(values[own])}"
        for own, _ in pairs(config.algorithm)
        if own not in said and values[own] != DEFAULTS[own]
    ]
    whose = (
        f"{config.algorithm}, which is half of ESAC, takes from [esac]{source and ' of '}{source}"
    )
    return f"{whose}: {', '.join(taken)}" if taken else ""


def idle(config: Config) -> list[str]:
    """Name the fields that were said in a configuration and that its run does not read."""
    return in_vain(config, {*(config.said or ()), *unlike_presets(dict(flatten(config)))})


def in_vain(config: Config, said: Container[str]) -> list[str]:
    """Name those of these fields that are no defaults and not read, nor taken by a half of ESAC."""
    values = dict(flatten(config))
    taken = {esac for own, esac in pairs(config.algorithm) if values[own] == values[esac]}
    names = [name for name in NAMES if name in said and name not in taken]
    return [*unread(config, [name for name in names if values[name] != DEFAULTS[name]])]


def expanded(values: Settings, who: str) -> Settings:
    """Put the home directory in place of ~ in paths. Raises ConfigError."""

    def kind(problem: str) -> ConfigError:
        return ConfigError(f"{who}: {problem}" if who else problem)

    return values | {name: paths.expanded(values[name], kind) for name in PATHS if name in values}


def refuse_empty(named: Mapping[str, Any], there: Mapping[str, Any], who: str) -> None:
    """Raise ConfigError where a place's name is empty, as a variable is that nobody set.

    there: what it goes before; a source that stands there is taken away by an empty one.
    """
    words = {
        "run_dir": ("--run-dir", "the directory of the run"),
        "start_from": ("--from", "what the run begins from"),
    }
    for name, (option, meant) in words.items():
        if named.get(name) == "" and not (name == "start_from" and there.get(name)):
            called = option if who == "command line" else name
            raise ConfigError(f"{who}: {called} is empty; name {meant}, or leave it out")


def settings(
    given: Mapping[str, Any], who: str, kwargs: Mapping[str, Any] | None = None
) -> Settings:
    """Check dotted names or tables, with values of Python and numpy; return {dotted name: value}.

    kwargs: see from_table. Raises ConfigError, for former names too.
    """
    if SAID in given:
        known(SAID, who)
    return from_table(plain(given), who, kwargs, former=False)


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
        like = f"; did you mean {dashes}{own}?" if own in NAMES and own != name else ""
        told.append(f"{dashes}{name}: {why}{like}")
    if told:
        raise ConfigError(f"{who}: {'; '.join(told)}")
