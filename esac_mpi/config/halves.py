"""es and sac as ESAC's halves: what they take from [esac] where their own table is silent, so that all are compared alike."""

from dataclasses import fields
from typing import Any

from esac_mpi.config.evolution import Evolution
from esac_mpi.config.fields import DEFAULTS, shown
from esac_mpi.config.readings import preset
from esac_mpi.config.whole import Config

HALVES = {
    "es": [f.name for f in fields(Evolution)],
    "sac": ["observation_normalisation"],
}  # algorithm -> fields of [esac]


def is_resolved(file: dict[str, Any]) -> bool:
    """Return whether a file is a resolved one, which has the tables of all algorithms."""
    return all(f"es.{f.name}" in file for f in fields(Evolution))


def spoken(file: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says: in a resolved one of another algorithm, these fields of a half at their defaults are filled in."""
    if not is_resolved(file):
        return file
    own = file.get("algorithm", Config.algorithm)
    idle = {f"{half}.{name}" for half, names in HALVES.items() if half != own for name in names}
    return {
        name: value for name, value in file.items() if name not in idle or value != DEFAULTS[name]
    }


def from_esac(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what one of ESAC's halves takes from [esac] and its reading where its table is silent, {dotted name: value}."""
    given = spoken(file) | named
    half, esac = given.get("algorithm", Config.algorithm), preset(given) | spoken(file)
    shared = [
        name
        for name in HALVES.get(half, [])
        if f"esac.{name}" in esac and f"{half}.{name}" not in given
    ]
    return {f"{half}.{name}": esac[f"esac.{name}"] for name in shared}


def told_of_half(taken: dict[str, Any], source: str) -> str:
    """Return what there is to say about what a half takes from [esac]; empty where that is its defaults."""
    other = {name.partition("."): value for name, value in taken.items() if value != DEFAULTS[name]}
    half = next((name[0] for name in other), "")
    said = ", ".join(f"{name[2]} = {shown(value)}" for name, value in other.items())
    return (
        f"{half}, which is half of ESAC, takes from [esac]{source and ' of '}{source}: {said}"
        if said
        else ""
    )
