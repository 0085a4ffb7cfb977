"""Select what a run reads: the tables that its algorithm declares, and its fields' conditions.

A field that a run does not read is refused on a command line, and named in a warning in a file.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from esac_mpi.config.bounds import Bound
from esac_mpi.config.fields import DEFAULTS, as_text, flatten, marks, value_of
from esac_mpi.config.table import HIDDEN, Allowed, OnlyIn, OnlyWith, OnlyWithOne, Reads, as_allowed
from esac_mpi.config.whole import Config, table_of

# tables that every algorithm reads
COMMON = ("task", "budget", "policy", "evaluation", "checkpoint", "stop", "display")
# may differ between a run and its continuation
FREE = {"run_dir", "max_hours", "task.changed", "budget", "checkpoint", "stop", "display"}
WARN = {"learner.device", "learner.kernels"}  # may differ, with a warning
# {name: values}: one of these fields must be one of its values, or within its bound
Condition = dict[str, Allowed]


@cache
def declared_reads(algorithm: str) -> Reads:
    """List what an algorithm's own table says that it reads beside it."""
    return Config(algorithm=algorithm).own.READS


def tables(algorithm: str) -> tuple[str, ...]:
    """Return the tables that an algorithm reads beside those that all read: first its own."""
    return (table_of(algorithm), *declared_reads(algorithm).tables)


def reads(algorithm: str, name: str) -> bool:
    """Return whether an algorithm reads a field, whatever the other fields are."""
    table, own = name.rpartition(".")[0], declared_reads(algorithm)
    there = table in ("", *COMMON, *tables(algorithm)) or name in own.also
    return there and name not in own.without


def conditions(name: str) -> list[Condition]:
    """List the conditions at a field for it to matter."""
    table, found = name.rpartition(".")[0], []
    for mark in marks(name):
        if isinstance(mark, OnlyWith):
            others = {f"{table}.{key}": values for key, values in mark.others.items()}
            one = isinstance(mark, OnlyWithOne)
            found += [others] if one else [{other: others[other]} for other in others]
    return found


def find_unmet(config: Config, name: str) -> Condition:
    """Find the first condition for a field to matter that is not met; an empty one if all are."""
    own, only_if = table_of(config.algorithm), declared_reads(config.algorithm).only_if
    said = [only_if[key] for key in (name.rpartition(".")[0], name) if key in only_if]
    by_algorithm: list[Condition] = [
        {f"{own}.{field}": as_allowed(values)} for field, values in said
    ]
    for needed in by_algorithm + conditions(name):
        if not any(is_met(value_of(config, other), needed[other]) for other in needed):
            return needed
    return {}


def is_met(value: Any, allowed: Allowed) -> bool:
    """Tell whether a value is one of these, or within the bound."""
    return allowed.holds(value) if isinstance(allowed, Bound) else value in allowed


def in_words(allowed: Allowed, write: Callable[[Any], str] = as_text) -> str:
    """List values, each as it is written, or describe a bound."""
    return allowed.words if isinstance(allowed, Bound) else " or ".join(map(write, allowed))


def find_unread(config: Config, names: Iterable[str]) -> dict[str, str]:
    """Return {name: why} of those fields that a run of `config` does not read."""
    found = {}
    for name in names:
        if not reads(config.algorithm, name):
            found[name] = f"algorithm = {config.algorithm} does not read it"
        elif not config.policy.hidden and HIDDEN in marks(name):
            found[name] = HIDDEN
        elif missing := find_unmet(config, name):
            said = (f"{other} = {in_words(allowed)}" for other, allowed in missing.items())
            found[name] = f"read only with {' or '.join(said)}"
    return found


def unread_in(config: Config, discrete: bool) -> Iterator[str]:
    """Yield a message for what is no default and not read in tasks of such actions."""
    for name, default in DEFAULTS.items():
        if not reads(config.algorithm, name) or value_of(config, name) == default:
            continue
        if any(isinstance(mark, OnlyIn) and mark.discrete != discrete for mark in marks(name)):
            kind = "continuous" if discrete else "discrete"
            value = as_text(value_of(config, name))
            yield f"{name} = {value}: read only in tasks of {kind} actions"


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Find {name: (old, new)} of the fields that decide a run's results and that a run reads."""
    found = {
        name: (a, b)
        for (name, a), (_, b) in zip(flatten(old), flatten(new), strict=True)
        if a != b and not {name, name.split(".")[0]} & FREE
    }
    if old.learner.kernels == new.learner.kernels == "compiled":
        found.pop("learner.threads", None)  # they make the same bits
    idle = find_unread(old, found).keys() & find_unread(new, found).keys()
    return {name: pair for name, pair in found.items() if name not in idle}
