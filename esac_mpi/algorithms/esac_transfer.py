"""ESAC's transfer: theta_sac replaces theta_es, in place of the ES step, once it proves better.

By tests of both in the evaluation (`transfer = "tested"`), or by the means of members around each.
"""

import math
from dataclasses import dataclass

import numpy as np

from esac_mpi.algorithms.esac_state import CENTRE, SAC_COPY, State
from esac_mpi.config import ESAC
from esac_mpi.operators import evolution
from esac_mpi.play.params import Row
from esac_mpi.play.population import NO_TRIALS, Population, Trials


def plan_trials(esac: ESAC, state: State) -> Trials:
    """Plan episodes of theta_es and theta_sac if a test is due: after a SAC phase."""
    if esac.transfer != "tested" or state.counters.learner_phases < state.transfer.next_trial:
        return NO_TRIALS
    return Trials((state.theta_es, state.theta_sac), esac.transfer_episodes)


@dataclass(frozen=True)
class Verdict:
    """What the tests of a generation say."""

    won: int  # tests in a row by theta_sac, against the theta_es of the generation to come
    transfers: bool  # whether theta_es becomes theta_sac
    start_return: float  # as in the state; nan = not known


def judge(esac: ESAC, state: State, found: Population) -> Verdict:
    """Count the tests that theta_sac has won in a row, and decide on the transfer."""
    start = state.transfer.start_return
    if esac.transfer == "means":
        return Verdict(0, copies_lead(state.parents, found.returns), start)
    if esac.transfer == "tested" and math.isnan(start):
        start = finite_mean(returns_of(CENTRE, state.parents, found.returns))
    if not found.trials.size:
        return Verdict(state.transfer.trials_won, False, start)
    theta_es, theta_sac = found.trials
    if not evolution.surpasses(theta_sac, theta_es):
        return Verdict(0, False, start)
    won = state.transfer.trials_won + 1
    at_once = esac.transfer_at_once and leads(theta_sac, state, found)
    if won >= esac.transfer_wins or (at_once and outgrows(theta_sac, theta_es, start)):
        return Verdict(0, True, float(theta_sac.mean()))
    return Verdict(won, False, start)


def outgrows(theta_sac: np.ndarray, theta_es: np.ndarray, start: float) -> bool:
    """Tell whether theta_sac leads by more than theta_es has gained by itself since `start`.

    Both [episodes]. If not, theta_es is on its way there, and a transfer would lose that way.
    """
    level = theta_es.mean()
    return not theta_sac.mean() - level <= level - start  # nan: it does


def leads(theta_sac: np.ndarray, state: State, found: Population) -> bool:
    """Compare theta_sac's mean in a test [episodes] with every member's return but SAC copies'."""
    copies = spread(state.parents, found.returns.size) == SAC_COPY
    others = found.returns[~copies & np.isfinite(found.returns)]
    return bool((theta_sac.mean() > others).all())


def schedule(esac: ESAC, state: State, found: Population, verdict: Verdict) -> None:
    """Set when theta_sac is tried again, and the tests it has won, before the phase enters."""
    if found.trials.size:
        phases = state.counters.learner_phases
        state.transfer.next_trial = phases + (esac.transfer_interval if verdict.transfers else 1)
    state.transfer.trials_won = verdict.won
    state.transfer.start_return = verdict.start_return


def copies_lead(parents: np.ndarray, returns: np.ndarray) -> bool:
    """Compare SAC copies with members around theta_es by mean return.

    parents: [slots]. returns: [n].
    """
    copies, centre = (
        finite_mean(returns_of(kind, parents, returns), -math.inf) for kind in (SAC_COPY, CENTRE)
    )
    return copies > centre


def finite_mean(returns: np.ndarray, otherwise: float = math.nan) -> float:
    """Average those of returns [n] that are finite; otherwise: without any."""
    finite = returns[np.isfinite(returns)]
    return float(finite.mean()) if finite.size else otherwise


def returns_of(kind: int, parents: np.ndarray, returns: np.ndarray) -> np.ndarray:
    """Select the returns [n] of the members whose parent, of parents [slots], is of a kind."""
    return returns[spread(parents, returns.size) == kind]


def spread(of_slots: np.ndarray, n: int) -> np.ndarray:
    """Spread what slots have [slots], such as their parents, over their members [n]."""
    return np.repeat(of_slots, n // of_slots.size)


def trial_columns(esac: ESAC, found: Population) -> tuple[Row, Row]:
    """Describe the tests in a row's columns, returns [episodes], and its timing's; nan without."""
    if esac.transfer != "tested":
        return {}, {}
    returns, seconds = found.trials, found.trial_seconds
    if not returns.size:
        returns = np.full((2, esac.transfer_episodes), np.nan)
        seconds = np.full(returns.size, np.nan)
    return {"trial_theta_es": returns[0], "trial_sac": returns[1]}, {"trial_seconds": seconds}
