"""Names that a person or an older version wrote, and the fields that are meant."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any

from esac_mpi.config.fields import NAMES
from esac_mpi.config.presets import NUMBERS, PRINTED, SIZES
from esac_mpi.config.reads import reads
from esac_mpi.config.whole import ALGORITHMS, ConfigError

# what was done in 0.1.0, before there were fields for it or others were the defaults
BEFORE: dict[str, Any] = {
    **SIZES,
    **NUMBERS,
    **{f"{table}.reward_shift": 0.0 for table in ("es", "cem", "cem_rl", "aes_rl", "erl")},
    "aes_rl.mean_reused": False,
    "esac.transfer_at_once": False,
    "erl.injection": "kept",
}
FEW = 5  # fields of a table that one sentence can name


def check_name(name: str, source: str, algorithm: Any) -> None:
    """Raise ConfigError for the name of no field, naming one like it that the algorithm reads.

    algorithm: None where it is not known yet.
    """
    if name in NAMES:
        return
    if within := [other for other in NAMES if other.startswith(f"{name}.")]:
        told = f"'{name}' is a table of settings, which has no value of its own"
        raise ConfigError(f"{source}: {told}: name one of them, such as {within[0]}")
    there, chosen = NAMES, "NAME"
    if algorithm in ALGORITHMS:
        there = tuple(field for field in NAMES if reads(algorithm, field))
        chosen = algorithm
    table = f"{name.rpartition('.')[0]}."
    beside = [other for other in there if other.startswith(table)]
    if beside and sum(other.startswith(table) for other in NAMES) <= FEW:
        said = suggest(name, beside)
    else:
        said = suggest(name, there, f"--algorithm {chosen} --help lists them")
    raise ConfigError(f"{source}: unknown key '{name}'; {said}")


def suggest(name: str, among: Collection[str], otherwise: str = "") -> str:
    """Suggest a name like this one, `otherwise` if there is none, or else list all."""
    there = {other.casefold(): other for other in among}
    for near in difflib.get_close_matches(name.casefold(), there):  # of a likeness of 0.6 and more
        ends = name.casefold().rpartition(".")[2], near.rpartition(".")[2]
        # a table in common is no likeness
        alike = difflib.SequenceMatcher(None, *ends).ratio() >= 0.6
        if alike or near.startswith(f"{name.casefold()}."):
            return f"did you mean '{there[near]}'?"
    return otherwise or f"there are {', '.join(among)}"


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the {dotted name: value} of a run's own file by what its version did."""
    before = dict(BEFORE)
    if "esac.transfer_wins" not in values:
        before |= PRINTED
    if "aes_rl.order" not in values:
        before["aes_rl.critic_cost"] = 1.0  # it had none
    return before | dict(values)
