"""What an experiment costs: work, core-hours and the speeds they are estimated with."""

import sys
from dataclasses import astuple, replace

import numpy as np
import pytest
from toy_experiments import a_run, configured

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import genetic, updated
from esac_mpi.operators import selection
from esac_mpi.studies.experiments import design, estimates


def test_work_of_an_evolution_strategy():
    config = configured(
        algorithm="es", budget__nominal_steps=1000, budget__generations=7, es__population_size=10
    )
    found = estimates.work(config, 200)  # nominal: 1000 / 200 = 5 generations, fewer than 7
    assert found == estimates.Work(
        5 * 10 * 200, 0, 0, 1 * 10 * 200
    )  # evaluated at the end, 10 episodes
    assert estimates.work(updated(config, {"es.sampling": "repo"}), 200).population == 5 * 20 * 200
    assert estimates.work(
        updated(config, {"task.horizon": 100, "evaluation.every": 2}), 200
    ) == estimates.Work(7 * 10 * 100, 0, 0, (3 + 1) * 10 * 100)


def test_work_of_esac_with_a_gate_that_is_open_half_of_the_time():
    config = configured(
        algorithm="esac", budget__nominal_steps=0, budget__generations=21, esac__population_size=10, esac__p_sac_annealed=False,
        esac__p_sac_initial=0.5, esac__sac_episodes=2, esac__sac_min_steps=1000, sac__updates_per_step=3.0,
        evaluation__episodes=4,
    )  # fmt: skip
    found = estimates.work(
        config, 100
    )  # chances at 5, 10, 15, 20: 2 phases of 1000 steps, more than 2 episodes of 100
    assert found == estimates.Work(21 * 10 * 100, 2000, 6000, (2 + 1) * 4 * 2 * 100)
    assert estimates.work(updated(config, {"esac.sac_episodes": 30}), 100).learner == 2 * 3000
    assert estimates.work(updated(config, {"esac.sac_phases": False}), 100).updates == 0
    assert (
        estimates.expected_phases(
            updated(config, {"esac.gate": "normal", "esac.p_sac_initial": 0.0}), 100, 20
        )
        == 4 * 0.5
    )


def test_phases_on_the_virtual_clock_follow_one_another():
    config = configured(
        algorithm="esac", budget__nominal_steps=0, budget__generations=22, esac__population_size=10, esac__phase_timing="virtual",
        esac__workers=2, esac__update_cost=10.0, esac__sac_min_steps=50, sac__updates_per_step=2.0, evaluation__episodes=4,
    )  # fmt: skip
    # a generation is 10 episodes of 100 steps by 2 ranks, 500; a phase 50 steps and 100 updates of 10 each, 1,050
    assert estimates.expected_phases(config, 100, 22) == 22 * 500 / 1050
    again = updated(config, {"esac.replayed": "winners", "esac.replayed_members": 3})
    assert estimates.expected_phases(again, 100, 22) == 22 * 500 / 1350
    assert estimates.work(again, 100).updates == pytest.approx(22 * 500 / 1350 * 100)


def test_the_annealed_gate_gives_the_share_of_updates_that_was_worked_out():
    """reference: nominal 1M of 1000-step episodes, 5 episodes a phase, SAC: 1M updates, ESAC 0.71M."""
    config = configured(algorithm="esac", budget__nominal_steps=1_000_000)
    assert estimates.work(config, 1000).updates == pytest.approx(0.71e6, rel=0.01)
    assert estimates.work(updated(config, {"algorithm": "sac"}), 1000).updates == 1_000_000


def test_work_of_learners():
    td3 = configured(algorithm="td3", budget__nominal_steps=50_000)
    assert estimates.work(td3, 1000) == estimates.Work(0, 50_000, 25_000, (5 + 1) * 10 * 1000)
    ranks = updated(
        td3, {"td3.episodes_on": "ranks", "td3.episodes_per_generation": 4, "td3.start_steps": 0}
    )
    assert (
        estimates.work(ranks, 1000).updates == 13 * 4 * 1000
    )  # 50,000 is 12.5 generations of 4,000
    ppo = configured(
        algorithm="ppo",
        budget__nominal_steps=0,
        budget__generations=3,
        ppo__steps_per_generation=100,
    )
    assert estimates.work(ppo, 1000).updates == 3 * 10 * 2  # 64 and 36 steps


