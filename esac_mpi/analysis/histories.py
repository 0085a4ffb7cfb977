"""The history of a run as other software reads it: a table in CSV, or curves in TensorBoard."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.curves import per_row, position
from esac_mpi.analysis.followed import Followed, publication_time
from esac_mpi.analysis.measures import column, counted_steps
from esac_mpi.analysis.messages import DAMAGED, Unusable
from esac_mpi.analysis.returns import WINDOW, evaluated, evaluations, policies, training
from esac_mpi.analysis.tables import render
from esac_mpi.record import RunFiles, Unreadable
from esac_mpi.record.files import missing_value

FORMATS = ("tensorboard", "csv")
STEPS = ("env_steps", "nominal_steps", "generation")  # what a step of TensorBoard can be
EVENTS = "events.out.tfevents.esac_mpi"  # TensorBoard looks for names with tfevents
TAGS = {  # tags of stable-baselines3
    "metrics/generation": "time/iterations",
    "timing/wall_seconds": "time/time_elapsed",
    "metrics/gradient_updates": "train/n_updates",
}
LEARNER = r"metrics/(?:[a-z0-9]+_)?(critic_loss|actor_loss|value_loss|mean_q|temperature|entropy)"
TRAIN = {"temperature": "ent_coef"}


def spread(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, min and max of the finite numbers of each row of [rows, n], nan without any."""
    found = per_row(rows, np.nanmean, np.nanmin, np.nanmax)
    return dict(zip(("mean", "min", "max"), found, strict=True))


def unfilled(values: np.ndarray) -> np.ndarray:
    """Put nan where integers have the number that fills the rows of an older version."""
    if values.dtype.kind != "i" or not (filled := values == missing_value(values.dtype)).any():
        return values
    return np.where(filled, np.nan, values)


def columns(run: RunFiles) -> dict[str, np.ndarray]:
    """Collect the columns of a history, {name of docs/reference/hdf5.md: [generations]}.

    Of fitness and of evaluations, the one at the end among them, <name>.mean, .min and .max; as in
    the run itself, an evaluation with an unstable episode has none. Raises Unusable for a run
    without a generation.
    """
    if not run.generation:
        raise Unusable(f"{run.path}: no generation has been published yet")
    found = {"metrics/generation": run.columns["metrics/generation"]} | {
        name: unfilled(run.columns[name]) for name in run.columns.scalars
    }
    if (best := found.get("metrics/best_return")) is not None:
        found["metrics/best_return"] = np.where(np.isfinite(best), best, np.nan)  # -inf: none yet
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


def as_csv(run: RunFiles) -> str:
    """Format a row a generation, nan as nothing."""
    found = columns(run)
    rows = zip(*(values.tolist() for values in found.values()), strict=True)
    return render([dict(zip(found, row, strict=True)) for row in rows], "csv")


def tag(name: str) -> str:
    """Rename a column to stable-baselines3's tag for it; others keep their names."""
    if found := re.fullmatch(LEARNER, name):
        return f"train/{TRAIN.get(found[1], found[1])}"
    return TAGS.get(name, name.replace("metrics/evaluation_", "eval/"))


