"""Returns of a run: of noise-free evaluations, by policy, and of training episodes, in order.

The moving average of training episodes is Figure 2 left of the ESAC paper.
"""

from collections.abc import Iterable

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.names import candidates, policy_order
from esac_mpi.record import RunFiles

# in place of a policy's name: the better one each time; of ERL and its forms the champion
BETTER = "better"
WINDOW = 50  # training episodes of the paper's moving average
# of a genetic population's learner: one episode in each generation
OWN = "metrics/learner_episodic_return"
COLUMNS = ("metrics/evaluation_", "final/evaluation_")  # and the policy's name


def policies(*runs: RunFiles) -> list[str]:
    """Return the names of the policies that any of the runs evaluates."""
    names = (name for run in runs for name in run.columns)
    return policy_order(n.removeprefix(s) for n in names for s in COLUMNS if n.startswith(s))


def require_policy(runs: Iterable[RunFiles], policy: str) -> None:
    """Raise Unusable, naming those that there are, if no run evaluates such a policy."""
    there = policies(*runs)
    if there and policy not in (BETTER, *there):
        known = ", ".join((BETTER, *there))
        raise Unusable(f"--policy {policy}: no run given evaluates it; there are {known}")


def evaluations(run: RunFiles, policy: str) -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], returns [m, episodes]) of a policy's evaluations, the last too."""
    history = run.columns
    generations = history.get("metrics/generation", np.zeros(0, int))
    returns = history.get(f"metrics/evaluation_{policy}", np.full((len(generations), 1), np.nan))
    made = np.isfinite(returns).any(axis=1)
    generations, returns = generations[made], returns[made]
    final = history.get(f"final/evaluation_{policy}")
    if final is not None:
        generations = np.append(generations, history["final/generation"])
        returns = np.vstack([returns.reshape(-1, final.size), final])
    return generations, returns


def evaluated(run: RunFiles, policy: str = BETTER) -> tuple[np.ndarray, np.ndarray]:
    """List (generations [m], mean returns [m]) of one policy, or of the better one each time."""
    found = best_of(run, candidates(policies(run)) if policy == BETTER else [policy])
    return np.array([*found], int), np.array([*found.values()], float)


def best_of(run: RunFiles, names: Iterable[str]) -> dict[int, float]:
    """Return {generation: mean return} of the best of some policies, where evaluated."""
    found: dict[int, float] = {}
    for name in names:
        when, every = evaluations(run, name)
        for generation, returns in zip(when.tolist(), every, strict=True):
            if np.isfinite(returns).all():
                found[generation] = max(found.get(generation, -np.inf), float(returns.mean()))
    return dict(sorted(found.items()))


def training_returns(run: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    """Return (episodes so far [generations], returns [episodes]) of training, not of evaluations.

    In a generation the population's members come first, in their order, then the episodes of the
    gradient learner. A member of several episodes has its mean for each of them, as have the
    learner's: the run file holds their number and mean, or that of the one which it plays in each
    generation. An unstable episode has no return and is left out.
    """
    returns = run.columns.get("metrics/fitness", np.zeros((run.generation, 0)))  # [generations, n]
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
        others.append((np.ones(run.generation), run.columns[OWN]))
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
    returns = np.concatenate([np.zeros(window), training_returns(run)[1]])
    # no differences of running sums, which one return of 1e300 would spoil to the end
    sums = np.lib.stride_tricks.sliding_window_view(returns, window)[1:].sum(axis=1)
    episodes = np.arange(1, len(sums) + 1)
    return episodes, sums / np.minimum(episodes, window)
