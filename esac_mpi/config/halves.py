"""es as one of ESAC's halves: what it takes from [esac] where its own table is silent, so that the two are compared alike."""

from dataclasses import fields
from typing import Any

from esac_mpi.config.evolution import Evolution
from esac_mpi.config.fields import DEFAULTS, shown
from esac_mpi.config.readings import preset
from esac_mpi.config.whole import Config


def is_resolved(file: dict[str, Any]) -> bool:
    """Return whether a file is a resolved one, which has the tables of all algorithms."""
    return all(f"es.{f.name}" in file for f in fields(Evolution))


def spoken(file: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says: in a resolved one of another algorithm, fields of es at their defaults are but filled in."""
    if not is_resolved(file) or file.get("algorithm", Config.algorithm) == "es":
        return file
    return {name: value for name, value in file.items() if not name.startswith("es.") or value != DEFAULTS[name]}


def from_esac(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what es, as one of ESAC's halves, takes from [esac] and its reading where [es] is silent, {dotted name: value}."""
    given = spoken(file) | named
    if given.get("algorithm", Config.algorithm) != "es":
        return {}
    esac = preset(given) | spoken(file)
    shared = [f.name for f in fields(Evolution) if f"esac.{f.name}" in esac and f"es.{f.name}" not in given]
    return {f"es.{name}": esac[f"esac.{name}"] for name in shared}


def told_of_es(taken: dict[str, Any], source: str) -> str:
    """Return what there is to say about what es takes from [esac]; empty where that is its defaults."""
    told = ", ".join(f"{name[3:]} = {shown(value)}" for name, value in taken.items() if value != DEFAULTS[name])
    return f"es, which is half of ESAC, takes from [esac]{source and ' of '}{source}: {told}" if told else ""
