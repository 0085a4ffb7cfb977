"""Evaluations on schedule: which policy becomes the best, what confirms its return."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from esac_mpi.config import Config
from esac_mpi.host.stop import Abandoned
from esac_mpi.operators.noise import Purpose
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play.counters import Best, Counters
from esac_mpi.training import evaluation
from esac_mpi.training.active_run import Job

STEPS, UNSTABLE = 40, 1  # of each evaluation and of each confirmation


@pytest.fixture
def job(monkeypatch):
    """Return a job of ESAC, or another algorithm; its evaluations give `job.plays`, in order."""
    made = Job(Config(), None, None, None, None, SimpleNamespace(), None)
    policies = {"theta_es": np.zeros(2, np.float32), "sac": np.ones(2, np.float32)}
    state = {"policies": policies, "counters": Counters(), "best": Best()}
    made.state = SimpleNamespace(generation=0, normaliser=lambda config: None, **state)
    made.plays, made.asked, made.seen = [], [], []

    def play(job, policies, purpose, normalisers=()):
        job.asked.append((purpose, [theta[0] for theta in policies.values()]))
        job.seen.append(normalisers or (job.state.normaliser(job.config),) * len(policies))
        found = job.plays.pop(0)
        if found is Abandoned:
            raise Abandoned
        pairs = [np.array([mean - 1.0, mean + 1.0]) for mean in found]
        returns = {f"evaluation_{name}": pair for name, pair in zip(policies, pairs, strict=True)}
        return evaluation.Played(returns, STEPS, UNSTABLE, np.full(2 * len(policies), 0.1))

    monkeypatch.setattr(evaluation, "play", play)
    return made


def evaluated(job, *plays) -> float:
    """Evaluate the next generation that is due; return best_return."""
    job.state.generation += job.config.evaluation.every
    job.plays[:] = plays
    columns, _ = evaluation.on_schedule(job)
    assert not job.plays
    return columns["best_return"]


def test_the_best_has_a_return_that_did_not_choose_it(job):
    assert evaluated(job, (95.8, 50), (61,)) == 61
    best = job.state.best
    assert (best.policy, best.generation, best.shown) == ("theta_es", 10, (95.8 + 61) / 2)
    assert evaluated(job, (78, 70)) == 61  # below what it has shown: nothing else is played
    assert job.asked == [
        (Purpose.EVALUATION, [0, 1]), (Purpose.CONFIRMATION, [0]), (Purpose.EVALUATION, [0, 1]),
    ]  # fmt: skip
    assert job.state.counters.env_steps_evaluation == 3 * STEPS
    assert job.state.counters.unstable_episodes == 3 * UNSTABLE


def test_a_challenger_becomes_the_best_by_a_duel(job):
    evaluated(job, (60, 50), (58,))
    assert evaluated(job, (50, 70), (66, 63), (62,)) == 62
    best = job.state.best
    assert (best.policy, best.theta.tolist(), best.shown) == ("sac", [1, 1], (70 + 66 + 62) / 3)
    assert job.asked[3:] == [(Purpose.DUEL, [1, 0]), (Purpose.CONFIRMATION, [1])]
    assert job.state.counters.env_steps_evaluation == 5 * STEPS


@pytest.mark.parametrize(("mine", "theirs"), [(63, 66), (66, 66), (np.nan, 66)])
def test_a_challenger_that_loses_changes_the_counts_alone(job, mine, theirs):
    evaluated(job, (60, 50), (58,))
    before = job.state.best
    assert evaluated(job, (50, 95), (mine, theirs)) == 58
    assert job.state.best is before
    assert job.state.counters.env_steps_evaluation == 4 * STEPS


def test_in_a_duel_each_sees_observations_as_it_was_trained_to(job):
    evaluated(job, (60, 50), (58,))
    job.state.best = replace(job.state.best, normaliser=np.array([[1.0], [2.0]], np.float32))
    now = Normaliser(np.float32([3]), np.float32([4]))
    job.state.normaliser = lambda config: now
    evaluated(job, (70, 50), (66, 63), (62,))
    mine, theirs = job.seen[3]
    assert mine is now
    assert (theirs.mean.tolist(), theirs.std.tolist()) == ([1], [2])
    assert job.state.best.normaliser.tolist() == [[3], [4]]


def test_what_confirms_a_policy_chooses_none(job):
    """Else the greatest of many confirmations would flatter, as that of many evaluations does."""
    evaluated(job, (60, 50), (58,))
    assert evaluated(job, (50, 61), (60, 59), (40,)) == 40
    assert (job.state.best.policy, job.state.best.theta.tolist()) == ("sac", [1, 1])


def test_an_unstable_policy_does_not_become_the_best(job):
    evaluated(job, (60, 50), (59,))
    assert evaluated(job, (np.nan, 50)) == 59
    assert evaluated(job, (70, 50), (66, 63), (np.nan,)) == 59
    assert job.state.best.generation == 10
    assert evaluated(job, (61, 50), (66, np.nan), (58,)) == 58


def test_an_evaluation_that_is_given_up_leaves_no_count(job):
    with pytest.raises(Abandoned):
        evaluated(job, (60, 50), Abandoned)
    assert job.state.counters == Counters()
    assert job.state.best.policy == ""


def test_the_best_of_a_former_version_gives_way(job):
    job.state.best = Best(70.0, 5, "sac", np.ones(2, np.float32))
    assert evaluated(job, (69, 70)) == 70
    assert evaluated(job, (71, 50), (68, 67), (66,)) == 66


def test_of_erl_the_champion_alone_is_the_best(job):
    job.config = Config(algorithm="pderl")
    job.state.policies = {"champion": np.zeros(2, np.float32), "learner": np.ones(2, np.float32)}
    assert evaluated(job, (30, 90), (28,)) == 28
    assert job.state.best.policy == "champion"


def test_an_evaluation_at_the_end_leaves_no_trace(job):
    evaluated(job, (60, 50), (59,))
    stored = {}
    job.run = SimpleNamespace(final=stored.update)
    job.world = SimpleNamespace(end_background=lambda: None)
    before = job.state.best, job.state.counters.env_steps_evaluation
    job.state.generation += 1
    job.plays[:] = [(65, 50), (64, 63), (57,)]
    final, best = evaluation.at_end(job)
    assert (final.episodic_return, best.episodic_return, best.policy) == (65, 57, "theta_es")
    assert (stored["best_return"], stored["env_steps_evaluation"]) == (57, 3 * STEPS)
    assert (job.state.best, job.state.counters.env_steps_evaluation) == before
