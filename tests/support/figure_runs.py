"""Runs whose tables and figures can be worked out by hand, and a look at the pictures."""

import numpy as np
from conftest import CORRECTED
from run_files import leave

from esac_mpi.analysis import command as commands_alike


def make(
    path,
    returns=(10.0, 20.0, 30.0),
    algorithm="es",
    seed=0,
    task="A-v0",
    ranks=2,
    scale=1.0,
    n=4,
    **settings,
):
    """Leave a run behind, one generation for each return; None = not evaluated, then.

    theta_es evaluates to `returns`, the SAC mean to half of them; the members' fitness lies 1 to n
    below. A generation takes 100 population steps, 10 learner steps and updates, and 2 * scale
    seconds.
    """
    values = {**CORRECTED, "algorithm": algorithm, "seed": seed, "task.id": task}
    values |= {f"{algorithm}.population_size": n, **settings}
    rows, best = [], -np.inf
    for g, value in enumerate(returns, 1):
        value = np.nan if value is None else float(value)
        best = max(best, np.nan_to_num(value, nan=-np.inf))
        row = {
            "generation": g, "env_steps_population": 100 * g, "env_steps_learner": 10 * g,
            "env_steps_evaluation": 7 * g,
            "nominal_steps": 1000 * g, "gradient_updates": 10 * g, "sigma": 0.1 * g,
            "sac_phase": g % 2, "best_return": best, "learner_phases": g // 2,
            "fitness": value - np.arange(1.0, n + 1),
            "evaluation_theta_es": np.array([value - 1, value + 1]),
        }  # fmt: skip
        if algorithm == "esac":
            row |= {"evaluation_sac": np.full(2, value / 2), "sac_value_loss": np.nan}
            for name in ("critic_loss", "actor_loss", "mean_q", "entropy"):
                row[f"sac_{name}"] = float(g)
        spent = {"evaluate": 1.0, "plan": 0.0, "update": 0.1, "learn": 0.4, "evaluation": 0.25}
        timing = {f"seconds_{name}": scale * s for name, s in {**spent, "record": 0.05}.items()}
        timing["busy_seconds"] = scale * np.array([0.9, 0.5, 0.5, 0.5][:ranks])
        rows.append((row, {"wall_seconds": 2.0 * scale * g, **timing}))
    leave(path, rows, values, {"ranks": ranks, "cpu": "a CPU"})
    return path


def trained(path, algorithm, rows, **settings):
    """Leave a run behind: rows of metrics, 100 learner steps and 2 s each."""
    rows = [
        ({"generation": g, "env_steps_learner": 100 * g, **row}, {"wall_seconds": 2.0 * g})
        for g, row in enumerate(rows, 1)
    ]
    leave(path, rows, {"algorithm": algorithm, "task.id": "A-v0", **settings})
    return opened(path)[0]


def opened(*paths):
    return commands_alike.opened(paths)


def lines(axes):
    """Return {label: (x, y)} of what is drawn in a panel, as lists."""
    return {
        line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist())
        for line in axes.lines
    }
