"""The history of a run as other software reads it: a table in CSV, or curves in TensorBoard."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from esac_mpi.analysis.curves import column, position
from esac_mpi.analysis.evaluations import evaluations, policies
from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles

STEPS = ("env_steps", "nominal_steps", "generation")  # what a step of TensorBoard can be
EVENTS = "events.out.tfevents.esac_mpi"  # TensorBoard looks for names with tfevents


def spread(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, min and max of the finite numbers of each row of [rows, n], nan without any."""
    finite = np.isfinite(rows)
    some, count = finite.any(axis=1), np.maximum(finite.sum(axis=1), 1)
    found = {
        "mean": np.where(finite, rows, 0.0).sum(axis=1) / count,
        "min": np.where(finite, rows, np.inf).min(axis=1),
        "max": np.where(finite, rows, -np.inf).max(axis=1),
    }
    return {name: np.where(some, values, np.nan) for name, values in found.items()}


def columns(run: RunFiles) -> dict[str, np.ndarray]:
    """Collect the columns of a history, {name of docs/reference/hdf5.md: [generations]}.

    Of fitness and of evaluations, the one at the end among them, <name>.mean, .min and .max; as in
    the run itself, an evaluation with an unstable episode has none. Raises Unusable for a run
    without a generation.
    """
    if not run.generation:
        raise Unusable(f"{run.path}: no generation has been published yet")
    found = {"metrics/generation": run.columns["metrics/generation"]} | {
        name: run.columns[name] for name in run.columns.scalars
    }
    for policy in policies(run):
        generations, returns = evaluations(run, policy)
        returns = np.where(np.isfinite(returns).all(axis=1, keepdims=True), returns, np.nan)
        for name, values in spread(returns).items():
            whole = np.full(run.generation, np.nan)
            whole[np.searchsorted(found["metrics/generation"], generations)] = values
            found[f"metrics/evaluation_{policy}.{name}"] = whole
    if (fitness := column(run, "metrics/fitness")).ndim == 2:
        found |= {f"metrics/fitness.{name}": values for name, values in spread(fitness).items()}
    return found


def table(run: RunFiles, out: Path | None, step: str) -> Path:
    """Write a row a generation, nan as nothing; return `out`, or metrics.csv of the run."""
    out, found = out or run.path / "metrics.csv", columns(run)
    rows = zip(*(values.tolist() for values in found.values()), strict=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(found)
        writer.writerows(["" if value != value else value for value in row] for row in rows)
    return out


def curves(run: RunFiles, out: Path | None, step: str) -> Path:
    """Write what TensorBoard shows against a step of STEPS, float32; return the file.

    It is in the run, or in the run's own folder in `out`.
    """
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import RecordWriter

    found = columns(run)
    assert run.columns.source is not None
    wall, steps = column(run, "timing/wall_seconds"), position(run, step)
    wall = np.nan_to_num(wall) if len(wall) else np.zeros(run.generation)
    seconds = run.columns.source.stat().st_mtime + wall - wall[-1]  # as if it had never stood still
    folder = out / run.path.resolve().name if out else run.path  # a folder is one run there
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / EVENTS
    writer = RecordWriter(str(path))
    writer.write(Event(wall_time=seconds[0], file_version="brain.Event:2").SerializeToString())
    for g in range(run.generation):
        there = {name: values[g] for name, values in found.items() if np.isfinite(values[g])}
        values = [Summary.Value(tag=name, simple_value=value) for name, value in there.items()]
        event = Event(wall_time=seconds[g], step=int(steps[g]), summary=Summary(value=values))
        writer.write(event.SerializeToString())
    writer.close()
    return path


FORMATS: dict[str, Callable[[RunFiles, Path | None, str], Path]] = {
    "tensorboard": curves,
    "csv": table,
}
