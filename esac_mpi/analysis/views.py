"""A run's state for a person: a row for `summary` and `watch`, a line for a pipe, or figures."""

import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from esac_mpi.analysis import measures
from esac_mpi.analysis.curves import per_generation
from esac_mpi.analysis.followed import choose_runs
from esac_mpi.analysis.measures import resume_command
from esac_mpi.analysis.returns import evaluated
from esac_mpi.analysis.tables import Row, format_value, render
from esac_mpi.analysis.times import idle
from esac_mpi.host.log import compact, duration, figures
from esac_mpi.record import RunFiles

RECENT = 20  # generations that speed, idle fraction and time left are taken over
BARS = " ▁▂▃▄▅▆▇█"
STYLES = {
    "running": "green", "complete": "bold green", "pruned": "dim", "requeue": "yellow",
    "failed": "bold red", "dead": "bold red", "unknown": "bold red",
}  # fmt: skip
COLUMNS = (  # of watch
    "run", "status", "gen", "budget", "return", "returns", "left", "row", "best", "sigma",
    "steps/s", "idle", "checkpoint",
)  # fmt: skip


def sparkline(values: np.ndarray, width: int = 24) -> str:
    """Draw finite values as bars from least to greatest, means of neighbours where too many."""
    values = values[np.isfinite(values)]
    if not len(values):
        return ""
    values = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    spread = np.ptp(values)
    if spread <= 1e-9 * np.abs(values).max():  # means of equal values differ in the last bits
        return BARS[1] * len(values)
    heights = 1 + np.round((values - values.min()) / spread * (len(BARS) - 2))
    return "".join(BARS[int(height)] for height in heights)


def age(path: Path) -> str:
    """Return a file's age in words, by the clock of this host."""
    try:
        return duration(time.time() - path.stat().st_mtime)
    except OSError:
        return "-"


def format_number(value: float | None, form: str = "") -> str:
    """Format a return, or another number by `form`; - for none."""
    if value is None or not np.isfinite(value):
        return "-"
    return form.format(value) if form else figures(value, ",.1f")


def row(run: RunFiles) -> Row:
    """Return a run's row of `summary`."""
    config, returns = run.config, evaluated(run)[1]
    steps = measures.counted_steps(run)
    speed = measures.rate(run, steps, RECENT)
    left = measures.seconds_left(run, RECENT)
    return {
        "status": run.state,
        "task": config.task.id,
        "algorithm": config.algorithm,
        "seed": config.seed,
        "ranks": run.provenance.get("ranks"),
        "gen": run.generation,
        "budget": f"{100 * measures.progress(run):.0f} %",
        "steps": compact(steps[-1].item() if len(steps) else 0),
        "return": format_number(returns[-1] if len(returns) else None),
        "best": format_number(measures.best_return(run)),
        "final": format_number(measures.final_return(run)),
        "wall": duration(measures.last(run, "wall_seconds", "timing") or 0.0),
        "steps/s": None if speed is None else compact(speed),
        "idle": format_number(100 * idle(run, slice(-RECENT, None)), "{:.0f} %"),
        "left": None if left is None or run.state in measures.OVER else duration(left),
        "row": age(run.path / "metrics.h5") if run.generation else None,
        "run": str(run.path),
    }


def show_run(run: RunFiles) -> Table:
    """Show a single run."""
    stands, config = row(run), run.config
    found, left = {name: format_value(value) for name, value in stands.items()}, stands["left"]
    evaluation = measures.last_evaluation(run)
    policies = [
        f"{p} {format_number(value)}"
        for p, value in evaluation.items()
        if p != "generation" and value is not None
    ]
    means, saved = per_generation(run, np.nanmean), age(run.path / "checkpoint.h5")
    sigma = measures.column(run, "metrics/sigma")
    hosts = run.provenance.get("hosts", run.status.get("host", "?"))
    lines: dict[str, str | ProgressBar] = {
        "run": escape(found["run"]),
        "job": escape(f"{config.algorithm} on {config.task.id}, seed {config.seed}"),
        "ranks": escape(f"{found['ranks']} on {hosts}"),
        "status": f"[{STYLES.get(run.state, 'default')}]{escape(run.state)}[/]"
        + escape(advice(run)),
        "generation": f"{found['gen']}, {found['budget']} of the budget",
        "": ProgressBar(total=1.0, completed=measures.progress(run), width=30),
        "return": f"{found['return']}  {sparkline(evaluated(run)[1])}  best {found['best']}",
        "last evaluation": ", ".join(policies) or "-",
        "fitness, mean": f"{format_number(means[-1] if len(means) else None)}  {sparkline(means)}",
        "sigma": f"{format_number(measures.last(run, 'sigma'), '{:.3g}')}  {sparkline(sigma)}",
        "speed": f"{found['steps/s']} steps/s",
        "idle": f"{found['idle']} of the ranks' time",
        "time": f"{found['wall']} so far{'' if left is None else f', {left} left'}",
        "last row": f"{found['row']} ago" if run.generation else "-",
        "last checkpoint": f"{saved} ago" if saved != "-" else saved,
    }
    grid = Table.grid(padding=(0, 2))
    for label, value in lines.items():
        grid.add_row(label, value)
    return grid


def advice(run: RunFiles) -> str:
    """Return the advice for a run that is over but not complete."""
    command = resume_command(run) if run.state in measures.OVER else None
    host = run.status.get("host", "?")
    said = f": {run.status['reason']}" if "reason" in run.status else ""
    said = f"; its process (host {host}) has ended" if run.state == "dead" else said
    return f"{said}; go on with: {command}" if command else said


def show_runs(
    runs: dict[Path, RunFiles | str], statuses: Collection[str] = (), lines: int = 0
) -> Group:
    """Show the first of the chosen runs that fit (lines), each a line as wide as the terminal."""
    taken = choose_runs(runs, statuses)
    listed = taken[: max(1, lines - 1)] if 0 < lines < len(taken) else taken
    counts = Counter("unreadable" if isinstance(run, str) else run.state for run in runs.values())
    title = ", ".join(f"{n} {state}" for state, n in counts.most_common())
    if len(taken) < len(runs):
        title += f"; {len(taken)} chosen"
    names = {path: path.name for path in runs}
    names = names if len(set(names.values())) == len(names) else {path: str(path) for path in runs}
    found = [(names[path], run) for path in listed if not isinstance(run := runs[path], str)]
    table = render([watch_row(name, run) for name, run in found], "text").splitlines()
    text = Text(title, no_wrap=True, overflow="ellipsis")
    text.append(f"\n{table.pop(0)}" if table else "")
    for path in listed:
        run = runs[path]
        line = f"{names[path]}  {run}" if isinstance(run, str) else table.pop(0)
        text.append(f"\n{line}", "" if isinstance(run, str) else STYLES.get(run.state, ""))
    if len(listed) < len(taken):
        text.append(f"\nand {len(taken) - len(listed)} more")
    return Group(text)  # alone, a console would wrap its lines


def watch_row(name: str, run: RunFiles) -> Row:
    """Return a run's row of `watch`."""
    found = row(run) | {"run": name, "returns": sparkline(evaluated(run)[1])}
    found["sigma"] = format_number(measures.last(run, "sigma"), "{:.3g}")
    found["checkpoint"] = age(run.path / "checkpoint.h5")
    return {column: found[column] for column in COLUMNS}
