"""Names that a person wrote: a key that there is, or what was meant by another."""

import difflib
from collections.abc import Collection

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import NAMES
from esac_mpi.config.old_fields import FORMER

RESUMES = "is no key, and not needed: the same command goes on with the run that its directory has"
ELSEWHERE = {
    "resume": RESUMES,
    "continue": RESUMES,
}  # words of other programs for what is asked otherwise here

ELSEWHERE_CALLED = {  # what other programs call a field, and how ours begins, in the same table or in one of its own
    "learning_rate": ("lr_actor", "lr_"), "lr": ("lr_actor", "lr_"), "buffer_size": ("replay_capacity",),
    "learning_starts": ("start_steps",), "n_steps": ("steps_per_generation",), "n_epochs": ("epochs",),
    "ent_coef": ("temperature", "entropy_coefficient"), "std": ("sigma",), "noise_std": ("sigma", "exploration_noise"),
    "total_timesteps": ("budget.env_steps",), "total_steps": ("budget.env_steps",), "net_arch": ("policy.hidden",),
    "max_steps": ("task.horizon",), "env_id": ("task.id",),
}  # fmt: skip

FEW = 5  # fields of a table that one sentence can name


def known(name: str, source: str) -> str:
    """Return the name of a field. Raises ConfigError naming `source` and the one like it where there is no such field."""
    if name in NAMES:
        return name
    if name in ELSEWHERE:
        raise ConfigError(f"{source}: {name} {ELSEWHERE[name]}")
    if name in FORMER:
        raise ConfigError(f"{source}: {name} is no more: {FORMER[name]} in its place")
    table = f"{name.rpartition('.')[0]}."
    beside = [other for other in NAMES if other.startswith(table)]
    if ours := called_here(name):
        said = f"did you mean '{ours}'?"
    elif 0 < len(beside) <= FEW:
        said = meant(name, beside)
    else:
        said = meant(name, NAMES, "--help lists those that there are")
    raise ConfigError(f"{source}: unknown key '{name}'; {said}")


def called_here(name: str) -> str:
    """Return the field that other programs call so, "" for none."""
    table, _, last = name.rpartition(".")
    begins = ELSEWHERE_CALLED.get(last.casefold(), ())
    return next(
        (
            other
            for begin in begins
            for other in NAMES
            if other == begin or other.startswith(f"{table}.{begin}")
        ),
        "",
    )


def meant(name: str, among: Collection[str], otherwise: str = "") -> str:
    """Return the end of a sentence: the name that this one is like, where none is `otherwise`, or else all that there are."""
    there = {other.casefold(): other for other in among}
    near = difflib.get_close_matches(name.casefold(), there)  # of a likeness of 0.6 and more
    near = [other for other in near if ends_alike(name.casefold(), other)]
    return (
        f"did you mean '{there[near[0]]}'?"
        if near
        else otherwise or f"there are {', '.join(among)}"
    )


def ends_alike(name: str, other: str) -> bool:
    """Return whether what follows the last dots is alike, or one is a table of the other: a table in common is no likeness."""
    if other.startswith(f"{name}."):
        return True
    return (
        difflib.SequenceMatcher(None, name.rpartition(".")[2], other.rpartition(".")[2]).ratio()
        >= 0.5
    )