def test_work_of_a_distribution_and_of_its_individuals_that_learn():
    """Of 10 episodes of 100 steps a generation, nominal ones too; 7 generations, the first three without gradients."""
    cem = configured(
        algorithm="cem", budget__nominal_steps=6500, evaluation__every=7, evaluation__episodes=4
    )
    assert estimates.work(cem, 100) == estimates.Work(7000, 0, 0, (1 + 1) * 4 * 100)
    rates = {
        "cem_rl.critic_updates_per_step": 0.5,
        "cem_rl.actor_updates_per_step": 2.0,
        "cem_rl.start_steps": 2500,
    }
    taught = updated(cem, {"algorithm": "cem_rl", **rates})
    assert estimates.work(taught, 100) == estimates.Work(
        7000, 0, 0.5 * 4000, 800, trained=5 * 2 * 4000
    )
    assert estimates.work(updated(taught, {"cem_rl.start_steps": 0}), 100).updates == 0.5 * 6000
    assert estimates.work(updated(taught, {"cem_rl.trained_fraction": 0.0}), 100) == estimates.work(
        cem, 100
    )


def test_work_of_individuals_that_arrive_one_by_one(tmp_path):
    """Ten of 100 steps a generation, and of each two episodes of the mean; of the 5,000 steps all but 2,000 are learned from."""
    config = configured(
        algorithm="aes_rl", task__id="T-v0", budget__nominal_steps=4100, evaluation__every=5, evaluation__episodes=4,
        policy__hidden=(32,), aes_rl__start_steps=1500, aes_rl__mean_episodes=2, aes_rl__rl_share=0.25, aes_rl__workers=3,
    )  # fmt: skip
    found = estimates.work(config, 100)
    assert found == estimates.Work(
        5000, 0, 3000, (1 + 1) * 4 * 100 + 10_000, trained=0.25 * 10 * 3000
    )
    assert (
        estimates.generations(
            updated(config, {"budget.nominal_steps": 0, "budget.env_steps": 10_000}), 100
        )
        == 4
    )  # 3,080 each
    cost = estimates.cost(
        a_run(tmp_path, config),
        replace(SPEEDS, update={"cem": {"small": 2.0}, "individuals": {"small": 1.0}}),
    )
    assert astuple(cost) == pytest.approx((15_800 * 100e-6 + 7.5, 6.0, 0.0, 3))
    assert [round(cost.lasts(r), 3) for r in (1, 2, 3, 8)] == [
        15.08,
        7.54,
        6.0,
        6.0,
    ]  # at last the critic's
    assert estimates.cost(
        a_run(tmp_path, updated(config, {"aes_rl.workers": 1})),
        replace(SPEEDS, update={"cem": {"small": 2.0}, "individuals": {"small": 1.0}}),
    ).lasts(8) == pytest.approx(9.08)  # its one worker's


def test_individuals_learn_on_all_ranks_and_their_critic_on_one(tmp_path):
    config = configured(
        algorithm="cem_rl",
        task__id="T-v0",
        budget__nominal_steps=0,
        budget__generations=21,
        policy__hidden=(32,),
    )
    known = replace(SPEEDS, update={"cem": {"small": 2.0}, "individuals": {"small": 1.0}})
    cost = estimates.cost(
        a_run(tmp_path, config), known
    )  # 21 * 1,000 steps and 3 * 1,000; 11 generations learn
    assert cost.shared == pytest.approx(24_000 * 100e-6 + 5 * 11_000 * 1e-3)
    assert cost.alone == pytest.approx(11_000 * 2e-3)


