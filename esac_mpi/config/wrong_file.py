"""What a person named where a configuration file is meant, in a sentence."""

from collections.abc import Container
from os.path import (
    expanduser,
    isdir,
    isfile,
    join,
)  # false, without an error, for what no path can be

from esac_mpi.host.invocation import called
from esac_mpi.host.run_directory import CONFIG

USES = {
    "variants": ("an experiment", "experiment"),
    "trials": ("a search", "search"),
}  # a key of its file: what, its command


def no_file(word: str) -> str:
    """Return what a word is that names no configuration file, and what is meant."""
    place = expanduser(word)
    if isfile(config := join(place, CONFIG)):
        return f"{word!r} is a run's directory: {config} goes on with the run, and so does the command that began it"
    if isdir(place):
        return f"{word!r} is a directory; a configuration file is meant, which ends in .toml"
    if word.endswith(".h5"):
        return f"{word!r} has no settings; to begin a run from a policy is --from {word}"
    return (
        f"{word!r} is neither a configuration file, which ends in .toml, nor the value of an option"
    )


def other_use(table: Container[str], path: str) -> str:
    """Return what a file of this table is and what reads it, empty for a configuration file."""
    for key, (what, command) in USES.items():
        if key in table:
            return f"{path} is the file of {what}: {called(command)} run {path}"
    return ""
