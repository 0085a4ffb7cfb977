"""The same bits on any ranks, on any nodes and over restarts, whatever is switched on.

A case is made once on one process without a break, and once in parts on other ranks. AES-RL's are
in test_aes_rl.py, PPO's in tests/learners/test_ppo.py.
"""

import numpy as np
import pytest
from conftest import CYCLIC, CYCLIC_ES, LEARNER, POPULATION, ROUTINE, SMALL, TASK, TIMED
from small_runs import PENDULUM, arguments
from whole_runs import same_in_parts, summary
from words import of_table, words

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.analysis.clock.recorded import generations, times
from esac_mpi.analysis.returns import training_returns
from esac_mpi.config.genetic import FORMS

IDLING = words("--task.id own_envs:Idling-v0")  # returns 10 in 10 steps of rest, else 9 in 4
CHEETAH, WALKER = (
    words(f"--task.id {task} --task.horizon 60 --esac.observation_normalisation true")
    for task in ("HalfCheetah-v5", "dm_control/walker-walk-v0")
)
TWO_BLOCKS = words("--policy.hidden 150 140 --esac.length_cap 1.5")  # of parameters
FILLED = words("--esac.phase_timing continuous --esac.workers 1")
FIFTH = words("--esac.sigma_rule one_fifth --esac.transfer tested")
PUBLIC = "--esac.preset reference-code --esac.amt_interval 3 --sac.automatic_temperature true"
SWITCHES = words("--esac.winner_selection hard --esac.sac_copy_noise false --seed 5")
SWITCHES += words("--esac.observation_normalisation false --esac.scaled_noise true")
SWITCHES += words("--esac.gradient displacement_clipped --esac.fitness_shaping sign_ranks")
SWITCHES += words("--esac.fitness_episodes 2 --esac.transfer tested --esac.transfer_episodes 2")
SWITCHES += words("--esac.resimulated sample --esac.resimulated_members 3 --esac.action_noise 0.1")
SWITCHES += words("--esac.phase_timing virtual --esac.sac_min_steps 30 --esac.update_cost 0.4")
SWITCHES += words("--esac.workers 2 --esac.length_cap 1.5 --esac.sigma_rule grow")
FORMED = "--policy.layer_norm true --sac.critic_layer_norm true --policy.linear true"
FORMED += " --policy.linear_gain 3 --esac.observation_normalisation true"
OF_ES = "--es.observation_normalisation true --es.weight_decay 0.01 --es.sigma_rule one_fifth"
OF_SAC = "--algorithm sac --sac.steps_per_generation 70 --sac.observation_normalisation true"
OF_RIVALS = {"steps_per_generation": 35, "start_steps": 50, "batch_size": 16}
ON_RANKS = {"start_steps": 100, "batch_size": 16, "replay_capacity": 150, "episodes_on": "ranks"}
ON_RANKS |= {"episodes_per_generation": 2, "observation_normalisation": True}
# two chunks of slots, and more than accumulator.ROWS
LARGE = "--task.horizon 4 --{0}.population_size 1040 --{0}.observation_normalisation true"
LINES = {
    "es": [*CYCLIC_ES, *words(OF_ES)],
    "es, large": [*CYCLIC_ES, *words(LARGE.format("es"))],
    # of three ranks one has no member, and two no episode of an evaluation
    "es, few": [*CYCLIC_ES, *words("--es.population_size 2 --evaluation.episodes 1")],
    "sac": [*TASK, *ROUTINE, *LEARNER, *words(OF_SAC)],
    "td3": [
        *TASK, *ROUTINE, "--algorithm", "td3",
        *of_table("td3", replay_capacity=200, critic_layer_norm=True, **OF_RIVALS),
    ],
    "td3, on ranks": [*PENDULUM, "--algorithm", "td3", *of_table("td3", **ON_RANKS)],
    "ddpg": [
        *TASK, *ROUTINE, "--algorithm", "ddpg", "--policy.layer_norm", "true",
        *of_table("ddpg", replay_capacity=200, observation_normalisation=True, **OF_RIVALS),
    ],
    "esac, large": [*CYCLIC, *words(LARGE.format("esac"))],
    "esac, paper": [*CYCLIC, *words("--policy.hidden 150 140 --esac.preset paper")],
    "esac, public": [*CYCLIC, *words(PUBLIC, "--esac.fitness_episodes", 2)],
    "esac, virtual": [*IDLING, *TIMED, *FIFTH, "--esac.reward_shift", "survival"],
    "esac, continuous": [*IDLING, *TIMED, *FILLED],
    "esac, cheetah, virtual": [*TIMED, *CHEETAH],
    "esac, cheetah, waiting": [*SMALL, *CHEETAH, *FIFTH],
    "esac, walker, lag": [*SMALL, *WALKER, "--esac.learner_lag", 2],
    "esac, walker, grown": [
        *TIMED, *WALKER,
        *words("--esac.sigma_rule grow --esac.amt_trigger generation --esac.amt_clip 0.02"),
    ],
    "esac, table": [
        *CYCLIC, *TWO_BLOCKS, *words("--esac.noise table --esac.noise_table_size 100000"),
    ],
    "esac, low rank": [*CYCLIC, *TWO_BLOCKS, *words("--esac.noise lowrank --esac.noise_rank 2")],
    "esac, forms": [*CYCLIC, *words(FORMED)],
    "esac, switches": [
        *TASK, *POPULATION, *LEARNER, *ROUTINE, *SWITCHES, *words("--policy.linear false"),
    ],
    "cem": arguments(
        "cem", *IDLING, *words("--cem.fitness_episodes 2 --cem.reward_shift survival"),
    ),
    "cem_rl, serial": arguments(
        "cem_rl",  # a ring smaller than a generation, normalised critics
        *words("--cem_rl.fitness_episodes 2 --cem_rl.replay_capacity 200"),
        *words("--cem_rl.critic_layer_norm true --cem_rl.critic serial"),
    ),
    "cem_rl, parallel": arguments(
        "cem_rl",  # nobody who is not trained
        *words("--cem_rl.trained_fraction 1 --cem_rl.sampling onesided"),
        *words("--cem_rl.population_size 5 --cem_rl.critic parallel"),
    ),
    "cem_rl, mixing": arguments(
        "cem_rl", *IDLING, *words("--policy.hidden 1 1 --cem_rl.reward_shift survival"),
        *words("--cem_rl.importance_mixing true --cem_rl.population_size 8"),
        *words("--cem_rl.damp 0.1 --cem_rl.damp_limit 0.1"),
    ),
    "erl": arguments("erl", *words("--erl.fitness_episodes 2")),
    "perl": arguments(
        "perl", *IDLING, *words("--erl.elite_fraction 0.4 --erl.reward_shift survival"),
    ),
    "derl": arguments(
        "derl", *words("--erl.preset reference-code --erl.parent_selection mixed"),
    ),
    "pderl": arguments("pderl", *words("--erl.parent_selection distance")),
}  # fmt: skip
PARTS = {  # (last generation, ranks, nodes) of each; a case without its own has its algorithm's
    "es": [(5, 3, 2), (7, 2, 1)],
    "es, large": [(1, 2, 1), (3, 3, 2), (4, 2, 2)],
    "es, few": [(4, 3, 1)],
    "sac": [(2, 1, 1), (7, 3, 1)],
    **{name: [(5, 1, 1), (8, 2, 1)] for name in ("td3", "ddpg")},  # after 125 updates: odd
    "td3, on ranks": [(2, 1, 1), (6, 3, 1)],
    "esac": [(3, 3, 1), (5, 1, 1)],
    "esac, large": [(1, 2, 1), (3, 3, 2), (4, 2, 2)],
    "esac, walker, lag": [(3, 3, 3), (5, 1, 1)],
    "esac, paper": [(1, 1, 1), (9, 3, 2)],
    "esac, forms": [(4, 1, 1), (9, 3, 1)],
    "esac, public": [(1, 1, 1), (9, 3, 1)],
    "esac, virtual": [(7, 3, 2), (12, 2, 2)],
    "esac, continuous": [(7, 3, 2), (12, 2, 2)],
    "esac, table": [(5, 3, 2), (7, 1, 1)],
    "esac, low rank": [(5, 3, 2), (7, 1, 1)],
    "esac, switches": [(5, 3, 2), (9, 2, 2)],
    "cem": [(2, 2, 1), (6, 3, 2)],
    "cem_rl": [(3, 2, 1), (6, 3, 2)],
    "cem_rl, mixing": [(3, 2, 1), (7, 3, 2)],
    **{form: [(2, 2, 1), (6, 3, 2)] for form in FORMS},
}


