"""Names of settings as a person writes them: without a table they are the algorithm's own."""

from esac_mpi.config import NAMES, Config, table_of

DEFAULT = Config().algorithm


def full_name(algorithm: str, name: str) -> str:
    """Return a field's dotted name; one without a table is of the algorithm's own."""
    return name if "." in name or name in NAMES else f"{table_of(algorithm)}.{name}"
