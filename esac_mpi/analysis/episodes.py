"""Returns of a run's training episodes in order, and their moving average (ESAC, Figure 2 left)."""

import numpy as np

from esac_mpi.record import RunFiles

WINDOW = 50  # training episodes of the paper's moving average
# of a genetic population's learner: one episode in each generation
OWN = "metrics/learner_episodic_return"


def training_returns(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return (episodes so far [generations], returns [episodes]) of training, not of evaluations.

    In a generation the population's members come first, in their order, then the episodes of the
    gradient learner. A member of several episodes has its mean for each of them, as have the
    learner's: the run file holds their number and mean, or that of the one which it plays in each
    generation. An unstable episode has no return and is left out.
    """
    generations = len(run.columns.get("metrics/generation", ()))
    returns = run.columns.get("metrics/fitness", np.zeros((generations, 0)))  # [generations, n]
    # not who stays by importance mixing
    played = run.columns.get("metrics/length", np.ones(returns.shape)) > 0
    counts = getattr(run.config.own, "fitness_episodes", 1) * played
    others = [
        (run.columns[name], run.columns[mean])
        for name in run.columns
        if name.startswith("metrics/") and name.endswith("_episodes")
        if (mean := name.replace("_episodes", "_episodic_return")) in run.columns
    ]
    if OWN in run.columns:
        others.append((np.ones(generations), run.columns[OWN]))
    for number, own in others:
        counts, returns = np.column_stack([counts, number]), np.column_stack([returns, own])
    counts = np.where(np.isfinite(returns), counts, 0).astype(int)
    return counts.sum(axis=1).cumsum(), np.repeat(returns.ravel(), counts.ravel())


def training(run: RunFiles, window: int = WINDOW) -> tuple[np.ndarray, np.ndarray]:
    """Return (episodes [m], mean return of the last `window` training episodes [m]).

    The mean is of all before where there are fewer. The returns of a gradient learner's episodes
    are known as one mean a generation, so that their sum grows linearly within it: the average is
    exact where both ends of its window are ends of generations.
    """
    sums = np.concatenate([[0.0], training_returns(run)[1].cumsum()])
    episodes = np.arange(1, len(sums))
    first = np.maximum(episodes - window, 0)
    return episodes, (sums[episodes] - sums[first]) / (episodes - first)
