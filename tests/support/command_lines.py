"""Command lines as a user types them, and runs of one that must be the same to the bit."""

from whole_runs import assert_same_run

from esac_mpi.record import Run


def words(line: str, *more: object) -> list[str]:
    """Return the words of a part of a command line, and `more` as words after them."""
    return [*line.split(), *map(str, more)]


def same_in_parts(path, alone, together, line, *parts: tuple[int, int, int]) -> Run:
    """Compare a run on one rank with one in parts, each (its last generation, ranks, nodes).

    Return the one that was not interrupted; `alone` and `together` are the fixtures.
    """
    alone(*line, "--budget.generations", parts[-1][0], "--run-dir", path / "straight")
    for generations, ranks, nodes in parts:
        more = words("--budget.generations", generations, "--run-dir", path / "parts")
        together(ranks, *line, *more, nodes=nodes)
    assert_same_run(path / "straight", path / "parts")
    return Run.open(path / "straight")
