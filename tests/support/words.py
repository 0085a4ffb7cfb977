"""Command lines in a few words."""

import shlex


def words(line: str, *more: object) -> list[str]:
    """Return the words of a part of a command line, and `more` as words after them."""
    return [*shlex.split(line), *map(str, more)]


def of_table(table: str, **fields: object) -> list[object]:
    """Return the words that set fields of a table."""
    return [word for name, value in fields.items() for word in (f"--{table}.{name}", value)]
