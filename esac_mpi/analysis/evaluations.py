"""Noise-free evaluations of a run, by policy: any that the run itself has evaluated."""

from collections.abc import Iterable

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.names import candidates, policy_order
from esac_mpi.record import RunFiles

# in place of a policy's name: the better one each time; of ERL and its forms the champion
BETTER = "better"
COLUMNS = ("metrics/evaluation_", "final/evaluation_")  # and the policy's name


def policies(run: RunFiles) -> list[str]:
    """Return the names of the policies that a run evaluates."""
    return policy_order(n.removeprefix(s) for n in run.columns for s in COLUMNS if n.startswith(s))


def policies_of(runs: Iterable[RunFiles]) -> list[str]:
    """Return the names of the policies that any of the runs evaluates."""
    return policy_order(name for run in runs for name in policies(run))


def require_policy(runs: Iterable[RunFiles], policy: str) -> None:
    """Raise Unusable, naming those that there are, if no run evaluates such a policy."""
    there = policies_of(runs)
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
    return best_of(run, candidates(policies(run)) if policy == BETTER else [policy])


def best_of(run: RunFiles, names: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return (generations [m], mean returns [m]) of the best of some policies, where evaluated."""
    found: dict[int, float] = {}
    for name in names:
        when, every = evaluations(run, name)
        for generation, returns in zip(when.tolist(), every, strict=True):
            if np.isfinite(returns).all():
                found[generation] = max(found.get(generation, -np.inf), float(returns.mean()))
    generations = np.array(sorted(found), int)
    return generations, np.array([found[g] for g in generations.tolist()])
