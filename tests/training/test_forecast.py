"""What a run will cost: forecasts that are known by hand."""

from itertools import islice

import numpy as np
import pytest
from conftest import CORRECTED

from esac_mpi import config
from esac_mpi.algorithms import esac_timing
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.config import Config
from esac_mpi.training.check import cost
from esac_mpi.training.forecast import automatic, outlook
from esac_mpi.training.forecast.generations import generations
from esac_mpi.training.forecast.outlook import advice, moments

NO_PHASES = {"esac.phase_timing": "virtual", "esac.sac_phases": False}
FREE = {"latency": 0.0, "bandwidth": np.inf, "barrier": 0.0}
PIECES = Pieces(np.ones(1), np.array([100]), 100, playing=0.01, updating=0.02)
BUDGET = {"budget.nominal_steps": 0, "budget.generations": 4, "evaluation.every": 100}
PHASES = {
    **{"algorithm": "esac", "esac.population_size": 4, "esac.gradient_interval": 2},
    **{"esac.p_sac_annealed": False, "esac.sac_episodes": 1, "esac.sac_min_steps": 0},
    **BUDGET,
}
VIRTUAL = {
    **{"esac.phase_timing": "virtual", "esac.sac_min_steps": 200},
    **{"esac.workers": 2, "esac.update_cost": 1.0},
}


def settings(**changes) -> Config:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return config.amend(Config(), CORRECTED | named)


def of_es(**budget) -> Config:
    """Return settings of ES with four members; `budget` is of its table."""
    limits = {f"budget.{name}": value for name, value in budget.items()}
    return settings(algorithm="es", es__population_size=4, **BUDGET | limits)


def taken(chosen, ranks, pieces=PIECES):
    return outlook.outlook(chosen, pieces, Cluster(ranks, 64, **FREE))


def test_es_is_members_update_and_evaluation_in_turn():
    es = config.amend(of_es(), {"evaluation.every": 2, "evaluation.episodes": 3})
    measured = Pieces(np.ones(1), np.array([100]), 100, slot=0.1)
    found = taken(es, 2, measured)
    # four members on two ranks, two slots; three episodes
    assert found.seconds == pytest.approx(2 * (2.2 + 4.2))
    assert found.generation == pytest.approx(3.2)
    assert found.idle == pytest.approx(1 - (4 * 4.2 + 2 * 3) / (2 * 12.8))
    assert found.core_hours == pytest.approx(2 * 12.8 / 3600)
    # a horizon each: it ends in the fourth
    nominal = config.amend(es, {"budget.generations": 0, "budget.nominal_steps": 301})
    assert taken(nominal, 2, measured).seconds == pytest.approx(12.8)
    steps = config.amend(es, {"budget.generations": 0, "budget.env_steps": 1100})  # 400 and 700
    assert taken(steps, 2, measured).seconds == pytest.approx(6.4)
    long = config.amend(es, {"budget.generations": 100_000})
    assert taken(long, 2, measured).seconds == pytest.approx(320_000, rel=1e-3)


def test_a_run_hardly_ever_evaluated_is_followed_no_further(monkeypatch):
    monkeypatch.setattr(outlook, "LONGEST", 50)
    es = config.amend(of_es(generations=10**9), {"evaluation.every": 10**9})

    def some(chosen, pieces, on):
        yield from islice(moments(chosen, pieces, on), 200)
        raise AssertionError("followed to a distant evaluation")

    monkeypatch.setattr(outlook, "moments", some)
    assert taken(es, 2).seconds == pytest.approx(2e9)


def test_episodes_that_end_early_cost_more_when_they_do_not():
    es = of_es()
    early = Pieces(np.array([0.2, 0.3]), np.array([20, 30]), 100)
    assert taken(es, 1, early).seconds == pytest.approx(4.0)
    assert taken(es, 1, early.at_horizon()).seconds == pytest.approx(16.0)
    assert taken(es, 1, PIECES.at_horizon()) == taken(es, 1)


