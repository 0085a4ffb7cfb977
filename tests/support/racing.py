"""A run of the race as tests have it, and a row."""

from dataclasses import replace

from tools.bench.race import rows
from tools.bench.race.running import Plan


def plan_of(folder, **changes) -> Plan:
    """Return a plan whose files are in a folder, 50 s long, of two episodes an evaluation."""
    return replace(
        Plan("ours", "ES", "Pendulum-v1", 100.0, 0, [8], 50.0, 2, 1, {}, str(folder), 0.0),
        **changes,
    )


def row(task: str, name: str, seed: int, seconds: float, **changes) -> rows.Row:
    """Return a row of a run that took so long, in time below 180 s."""
    outcome = rows.REACHED if seconds < 180 else rows.LATE
    made = rows.Row(
        "k",
        task,
        100.0,
        name,
        seed,
        outcome,
        seconds,
        2.0,
        10 * int(seconds),
        1.0,
        3,
        1.5,
        180.0,
        2,
        "cpu",
        "v",
        "c" * 40,
        "d",
    )
    return replace(made, **changes)
