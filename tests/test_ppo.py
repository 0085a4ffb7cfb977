"""PPO: its rollouts and updates against stable-baselines3's own, its counts, its episodes over phases and restarts."""

import json
import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from conftest import ROUTINE, TASK, environment, run
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from test_run import assert_same_run, summary
from test_sac import Breaking, Line, same, through

from esac_mpi import envs
from esac_mpi.algorithms import ppo as algorithm
from esac_mpi.config import Config, ConfigError, check, updated
from esac_mpi.learners import LearnerNotFinite, make
from esac_mpi.noise import Purpose, integer
from esac_mpi.policy import Layout, Policy
from esac_mpi.record import Run
from esac_mpi.record.checkpoints import read_checkpoint
from esac_mpi.record.policies import Policy as Saved
from esac_mpi.rollout import play

KINDS = ["continuous", "categorical", "gaussian_argmax"]


class Choice(Line):
    """The line in a discrete task: the larger of two numbers says whether x is thought positive; ends where it is wrong."""

    action_size = 2
    low, high = -np.ones(2, np.float32), np.ones(2, np.float32)
    discrete = True

    def step(self, action):
        assert action.dtype == np.float32
        assert sorted(action) == [-1, 1]
        self.actions.append(int(np.argmax(action)))
        self.length += 1
        right = self.actions[-1] == (self.x[0] > 0)
        end = self.length == self.horizon
        return self.observe(), float(right), not right and self.length > 12, end


def task(kind: str):
    return Line() if kind == "continuous" else Choice()


def learner(kind: str = "continuous", sizes: tuple[int, ...] | None = None, seed: int = 0, activation="tanh", **values):
    """Return a small learner; `values` are fields of its table."""
    sizes = sizes or (1, 8, 8, 1 if kind == "continuous" else 2)
    small = {"steps_per_generation": 50, "batch_size": 16, "epochs": 2, **values}
    chosen = {"ppo.action": kind} if kind != "continuous" else {}
    config = updated(Config(), {"seed": seed, "policy.hidden": sizes[1:-1], "policy.activation": activation, **chosen})
    config = updated(config, {"learner.device": "cpu", **{f"ppo.{key}": value for key, value in small.items()}})
    return make("ppo", config, Layout(sizes), np.zeros(Layout(sizes).d, np.float32), discrete=kind != "continuous")


# --- against the library alone


