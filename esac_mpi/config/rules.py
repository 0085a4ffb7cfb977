"""Whether a configuration can be run: the bounds at its fields, then the rules of its tables."""

from collections.abc import Iterator

from esac_mpi.config.automatic import estimate
from esac_mpi.config.bounds import Bound, is_text
from esac_mpi.config.fields import as_text, choices, flatten, marks, value_of
from esac_mpi.config.files import UNSAVED
from esac_mpi.config.reads import COMMON, reads, tables
from esac_mpi.config.whole import Config, ConfigError

# members in the place of a population that is "auto": what has no room in these has none in fewer
LARGE = 1000


def check(config: Config) -> None:
    """Raise ConfigError unless every field, and every combination of fields, can be run."""
    for problem in problems(config):
        raise ConfigError(problem)


def problems(config: Config) -> Iterator[str]:
    """Yield what is wrong; only the first is sure, as rules expect values within their bounds."""
    for name, value in flatten(config):
        if not reads(config.algorithm, name):
            continue
        if isinstance(value, str) and name not in UNSAVED and not is_text(value):
            yield (
                f"{name} = {value!r}: "
                "not UTF-8, so that no file of the run could hold it; give it another name"
            )
        if isinstance(value, str) and value in choices(name):
            continue
        bounds = [mark for mark in marks(name) if isinstance(mark, Bound)]
        for v in value if isinstance(value, tuple) else (value,):
            yield from (f"{name} = {v!r}: {told}" for b in bounds if (told := b.problem(v)))
    config = estimate(config, LARGE)
    for table in (*COMMON, *tables(config.algorithm)):
        for names, wrong in getattr(config, table).problems(table, config):
            dotted = [name if "." in name else f"{table}.{name}" for name in names.split()]
            found = (f"{name} = {as_text(value_of(config, name))}" for name in dotted)
            yield f"{', '.join(found) or table}: {wrong}"
