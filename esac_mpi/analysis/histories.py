"""The history of a run as other software reads it: a table in CSV, or curves in TensorBoard."""

import csv
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from esac_mpi.analysis.curves import column, position
from esac_mpi.analysis.episodes import training, training_returns
from esac_mpi.analysis.evaluations import evaluated, evaluations, policies
from esac_mpi.analysis.measures import counted_steps
from esac_mpi.analysis.messages import Unusable
from esac_mpi.record import RunFiles

STEPS = ("env_steps", "nominal_steps", "generation")  # what a step of TensorBoard can be
EVENTS = "events.out.tfevents.esac_mpi"  # TensorBoard looks for names with tfevents
# tags of stable-baselines3
TAGS = {
    "metrics/generation": "time/iterations",
    "timing/wall_seconds": "time/time_elapsed",
    "metrics/gradient_updates": "train/n_updates",
}
LEARNER = r"metrics/(?:[a-z0-9]+_)?(critic_loss|actor_loss|value_loss|mean_q|temperature|entropy)"
TRAIN = {"temperature": "ent_coef"}


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


def tag(name: str) -> str:
    """Rename a column as stable-baselines3 calls what is like it; others keep their names."""
    if found := re.fullmatch(LEARNER, name):
        return f"train/{TRAIN.get(found[1], found[1])}"
    return TAGS.get(name, name.replace("metrics/evaluation_", "eval/"))


def tagged(run: RunFiles) -> dict[str, np.ndarray]:
    """Collect the curves of TensorBoard, {tag: [generations]}. Raises Unusable as `columns`."""
    found = {tag(name): values for name, values in columns(run).items()}
    generation, wall = run.columns["metrics/generation"], column(run, "timing/wall_seconds")
    episodes, length = training_returns(run)[0], column(run, "metrics/length").astype(float)
    average = np.concatenate([[np.nan], training(run)[1]])
    found["rollout/ep_rew_mean"] = average[episodes]
    if length.ndim == 2:
        found["rollout/ep_len_mean"] = spread(np.where(length > 0, length, np.nan))["mean"]
        found["rollout/ep_len_mean"] /= getattr(run.config.own, "fitness_episodes", 1)
    else:
        played, steps = np.diff(episodes, prepend=0), np.diff(position(run, "env_steps"), prepend=0)
        found["rollout/ep_len_mean"] = np.where(played > 0, steps / np.maximum(played, 1), np.nan)
    if len(total := counted_steps(run)):
        found["time/total_timesteps"] = total
        if len(wall):
            found["time/fps"] = np.where(wall > 0, total / np.maximum(wall, 1e-9), np.nan)
    found["eval/mean_reward"] = np.full(len(generation), np.nan)
    when, returns = evaluated(run)
    found["eval/mean_reward"][np.searchsorted(generation, when)] = returns
    return found


def curves(run: RunFiles, out: Path | None, step: str) -> Path:
    """Write what TensorBoard shows against a step of STEPS, float32; return the file.

    It is in the run, or in a folder of the run's name in `out`, where a folder is one run.
    """
    found, steps = tagged(run), position(run, step)
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.record_writer import RecordWriter

    assert run.columns.source is not None
    wall = column(run, "timing/wall_seconds")
    wall = np.nan_to_num(wall) if len(wall) else np.zeros(run.generation)
    # as if it had never stood still
    seconds = run.columns.source.stat().st_mtime + wall - wall[-1]
    folder = out / run.path.resolve().name if out else run.path
    folder.mkdir(parents=True, exist_ok=True)
    with closing(RecordWriter(str(folder / EVENTS))) as file:
        file.write(Event(wall_time=seconds[0], file_version="brain.Event:2").SerializeToString())
        for g in range(run.generation):
            values = [
                Summary.Value(tag=name, simple_value=value[g])
                for name, value in found.items()
                if np.isfinite(value[g])
            ]
            event = Event(wall_time=seconds[g], step=int(steps[g]), summary=Summary(value=values))
            file.write(event.SerializeToString())
    return folder / EVENTS


FORMATS: dict[str, Callable[[RunFiles, Path | None, str], Path]] = {
    "tensorboard": curves,
    "csv": table,
}
