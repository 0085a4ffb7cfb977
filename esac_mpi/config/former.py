"""Fields that files of older versions have under other names, or that are no more."""

from collections.abc import Mapping
from typing import Any

from esac_mpi.config.errors import ConfigError


def current(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return {dotted name: value} as this version has them. Raises ConfigError, naming the file, for what is no more."""
    found = dict(values)
    if isinstance(adopts := found.pop("esac.adopt_sac", None), bool):
        found.setdefault("esac.adoption", "means" if adopts else "off")
    if found.pop("esac.offspring_transitions", False):
        raise ConfigError(f'{source}: esac.offspring_transitions = true is no more: esac.replayed = "sample" in its place')
    return found
