"""Names that a person wrote: a key that there is, or what was meant by another."""

import difflib
from collections.abc import Collection

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import NAMES
from esac_mpi.config.former import FORMER

RESUMES = "is no key, and not needed: the same command goes on with the run that its directory has"
ELSEWHERE = {"resume": RESUMES, "continue": RESUMES}  # words of other programs for what is asked otherwise here


def known(name: str, source: str) -> str:
    """Return the name of a field. Raises ConfigError naming `source` and the one like it where there is no such field."""
    if name in NAMES:
        return name
    if name in ELSEWHERE:
        raise ConfigError(f"{source}: {name} {ELSEWHERE[name]}")
    if name in FORMER:
        raise ConfigError(f"{source}: {name} is no more: {FORMER[name]} in its place")
    raise ConfigError(f"{source}: unknown key '{name}'; {meant(name, NAMES, '--help lists those that there are')}")


def meant(name: str, among: Collection[str], otherwise: str = "") -> str:
    """Return the end of a sentence: the name that this one is like, where none is `otherwise`, or else all that there are."""
    there = {other.casefold(): other for other in among}
    near = difflib.get_close_matches(name.casefold(), there, 1)  # of a likeness of 0.6 and more
    return f"did you mean '{there[near[0]]}'?" if near else otherwise or f"there are {', '.join(among)}"
