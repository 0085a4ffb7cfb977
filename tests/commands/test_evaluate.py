"""esac-mpi evaluate: statistics of returns, on tasks and ranks."""

import json
import sys
from unittest.mock import Mock

import numpy as np
import own_envs
import pytest
from commands import tool
from conftest import ROOT
from saved_policies import constant, hidden, save

from esac_mpi import Policy, envs
from esac_mpi.analysis.messages import DAMAGED, Unusable
from esac_mpi.comm import command_ranks, launch
from esac_mpi.commands import evaluate
from esac_mpi.commands.__main__ import main
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import LOGIT_SCALE
from esac_mpi.play.rollout import play
from esac_mpi.record import Unreadable


@pytest.fixture
def evaluated(call):
    return lambda *words: json.loads(call("evaluate", *words, "--json").out)


def test_statistics():
    found = evaluate.statistics(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0]))
    # the middle half is 3, 4, 5, 6; deviations from the mean 16 are -15 .. -9 and 84
    names = ("mean", "median", "iqm", "worst", "best")
    assert [found[name] for name in names] == [16, 4.5, 4.5, 1, 100]
    squares = sum(n**2 for n in (*range(9, 16), 84))
    assert found["std"] == pytest.approx(np.sqrt(squares / 7))
    # the mean of eight draws: without the 100, seldom below 2.5; 3 or more of it,
    # (300 + 5 * 4) / 8 = 40, in 7 % of the cases
    low, high = found["interval"]
    assert 2.0 < low < 4.5
    assert 35.0 < high < 65.0
    assert found["iqm_interval"][0] < 4.5 < found["iqm_interval"][1]


def test_statistics_of_few_values():
    # a quarter of the draws each
    assert evaluate.statistics(np.array([0.0, 1.0]))["interval"] == [0.0, 1.0]
    one = evaluate.statistics(np.array([3.0]))
    names = ("mean", "interval", "std", "iqm_interval")
    assert [one[name] for name in names] == [3.0, None, None, None]
    # an unstable episode has no mean
    assert set(evaluate.statistics(np.array([1.0, np.nan])).values()) == {None}


def test_returns_of_a_task_that_is_worked_out_by_hand(tmp_path, evaluated):
    # clockwise: +1 a step, 2000 steps
    always = constant(tmp_path / "a.h5", "CyclicMDP-v0", [0.0, 1.0, 0.0])
    never = constant(tmp_path / "b.h5", "CyclicMDP-v0", [1.0, 0.0, 0.0])  # -1, and the episode ends
    found = evaluated(always, "--episodes", 3)
    assert (found["returns"], found["lengths"], found["std"]) == ([2000.0] * 3, [2000] * 3, 0.0)
    assert evaluated(always, "--episodes", 1, "--horizon", 40)["mean"] == 40.0
    # of the output biases 0, 1, 0 the largest must stay the second, in every state
    for sigma, falls in ((1e-6, 0), (3.0, 8)):
        noisy = evaluated(always, "--episodes", 20, "--weight-noise", sigma)
        assert noisy["weight_noise"] == sigma
        assert sum(length < 2000 for length in noisy["lengths"]) >= falls
        assert (noisy["returns"] == [2000.0] * 20) == (not falls)
    assert evaluated(never, "--episodes", 2)["lengths"] == [1, 1]


def test_weight_noise_is_on_the_outputs_that_ppo_holds_smaller(tmp_path, evaluated):
    states = envs.make("CyclicMDP-v0").observation_size
    found = []
    for policy, scale in (("sac", 1.0), ("ppo", LOGIT_SCALE)):
        theta = np.array([*[0.0] * (3 * states), 0.0, 0.5 * scale, 0.0], np.float32)
        form = {"task": "CyclicMDP-v0", "bounds": (-1.0, 1.0), "output": "clip", "discrete": 1}
        path = save(tmp_path / f"{policy}.h5", theta, (states, 3), policy=policy, **form)
        found.append(evaluated(path, "--episodes", 20, "--weight-noise", 0.2)["lengths"])
    assert found[0] == found[1]
    assert len({*found[0]}) > 1  # some stand it, some fall