class Ours(gymnasium.Env):
    """An environment of ours as the library sees one; its episodes have the addresses of phase k."""

    def __init__(self, env, k: int):
        self.env, self.k, self.block = env, k, 0
        self.observation_space = spaces.Box(-np.inf, np.inf, (env.observation_size,), np.float32)
        discrete = envs.is_discrete(env)
        self.action_space = spaces.Discrete(env.action_size) if discrete else spaces.Box(-1, 1, (env.action_size,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.block += 1
        return self.env.reset(integer(0, Purpose.LEARNER_EPISODE, self.k, block=self.block - 1)), {}

    def step(self, action):
        if isinstance(self.action_space, spaces.Discrete):
            action = np.where(np.arange(self.env.action_size) == action, 1, -1).astype(np.float32)
        return *envs.transition(self.env, action), {}


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_phase_is_the_librarys_rollout_and_its_updates(kind):
    """50 steps, in which episodes are truncated, terminate and carry on: every array of the buffer, then every parameter."""
    made = learner(kind, epochs=1, entropy_coefficient=0.01)
    shape = {"net_arch": {"pi": [8, 8], "vf": [8, 8]}, "activation_fn": torch.nn.Tanh}
    seed = integer(0, Purpose.INIT, member=19)
    options = {"n_steps": 50, "batch_size": 16, "n_epochs": 1, "ent_coef": 0.01, "policy_kwargs": shape, "device": "cpu"}
    plain = PPO("MlpPolicy", Ours(task(kind), 3), seed=seed, **options)
    _, callback = plain._setup_learn(50)
    set_random_seed(integer(0, Purpose.LEARNER, 3, 0))
    plain.collect_rollouts(plain.env, callback, plain.rollout_buffer, 50)
    phase = made.phase(task(kind), 3, 0, 50)
    ours, theirs = made._model.rollout_buffer, plain.rollout_buffer
    set_random_seed(integer(0, Purpose.LEARNER, 3, 1, 0))
    plain.train()
    for name in ("observations", "actions", "rewards", "values", "log_probs", "advantages", "returns", "episode_starts"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    assert 2 <= ours.episode_starts.sum() - 1 == phase.episodes
    expected, found = plain.policy.state_dict(), made._model.policy.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    logged = plain.logger.name_to_value
    assert phase.critic_loss == logged["train/value_loss"]
    assert phase.actor_loss == logged["train/policy_gradient_loss"]
    assert phase.entropy == -logged["train/entropy_loss"]
    assert phase.gradient_updates == 4  # 16 + 16 + 16 + 2 steps


@pytest.mark.parametrize("terminate", [True, False])
def test_a_time_limit_bootstraps_and_a_termination_does_not(terminate):
    """A critic of 2 everywhere and gamma 0.5 put 1 on the reward of each episode's last step, the 20th."""
    made, env = learner(gamma=0.5, epochs=1), Line(terminate)
    steady(made)
    made.phase(env, 0, 0, 50)
    buffer = made._model.rollout_buffer
    own = -((np.array(env.actions) - observed(buffer) / 2) ** 2)
    assert np.flatnonzero(buffer.episode_starts).tolist() == [0, 20, 40]
    bootstrapped = [not terminate and step in (19, 39) for step in range(50)]
    assert buffer.rewards[:, 0] - own == pytest.approx(np.array(bootstrapped, float), abs=1e-6)
    assert buffer.returns[[19, 39], 0] == pytest.approx(buffer.rewards[[19, 39], 0], abs=1e-6)  # nothing follows
    assert buffer.returns[49, 0] - own[49] == pytest.approx(1, abs=1e-6)  # the episode goes on


def observed(buffer) -> np.ndarray:
    """Return the observations of a rollout, [n]."""
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
    """In 10 steps, two episodes break in their fourth; the row before it bootstraps, as does the end of the rollout."""
    made, env = learner(gamma=0.5, gae_lambda=0.0, epochs=1), Breaking(how)
    steady(made)
    phase = made.phase(env, 0, 0, 10)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes, len(env.actions)) == (10, 0, 2, 10)
    buffer = made._model.rollout_buffer
    assert buffer.episode_starts[:, 0].tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
    own = -((np.delete(env.actions, [3, 7]) - observed(buffer) / 2) ** 2)
    assert buffer.rewards[:, 0] - own == pytest.approx([0, 0, 1, 0, 0, 1, 0, 0], abs=1e-6)
    assert buffer.returns[:, 0] - own == pytest.approx([1] * 8, abs=1e-5)


# --- counts


class Counting(Choice):
    """Count what is really done."""

    def __init__(self):
        super().__init__()
        self.ended, self.sums, self.total = 0, [], 0.0

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
def test_counters_are_those_of_the_environment_and_of_the_optimiser(kind):
    made, env, minibatches = learner(kind, epochs=3), Counting(), []
    step = made._model.policy.optimizer.step
    made._model.policy.optimizer.step = lambda *a, **b: minibatches.append(1) or step(*a, **b)
    before, sums = 0, 0
    for k, steps in enumerate((50, 33, 49)):
        phase = made.phase(env, k, 0, steps)
        assert len(env.actions) - before == steps == phase.env_steps
        assert phase.gradient_updates == len(minibatches) == 3 * math.ceil(steps / 16)
        assert phase.episodes == len(env.sums) - sums > 0
        assert phase.episodic_return == np.mean(env.sums[sums:])
        assert phase.unstable_episodes == 0
        before, sums = len(env.actions), len(env.sums)
        minibatches.clear()
    assert made.env_steps == len(env.actions)
    assert len(set(env.seeds)) == len(env.seeds) == len(env.sums) + 1  # the last is in progress


# --- the policy


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("kind", KINDS)
def test_theta_acts_as_the_library_predicts(kind, activation):
    """Continuous: the mean, cut off at the bounds; discrete: the same choice, also where outputs are in the thousands."""
    made = learner(kind, (4, 16, 8, 3), activation=activation)
    policy = Policy(Layout((4, 16, 8, 3)), activation, "clip", -np.ones(3), np.ones(3))
    random = np.random.default_rng(0)
    for parameter in made._model.policy.parameters():
        if parameter.dim() > 1:
            parameter.data += torch.from_numpy(random.normal(0, 0.3, parameter.shape).astype(np.float32))
    for scale in (1.0, 2.0) if kind == "continuous" else (1.0, 1000.0):
        made._model.policy.action_net.weight.data *= scale
        policy.set(made.theta)
        observations = random.normal(0, 1, (300, 4)).astype(np.float32)
        predicted = np.stack([made._model.predict(o, deterministic=True)[0] for o in observations])
        acted = np.stack([policy(o) for o in observations])
        if kind == "continuous":
            assert np.allclose(acted, predicted, atol=1e-5)
            assert 0.02 < np.mean(np.abs(acted) == 1) < 1
        else:
            raw = made._model.policy.action_net(made._model.policy.mlp_extractor.forward_actor(torch.tensor(observations)))
            expected = raw.argmax(1).numpy()
            assert np.array_equal(acted.argmax(1), expected)
            assert len(set(expected)) == 3
            if kind == "categorical":
                assert np.array_equal(predicted, expected)


def test_what_is_drawn_has_the_spread_that_the_options_name():
    """The continuous one learns its standard deviation; gaussian_argmax has 0.5, whatever it learns."""
    free, fixed = learner("continuous", initial_std=0.3), learner("gaussian_argmax", argmax_std=0.7)
    for made, std in ((free, 0.3), (fixed, 0.7)):
        assert made._model.policy.log_std.exp().tolist() == pytest.approx([std] * made._choices.shape[0])
        made.phase(task("continuous" if made is free else "choice"), 0, 0, 50)
    assert free._model.policy.log_std.exp().item() != pytest.approx(0.3, rel=1e-4)
    assert fixed._model.policy.log_std.exp().tolist() == pytest.approx([0.7, 0.7])
    buffer = fixed._model.rollout_buffer
    assert buffer.actions.shape == (50, 2)
    assert buffer.actions.std() == pytest.approx(0.7, rel=0.25)


# --- phases


@pytest.mark.parametrize("kind", KINDS)
def test_a_phase_in_parts_and_one_begun_again_have_the_bits_of_a_phase_at_once(kind):
    """From the middle of an episode: at once, in parts, and held, saved, loaded and begun again in another environment."""

    def grown():
        made, env = learner(kind), task(kind)
        for k in (1, 2):
            made.phase(env, k, 0, 47)
        return made, env

    (straight, env), (parts, its) = grown(), grown()
    played = len(env.actions)
    arrays = parts.arrays()
    assert len(arrays["episode_actions"]) == env.length > 0
    phase = straight.phase(env, 3, 0, 50)
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
    assert np.array_equal(resumed.phase(other, 3, 0, 50).vector(), phase.vector(), equal_nan=True)
    assert same(resumed.arrays(), straight.arrays())
    assert np.array_equal(resumed.theta, straight.theta)
    assert len(other.actions) == 50 + len(saved["episode_actions"])  # played again, and not counted
    assert resumed.env_steps == 144 == len(env.actions)
    assert np.array_equal(other.actions[-50:], env.actions[played:])
    elsewhere = learner(kind)
    elsewhere.load(saved)
    elsewhere.phase(task(kind), 4, 0, 50)
    assert not np.array_equal(elsewhere.theta, straight.theta)


class Short(Line):
    """End after three steps."""

    def step(self, action):
        observation, reward, _, truncated = super().step(action)
        return observation, reward, self.length == 3, truncated


@pytest.mark.parametrize("other", [Breaking("raise"), Short()], ids=["unstable", "ended"])
def test_an_episode_that_ends_sooner_when_it_is_played_again_gives_way_to_a_new_one(caplog, other):
    made, env = learner(), Line()
    made.phase(env, 0, 0, 30)
    assert len(made._episode.actions) > 4
    old = made._episode.seed
    phase = made.phase(other, 1, 0, 2)
    assert other.seeds == [old, made._episode.seed]
    assert other.seeds[1] != old
    assert (phase.env_steps, phase.episodes, len(made._episode.actions)) == (2, 0, 2)
    assert "ends sooner when it is played again: a new one begins" in caplog.text


def test_an_observation_that_is_not_finite_says_so():
    env = Line()
    env.reset = lambda seed: np.full(1, np.nan, np.float32)
    with pytest.raises(LearnerNotFinite, match="an observation is not finite at training step 0"):
        learner().phase(env, 0, 0, 5)


def test_a_minibatch_of_one_step_is_refused():
    with pytest.raises(ConfigError, match=r"ppo.batch_size = 16: leaves a minibatch of one step of 33"):
        check(updated(Config(), {"ppo.steps_per_generation": 33, "ppo.batch_size": 16}))


def test_arrays_of_another_kind_are_refused():
    with pytest.raises(ValueError, match=r"must be float32 \[\d+\], got float32 \[\d+\]"):
        learner("continuous").load(learner("categorical").arrays())
    with pytest.raises(ValueError, match="learner arrays must be"):
        learner().load({"env_steps": np.array(1)})


@pytest.mark.parametrize("part", ["actor", "critic"])
def test_a_learner_that_is_not_finite_says_so(part):
    made = learner()
    made._parts[part][2].data[0] = math.nan
    with pytest.raises(LearnerNotFinite, match=f"the PPO learner's .*{part}.* are no longer finite at training step"):
        made.phase(Line(), 0, 0, 50)


def test_losses_that_are_not_finite_are_told_also_where_nothing_was_drawn_after_them():
    made = learner(epochs=1)
    made._model.policy.value_net.bias.data[0] = math.nan
    with pytest.raises(
        LearnerNotFinite, match="the PPO learner's actor, critic, losses are no longer finite at training step 10"
    ):
        made.phase(Line(), 0, 0, 10)


def test_no_start_state_at_all_is_an_error():
    class Never(Line):
        def reset(self, seed):
            raise envs.UnstablePhysics

    with pytest.raises(envs.UnstablePhysics):
        learner().phase(Never(), 0, 0, 20)


@pytest.mark.parametrize(("kind", "seed"), [("categorical", 0), ("categorical", 1), ("categorical", 2), ("gaussian_argmax", 0)])
def test_it_learns_the_toy(kind, seed):
    """CyclicMDP-v0 of 100 steps: the optimum, 100, after 1,792 steps and 280 updates."""
    env = envs.make("CyclicMDP-v0", 100)
    made = learner(kind, (3, 32, 32, 3), seed, lr_ppo=3e-3, batch_size=64, epochs=10)
    policy = Policy(Layout((3, 32, 32, 3)), "tanh", "clip", env.low, env.high)
    assert play(env, policy.set(made.theta), 0).episodic_return < 3
    assert sum(made.phase(env, k, 0, 256).gradient_updates for k in range(7)) == 280
    assert play(env, policy.set(made.theta), 0).episodic_return == 100


# --- the program


SMALL = ["--ppo.steps_per_generation", 70, "--ppo.batch_size", 16, "--ppo.epochs", 3]


def counted(path, monkeypatch, ranks: int, *arguments) -> int:
    """Run the program; return the steps that its environments counted, without those of the start-up comparison."""
    path.mkdir()
    monkeypatch.setenv("COUNT_DIR", str(path))
    run(ranks, *arguments)
    return sum(file.stat().st_size for file in path.iterdir()) - Run.open(arguments[-1]).provenance["probe_steps"]


def test_the_program_does_not_depend_on_ranks_or_restarts_and_counts_what_was_stepped(tmp_path, monkeypatch):
    """Stopped in the middle of an episode, whose steps so far are played again and not counted again."""
    arguments = ["--algorithm", "ppo", "--task.id", "own_envs:Counting-v0", *ROUTINE, *SMALL, "--budget.generations"]
    straight = counted(tmp_path / "a", monkeypatch, 1, *arguments, 5, "--run-dir", tmp_path / "straight")
    counted(tmp_path / "b", monkeypatch, 2, *arguments, 3, "--run-dir", tmp_path / "parts")
    again = len(read_checkpoint(tmp_path / "parts/checkpoint.h5").learner["episode_actions"])
    resumed = counted(tmp_path / "c", monkeypatch, 1, *arguments, 5, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    said, rows = summary(tmp_path / "parts"), Run.open(tmp_path / "parts").columns
    assert sum(said["env_steps"].values()) == straight
    assert resumed == 2 * 70 + rows["final/env_steps_evaluation"] + again
    assert again > 0
    assert said["env_steps"]["learner"] == said["nominal_steps"] == 5 * 70
    assert said["gradient_updates"] == 5 * 3 * 5
    assert said["last_evaluation"]["ppo"] == said["final_return"]
    assert np.isfinite(rows["metrics/ppo_critic_loss"]).all()


def test_the_saved_policy_plays_the_evaluation_that_chose_it(tmp_path):
    """A discrete task, whose outputs are scaled in the file."""
    arguments = ["--algorithm", "ppo", "--task.id", "CartPole-v1", *ROUTINE, *SMALL, "--ppo.lr_ppo", 0.01]
    run(1, *arguments, "--budget.generations", 6, "--run-dir", tmp_path)
    policy, env = Saved.load(tmp_path), envs.make("CartPole-v1")
    assert (policy.kind, policy.output, policy.generation % 3) == ("ppo", "clip", 0)
    assert f"stable_baselines3 {stable_baselines3.__version__}" in policy.versions
    seeds = [integer(0, Purpose.EVALUATION, policy.generation, block=episode) for episode in range(4)]
    recorded = Run.open(tmp_path).columns["metrics/evaluation_ppo"][policy.generation - 1]
    assert [play(env, policy, seed).episodic_return for seed in seeds] == recorded.tolist()
    assert np.ptp(recorded) > 0


@pytest.mark.parametrize("extra", [[], ["--check"]])
def test_without_the_library_it_says_which_extra_brings_it_and_makes_nothing(tmp_path, extra):
    arguments = ["--algorithm", "ppo", *TASK, "--run-dir", str(tmp_path / "run"), *extra]
    code = "import json, sys; sys.modules['stable_baselines3'] = None\nfrom esac_mpi.__main__ import main\n"
    line = [sys.executable, "-c", code + "sys.exit(main(json.loads(sys.argv[1])))", json.dumps(list(map(str, arguments)))]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2, done.stderr
    told = "algorithm = ppo needs stable_baselines3, which is not installed: pip install 'esac_mpi[baselines]'"
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"ppo.lr_ppo": 0.0}, "ppo.lr_ppo = 0.0: must be positive"),
        ({"ppo.gae_lambda": 1.5}, "ppo.gae_lambda = 1.5: must be at most 1"),
        ({"ppo.batch_size": 1}, "ppo.batch_size = 1: must be from 2 to ppo.steps_per_generation"),
        ({"ppo.steps_per_generation": 63}, "ppo.batch_size = 64: must be from 2 to ppo.steps_per_generation"),
        ({"algorithm": "ppo", "learner.precision": "bf16"}, "learner.precision = bf16: not with algorithm = ppo"),
    ],
)
def test_impossible_settings_are_refused(changed, told):
    with pytest.raises(ConfigError, match=told):
        check(updated(Config(), changed))


def test_its_table_is_the_librarys_defaults():
    import inspect

    theirs = {name: parameter.default for name, parameter in inspect.signature(PPO.__init__).parameters.items()}
    names = {
        "lr_ppo": "learning_rate", "gamma": "gamma", "gae_lambda": "gae_lambda", "clip_range": "clip_range",
        "entropy_coefficient": "ent_coef", "value_coefficient": "vf_coef", "max_grad_norm": "max_grad_norm",
        "steps_per_generation": "n_steps", "batch_size": "batch_size", "epochs": "n_epochs",
    }  # fmt: skip
    assert {name: getattr(Config().ppo, name) for name in names} == {name: theirs[other] for name, other in names.items()}
    assert [*algorithm.DECLARES.policies] == [algorithm.DECLARES.learning.learner] == ["ppo"]