def test_work_of_a_population_that_shares_its_experience():
    config = configured(
        algorithm="pderl", erl__crossover="distillation", budget__nominal_steps=0, budget__generations=7, erl__fitness_episodes=2,
        erl__updates_per_step=3.0, erl__start_steps=500, erl__memory_size=1000, erl__distillation_epochs=4,
        erl__distillation_batch=100, evaluation__episodes=5,
    )  # fmt: skip
    found = estimates.work(
        config, 100
    )  # ten members of two episodes, and one of the learner's, 2,100 steps a generation
    children = estimates.expected_children(config.erl)
    assert found == estimates.Work(
        14_000, 700, 3 * (14_700 - 500), 1 * 2 * 5 * 100, 7 * children * 4 * 10
    )
    assert (
        estimates.generations(updated(config, {"budget.nominal_steps": 4_300}), 100) == 3
    )  # frames of both
    assert (
        estimates.work(
            updated(config, {"algorithm": "perl", "erl.crossover": "n_point"}), 100
        ).imitations
        == 0
    )
    td3 = updated(
        config, {"erl.learner": "td3", "td3.updates_per_step": 0.5, "td3.start_steps": 700}
    )
    assert (estimates.learner_of(config), estimates.learner_of(td3)) == ("erl", "td3")
    assert estimates.work(td3, 100).updates == 7_000


@pytest.mark.parametrize(("size", "fraction"), [(10, 0.1), (10, 0.2), (50, 0.1)])
def test_so_many_children_are_born_as_is_expected(size, fraction):
    options = configured(
        algorithm="pderl", erl__population_size=size, erl__elite_fraction=fraction
    ).erl
    random, stay = np.random.default_rng(0), genetic.elites(size, fraction)
    born = [len(selection.select(random.random(size), stay, random).free) for _ in range(2000)]
    assert estimates.expected_children(options) == pytest.approx(np.mean(born), rel=0.03)


def test_env_steps_limit_generations():
    config = configured(
        algorithm="es", budget__nominal_steps=0, budget__env_steps=100_000, es__population_size=10
    )
    assert (
        estimates.generations(config, 100) == 91
    )  # 1,000 steps, and 1,000 of evaluation every 10: 100,000 / 1,100


SPEEDS = estimates.Speeds(
    "here",
    {"T-v0": 100},
    {"T-v0": {"small": 100.0, "large": 400.0}},
    {"sac": {"small": 1.0, "large": 9.0}},
)


def test_core_seconds_and_hours_on_ranks(tmp_path):
    config = configured(
        algorithm="esac", task__id="T-v0", budget__nominal_steps=0, budget__generations=20, esac__population_size=10,
        esac__p_sac_annealed=False, policy__hidden=(32, 32),
    )  # fmt: skip
    cost = estimates.cost(a_run(tmp_path, config), SPEEDS)
    # population 20 * 10 * 100, evaluations (2 + 1) * 2 * 10 * 100; 4 phases of 1000 steps with as many updates
    assert cost.shared == pytest.approx((20_000 + 6_000) * 100e-6)
    assert cost.alone == pytest.approx(4000 * (100e-6 + 1e-3))
    assert cost.lasts(2) == pytest.approx(1.3 + 4.4)
    wide = replace(config, policy=replace(config.policy, hidden=(512, 512)))
    assert estimates.cost(a_run(tmp_path, wide), SPEEDS).alone == pytest.approx(
        4000 * (400e-6 + 9e-3)
    )
    linear = replace(config, policy=replace(config.policy, hidden=()))
    assert estimates.cost(a_run(tmp_path, linear), SPEEDS) == cost
    assert estimates.cost(a_run(tmp_path, config, seconds=90.0), SPEEDS) == estimates.Cost(
        0.0, 90.0
    )
    with pytest.raises(Unusable, match="no speed of td3"):
        estimates.cost(a_run(tmp_path, updated(config, {"algorithm": "td3"})), SPEEDS)


