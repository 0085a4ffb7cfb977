"""esac-mpi evaluate: statistics of returns, on tasks and ranks."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import command
from conftest import ROOT, environment
from saved_policies import constant, hidden, save, tool

from esac_mpi import Policy, envs
from esac_mpi.analysis.messages import damaged
from esac_mpi.comm import command_ranks
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import LOGIT_SCALE
from esac_mpi.play.rollout import play
from esac_mpi.record import Unreadable

evaluate = command("evaluate")


@pytest.fixture
def evaluated(capsys):
    """Evaluate in this process; return the JSON object."""

    def made(*arguments) -> dict:
        assert evaluate.main([*map(str, arguments), "--json"], command_ranks.Alone()) == 0
        return json.loads(capsys.readouterr().out)

    return made


def test_statistics():
    found = evaluate.statistics(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0]))
    # the middle half is 3, 4, 5, 6; deviations from the mean 16 are -15 .. -9 and 84
    assert (found["mean"], found["median"], found["iqm"], found["worst"], found["best"]) == (
        16.0,
        4.5,
        4.5,
        1.0,
        100.0,
    )
    assert found["std"] == pytest.approx(
        np.sqrt((15**2 + 14**2 + 13**2 + 12**2 + 11**2 + 10**2 + 9**2 + 84**2) / 7)
    )
    # the mean of eight draws: without the 100, seldom below 2.5; 3 or more of it,
    # (300 + 5 * 4) / 8 = 40, in 7 % of the cases
    low, high = found["interval"]
    assert 2.0 < low < 4.5
    assert 35.0 < high < 65.0
    assert found["iqm_interval"][0] < 4.5 < found["iqm_interval"][1]


def test_two_values_have_themselves_as_interval():
    assert evaluate.statistics(np.array([0.0, 1.0]))["interval"] == [
        0.0,
        1.0,
    ]  # a quarter of the draws each


def test_one_episode_has_no_interval_and_an_unstable_one_no_mean():
    one = evaluate.statistics(np.array([3.0]))
    assert (one["mean"], one["interval"], one["std"], one["iqm_interval"]) == (
        3.0,
        None,
        None,
        None,
    )
    assert set(evaluate.statistics(np.array([1.0, np.nan])).values()) == {None}


def test_returns_of_a_task_that_is_worked_out_by_hand(tmp_path, evaluated):
    always = constant(
        tmp_path / "a.h5", "CyclicMDP-v0", [0.0, 1.0, 0.0]
    )  # clockwise: +1 a step, 2000 steps
    never = constant(tmp_path / "b.h5", "CyclicMDP-v0", [1.0, 0.0, 0.0])  # -1, and the episode ends
    found = evaluated(always, "--episodes", 3)
    assert (found["returns"], found["lengths"], found["std"]) == ([2000.0] * 3, [2000] * 3, 0.0)
    assert evaluated(always, "--episodes", 1, "--horizon", 40)["mean"] == 40.0
    for sigma, falls in (
        (1e-6, 0),
        (3.0, 8),
    ):  # of the output biases 0, 1, 0 the largest must stay the second, in every state
        noisy = evaluated(always, "--episodes", 20, "--weight-noise", sigma)
        assert noisy["weight_noise"] == sigma
        assert sum(length < 2000 for length in noisy["lengths"]) >= falls
        assert (noisy["returns"] == [2000.0] * 20) == (not falls)
    assert evaluated(never, "--episodes", 2)["lengths"] == [1, 1]


def test_weight_noise_is_on_the_outputs_that_ppo_holds_smaller(tmp_path, evaluated):
    theta, states = (
        np.array([0.0, 0.5, 0.0], np.float32),
        envs.make("CyclicMDP-v0").observation_size,
    )
    found = []
    for policy, scale in (("sac", 1.0), ("ppo", LOGIT_SCALE)):
        held = np.concatenate([np.zeros(3 * states), theta * scale]).astype(np.float32)
        path = save(
            tmp_path / f"{policy}.h5",
            held,
            (states, 3),
            "CyclicMDP-v0",
            (-1.0, 1.0),
            output="clip",
            policy=policy,
            discrete=1,
        )
        found.append(evaluated(path, "--episodes", 20, "--weight-noise", 0.2)["lengths"])
    assert found[0] == found[1]
    assert len({*found[0]}) > 1  # some stand it, some fall


@pytest.fixture
def own(monkeypatch, tmp_path):
    """Make the tests' own environments known, whose starts and ends are random."""
    monkeypatch.setenv("COUNT_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "tests/support"))
    return constant(tmp_path / "walk.h5", "own_envs:Counting-v0", [0.1, -0.3], -2.0, 2.0)


def test_the_numbers_do_not_depend_on_the_ranks_nor_on_mpi(tmp_path, own):
    options = [own, "--episodes", 7, "--seed", 5, "--json"]
    one = json.loads(
        tool("evaluate", *options, PYTHONPATH=hidden(tmp_path / "hidden", "mpi4py", "torch")).stdout
    )
    mpirun = Path(sys.executable).parent / "mpirun"
    line = [
        mpirun if mpirun.exists() else "mpirun",
        "-n",
        3,
        sys.executable,
        "-m",
        "esac_mpi.commands",
        "evaluate",
        *options,
    ]
    done = subprocess.run(
        [*map(str, line)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    three = json.loads(done.stdout)  # one object: the other ranks are silent
    assert (one.pop("ranks"), three.pop("ranks")) == (1, 3)
    assert one == three
    env, policy = envs.make("own_envs:Counting-v0"), Policy.load(own)
    played = [play(env, policy, integer(5, Purpose.EVALUATION, 0, block=i)) for i in range(7)]
    assert one["returns"] == [episode.episodic_return for episode in played]
    assert len(set(one["lengths"])) > 1


def test_a_task_of_the_current_directory_is_found_as_in_training(tmp_path, own, monkeypatch):
    (tmp_path / "arm.py").write_text(
        (ROOT / "tests/support/own_envs.py").read_text().replace("own_envs:", "arm:")
    )
    policy = save(
        tmp_path / "arm.h5", np.zeros(8, np.float32), (3, 2), "arm:Breaking-v0", (-2.0, 2.0)
    )
    monkeypatch.chdir(tmp_path)
    assert (
        "episodes, seed 0" in tool("evaluate", policy, "--episodes", 2, PYTHONPATH=str(ROOT)).stdout
    )
    assert (
        "arm:Breaking-v0 has no picture"
        in tool("render", policy, code=2, PYTHONPATH=str(ROOT)).stderr
    )
    monkeypatch.chdir(ROOT)
    lost = tool("evaluate", policy, code=2, PYTHONPATH=str(ROOT)).stderr
    assert (
        "arm:Breaking-v0 cannot be made: No module named 'arm' in the current directory"
        f" ({ROOT}) or on PYTHONPATH" in lost
    )


def test_unstable_episodes_are_counted(tmp_path, own, evaluated, capsys):
    path = constant(tmp_path / "policy.h5", "own_envs:Breaking-v0", [0.1, -0.3], -2.0, 2.0)
    found = evaluated(path, "--episodes", 60)
    assert found["unstable"] == found["returns"].count(None) > 0
    assert found["mean"] is None
    evaluate.main([str(path), "--episodes", "60"], command_ranks.Alone())
    assert (
        f"unstable in {found['unstable']} of 60 episodes: no mean of all can be given"
        in capsys.readouterr().out
    )


def test_a_misfit_is_named(tmp_path, own, capsys):
    for task, message in {
        "CyclicMDP-v0": "CyclicMDP-v0 has 3 observations and 3 actions,"
        " this policy of own_envs:Counting-v0 3 and 2",
        "Hoper-v5": "Did you mean 'Hopper-v5'?",
    }.items():
        assert evaluate.main([str(own), "--task", task], command_ranks.Alone()) == 2
        assert message in capsys.readouterr().err
    for low, high in ((-3.0, 2.0), (-2.0, 3.0)):
        wide = constant(tmp_path / "wide.h5", "own_envs:Counting-v0", [0.0, 0.0], low, high)
        assert evaluate.main([str(wide)], command_ranks.Alone()) == 2
        assert (
            "actions of own_envs:Counting-v0 are in [-2. -2.] to [2. 2.]" in capsys.readouterr().err
        )
    assert evaluate.main([str(ROOT / "README.md")], command_ranks.Alone()) == 65
    assert "not a file of esac_mpi" in capsys.readouterr().err


class Second(command_ranks.Alone):
    """The first rank of two, of which the other tells this."""

    size = 2

    def __init__(self, tells):
        self.tells = tells

    def gather(self, value):
        return [value, self.tells(value)]


def test_what_one_rank_cannot_read_ends_all_and_so_does_a_policy_that_others_read_otherwise(
    own, capsys
):
    refused = Unreadable, "node2 says no", {}
    with pytest.raises(Unreadable, match="node2 says no"):
        command_ranks.on_all(Second(lambda value: refused), lambda: 1, (Unreadable,))
    failed = damaged("gone")
    told = type(failed), str(failed), dict(vars(failed))
    with pytest.raises(type(failed), match="gone") as again:
        command_ranks.on_all(Second(lambda value: told), lambda: 1, ())
    assert again.value.code == 65
    assert (
        evaluate.main([str(own)], Second(lambda value: refused if value is None else value)) == 65
    )
    assert capsys.readouterr().err == "node2 says no\n"
    assert (
        evaluate.main([str(own)], Second(lambda value: None if value is None else b"another")) == 2
    )
    assert "a better policy came while the ranks read it" in capsys.readouterr().err


def test_a_seed_that_addresses_nothing_is_refused(own, capsys):
    assert (
        evaluate.main(
            [str(own), "--episodes", "1", "--seed", str(2**63 - 1)], command_ranks.Alone()
        )
        == 0
    )
    for seed, said in (
        (2**63, "must be below 2**63"),
        (-1, "must be at least 0"),
        (0.5, "invalid seed value: '0.5'"),
    ):
        with pytest.raises(SystemExit) as end:
            evaluate.main([str(own), f"--seed={seed}"], command_ranks.Alone())
        assert (end.value.code, said in capsys.readouterr().err) == (2, True)