def test_all_wait_for_a_phase_or_it_runs_beside():
    esac = settings(**PHASES)
    assert taken(esac, 4).seconds == pytest.approx(10)  # 1, 1 + 3 s of phase, 1, 4
    assert taken(esac, 1).seconds == pytest.approx(22)
    lagged = config.amend(esac, {"esac.learner_lag": 2})
    # 1, 1, then 2 on three ranks, twice: the phase is over
    assert taken(lagged, 4).seconds == pytest.approx(6)
    assert taken(lagged, 1).seconds == pytest.approx(19)  # the second phase is not waited for
    assert taken(config.amend(esac, {"esac.sac_phases": False}), 4).seconds == pytest.approx(4)


def test_resimulated_episodes_are_steps_of_the_budget():
    # two members' of 100 steps: with the phase's own 100 and the population's 400 that is 700
    esac = settings(**PHASES, esac__resimulated="winners", esac__resimulated_members=2)
    assert [steps for _, steps, _ in islice(generations(esac, PIECES), 4)] == [400, 700, 400, 700]
    budget = config.amend(esac, {"budget.generations": 0, "budget.env_steps": 1100})
    # a phase of 2 s of episodes, 1 s of its own, 2 s of updates
    assert taken(budget, 4).seconds == pytest.approx(1 + 6)


def test_trials_before_a_transfer_are_played_beside_members():
    """Two of each of two policies: four of 100 steps with four members, in generations 3 and 5."""
    esac = settings(**PHASES, esac__transfer="tested", esac__transfer_episodes=2)
    steps = [steps for _, steps, _ in islice(generations(esac, PIECES), 5)]
    assert steps == [400, 500, 800, 500, 800]
    assert taken(esac, 4).seconds == pytest.approx(1 + 4 + 2 + 4)
    # 200 virtual steps, 400 with them, and a phase 400
    made = generations(config.amend(esac, VIRTUAL), PIECES)
    parts = [(one.members.size, one.begun, one.merges) for one, _, _ in islice(made, 5)]
    assert parts[:3] == [(4, 6.0, False), (4, 0.0, False), (4, 6.0, True)]
    assert parts[3:] == [(8, 6.0, True)] * 2


ON_RANKS = {"episodes_on": "ranks", "episodes_per_generation": 4}


@pytest.mark.parametrize(
    ("algorithm", "changes", "seconds"),
    [
        # 1 s of playing, 2 s of updates
        ("sac", {"steps_per_generation": 100}, 12),
        ("td3", {"steps_per_generation": 100, "start_steps": 150}, 4 + 0 + 1 + 2 + 2),
        ("td3", {**ON_RANKS, "start_steps": 0}, 4 * (2 + 8)),
        ("ppo", {"steps_per_generation": 100, "batch_size": 40, "epochs": 2}, 4 * (1 + 6 * 0.02)),
        ("cem", {"population_size": 4, "fitness_episodes": 2}, 4 * 4),
    ],
)
def test_learners_alone_and_distributions_by_hand(algorithm, changes, seconds):
    own = {f"{algorithm}.{name}": value for name, value in changes.items()}
    chosen = config.amend(Config(), {**BUDGET, "algorithm": algorithm, **own})
    assert taken(chosen, 2).seconds == pytest.approx(seconds)


def test_a_start_on_other_ranks_than_phases_are_for_says_so():
    seven = config.amend(Config(), {"esac.workers": 7})
    # on one nothing is beside
    assert [automatic.remark_at_start(seven, ranks) for ranks in (1, 8)] == ["", ""]
    told = automatic.remark_at_start(seven, 3)
    assert told.startswith("phases are timed for 7 rank(s) beside the learner's, here are 2; ")
    again, fresh = config.load(told[told.index("--") :].split())
    assert fresh
    assert automatic.remark_at_start(again, 3) == ""
    for silent in ({}, {"algorithm": "es"}, {"algorithm": "sac"}, NO_PHASES):
        assert automatic.remark_at_start(settings(**silent), 3) == ""


def test_what_helps_most_comes_first_and_fewer_ranks_are_told():
    esac, on = settings(**PHASES), Cluster(4, 64, **FREE)
    told = advice(esac, PIECES, on, taken(esac, 4))
    assert told == "--esac.learner_lag 2 would help most (6s); then a GPU (at best 6s)"
    many = advice(esac, PIECES, Cluster(64, 64, **FREE), taken(esac, 64))
    assert many.startswith(
        "all 64 ranks wait for the learner 60% of the time; "
        "--esac.learner_lag 2 would help most (5s)"
    )
    assert many.endswith("; 4 rank(s) would take 10s, 0.0111 core-hours")
    es = settings(algorithm="es", es__population_size=8, **BUDGET)
    assert advice(es, PIECES, on, taken(es, 4)) == "8 ranks would help most (4s)"


