"""PPO's phases over restarts, what it refuses, that it learns, and the whole program with it."""

import inspect
import math
import sys
from functools import partial

import numpy as np
import pytest
import stable_baselines3
import torch
from conftest import ROUTINE, TASK
from gradients import Breaking, Line, same, through
from in_process import checked, started
from small_learners import run_phase
from small_ppo import KINDS, learner, task
from stable_baselines3 import PPO
from whole_runs import assert_same_run, summary

from esac_mpi import envs
from esac_mpi.algorithms import ppo as algorithm
from esac_mpi.config import Config
from esac_mpi.host.errors import INSTALL
from esac_mpi.learners import LearnerNotFinite
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.rollout import play
from esac_mpi.record import Run
from esac_mpi.record.checkpoints import read_checkpoint
from esac_mpi.record.policies import Policy as Saved

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", KINDS)
def test_a_phase_in_parts_and_one_begun_again_have_its_bits(kind):
    """From the middle of an episode: in parts, and held, saved and loaded into another task."""

    def grown():
        made, env = learner(kind), task(kind)
        for k in (1, 2):
            run_phase(made, env, k, 0, 47)
        return made, env

    (straight, env), (parts, its) = grown(), grown()
    played = len(env.actions)
    arrays = parts.arrays()
    assert len(arrays["episode_actions"]) == env.length > 0
    phase = run_phase(straight, env, 3, 0, 50)
    parts.hold()
    work = parts.begin(its, 3, 0, 50)
    for _ in range(30):
        next(work)
    assert same(parts.arrays(), arrays)
    saved = parts.arrays()
    pauses, again = through(work)
    assert 30 + pauses == 50 + 2
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    parts.release()
    assert same(parts.arrays(), straight.arrays())
    assert not same(parts.arrays(), arrays)

    resumed, other = learner(kind, seed=0), task(kind)
    resumed.load(saved)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 the generator that the library shuffles by
    assert np.array_equal(
        run_phase(resumed, other, 3, 0, 50).vector(), phase.vector(), equal_nan=True
    )
    assert same(resumed.arrays(), straight.arrays())
    assert np.array_equal(resumed.theta, straight.theta)
    assert len(other.actions) == 50 + len(saved["episode_actions"])  # played again, and not counted
    assert resumed.env_steps == 144 == len(env.actions)
    assert np.array_equal(other.actions[-50:], env.actions[played:])
    elsewhere = learner(kind)
    elsewhere.load(saved)
    run_phase(elsewhere, task(kind), 4, 0, 50)
    assert not np.array_equal(elsewhere.theta, straight.theta)


def test_the_scale_of_rewards_goes_on_after_a_restart():
    """From the middle of an episode, whose discounted sum so far is found by playing it again."""
    straight, saved, env = learner(reward_normalisation=True), {}, task("continuous")
    for k in (1, 2):
        saved = straight.arrays()
        run_phase(straight, env, k, 0, 47)
    assert len(saved["episode_actions"]) == 7
    # a step each, and what the library begins with
    assert saved["reward_spread"][2] == pytest.approx(47 + 1e-4)
    resumed = learner(seed=0, reward_normalisation=True)
    resumed.load(saved)
    assert same(resumed.arrays(), saved)
    run_phase(resumed, task("continuous"), 2, 0, 47)
    assert same(resumed.arrays(), straight.arrays())


class Short(Line):
    """End after three steps."""

    def step(self, action):
        observation, reward, _, truncated = super().step(action)
        return observation, reward, self.length == 3, truncated


@pytest.mark.parametrize("other", [Breaking("raise"), Short()], ids=["unstable", "ended"])
def test_an_episode_that_ends_sooner_played_again_gives_way(caplog, other):
    made, env = learner(), Line()
    run_phase(made, env, 0, 0, 30)
    assert len(made._episode.actions) > 4
    old = made._episode.seed
    phase = run_phase(made, other, 1, 0, 2)
    assert other.seeds == [old, made._episode.seed]
    assert other.seeds[1] != old
    assert (phase.env_steps, phase.episodes, len(made._episode.actions)) == (2, 0, 2)
    assert "ends sooner when it is played again: a new one begins" in caplog.text


def test_arrays_of_another_kind_are_refused():
    with pytest.raises(ValueError, match=r"must be float32 \[\d+\], got float32 \[\d+\]"):
        learner("continuous").load(learner("categorical").arrays())
    with pytest.raises(ValueError, match="learner arrays must be"):
        learner().load({"env_steps": np.array(1)})


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_a_learner_that_is_not_finite_says_so(part):
    made = learner()
    made._parts[part][2].data[0] = math.nan
    with pytest.raises(LearnerNotFinite, match=f"the PPO learner's .*{part}.* no longer finite"):
        run_phase(made, Line(), 0, 0, 50)


def test_actions_that_are_not_finite_are_told_where_parameters_are(monkeypatch):
    made = learner()
    monkeypatch.setattr(made, "_standardise", lambda observation: observation * np.float32("nan"))
    with pytest.raises(LearnerNotFinite, match="the PPO learner's actions are no longer finite"):
        run_phase(made, Line(), 0, 0, 50)


