"""PPO: rollouts and updates against stable-baselines3's own, restarts, refusals, whole runs."""

import inspect
import math
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from conftest import ROUTINE, TASK
from gradients import Breaking, Line, same, through
from gymnasium import spaces
from in_process import checked, started
from small_learners import run_phase
from small_ppo import KINDS, Choice, learner, task
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from whole_runs import assert_same_run, counted, summary

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


class Ours(gymnasium.Env):
    """An environment of ours as the library sees it; its episodes have the addresses of phase k."""

    def __init__(self, env, k: int):
        self.env, self.k, self.block = env, k, 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (env.observation_size,), np.float32)
        self.action_space = spaces.Box(-1, 1, (env.action_size,), np.float32)
        if envs.is_discrete(env):
            self.action_space = spaces.Discrete(env.action_size)

    def reset(self, *, seed=None, options=None):
        self.block += 1
        return self.env.reset(integer(0, Purpose.LEARNER_EPISODE, self.k, block=self.block - 1)), {}

    def step(self, action):
        if isinstance(self.action_space, spaces.Discrete):
            action = np.where(np.arange(self.env.action_size) == action, 1, -1).astype(np.float32)
        return *envs.transition(self.env, action), {}


def rolled_out(env, **options) -> PPO:
    """Return the library's PPO after its 50 steps of phase 3."""
    shape = {"net_arch": {"pi": [8, 8], "vf": [8, 8]}, "activation_fn": torch.nn.Tanh}
    seed = integer(0, Purpose.INIT, member=19)
    library = PPO(
        "MlpPolicy", env, n_steps=50, seed=seed, policy_kwargs=shape, device="cpu", **options
    )
    _, callback = library._setup_learn(50)
    set_random_seed(integer(0, Purpose.LEARNER, 3, 0))
    library.collect_rollouts(library.env, callback, library.rollout_buffer, 50)
    return library


