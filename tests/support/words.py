"""Command lines in a few words, and what they are refused with."""

import shlex

import pytest

from esac_mpi.config import ConfigError, load


def words(line: str, *more: object) -> list[str]:
    """Return the words of a part of a command line, and `more` as words after them."""
    return [*shlex.split(line), *map(str, more)]


def written(path, text: str) -> str:
    path.write_text(text)
    return str(path)


def refused(*given: object, by=load) -> str:
    """Return what the words of a command line, or what `by` is given, are refused with."""
    with pytest.raises(ConfigError) as error:
        by([*map(str, given)]) if by is load else by(*given)
    return str(error.value)


def named(table: str, **fields: object) -> dict[str, object]:
    """Name settings: the seed, section__field, else a field of a table."""
    return {
        name.replace("__", ".") if "__" in name or name == "seed" else f"{table}.{name}": value
        for name, value in fields.items()
    }


def of_table(table: str, **fields: object) -> list[object]:
    """Return the words that set fields of a table."""
    return [word for name, value in fields.items() for word in (f"--{table}.{name}", value)]