@pytest.mark.parametrize("case", LINES)
def test_ranks_nodes_and_restarts_leave_the_bits_as_they_are(case, tmp_path, alone, together):
    name = case.split(",")[0]
    parts = PARTS[case if case in PARTS else name]
    found = same_in_parts(tmp_path, alone, together, LINES[case], *parts)
    columns = {key.removeprefix("metrics/"): rows for key, rows in found.columns.items()}
    assert name in ("es", "cem") or columns["gradient_updates"][-1] > 0
    if "one_fifth" in LINES[case] or "grow" in LINES[case]:
        assert np.unique(columns["sigma"]).size > 1
    if "survival" in LINES[case]:
        assert_shifted(found, columns)
    if case == "esac, switches":
        assert_switched(columns)
    elif name in ("td3", "ddpg"):
        assert_learned(found, columns, name, case)
    elif case == "cem_rl, mixing":
        assert_mixed(found, columns)
    elif name == "cem_rl":
        assert_taught(columns, case)
    elif name in FORMS:
        assert_born(columns, name)


def assert_shifted(found, columns):
    """The bonus is settled at the first start; rows and evaluations have the task's returns."""
    assert found.config.own.reward_shift == 1.0
    assert set(columns["fitness"].ravel().tolist()) <= {9.0, 9.5, 10.0}  # 9.5: of two episodes
    for values in (rows for name, rows in columns.items() if name.startswith("evaluation_")):
        assert set(values[np.isfinite(values)].tolist()) <= {9.0, 10.0}


