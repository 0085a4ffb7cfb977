"""Defaults, a reading of the paper, a file and a command line, in this order: how they make one configuration."""

from typing import Any

from esac_mpi.config.fields import DEFAULTS, updated
from esac_mpi.config.halves import from_esac, is_resolved, spoken
from esac_mpi.config.readings import preset
from esac_mpi.config.reads import unread
from esac_mpi.config.whole import Config


def resolved(file: dict[str, Any], named: dict[str, Any]) -> Config:
    """Return the configuration that a file and a command line make, both {dotted name: value}, unchecked."""
    file = without_reading(file, named)
    given = spoken(file) | named
    base = updated(Config(), {"budget.nominal_steps": 0} if any(name.startswith("budget.") for name in given) else {})
    return updated(base, {**preset(given), **from_esac(file, named), **given})


def without_reading(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what a whole file sets but for what its reading did, where another reading is named beside it."""
    again = [name for name in ("esac.reading", "erl.reading") if name in named and named[name] != file.get(name)]
    if not again or not is_resolved(file):
        return file
    before = preset(file)
    set_by = {name: before.get(name, DEFAULTS[name]) for name in {*before, *preset({**file, **named})}}
    return {name: value for name, value in file.items() if name not in set_by or value != set_by[name]}


def set_in_vain(config: Config, file: dict[str, Any], taken: dict[str, Any]) -> list[str]:
    """Return the fields that a file sets away from their defaults and this run does not read; of a run's own it was told once."""
    if is_resolved(file) and file.get("algorithm") == config.algorithm:
        return []
    of_esac = {f"esac.{name.partition('.')[2]}" for name in taken}
    names = [name for name, value in file.items() if value != DEFAULTS[name] and name not in of_esac]
    return [*unread(config, names)]
