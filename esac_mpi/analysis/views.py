"""What watch shows: one run figure by figure, or several, a line each.

Text for a terminal, made of measures.py's figures.
"""

import time
from collections import Counter
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from esac_mpi.analysis import measures
from esac_mpi.analysis.activities import idle
from esac_mpi.analysis.choice import Choice
from esac_mpi.analysis.evaluations import evaluated
from esac_mpi.analysis.resume import resume_command
from esac_mpi.host.log import compact, duration
from esac_mpi.record import RunFiles

ALL = Choice()
RECENT = 20  # generations that speed, idle fraction and time left are taken over
BARS = " ▁▂▃▄▅▆▇█"
STYLES = {"running": "green", "complete": "bold green", "pruned": "dim", "requeue": "yellow"}
STYLES |= {"failed": "bold red", "dead": "bold red"}
NARROW = ("status", "gen", "budget", "return", "returns", "left", "row")  # columns of several runs
WIDE = (
    "status",
    "gen",
    "budget",
    "return",
    "best",
    "returns",
    "sigma",
    "steps/s",
    "idle",
    "left",
    "row",
    "checkpoint",
)


def sparkline(values: np.ndarray, width: int = 24) -> str:
    """Return finite values as bars from the least to the greatest, the mean of neighbours where there are more than fit."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    values = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    spread = np.ptp(values)
    heights = (
        np.ones(len(values))
        if spread == 0
        else 1 + np.round((values - values.min()) / spread * (len(BARS) - 2))
    )
    return "".join(BARS[int(height)] for height in heights)


def age(path: Path) -> str:
    """Return how long ago a file was published, by the clock of this host."""
    try:
        return duration(time.time() - path.stat().st_mtime)
    except OSError:
        return "-"


def figure(value: float | None, form: str = "{:,.1f}") -> str:
    """Return a number as text, - for none."""
    return "-" if value is None or not np.isfinite(value) else form.format(value)


def figures(run: RunFiles) -> dict[str, str]:
    """Return what is shown of a run, as text."""
    returns = evaluated(run)[1]
    speed = measures.rate(run, measures.counted_steps(run), RECENT)
    waited = idle(run, RECENT)
    left = measures.seconds_left(run, RECENT)
    return {
        "status": run.state,
        "gen": str(run.generation),
        "budget": f"{100 * measures.progress(run):.0f} %",
        "return": figure(returns[-1] if len(returns) else None),
        "best": figure(measures.best_return(run)),
        "returns": sparkline(returns),
        "sigma": figure(measures.last(run, "sigma"), "{:.3g}"),
        "steps/s": "-" if speed is None else compact(speed),
        "idle": figure(None if waited is None else 100 * waited, "{:.0f} %"),
        "left": "-" if left is None or run.state in measures.OVER else duration(left),
        "row": age(run.path / "metrics.h5") if run.generation else "-",
        "checkpoint": age(run.path / "checkpoint.h5"),
    }


def one(run: RunFiles) -> Table:
    """Return the view of a single run."""
    shown, config = figures(run), run.config
    evaluated = {
        p: v
        for p, v in measures.last_evaluation(run).items()
        if p != "generation" and v is not None
    }
    fitness = run.columns.get("metrics/fitness", np.zeros((0, 1)))
    means = np.array(
        [row[np.isfinite(row)].mean() if np.isfinite(row).any() else np.nan for row in fitness]
    )
    wall = measures.last(run, "wall_seconds", "timing") or 0.0
    hosts = run.provenance.get("hosts", run.status.get("host", "?"))
    lines: dict[str, str | ProgressBar] = {
        "run": escape(str(run.path)),
        "job": escape(f"{config.algorithm} on {config.task.id}, seed {config.seed}"),
        "ranks": escape(f"{run.provenance.get('ranks', '?')} on {hosts}"),
        "status": f"[{STYLES.get(shown['status'], 'default')}]{shown['status']}[/]{escape(advice(run))}",
        "generation": f"{shown['gen']}, {shown['budget']} of the budget",
        "": ProgressBar(total=1.0, completed=measures.progress(run), width=30),
        "return": f"{shown['return']}  {shown['returns']}  best {shown['best']}",
        "last evaluation": ", ".join(
            f"{policy} {value:,.1f}" for policy, value in evaluated.items()
        )
        or "-",
        "fitness, mean": f"{figure(means[-1] if len(means) else None)}  {sparkline(means)}",
        "sigma": f"{shown['sigma']}  {sparkline(run.columns.get('metrics/sigma', np.zeros(0)))}",
        "speed": f"{shown['steps/s']} steps/s",
        "idle": f"{shown['idle']} of the ranks' time",
        "time": f"{duration(wall)} so far, {shown['left']} left",
        "last row": f"{shown['row']} ago" if run.generation else "-",
        "last checkpoint": f"{shown['checkpoint']} ago",
    }
    grid = Table.grid(padding=(0, 2))
    for label, value in lines.items():
        grid.add_row(label, value)
    return grid


def line(run: RunFiles | str) -> str:
    """Return the view of a run as one line, which stays what it is until the run has got on; of one that cannot be read, why."""
    if isinstance(run, str):
        return run
    shown = figures(run)
    told = f"{shown['status']}{advice(run)}, generation {shown['gen']}, {shown['budget']} of the budget"
    return f"{run.path}: {told}, return {shown['return']}, best {shown['best']}, {shown['steps/s']} steps/s, {shown['left']} left"


def advice(run: RunFiles) -> str:
    """Return what to do about a run that is over but not complete."""
    command = resume_command(run) if run.state in measures.OVER else None
    said = (
        f"; its process (host {run.status.get('host', '?')}) has ended"
        if run.state == "dead"
        else ""
    )
    return f"{said}; go on with: {command}" if command else said


def many(
    runs: dict[Path, RunFiles | str], width: int, choice: Choice = ALL, lines: int = 0
) -> Table:
    """Return the view of several runs on a terminal of a width: a line each, of those chosen the first that fit (lines)."""
    chosen = choice.of(runs)
    listed = chosen[: max(1, lines - 1)] if 0 < lines < len(chosen) else chosen
    shown = {
        path: {"status": run} if isinstance(run := runs[path], str) else figures(run)
        for path in listed
    }
    counts = Counter("unreadable" if isinstance(run, str) else run.state for run in runs.values())
    names = {path: path.name for path in runs}
    names = names if len(set(names.values())) == len(names) else {path: str(path) for path in runs}
    columns = WIDE if width >= 110 + max(map(len, names.values())) else NARROW
    title = ", ".join(f"{n} {s}" for s, n in counts.most_common()) + f"; {len(chosen)} chosen" * (
        len(chosen) < len(runs)
    )
    table = Table(box=None, pad_edge=False, title_justify="left", title=title)
    for name in ("run", *columns):
        text = name in ("run", "status", "returns")
        table.add_column(
            name, justify="left" if text else "right", no_wrap=True, overflow="ellipsis"
        )
    for path in listed:
        style = STYLES.get(shown[path]["status"], "")
        table.add_row(
            escape(names[path]),
            *(escape(shown[path].get(name, "")) for name in columns),
            style=style,
        )
    if len(listed) < len(chosen):
        table.add_row(f"and {len(chosen) - len(listed)} more")
    return table
