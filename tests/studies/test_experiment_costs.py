"""What an experiment costs: core-hours by the forecast, and the speeds that it has."""

import sys
from dataclasses import replace

import pytest
from toy_experiments import a_run, configured

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import updated
from esac_mpi.studies.experiments import design, estimates
from esac_mpi.training.forecast import outlook

SPEEDS = estimates.Speeds(
    "here",
    {"T-v0": 100},
    {"T-v0": {"small": 100.0, "large": 400.0}},
    {"sac": {"small": 1.0, "large": 9.0}},
)
ES = {"algorithm": "es", "task__id": "T-v0", "policy__hidden": (32, 32)}
ESAC = ES | {"algorithm": "esac", "esac__p_sac_annealed": False, "esac__population_size": 10}


def costs(tmp_path, config, known=SPEEDS, cores=1, **more):
    """Forecast a run; its work, seconds and ranks."""
    return estimates.cost(replace(a_run(tmp_path, config), **more), cores, known)


def test_a_population_shares_its_episodes_and_waits_for_its_learner(tmp_path):
    """20 generations of 10 episodes, 3 * 2 * 10 of evaluations; 4 phases of 1000 steps with as many updates."""
    config = configured(**ESAC, budget__nominal_steps=0, budget__generations=20)
    config = updated(config, {"evaluation.every": 10})
    played, learned = (20 + 4) * 10 * 100 * 100e-6, 4000 * (100e-6 + 1e-3)
    assert costs(tmp_path, config)[:2] == pytest.approx((played + learned,) * 2, rel=0.01)
    on_two = costs(tmp_path, config, cores=2)
    assert on_two.work == pytest.approx(played + learned, rel=0.01)
    assert (on_two.seconds, on_two.ranks) == (pytest.approx(played / 2 + learned, rel=0.01), 2)
    wide = updated(config, {"policy.hidden": (512, 512)})
    slower = 4 * played + 4000 * (400e-6 + 9e-3)
    assert costs(tmp_path, wide).work == pytest.approx(slower, rel=0.01)
    linear = updated(config, {"policy.hidden": ()})
    assert costs(tmp_path, linear).work == pytest.approx(played + learned, rel=0.01)
    with pytest.raises(Unusable, match="no speed of td3"):
        costs(tmp_path, updated(config, {"algorithm": "td3"}))


def test_speeds_of_individuals_and_children_are_needed_where_there_are_some(tmp_path):
    cem = {"cem": {"small": 2.0}}
    config = configured(**{**ES, "algorithm": "cem_rl"})
    with pytest.raises(Unusable, match="no speed of individuals"):
        costs(tmp_path, config, replace(SPEEDS, update=cem))
    known = replace(SPEEDS, update={**cem, "individuals": {"small": 1.0}})
    found = estimates.pieces(config, known)
    assert (found.updating, found.training) == (2e-3, 1e-3)
    config = configured(**{**ES, "algorithm": "pderl"}, erl__crossover="distillation")
    slow = replace(SPEEDS, update={"erl": {"small": 2.0}}, imitation={"small": 5.0})
    assert estimates.pieces(config, slow).imitating == 5e-3
    with pytest.raises(Unusable, match="no speed of imitation"):
        costs(tmp_path, config, replace(slow, imitation={}))


def test_an_episode_is_as_long_as_the_task_or_the_settings_say():
    config = configured(**ES)
    assert estimates.pieces(config, SPEEDS).horizon == 100
    cut = estimates.pieces(updated(config, {"task.horizon": 50}), SPEEDS)
    assert (cut.horizon, cut.step) == (50, pytest.approx(100e-6))