def assert_learned(found, columns, name, case):
    """All steps are the learner's; on ranks two episodes of 30, those begun by 100 uniform."""
    said = summary(found.path)
    assert (
        said["env_steps"]["learner"]
        == said["nominal_steps"]
        == len(columns["generation"]) * (60 if "ranks" in case else 35)
    )
    assert said["last_evaluation"][name] == said["final_return"]
    if "ranks" in case:
        assert columns["gradient_updates"].tolist() == [0, 20, 80, 140, 200, 260]
        assert columns["td3_episodes"].tolist() == [2] * 6
    else:
        assert said["gradient_updates"] == 8 * 35 - 50


def assert_switched(columns):
    """Each break comes while a phase is in flight; a test of transfer follows each that entered."""
    begun, entered = columns["sac_phase"], np.diff(columns["learner_phases"], prepend=0)
    assert (np.cumsum(begun) - np.cumsum(entered))[[4, 8]].tolist() == [1, 1]
    assert entered.sum() >= 3
    tried = np.isfinite(columns["trial_sac"]).all(axis=1)
    assert tried[1:].tolist() == entered[:-1].astype(bool).tolist()
    assert columns["env_steps_replayed"][-1] > 0


def assert_mixed(found, columns):
    """Who stays plays no episode: not in the counts, nor on the computed clock."""
    length = columns["length"]
    assert (length == 0).sum() == columns["kept"].sum() > 0
    assert summary(found.path)["env_steps"]["population"] == length.sum()
    assert len(training_returns(found)[1]) == (length > 0).sum()  # episodes
    parts = times(found)  # of the computed clock of another cluster
    np.testing.assert_array_equal(np.isnan(parts["members"]), length == 0)
    played = [one.trained.size + one.members.size for one in generations(found, parts)]
    assert played == (length > 0).sum(axis=1).tolist()


def assert_taught(columns, case):
    """A parallel critic is first taught alone."""
    assert columns["trained"].tolist() == [0, case == "cem_rl, serial", 1, 1, 1, 1]
    assert columns["member_updates"][-1] > 0


def assert_born(columns, name):
    """Children imitate both parents' 30 transitions; every second generation injects."""
    children = (columns["slot_kind"][0] == 2).sum()
    imitated = 2 * (60 // 8) if name in ("derl", "pderl") else 0  # epochs
    assert columns["member_updates"][0] == imitated * children
    assert {0, 1, 2} == {*columns["slot_kind"].ravel().tolist()}
    assert (columns["injected"] >= 0).tolist() == [False, True] * 3
    assert (columns["learner_fate"] >= 0).tolist() == [False, False] + [True, False] * 2


def test_no_registered_algorithm_is_without_a_case():
    assert {case.split(",")[0] for case in LINES} | {"aes_rl", "ppo"} == {*ALGORITHMS}