@pytest.fixture
def own(monkeypatch, tmp_path):
    """Make the tests' own environments known, whose starts and ends are random."""
    monkeypatch.setenv("COUNT_DIR", str(tmp_path))
    return constant(tmp_path / "walk.h5", "own_envs:Counting-v0", [0.1, -0.3], -2.0, 2.0)


@pytest.mark.slow
def test_the_numbers_do_not_depend_on_the_ranks_nor_on_mpi(tmp_path, own, together):
    options = [own, "--episodes", 7, "--seed", 5, "--json"]
    without = {"PYTHONPATH": hidden(tmp_path / "hidden", "mpi4py", "torch")}
    one = json.loads(tool("evaluate", *options, **without).stdout)
    # one object: the other ranks are silent
    three = json.loads(together(3, "evaluate", *options).stdout)
    assert (one.pop("ranks"), three.pop("ranks")) == (1, 3)
    assert one == three
    env, policy = envs.make("own_envs:Counting-v0"), Policy.load(own)
    played = [play(env, policy, integer(5, Purpose.EVALUATION, 0, block=i)) for i in range(7)]
    assert one["returns"] == [episode.episodic_return for episode in played]
    assert len(set(one["lengths"])) > 1


@pytest.mark.slow
def test_a_task_of_the_current_directory_is_found_as_in_training(tmp_path):
    source = (ROOT / "tests/support/own_envs.py").read_text().replace("own_envs:", "arm:")
    (tmp_path / "arm.py").write_text(source)
    theta, form = np.zeros(8, np.float32), {"task": "arm:Breaking-v0", "bounds": (-2.0, 2.0)}
    policy = save(tmp_path / "arm.h5", theta, (3, 2), **form)
    here = {"folder": tmp_path, "PYTHONPATH": str(ROOT)}
    assert "episodes, seed 0" in tool("evaluate", policy, "--episodes", 2, **here).stdout
    assert "arm:Breaking-v0 has no picture" in tool("render", policy, code=2, **here).stderr
    lost = tool("evaluate", policy, code=2, **here | {"folder": ROOT}).stderr
    where = f"in the current directory ({ROOT}), on PYTHONPATH or installed"
    said = f"No module named 'arm': not {where}"
    assert f"arm:Breaking-v0 cannot be made: {said}" in lost
    lost = tool("evaluate", policy, code=2, **here, PYTHONSAFEPATH="1").stderr
    assert "not on PYTHONPATH or installed; Python looks in no current directory" in lost


def test_a_task_that_answers_nonsense_is_a_sentence(tmp_path, monkeypatch, call):
    path = constant(tmp_path / "p.h5", "own_envs:Steep-v0", [0.0, 0.0], -2.0, 2.0)
    answer = lambda env, action: (env.observation, "much", False, False, {})  # noqa: E731
    monkeypatch.setattr(own_envs.Steep, "step", answer)
    told = call("evaluate", path, "--episodes", 1, code=2).err
    assert "a step must answer an array of numbers" in told


def test_a_simulator_that_is_not_installed_is_for_the_program_to_tell(own, monkeypatch, call):
    monkeypatch.setitem(sys.modules, "esac_mpi.envs.gymnasium_env", None)
    with pytest.raises(ModuleNotFoundError):
        call("evaluate", own)


def test_unstable_episodes_are_counted(tmp_path, own, evaluated, call):
    path = constant(tmp_path / "policy.h5", "own_envs:Breaking-v0", [0.1, -0.3], -2.0, 2.0)
    found = evaluated(path, "--episodes", 60)
    assert found["unstable"] == found["returns"].count(None) > 0
    assert found["mean"] is None
    said = f"unstable in {found['unstable']} of 60 episodes (reward is nan): no mean"
    assert said in call("evaluate", path, "--episodes", 60).out