def test_a_budget_of_minutes_is_compared_by_the_generations_that_are_made_in_it():
    on, minute = Cluster(4, 64, **FREE), {"budget.generations": 0, "budget.minutes": 1.0}
    es = settings(algorithm="es", es__population_size=8, **BUDGET | minute)
    # 30 generations of two turns of 1 s; on eight ranks of one
    assert taken(es, 4).generations == 30
    told = advice(es, PIECES, on, taken(es, 4))
    assert told == "8 ranks would help most (30s); these times are for as many generations"
    many = advice(es, PIECES, Cluster(64, 64, **FREE), taken(es, 64))
    assert many.startswith("8 rank(s) would take 1m00s, 0.133 core-hours")


def test_the_default_task_on_64_ranks_waits_for_its_learner():
    # as on the cores of 2025
    measured = Pieces(np.array([0.06]), np.array([1000]), 1000, playing=1e-4, updating=0.01)
    # a generation is 50,000 / 7 steps of the clock, a phase 1,000 and 2,000 again and 1,000 updates
    # of 30 each: five generations
    chosen = {"esac.population_size": 50, "esac.workers": 7, "esac.update_cost": 30.0}
    timed = config.amend(Config(), chosen)
    # all else is beside it
    assert taken(timed, 64, measured).seconds == pytest.approx(199 * (10.1 + 2 * 0.06) + 6 * 0.06)
    remedy = cost.line(timed, measured, 64, 64, np.inf).remedy
    assert remedy.startswith(
        "all 64 ranks wait for the learner 97% of the time; "
        "phases are timed for 7 rank(s) beside the learner's, here are 63; "
    )
    assert "--esac.workers 63; a GPU would help most (at best 1m06s); " in remedy
    assert " rank(s) would take " in remedy
    waiting = settings()
    phases = sum(esac_timing.gate_opens(waiting, k) for k in range(5, 1001, 5))
    # 5,000 steps, 100 evaluations
    assert taken(waiting, 64, measured).seconds == pytest.approx(phases * 50.5 + 1100 * 0.06)


def test_barriers_take_what_an_exchange_told():
    measured = Pieces(**{**vars(PIECES), "exchange": 0.006})
    # two of three steps each
    assert outlook.cluster(8, 8, measured).barrier == pytest.approx(0.001)
    assert outlook.cluster(1, 1, measured) == Cluster(1, 1)


def test_each_figure_of_a_range_is_told_from_the_smaller_one():
    """A budget of steps: a hundred a generation of 2 s, or 400 a generation of 5 s."""
    es = of_es(generations=0, env_steps=4000)
    told = cost.line(es, Pieces(np.full(4, 0.25), np.full(4, 25), 100, slot=0.5), 1, 1, 60.0).found
    hours = "0.0139 to 0.0222 core-hours"
    assert told.startswith(f"2 to 5 s a generation, 50s to 1m20s for the whole budget, {hours}; ")
    assert told.endswith("that is 2 jobs of the time left")


def test_a_run_that_goes_on_is_forecast_for_what_is_left():
    es = of_es()
    whole = cost.line(es, PIECES, 1, 1, 7.0)
    left = cost.line(es, PIECES, 1, 1, 7.0, es.budget.left(es.budget.generations - 1, 0, 0))
    assert "for the whole budget" in whole.found
    assert whole.found.endswith("that is 3 jobs of the time left")
    for none in (np.inf, -1.0, 5e-324):
        assert "jobs" not in cost.line(es, PIECES, 1, 1, none).found
    assert "for what is left of the budget" in left.found
    assert "jobs of the time left" not in left.found
    esac = settings(**PHASES)
    assert "--esac.learner_lag 2" in cost.line(esac, PIECES, 4, 4, np.inf).remedy
    assert "--" not in cost.line(esac, PIECES, 4, 4, np.inf, esac.budget.left(1, 0, 0)).remedy