def recent_length(episodes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Average the length of WINDOW episodes or more from both counts so far, nan before the first.

    Episodes go on over ends of generations: of fewer the unfinished one would be a large part.
    """
    ended, made = (np.concatenate([[0.0], count]) for count in (episodes, steps))
    first = np.maximum(np.searchsorted(ended, episodes - WINDOW, "right") - 1, 0)
    played = episodes - ended[first]
    return np.where(played > 0, (steps - made[first]) / np.maximum(played, 1), np.nan)


def collect_curves(run: RunFiles) -> dict[str, np.ndarray]:
    """Collect the curves of TensorBoard, {tag: [generations]}. Raises Unusable as `columns`."""
    found = {tag(name): values for name, values in columns(run).items()}
    generation, wall = run.columns["metrics/generation"], column(run, "timing/wall_seconds")
    episodes = position(run, "training_episodes").astype(int)
    length = column(run, "metrics/length").astype(float)
    found["rollout/ep_rew_mean"] = np.concatenate([[np.nan], training(run)[1]])[episodes]
    if length.ndim == 2:
        found["rollout/ep_len_mean"] = spread(np.where(length > 0, length, np.nan))["mean"]
        found["rollout/ep_len_mean"] /= getattr(run.config.own, "fitness_episodes", 1)
    else:
        found["rollout/ep_len_mean"] = recent_length(episodes, position(run, "env_steps"))
    if len(total := counted_steps(run)):
        found["time/total_timesteps"] = total
        if len(wall):
            found["time/fps"] = np.where(wall > 0, total / np.maximum(wall, 1e-9), np.nan)
    found["eval/mean_reward"] = np.full(len(generation), np.nan)
    when, returns = evaluated(run)
    found["eval/mean_reward"][np.searchsorted(generation, when)] = returns
    return found


class Curves:
    """A file of TensorBoard's that grows with a run: in the run, or in its folder in `out`."""

    def __init__(self, run: Path, out: Path | None, step: str) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import RecordWriter

        folder = out / run.resolve().name if out else run  # a folder is one run there
        if out:
            folder.mkdir(parents=True, exist_ok=True)
        self.path, self._step = folder / EVENTS, step
        self._event, self._summary, self._writer = Event, Summary, RecordWriter(str(self.path))
        self.rows, self._last = 0, set[str]()  # that were added, and what the last of them has

    def add(self, run: RunFiles) -> None:
        """Append the rows that are new, float32, and an evaluation that came after its row."""
        found = collect_curves(run)
        wall, steps = column(run, "timing/wall_seconds"), position(run, self._step)
        wall = np.nan_to_num(wall) if len(wall) else np.zeros(run.generation)
        if not (newest := publication_time(run)):
            raise Unreadable(f"{run.path}: its files have been moved away")
        seconds = newest + wall - wall[-1]  # as if it had never stood still
        if not self.rows:
            self._write(self._event(wall_time=seconds[0], file_version="brain.Event:2"))
        for g in range(max(self.rows - 1, 0), run.generation):
            row = {name: values[g] for name, values in found.items() if np.isfinite(values[g])}
            known = self._last if g == self.rows - 1 else set[str]()
            values = [
                self._summary.Value(tag=name, simple_value=value)
                for name, value in row.items()
                if name not in known
            ]
            if values:
                summary = self._summary(value=values)
                self._write(self._event(wall_time=seconds[g], step=int(steps[g]), summary=summary))
            self.rows, self._last = g + 1, {*row}
        self._writer.flush()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def write_curves(run: RunFiles, out: Path | None, step: str) -> Path:
    """Write TensorBoard curves against a step of STEPS; return the file."""
    columns(run)
    with closing(Curves(run.path, out, step)) as file:
        file.add(run)
        return file.path


def follow(followed: Followed, out: Path | None, step: str, every: float) -> Iterator[Path]:
    """Write curves of runs to their ends; yield each file when it begins. Raises Unusable."""
    files: dict[Path, Curves] = {}
    try:
        for last in followed.poll(every):
            problems = []
            for path, run in followed.runs.items():
                try:
                    if isinstance(run, str):
                        raise Unreadable(run)
                    if path in files and files[path].rows > run.generation:
                        files.pop(path).close()  # --fresh has begun another at its path
                    if run.generation and path not in files:
                        files[path] = Curves(path, out, step)
                        yield files[path].path
                    if run.generation:
                        files[path].add(run)
                except Unreadable as error:  # or the run has gone on since: the next look tells
                    problems.append(str(error))
            if last and problems:
                raise Unusable("\n".join(problems), DAMAGED)
        for run in followed.runs.values():
            if isinstance(run, RunFiles):
                columns(run)  # of a run that has ended before its first generation: says so
    finally:
        for file in files.values():
            file.close()
