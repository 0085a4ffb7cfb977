"""The order of algorithms and policies in tables and legends, and what a legend calls a policy.

Algorithms stand as the configuration lists them. No name is left out for not being known: it
follows in alphabetical order. No other place knows names, but the table of colours.
"""

from collections.abc import Iterable

from esac_mpi.config import ALGORITHMS

POLICIES = {"theta_es": r"$\theta_{ES}$", "sac": "SAC's mean policy"}  # of ESAC and its halves
HALVES = ("es", "sac")  # algorithms of which ESAC is made
# of ERL and its forms: each is reported by itself; the first is what their papers measure
APART = ("champion", "learner")


def sort_key(label: str) -> tuple[int, str]:
    """Return the sort key of an algorithm, or of a label that begins with one."""
    name = next(iter(label.split()), "").lower()
    return ALGORITHMS.index(name) if name in ALGORITHMS else len(ALGORITHMS), label


def policy_order(names: Iterable[str]) -> list[str]:
    """Return names of policies, each once, in the order of tables and legends."""
    found = set(names)
    return [*(name for name in POLICIES if name in found), *sorted(found - POLICIES.keys())]


def candidates(policies: Iterable[str]) -> list[str]:
    """Return those of a run's policies of which the better one stands for the run."""
    found = policy_order(policies)
    return [name for name in found if name not in APART[1:]] if APART[0] in found else found


def legend(policy: str, algorithm: str) -> str:
    """Name a policy of an algorithm as a legend does."""
    return POLICIES.get(policy, f"{policy.upper()}'s actor" if policy == algorithm else policy)


def describe_better(policies: Iterable[str]) -> str:
    """Return "the better of ..." these policies, in words."""
    found = candidates(policies)
    if not found:
        return "the better policy"
    if len(found) == 1:
        return found[0]
    better = "the better" if len(found) == 2 else "the better that a run has"  # none has all
    return f"{better} of {', '.join(found[:-1])} and {found[-1]}"