def test_losses_that_are_not_finite_are_told_at_the_end():
    made = learner(epochs=1)
    made._model.policy.value_net.bias.data[0] = math.nan
    said = "the PPO learner's actor, critic, losses are no longer finite at training step 10"
    with pytest.raises(LearnerNotFinite, match=said):
        run_phase(made, Line(), 0, 0, 10)


def test_no_start_state_at_all_is_an_error():
    class Never(Line):
        def reset(self, seed):
            raise envs.UnstablePhysics

    with pytest.raises(envs.UnstablePhysics):
        run_phase(learner(), Never(), 0, 0, 20)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_it_learns_the_toy(kind):
    """CyclicMDP-v0 of 100 steps: the optimum, 100, after 1,792 steps and 280 updates."""
    env = envs.make("CyclicMDP-v0", 100)
    made = learner(kind, (3, 32, 32, 3), lr_ppo=3e-3, batch_size=64, epochs=10)
    policy = Policy(Layout((3, 32, 32, 3)), "tanh", "clip", env.low, env.high)
    assert play(env, policy.set(made.theta), 0).episodic_return < 3
    assert sum(run_phase(made, env, k, 0, 256).gradient_updates for k in range(7)) == 280
    assert play(env, policy.set(made.theta), 0).episodic_return == 100


SMALL = ["--ppo.steps_per_generation", 70, "--ppo.batch_size", 16, "--ppo.epochs", 3]
NORMALISED = ["--ppo.observation_normalisation", "true"]


def counted(path, monkeypatch, make, *arguments) -> int:
    """Make a run; return the steps that environments counted but those compared at the start."""
    path.mkdir()
    monkeypatch.setenv("COUNT_DIR", str(path))
    make(*arguments)
    stepped = sum(file.stat().st_size for file in path.iterdir())
    return stepped - Run.open(arguments[-1]).provenance["probe_steps"]


def test_the_program_does_not_depend_on_ranks_or_restarts(tmp_path, monkeypatch, alone, together):
    """Stopped in the middle of an episode: its steps are played again, not counted again."""
    line = ["--algorithm", "ppo", "--task.id", "own_envs:Counting-v0", *ROUTINE, *SMALL]
    line += [*NORMALISED, "--budget.generations"]
    one, parts = tmp_path / "straight", tmp_path / "parts"
    two = partial(together, 2)
    straight = counted(tmp_path / "a", monkeypatch, alone, *line, 5, "--run-dir", one)
    counted(tmp_path / "b", monkeypatch, two, *line, 3, "--run-dir", parts)
    again = len(read_checkpoint(parts / "checkpoint.h5").learner["episode_actions"])
    resumed = counted(tmp_path / "c", monkeypatch, alone, *line, 5, "--run-dir", parts)
    assert_same_run(one, parts)
    said, rows = summary(parts), Run.open(parts).columns
    assert sum(said["env_steps"].values()) == straight
    assert resumed == 2 * 70 + rows["final/env_steps_evaluation"] + again
    assert again > 0
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 5 * 70
    assert said["gradient_updates"] == 5 * 3 * 5
    assert said["last_evaluation"]["ppo"] == said["final_return"]
    assert np.isfinite(rows["metrics/ppo_critic_loss"]).all()


def test_the_saved_policy_plays_the_evaluation_that_chose_it(tmp_path, alone):
    """A discrete task, whose outputs are scaled in the file."""
    line = ["--algorithm", "ppo", "--task.id", "CartPole-v1", *ROUTINE, *SMALL, *NORMALISED]
    alone(*line, "--ppo.lr_ppo", 0.01, "--budget.generations", 6, "--run-dir", tmp_path)
    policy, env = Saved.load(tmp_path), envs.make("CartPole-v1")
    assert (policy.kind, policy.output, policy.generation % 3) == ("ppo", "clip", 0)
    assert f"stable_baselines3 {stable_baselines3.__version__}" in policy.versions
    address = 0, Purpose.EVALUATION, policy.generation
    returns = [
        play(env, policy, integer(*address, block=episode)).episodic_return for episode in range(4)
    ]
    recorded = Run.open(tmp_path).columns["metrics/evaluation_ppo"][policy.generation - 1]
    assert returns == recorded.tolist()
    assert np.ptp(recorded) > 0


@pytest.mark.parametrize("begin", [started, checked])
def test_without_the_library_it_says_which_extra_brings_it(begin, tmp_path, monkeypatch, capsys):
    for name in ("ppo", "ppo_rollout"):
        monkeypatch.delitem(sys.modules, f"esac_mpi.learners.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    assert begin("--algorithm", "ppo", *TASK, "--run-dir", tmp_path / "run") == 2
    assert f"{INSTALL} '.[baselines]'" in "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []


def test_its_table_is_the_librarys_defaults():
    parameters = inspect.signature(PPO.__init__).parameters
    names = {
        "lr_ppo": "learning_rate",
        "entropy_coefficient": "ent_coef",
        "value_coefficient": "vf_coef",
        "steps_per_generation": "n_steps",
        "epochs": "n_epochs",
        **{same: same for same in ("gamma", "gae_lambda", "clip_range", "max_grad_norm")},
        "batch_size": "batch_size",
    }
    for name, theirs in names.items():
        assert getattr(Config().ppo, name) == parameters[theirs].default, name
    declared = algorithm.DECLARES
    assert [*declared.policies] == [declared.learning.learner(Config())] == ["ppo"]
