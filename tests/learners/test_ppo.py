"""PPO: its rollouts and updates against stable-baselines3's own, and its counts."""

import math

import gymnasium
import numpy as np
import pytest
import torch
from gradients import Breaking, Line
from gymnasium import spaces
from small_learners import run_phase
from small_ppo import KINDS, Choice, learner, task
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from esac_mpi import envs
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Layout, Policy


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