def test_children_are_made_beside_the_learner(tmp_path):
    config = configured(
        algorithm="pderl", erl__crossover="distillation", task__id="T-v0", budget__nominal_steps=0, budget__generations=10,
        policy__hidden=(32, 32), evaluation__every=100, erl__updates_per_step=0.1, erl__memory_size=1280,
        erl__distillation_epochs=10,
    )  # fmt: skip
    slow = replace(SPEEDS, update={"erl": {"small": 2.0}}, imitation={"small": 5.0})
    cost = estimates.cost(a_run(tmp_path, config), slow)
    # 10 * 11 episodes and 20 of the evaluation at the end, 100 steps each; a tenth as many updates; 10 * 10 steps a child
    children = 10 * estimates.expected_children(config.erl) * 100 * 5e-3
    assert astuple(cost) == pytest.approx((13_000 * 100e-6, 1100 * 2e-3, children, 0))
    assert cost.lasts(1) == cost.whole == pytest.approx(1.3 + 2.2 + children)
    assert cost.lasts(2) == pytest.approx(1.3 / 2 + children)
    assert cost.lasts(101) == pytest.approx(1.3 / 101 + 2.2)
    with pytest.raises(Unusable, match="no speed of imitation"):
        estimates.cost(a_run(tmp_path, config), replace(slow, imitation={}))


def test_what_a_run_costs_that_its_clock_on_8_ranks_ends(tmp_path):
    config = configured(
        algorithm="esac", task__id="T-v0", budget__nominal_steps=0, budget__env_steps=10**12, esac__population_size=10,
        esac__p_sac_annealed=False, policy__hidden=(32, 32),
    )  # fmt: skip
    clock = design.Computed(8, 90.0)
    # 1,000 generations: 10,000 and 101 * 2 * 10 episodes of 100 steps, 120.2 s; 200 phases of 1000 steps and updates, 220 s
    found = estimates.cost(replace(a_run(tmp_path, config), clock=clock), SPEEDS)
    assert found == estimates.Cost(0.0, pytest.approx(90 * 340.2 / (120.2 / 8 + 220)))
    lagged = replace(a_run(tmp_path, updated(config, {"esac.learner_lag": 5})), clock=clock)
    assert estimates.cost(lagged, SPEEDS).alone == pytest.approx(90 * 340.2 / 220)
    # 1,000 generations of 1,000 steps by one worker, 200 phases of 1,000 steps, each update as long as 4: beside them, too
    timed = {"esac.phase_timing": "virtual", "esac.workers": 1, "esac.update_cost": 4.0}
    virtual = replace(a_run(tmp_path, updated(config, timed)), clock=clock)
    assert estimates.cost(virtual, SPEEDS).alone == pytest.approx(90 * 340.2 / 220)
    es = configured(
        algorithm="es", task__id="T-v0", es__population_size=50, policy__hidden=(32, 32)
    )
    assert estimates.cost(replace(a_run(tmp_path, es), clock=clock), SPEEDS).alone == pytest.approx(
        720
    )


def test_the_sentence_about_cost(tmp_path):
    es = configured(
        algorithm="es",
        task__id="T-v0",
        budget__nominal_steps=0,
        budget__generations=3600,
        policy__hidden=(8,),
    )
    es = updated(
        es, {"es.population_size": 100, "evaluation.every": 3600, "evaluation.episodes": 0}
    )  # 3600 s
    runs = [a_run(tmp_path, es), a_run(tmp_path, es, seconds=7200.0)]
    assert estimates.total(runs, 1, SPEEDS) == "2 runs, about 3 core-hours of work"
    sac = updated(
        es, {"algorithm": "sac", "sac.steps_per_generation": 1000}
    )  # 3.6 million steps and updates: 360 + 3600 s
    assert estimates.total([a_run(tmp_path, es), a_run(tmp_path, sac)], 4, SPEEDS) == (
        "2 runs, about 2.1 core-hours of work; as jobs of up to 4 ranks about 2.1 core-hours reserved, the longest run 1.1 h"
    )
    esac = updated(
        es,
        {
            "algorithm": "esac",
            "esac.p_sac_annealed": False,
            "esac.sac_episodes": 1,
            "esac.population_size": 100,
        },
    )
    said = estimates.total(
        [a_run(tmp_path, esac)], 4, SPEEDS
    )  # 720 phases of 1000: 792 s for which three ranks wait
    assert said.endswith(
        "about 1.2 core-hours of work; as jobs of up to 4 ranks about 1.9 core-hours reserved, the longest run 0.47 h"
    )


def test_figures_have_two_digits():
    assert [estimates.figure(value) for value in (1e-6, 0.0234, 3.0, 41234.0)] == [
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
