"""What the parts of a generation cost on one rank, from measured runs: what the simulation replays."""

from dataclasses import replace

import numpy as np

from esac_mpi import config
from esac_mpi.record import RunFiles
from tools.bench import simulation
from tools.bench.program import dimension, parts


def costs_of(runs: list[RunFiles]) -> simulation.Costs:
    """Return what the parts cost on one rank: medians, and the durations of all episodes."""
    d = dimension(runs[0])
    found = [parts(run) for run in runs]
    n = runs[0].columns["metrics/length"].shape[1]

    def median(name: str) -> float:
        return float(np.median(np.concatenate([part.get(name, np.zeros(1)) for part in found])))

    lengths = [
        run.columns["metrics/length"][2:].astype(float) for run in runs
    ]  # of the generations but the first two
    per_step = [
        part["episodes"][1:] / length.sum(axis=1)
        for part, length in zip(found, lengths, strict=True)
    ]
    durations = np.concatenate(
        [(length * s[:, None]).ravel() for length, s in zip(lengths, per_step, strict=True)]
    )
    seconds_per_step = float(np.median(np.concatenate(per_step)))
    costs = simulation.Costs(
        durations, d, noise=median("noise") / (n * d), update=median("update") / (n // 2 * d), plan=median("plan"),
        record=median("record"), seconds_per_step=seconds_per_step,
    )  # fmt: skip
    return learner_costs(costs, runs, float(np.concatenate(lengths).mean()))


def learner_costs(costs: simulation.Costs, runs: list[RunFiles], length: float) -> simulation.Costs:
    """Add what a learner phase costs; a whole one has the steps and updates of the runs' own configuration, but not SHORT's."""
    if runs[0].config.algorithm != "esac":
        return costs
    seconds, steps, updates = np.sum([phase_totals(run) for run in runs], axis=0)
    esac, sac = config.ESAC(), config.SAC()
    whole = round(max(esac.sac_episodes * length, esac.sac_min_steps))
    return replace(
        costs, phase_steps=whole, phase_updates=round(whole * sac.updates_per_step),
        seconds_per_update=max(0.0, seconds - steps * costs.seconds_per_step) / max(updates, 1),
    )  # fmt: skip


def phase_counts(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and updates [2, phases] of all learner phases but the first, and the rows in which they entered [phases]."""
    counts = np.diff(
        [run.columns[f"metrics/{c}"] for c in ("env_steps_learner", "gradient_updates")],
        prepend=0,
        axis=1,
    )
    rows = np.flatnonzero(counts[0])[1:]
    return counts[:, rows], rows


def phase_totals(run: RunFiles) -> tuple[float, int, int]:
    """Return seconds, environment steps and updates of a run's learner phases but the first."""
    counts, rows = phase_counts(run)
    return float(run.columns["timing/seconds_phase"][rows].sum()), *counts.sum(axis=1).tolist()
