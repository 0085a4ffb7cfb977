"""Names that a person wrote: a key that there is, or the nearest one to it."""

import difflib

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import NAMES


def known(name: str, source: str) -> str:
    """Return the name of a field. Raises ConfigError naming `source` and the nearest one where there is no such field."""
    if name in NAMES:
        return name
    nearest = difflib.get_close_matches(name, NAMES, 1, 0.0)[0]
    raise ConfigError(f"{source}: unknown key '{name}'; did you mean '{nearest}'?")
