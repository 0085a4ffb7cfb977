"""Whether a configuration can be run: the bounds at its fields, then the rules of its tables."""

from collections.abc import Iterator
from dataclasses import fields

from esac_mpi.config.automatic import in_numbers
from esac_mpi.config.bounds import AUTO, Bound, is_text
from esac_mpi.config.errors import ConfigError
from esac_mpi.config.fields import flatten, marks, takes_auto
from esac_mpi.config.files import UNSAVED
from esac_mpi.config.table import Table
from esac_mpi.config.whole import Config, table_of

LARGE = 1000  # members in the place of a population that is "auto": what has no room in these has none in fewer


def check(config: Config) -> None:
    """Raise ConfigError unless every field, and every combination of fields, can be run."""
    for problem in problems(config):
        raise ConfigError(problem)


def problems(config: Config) -> Iterator[str]:
    """Yield a message for what is wrong; only the first one is sure, as rules expect values within their bounds."""
    yield from _of_fields(config)
    config = in_numbers(config, LARGE)
    for f in fields(config):
        table = getattr(config, f.name)
        if isinstance(table, Table):
            yield from table.problems(f.name)
    yield from config.own.problems_when_run(config)


def _of_fields(config: Config) -> Iterator[str]:
    """Yield a message for every value that is out of the bounds of its field."""
    for name, value in flatten(config):
        if value == AUTO and takes_auto(name):
            continue
        runs = name.startswith(f"{table_of(config.algorithm)}.")
        bounds = [
            mark for mark in marks(name) if isinstance(mark, Bound) and (runs or not mark.when_run)
        ]
        if isinstance(value, str) and name not in UNSAVED and not is_text(value):
            yield f"{name} = {value!r}: not UTF-8, so that no file of the run could hold it; give it another name"
        for v in value if isinstance(value, tuple) else (value,):
            yield from (
                f"{name} = {v!r}: {wrong}" for bound in bounds if (wrong := bound.problem(v))
            )
