"""Command lines in a few words."""

import shlex


def words(line: str) -> list[str]:
    """Return the words of a command line."""
    return shlex.split(line)


def of_table(table: str, **fields: object) -> list[object]:
    """Return the words that set fields of a table."""
    return [word for name, value in fields.items() for word in (f"--{table}.{name}", value)]