def test_what_a_run_costs_that_time_ends(tmp_path):
    """Wall time costs itself; a computed clock on 8 ranks as much work as those do meanwhile."""
    config = configured(**ESAC, budget__nominal_steps=0, budget__env_steps=10**12)
    config = updated(config, {"evaluation.every": 10})
    assert costs(tmp_path, config, seconds=90.0) == (90.0, 90.0, 1)
    clock = design.Computed(8, 90.0)
    # 1,000 generations: 10,000 and 100 * 2 * 10 episodes of 100 steps, 120 s, of which a rank has two of ten members
    # and three of twenty; 200 phases of 1000 steps and updates, 220 s
    found = costs(tmp_path, config, clock=clock)
    whole, lasts = 120 + 220, 1000 * 2 * 0.01 + 100 * 3 * 0.01 + 220
    assert found == (pytest.approx(90 * whole / lasts, rel=0.02), found.work, 1)
    es = configured(**ES, es__population_size=64, evaluation__every=1000)
    assert costs(tmp_path, es, clock=clock).work == pytest.approx(720, rel=0.03)


def test_the_sentence_about_cost(tmp_path):
    es = configured(**ES, budget__nominal_steps=0, budget__generations=3600)
    settings = {"es.population_size": 100, "evaluation.every": 3600, "evaluation.episodes": 1}
    es = updated(es, settings)  # 3600 s
    runs = [a_run(tmp_path, es), a_run(tmp_path, es, seconds=7200.0)]
    assert estimates.total(runs, 1, SPEEDS) == "2 runs, about 3 core-hours of work"
    sac = updated(es, {"algorithm": "sac", "sac.steps_per_generation": 1000})
    # 3.6 million steps and updates: 360 + 3600 s
    assert estimates.total([a_run(tmp_path, es), a_run(tmp_path, sac)], 4, SPEEDS) == (
        "2 runs, about 2.1 core-hours of work; as jobs of up to 4 ranks about 2.1 core-hours reserved, the longest run 1.1 h"
    )


def test_runs_that_differ_in_their_seed_alone_are_forecast_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        estimates, "outlook", lambda *given: asked.append(given) or outlook.outlook(*given)
    )
    es = configured(**ESAC, budget__nominal_steps=0, budget__generations=3)
    runs = [replace(a_run(tmp_path, updated(es, {"seed": seed})), seed=seed) for seed in range(3)]
    estimates.total(runs, 1, SPEEDS)
    assert len(asked) == 1


def test_figures_have_two_digits():
    assert [estimates.figure(3600 * value) for value in (1e-6, 0.0234, 3.0, 41234.0)] == [
        "0.01",
        "0.023",
        "3",
        "41,000",
    ]


def test_speeds_are_there_for_all_and_missing_ones_say_how(tmp_path):
    known = estimates.speeds()
    assert set(known.update) == {"sac", "td3", "ddpg", "ppo", "erl", "cem", "individuals"}
    assert known.imitation.keys() == {"small", "large"}
    assert known.horizon["Reacher-v5"] == 50
    with pytest.raises(Unusable, match=r"esac-mpi experiment speeds"):
        estimates.speeds(tmp_path / "none.toml")


def test_speeds_are_measured_and_can_be_read(tmp_path, monkeypatch, capsys):
    from esac_mpi.studies.experiments import stopwatch

    monkeypatch.setattr(stopwatch, "ROUNDS", 1)
    monkeypatch.setattr(stopwatch, "SECONDS", 0.01)
    monkeypatch.setattr(stopwatch, "NETWORKS", {"small": ((8, 8), 16), "large": ((128, 128), 64)})
    monkeypatch.setattr(stopwatch.learners, "LEARNERS", {"sac": "SAC", "cem": "CEM", "ppo": "PPO"})
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)  # not installed
    monkeypatch.delitem(sys.modules, "esac_mpi.learners.ppo", raising=False)
    known = estimates.speeds(
        stopwatch.write(["CyclicMDP-v0"], 'a "machine"', tmp_path / "speeds.toml")
    )
    assert "left out: algorithm = ppo needs stable_baselines3" in capsys.readouterr().err
    assert set(known.update) == {"sac", "cem", "individuals"}
    assert known.horizon == {"CyclicMDP-v0": 2000}
    assert known.about.startswith('a "machine", 20')
    assert 0 < known.imitation["small"] < known.imitation["large"]
    assert 0 < known.update["sac"]["small"] < known.update["sac"]["large"]  # [ms]
    assert 0 < known.step["CyclicMDP-v0"]["small"] < 1000  # [us]