# in both: 50 steps, in which episodes are truncated, terminate and carry on


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_phase_is_the_librarys_rollout_and_its_updates(kind):
    made = learner(kind, epochs=1, entropy_coefficient=0.01)
    library = rolled_out(Ours(task(kind), 3), batch_size=16, n_epochs=1, ent_coef=0.01)
    phase = run_phase(made, task(kind), 3, 0, 50)
    ours, theirs = made._model.rollout_buffer, library.rollout_buffer
    set_random_seed(integer(0, Purpose.LEARNER, 3, 1, 0))
    library.train()
    acted = ("observations", "actions", "rewards", "episode_starts")
    for name in (*acted, "values", "log_probs", "advantages", "returns"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert 2 <= ours.episode_starts.sum() - 1 == phase.episodes
    expected, found = library.policy.state_dict(), made._model.policy.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    logged = library.logger.name_to_value
    assert phase.critic_loss == logged["train/value_loss"]
    assert phase.actor_loss == logged["train/policy_gradient_loss"]
    assert phase.entropy == -logged["train/entropy_loss"]
    assert phase.gradient_updates == 4  # 16 + 16 + 16 + 2 steps


@pytest.mark.parametrize("kind", KINDS[:2])
def test_rewards_are_divided_as_by_the_librarys_wrapper(kind):
    """The critic's bootstraps are not divided, nor the returns that are reported."""
    made, plain = (learner(kind, gamma=0.9, reward_normalisation=on) for on in (True, False))
    env = VecNormalize(DummyVecEnv([lambda: Ours(task(kind), 3)]), norm_obs=False, gamma=0.9)
    library = rolled_out(env, batch_size=50, gamma=0.9)
    phase, same = (run_phase(one, task(kind), 3, 0, 50) for one in (made, plain))
    ours, theirs = made._model.rollout_buffer, library.rollout_buffer
    assert np.array_equal(ours.actions.ravel(), theirs.actions.ravel())
    for name in ("rewards", "advantages", "returns"):
        expected = pytest.approx(getattr(theirs, name).ravel(), rel=1e-5, abs=1e-6)
        assert getattr(ours, name).ravel() == expected, name
    spread = library.env.ret_rms
    assert made.arrays()["reward_spread"] == pytest.approx([spread.mean, spread.var, spread.count])
    assert phase.episodic_return == same.episodic_return


@pytest.mark.parametrize("terminate", [True, False])
def test_a_time_limit_bootstraps_and_a_termination_does_not(terminate):
    """A critic of 2 and gamma 0.5 put 1 on the reward of each episode's last step, the 20th."""
    made, env = learner(gamma=0.5, epochs=1), Line(terminate)
    steady(made)
    run_phase(made, env, 0, 0, 50)
    buffer = made._model.rollout_buffer
    own = -((np.array(env.actions) - observed(buffer) / 2) ** 2)
    assert np.flatnonzero(buffer.episode_starts).tolist() == [0, 20, 40]
    bootstrapped = [not terminate and step in (19, 39) for step in range(50)]
    assert buffer.rewards[:, 0] - own == pytest.approx(np.array(bootstrapped, float), abs=1e-6)
    last = [19, 39]  # nothing follows
    assert buffer.returns[last, 0] == pytest.approx(buffer.rewards[last, 0], abs=1e-6)
    assert buffer.returns[49, 0] - own[49] == pytest.approx(1, abs=1e-6)  # the episode goes on


def observed(buffer) -> np.ndarray:
    return buffer.observations.reshape(-1).astype(float)


def steady(made) -> None:
    """Let the critic say 2 everywhere, and nothing be learned."""
    made._model.policy.value_net.weight.data.zero_()
    made._model.policy.value_net.bias.data.fill_(2.0)
    for group in made._model.policy.optimizer.param_groups:
        group["lr"] = 0.0
    made._model.lr_schedule = lambda _: 0.0


@pytest.mark.parametrize("how", ["raise", "reward", "huge", "observation", "warn"])
def test_what_cannot_be_learned_from_is_counted_and_not_stored(how):
    """In 10 steps, two episodes break in their fourth; the rows before it and the end bootstrap."""
    made, env = learner(gamma=0.5, gae_lambda=0.0, epochs=1), Breaking(how)
    steady(made)
    phase = run_phase(made, env, 0, 0, 10)
    assert phase.env_steps == len(env.actions) == 10
    assert (phase.episodes, phase.unstable_episodes) == (0, 2)
    buffer = made._model.rollout_buffer
    assert buffer.episode_starts[:, 0].tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    own = -((np.delete(env.actions, [3, 7]) - observed(buffer) / 2) ** 2)
    assert buffer.rewards[:, 0] - own == pytest.approx([0, 0, 1, 0, 0, 1, 0, 0], abs=1e-6)
    assert buffer.returns[:, 0] - own == pytest.approx([1] * 8, abs=1e-5)


class Counting(Choice):
    """Count what is really done."""

    def __init__(self):
        super().__init__()
        self.sums, self.total = [], 0.0

    def reset(self, seed):
        self.total = 0.0
        return super().reset(seed)

    def step(self, action):
        answer = super().step(action)
        self.total += answer[1]
        if answer[2] or answer[3]:
            self.sums.append(self.total)
        return answer


@pytest.mark.parametrize("kind", KINDS[1:])
def test_counters_are_the_environments_and_the_optimisers(kind):
    made, env, minibatches = learner(kind, epochs=3), Counting(), []
    step = made._model.policy.optimizer.step
    made._model.policy.optimizer.step = lambda *a, **b: minibatches.append(1) or step(*a, **b)
    before, sums = 0, 0
    for k, steps in enumerate((50, 33, 49)):
        phase = run_phase(made, env, k, 0, steps)
        assert len(env.actions) - before == steps == phase.env_steps
        assert phase.gradient_updates == len(minibatches) == 3 * math.ceil(steps / 16)
        assert phase.episodes == len(env.sums) - sums > 0
        assert phase.episodic_return == np.mean(env.sums[sums:])
        assert phase.unstable_episodes == 0
        before, sums = len(env.actions), len(env.sums)
        minibatches.clear()
    assert made.env_steps == len(env.actions)
    assert len(set(env.seeds)) == len(env.seeds) == len(env.sums) + 1  # the last is in progress


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_theta_acts_as_the_library_predicts(kind, activation):
    """Continuous: the mean, cut off at the bounds; discrete: the same choice, however large."""
    made = learner(kind, (4, 16, 8, 3), activation=activation)
    policy = Policy(Layout((4, 16, 8, 3)), activation, "clip", -np.ones(3), np.ones(3))
    model, random = made._model, np.random.default_rng(0)
    for parameter in model.policy.parameters():
        if parameter.dim() > 1:
            noise = random.normal(0, 0.3, parameter.shape).astype(np.float32)
            parameter.data += torch.from_numpy(noise)
    for scale in (1.0, 2.0) if kind == "continuous" else (1.0, 1000.0):
        model.policy.action_net.weight.data *= scale
        policy.set(made.theta)
        observations = random.normal(0, 1, (300, 4)).astype(np.float32)
        predicted = np.stack([model.predict(o, deterministic=True)[0] for o in observations])
        acted = np.stack([policy(o) for o in observations])
        if kind == "continuous":
            assert np.allclose(acted, predicted, atol=1e-5)
            assert 0.02 < np.mean(np.abs(acted) == 1) < 1
        else:
            hidden = model.policy.mlp_extractor.forward_actor(torch.tensor(observations))
            expected = model.policy.action_net(hidden).argmax(1).numpy()
            assert np.array_equal(acted.argmax(1), expected)
            assert len(set(expected)) == 3
            if kind == "categorical":
                assert np.array_equal(predicted, expected)


def test_what_is_drawn_has_the_spread_that_the_options_name():
    """The continuous one learns its standard deviation; gaussian_argmax keeps what it is given."""
    free, fixed = learner("continuous", initial_std=0.3), learner("gaussian_argmax", argmax_std=0.7)
    assert free._model.policy.log_std.exp().tolist() == pytest.approx([0.3])
    assert fixed._model.policy.log_std.exp().tolist() == pytest.approx([0.7, 0.7])
    run_phase(free, task("continuous"), 0, 0, 50)
    run_phase(fixed, task("choice"), 0, 0, 50)
    assert free._model.policy.log_std.exp().item() != pytest.approx(0.3, rel=1e-4)
    assert fixed._model.policy.log_std.exp().tolist() == pytest.approx([0.7, 0.7])
    buffer = fixed._model.rollout_buffer
    assert buffer.actions.shape == (50, 2)
    assert buffer.actions.std() == pytest.approx(0.7, rel=0.25)


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
    again = run_phase(resumed, other, 3, 0, 50)
    assert np.array_equal(again.vector(), phase.vector(), equal_nan=True)
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
    horizon = 3


@pytest.mark.parametrize(
    "other", [Breaking("raise"), Short(terminate=True)], ids=["unstable", "ended"]
)
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


@pytest.mark.parametrize("part", ["actor", "critic", "actions", "losses"])
def test_a_learner_that_is_not_finite_says_so(part):
    """Actions are told where the parameters are finite, losses at the end."""
    made, steps, said = learner(epochs=1), 50, f".*{part}.* no longer finite"
    if part == "actions":
        made._standardise = lambda observation: observation * np.float32("nan")
    elif part == "losses":
        made._model.policy.value_net.bias.data[0] = math.nan
        steps, said = 10, "actor, critic, losses are no longer finite at training step 10"
    else:
        made._parts[part][2].data[0] = math.nan
    with pytest.raises(LearnerNotFinite, match=f"the PPO learner's {said}"):
        run_phase(made, Line(), 0, 0, steps)


def test_no_start_state_at_all_is_an_error():
    class Never(Line):
        def reset(self, seed):
            raise envs.UnstablePhysics

    with pytest.raises(envs.UnstablePhysics):
        run_phase(learner(), Never(), 0, 0, 20)


@pytest.mark.slow
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
    seeds = [integer(*address, block=episode) for episode in range(4)]
    returns = [play(env, policy, seed).episodic_return for seed in seeds]
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
