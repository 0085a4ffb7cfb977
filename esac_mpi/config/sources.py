"""Defaults, a reading of the paper, a file and a command line, in this order: how they make one configuration."""

from typing import Any

from esac_mpi.config.fields import DEFAULTS, flatten, updated
from esac_mpi.config.halves import HALVES, from_esac, is_resolved, spoken
from esac_mpi.config.readings import preset
from esac_mpi.config.reads import unread
from esac_mpi.config.whole import Config

LABELS = ("esac.reading", "erl.reading")  # fields that set others


def resolved(file: dict[str, Any], named: dict[str, Any]) -> Config:
    """Return the configuration that a file and a command line make, both {dotted name: value}, unchecked."""
    file = without_reading(without_default_budget(file, named), named)
    given = spoken(file) | named
    base = updated(
        Config(),
        {"budget.nominal_steps": 0} if any(name.startswith("budget.") for name in given) else {},
    )
    return updated(base, {**preset(given), **from_esac(file, named), **given})


def without_default_budget(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a file sets, of a whole one without the default's limit if it has no other and one is named beside it."""
    if not is_resolved(file):
        return file
    limits = {name for name in DEFAULTS if name.startswith("budget.")}
    (usual,) = (name for name in limits if DEFAULTS[name])
    own = {name for name in limits if file.get(name)}
    if (
        own != {usual}
        or file[usual] != DEFAULTS[usual]
        or usual in named
        or not any(named.get(name) for name in limits)
    ):
        return file
    return {**file, usual: 0}


def without_reading(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a whole file sets but for what its reading did, where another reading is named beside it."""
    idle = names_alone(file) if is_resolved(file) else []
    again = [
        name for name in LABELS if name in named and (named[name] != file.get(name) or name in idle)
    ]
    if not again or not is_resolved(file):
        return file
    before = preset({name: value for name, value in file.items() if name not in idle})
    set_by = {
        name: before.get(name, DEFAULTS[name]) for name in {*before, *preset({**file, **named})}
    }
    half = file.get("algorithm", Config.algorithm)
    set_by |= {
        f"{half}.{name}": set_by[f"esac.{name}"]
        for name in HALVES.get(half, [])
        if f"esac.{name}" in set_by
    }
    return {
        name: value
        for name, value in spoken(file).items()
        if name not in set_by or value != set_by[name]
    }


def idle(config: Config) -> list[str]:
    """Return the fields that a whole configuration has away from their defaults and that its run does not read.

    What a reading has set is none, nor what a half of ESAC has taken from [esac].
    """
    values, own = dict(flatten(config)), config.algorithm
    by_name = preset({"algorithm": own, **{name: values[name] for name in LABELS}})
    taken = {
        f"esac.{name}"
        for name in HALVES.get(own, [])
        if values[f"esac.{name}"] == values[f"{own}.{name}"]
    }
    names = (
        name
        for name, value in values.items()
        if value not in (DEFAULTS[name], by_name.get(name, DEFAULTS[name]))
    )
    return [*unread(config, (name for name in names if name not in taken))]


def names_alone(file: dict[str, Any]) -> list[str]:
    """Return the readings of which a whole file has the name, and nothing of what they set."""
    algorithm = {"algorithm": file.get("algorithm", Config.algorithm)}
    found = []
    for name in LABELS:
        plain, sets = preset(algorithm), preset({**algorithm, name: file.get(name, DEFAULTS[name])})
        own = [field for field in sets if sets[field] != plain.get(field, DEFAULTS[field])]
        if own and not any(file.get(field) == sets[field] for field in own):
            found.append(name)
    return found


def set_in_vain(config: Config, file: dict[str, Any], taken: dict[str, Any]) -> list[str]:
    """Return the fields that a file sets away from their defaults and this run does not read; of a run's own it was told once."""
    if is_resolved(file) and file.get("algorithm") == config.algorithm:
        return []
    of_esac = {f"esac.{name.partition('.')[2]}" for name in taken}
    names = [
        name for name, value in file.items() if value != DEFAULTS[name] and name not in of_esac
    ]
    return [*unread(config, names)]