def test_a_misfit_is_named(tmp_path, own, call):
    other = call("evaluate", own, "--task", "CyclicMDP-v0", code=2).err
    here = "CyclicMDP-v0 has 3 observations and 3 actions"
    assert f"{here}, this policy of own_envs:Counting-v0 3 and 2" in other
    assert "Did you mean 'Hopper-v5'?" in call("evaluate", own, "--task", "Hoper-v5", code=2).err
    for_arms = save(tmp_path / "a.h5", np.zeros(12, np.float32), (3, 3), "Arm-v0", discrete=0)
    other = call("evaluate", for_arms, "--task", "CyclicMDP-v0", code=2).err
    assert other == "CyclicMDP-v0 has discrete actions, this policy of Arm-v0 continuous ones\n"
    for low, high in ((-3.0, 2.0), (-2.0, 3.0)):
        wide = constant(tmp_path / "wide.h5", "own_envs:Counting-v0", [0.0, 0.0], low, high)
        bounds = "actions of own_envs:Counting-v0 are in [-2. -2.] to [2. 2.]"
        assert bounds in call("evaluate", wide, code=2).err
    assert "not a file of esac_mpi" in call("evaluate", ROOT / "README.md", code=65).err


class Second(command_ranks.Alone):
    """The first rank of two, of which the other tells this."""

    size = 2

    def __init__(self, tells):
        self.tells = tells

    def gather(self, value):
        return [value, self.tells(value)]


def test_what_one_rank_cannot_read_or_reads_otherwise_ends_all(own, monkeypatch, call):
    refused = Unreadable, "node2 says no", {}
    with pytest.raises(Unreadable, match="node2 says no"):
        command_ranks.on_all(Second(lambda value: refused), lambda: 1)
    failed = Unusable("gone", DAMAGED)
    told = type(failed), str(failed), dict(vars(failed))
    with pytest.raises(type(failed), match="gone") as again:
        command_ranks.on_all(Second(lambda value: told), lambda: 1)
    assert again.value.code == 65
    unread = Second(lambda value: refused if value is None else value)
    monkeypatch.setattr(command_ranks, "make_world", lambda: unread)
    assert call("evaluate", own, code=65).err == "node2 says no\n"
    another = Second(lambda value: None if value is None else b"another")
    monkeypatch.setattr(command_ranks, "make_world", lambda: another)
    told = call("evaluate", own, code=2).err
    assert "a better policy came while the ranks read it" in told


@pytest.mark.parametrize("words", ["evaluate policy.h5", "search run study.toml"])
def test_a_launcher_of_another_mpi_is_wrong_usage(words, capsys, monkeypatch):
    """Which job scripts do not try again."""
    monkeypatch.setenv("MV2_COMM_WORLD_SIZE", "2")
    assert main(words.split()) == 2
    assert "the launcher belongs to another MPI" in capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), TimeoutError("no answer")])
def test_a_task_whose_simulator_is_gone_is_no_lost_reader(own, error, capsys, monkeypatch):
    """Whose command would end with 0 and no word, or name the disk."""
    monkeypatch.setattr(own_envs.Walk, "step", Mock(side_effect=error))
    assert main(["evaluate", str(own)]) == 2
    said = capsys.readouterr().err
    assert f"cannot be played, in episode 0: {type(error).__name__}: {error}" in said
    ended = []
    monkeypatch.setattr(launch, "abort", lambda *given: ended.append(given))
    monkeypatch.setattr(command_ranks, "make_world", lambda: Second(lambda value: value))
    assert main(["evaluate", str(own)]) == 2
    assert ended == [(2, said.strip())]  # on several ranks


def test_a_seed_that_addresses_nothing_is_refused(own, call):
    call("evaluate", own, "--episodes=1", f"--seed={2**63 - 1}")
    for seed, said in (
        (2**63, "must be below 2**63"),
        (-1, "must be at least 0"),
        (0.5, "invalid number value: '0.5'"),
    ):
        assert said in call("evaluate", own, f"--seed={seed}", code=2).err
