"""The SAC learner: its equations against plain torch.nn and numpy, its phases, and that it learns."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from esac_mpi.config import Config, updated
from esac_mpi.envs import UnstablePhysics
from esac_mpi.learners.network import Adam, Network, forward
from esac_mpi.learners.sac import SAC, LearnerNotFinite
from esac_mpi.policy import Layout, Policy

SMALL = {
    "policy.hidden": (8, 8),
    "sac.batch_size": 16,
    "sac.replay_capacity": 500,
    "sac.start_steps": 30,
    "learner.device": "cpu",
}
FORMS: list[dict] = [{}, {"sac__value_network": True}, {"sac__automatic_temperature": True}, {"sac__interleaved": True}]


class Line:
    """Observe x in [-1, 1], drawn anew at each step; the reward is -(a - x/2)^2 for the action a in [-1, 1] before scaling."""

    id, observation_size, action_size, horizon = "Line", 1, 1, 20
    low, high = np.array([-3.0], np.float32), np.array([1.0], np.float32)
    unstable = False

    def __init__(self, terminate: bool = False):
        self.terminate = terminate
        self.seeds, self.actions = [], []

    def reset(self, seed):
        self.seeds.append(seed)
        self.random, self.length = np.random.default_rng(seed), 0
        return self.observe()

    def observe(self):
        self.x = self.random.uniform(-1, 1, 1).astype(np.float32)
        return self.x

    def step(self, action):
        assert action.dtype == np.float32
        assert action.shape == (1,)
        self.length += 1
        self.actions.append(float(action[0] + 1) / 2)
        reward = -float((self.actions[-1] - self.x[0] / 2) ** 2)
        end = self.length == self.horizon
        return self.observe(), reward, end and self.terminate, end and not self.terminate


class Breaking(Line):
    """In the fourth step of an episode: raise, or answer with something that must not be learned from."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how

    def step(self, action):
        observation, reward, terminated, truncated = super().step(action)
        fourth = self.length == 4
        if fourth and self.how == "raise":
            raise UnstablePhysics
        self.unstable = fourth and self.how == "warn"
        observation = observation * np.nan if fourth and self.how == "observation" else observation
        return observation, np.inf if fourth and self.how == "reward" else reward, terminated, truncated


def learner(sizes: tuple[int, ...] = (1, 8, 8, 1), **values) -> SAC:
    config = updated(Config(), {**SMALL, **{name.replace("__", "."): value for name, value in values.items()}})
    layout = Layout(sizes)
    return SAC(config, layout, layout.initial(config.seed, 1))


def batch(count: int, o: int = 3, a: int = 2, seed: int = 0) -> dict[str, torch.Tensor]:
    random = np.random.default_rng(seed)
    shapes = {"observation": (count, o), "action": (count, a), "reward": (count,), "next_observation": (count, o)}
    columns = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    columns["terminated"] = (np.arange(count) % 2).astype(np.float32)
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def normal(count: int, a: int = 2, seed: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, a), dtype=np.float32))


def modules(network: Network, activation: type[nn.Module] = nn.ReLU) -> list[nn.Sequential]:
    """Return the members of a network as plain modules with the same weights."""
    members = []
    for member in range(network.members):
        tensors = [t.detach() if network.members == 1 else t.detach()[member] for t in network.tensors]
        layers: list[nn.Module] = []
        for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
            linear = nn.Linear(*weight.shape)
            linear.weight.data, linear.bias.data = weight.T.clone(), bias[0].clone()
            layers += [linear, activation()]
        members.append(nn.Sequential(*layers[:-1]))
    return members


def plain_policy(actor: nn.Module, observation: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return action and log pi by torch's own distributions, in double precision."""
    mean, log_std = actor.double()(observation.double()).chunk(2, -1)
    scale = log_std.clamp(-20, 2).exp()
    gaussian = mean + scale * noise
    squashed = TransformedDistribution(Independent(Normal(mean, scale), 1), [TanhTransform(cache_size=1)])
    action = squashed.transforms[0](gaussian)
    return action, squashed.log_prob(action)


def plain_q(critics: list[nn.Sequential], observation: torch.Tensor, action: torch.Tensor) -> list[torch.Tensor]:
    return [critic.double()(torch.cat((observation.double(), action), 1))[:, 0] for critic in critics]


def perturbed(sac: SAC) -> SAC:
    """Move all weights, so that biases, and what separates targets from what they follow, are not zero."""
    random = torch.Generator().manual_seed(3)
    for values in (sac.target.values, *(adam.values for name, adam in sac.adam.items() if name != "log_temperature")):
        values.add_(0.3 * torch.randn(values.shape, generator=random))
    return sac


def grads(network: nn.Module | list[nn.Sequential], like: Network) -> torch.Tensor:
    """Return the gradients of plain modules in the order of `like.values`."""
    members = [list(m.parameters()) for m in (network if isinstance(network, list) else [network])]
    return torch.cat([p.grad.flatten() for tensors in zip(*members, strict=True) for p in tensors])


def gradient(loss: torch.Tensor, network: Network) -> torch.Tensor:
    network.gradient.zero_()
    loss.backward()
    return network.gradient


def close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 2e-6) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance)


# --- the equations


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_critic_loss_and_gradient_are_those_of_plain_torch(activation):
    sac = perturbed(learner((3, 8, 8, 2), policy__activation=activation))
    two, noise = batch(2), normal(2)
    actor = modules(sac.actor, nn.ReLU if activation == "relu" else nn.Tanh)[0]
    critics = modules(sac.critic)
    with torch.no_grad():
        action, log_prob = plain_policy(actor, two["next_observation"], noise)
        q = torch.minimum(*plain_q(modules(sac.target), two["next_observation"], action))
        target = two["reward"] + 0.99 * (1 - two["terminated"]) * (q - 0.2 * log_prob)
    expected = sum(((q - target) ** 2).mean() / 2 for q in plain_q(critics, two["observation"], two["action"].double()))
    expected.backward()
    loss = sac.critic_loss(two, noise)
    assert close(loss, expected)
    assert close(gradient(loss, sac.critic), grads(critics, sac.critic))


def test_only_termination_ends_the_sum_of_rewards():
    """The second transition is terminal: its target is its reward; the first one's is not."""
    sac = perturbed(learner((3, 8, 8, 2)))
    two, noise = batch(2), normal(2)
    q = sac.critic(torch.cat((two["observation"], two["action"]), 1))[..., 0].detach()
    terminal = {**two, "terminated": torch.ones(2)}
    assert close(sac.critic_loss(terminal, noise), ((q - two["reward"]) ** 2).mean(1).sum() / 2)
    value = sac.next_value(two["next_observation"], noise).detach()
    targets = two["reward"] + torch.tensor([0.99 * value[0], 0.0])
    assert abs(value[0]) > 0.01
    assert close(sac.critic_loss(two, noise), ((q - targets) ** 2).mean(1).sum() / 2)


def test_actor_loss_and_gradient_are_those_of_plain_torch():
    sac = perturbed(learner((3, 8, 8, 2)))
    two, noise = batch(2), normal(2)
    actor, critics = modules(sac.actor)[0], modules(sac.critic)
    action, log_prob = plain_policy(actor, two["observation"], noise)
    expected = (0.2 * log_prob - torch.minimum(*plain_q(critics, two["observation"], action))).mean()
    expected.backward()
    sac.critic.gradient.zero_()
    mean_log_prob, mean_q = sac.evaluate_actor(two, noise)
    loss = 0.2 * mean_log_prob - mean_q
    assert close(loss, expected)
    assert close(gradient(loss, sac.actor), grads(actor, sac.actor))
    assert not sac.critic.gradient.any()


def test_value_loss_and_critic_loss_with_a_value_network():
    sac = perturbed(learner((3, 8, 8, 2), sac__value_network=True))
    two, noise = batch(2), normal(2)
    value, target = modules(sac.value)[0], modules(sac.target)[0]
    with torch.no_grad():
        action, log_prob = plain_policy(modules(sac.actor)[0], two["observation"], noise)
        wanted = torch.minimum(*plain_q(modules(sac.critic), two["observation"], action)) - 0.2 * log_prob
        bootstrap = two["reward"] + 0.99 * (1 - two["terminated"]) * target(two["next_observation"])[:, 0]
    expected = ((value.double()(two["observation"].double())[:, 0] - wanted) ** 2).mean() / 2
    expected.backward()
    loss = sac.value_loss(two, noise)
    assert close(loss, expected)
    assert close(gradient(loss, sac.value), grads(value, sac.value))
    q = plain_q(modules(sac.critic), two["observation"], two["action"].double())
    assert close(sac.critic_loss(two, noise), sum(((one - bootstrap) ** 2).mean() / 2 for one in q))


def test_temperature_loss_and_gradient():
    """J = E[-t log pi - t H], H = -a; its slope by log t, worked out by autograd, makes the first Adam step: lr * sign."""
    sac = perturbed(learner((3, 8, 8, 2), sac__automatic_temperature=True, sac__lr_sac=0.01))
    two, noise = batch(2), normal(2)
    log_prob = plain_policy(modules(sac.actor)[0], two["observation"], noise)[1].detach()
    log_temperature = torch.tensor(math.log(0.2), dtype=torch.float64, requires_grad=True)
    (-log_temperature.exp() * (log_prob - 2)).mean().backward()
    sac._tune_temperature(sac.evaluate_actor(two, noise)[0])
    adam = sac.adam["log_temperature"]
    assert close(adam.gradient, log_temperature.grad)
    assert float(sac.temperature) == pytest.approx(
        0.2 * math.exp(-0.01 * math.copysign(1, float(log_temperature.grad))), rel=1e-5
    )


def test_log_prob_holds_where_tanh_saturates():
    """At u = 30: log pi = log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 u to double precision."""
    sac = learner((1, 8, 8, 1))
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0, 0.0])  # biases of mean and log std
    for sign in (1, -1):
        sac.actor.values[-2] = 30.0 * sign
        _, log_prob = sac.sample_action(torch.zeros(1, 1), torch.full((1, 1), 0.5))
        u = sign * 30.0 + 0.5
        assert float(log_prob.detach()) == pytest.approx(
            -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(u), rel=1e-6
        )


@pytest.mark.parametrize("form", FORMS[:3])
def test_an_update_is_one_adam_step_per_loss_and_polyak(form):
    """Four updates against torch.optim.Adam on plain modules, in the order critic, actor; targets by the definition."""
    sac, other = (perturbed(learner((3, 8, 8, 2), **form)) for _ in range(2))  # other makes the losses, torch the steps
    followed, target = other.value or other.critic, sac.target.values.clone()
    optimisers = {
        name: torch.optim.Adam([getattr(other, name).values], lr=3e-4) for name in sac.adam if name != "log_temperature"
    }

    def descend(name: str, loss: torch.Tensor) -> None:
        network = getattr(other, name)
        network.values.grad = gradient(loss, network)
        optimisers[name].step()

    for step in range(4):
        two, noise1, noise2 = batch(6, seed=step), normal(6, seed=step), normal(6, seed=100 + step)
        other.temperature = sac.temperature
        if other.value:
            descend("value", other.value_loss(two, noise1))
        descend("critic", other.critic_loss(two, noise1))
        log_prob, q = other.evaluate_actor(two, noise2)
        descend("actor", other.temperature * log_prob - q)
        target += 0.005 * (followed.values - target)
        other.target.values.copy_(target)
        sac.update(two, noise1, noise2)
    for name in optimisers:
        assert close(sac.adam[name].values, getattr(other, name).values, 1e-6), name
    assert close(sac.target.values, target, 1e-6)
    assert ("log_temperature" in sac.adam) == (float(sac.temperature) != pytest.approx(0.2))


def test_adam_is_torchs():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(50, generator=random)
    twin = values.clone().requires_grad_()
    adam, theirs = Adam(values, torch.zeros(50), 0.01), torch.optim.Adam([twin], lr=0.01)
    for _ in range(20):
        adam.gradient.copy_(torch.randn(50, generator=random) ** 3)
        twin.grad = adam.gradient.clone()
        adam.step()
        theirs.step()
        assert torch.allclose(values, twin.detach(), rtol=1e-5, atol=1e-7)


# --- the actor in its three forms


def test_theta_is_the_policys():
    sac = perturbed(learner((3, 8, 8, 2)))
    policy = Policy(Layout((3, 8, 8, 2)), "relu", "tanh", -np.ones(2), np.ones(2)).set(sac.theta)
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    mean = torch.tanh(sac.actor(torch.from_numpy(observations))[:, :2]).detach().numpy()
    assert np.abs(np.stack([policy(o).copy() for o in observations]) - mean).max() < 1e-6
    theta = Layout((3, 8, 8, 2)).initial(0, 1)
    assert np.array_equal(learner((3, 8, 8, 2)).theta, theta)
    sac.theta[:] = 0  # a copy
    assert sac.theta.any()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_actor_that_collects_is_torchs(activation):
    sac = perturbed(learner((3, 8, 8, 2), policy__activation=activation))
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    outputs = np.stack([forward(sac.actor.numpy(), activation, o) for o in observations])
    assert np.abs(outputs - sac.actor(torch.from_numpy(observations)).detach().numpy()).max() < 2e-6
    sac.env_steps = 1000
    noise = np.random.default_rng(7).standard_normal(2, dtype=np.float32)
    drawn = sac._action(sac.actor.numpy(), observations[0], np.random.default_rng(7))
    expected, _ = sac.sample_action(torch.from_numpy(observations[:1]), torch.from_numpy(noise[None]))
    assert np.abs(drawn - expected[0].detach().numpy()).max() < 1e-6


# --- phases


@pytest.mark.parametrize(("episodes", "steps", "played"), [(2, 0, 2), (0, 41, 3), (5, 41, 5), (0, 0, 0)])
def test_a_phase_plays_whole_episodes_until_both_are_enough(episodes, steps, played):
    phase = learner().phase(Line(), 0, episodes, steps)
    assert (phase.episodes, phase.env_steps) == (played, 20 * played)
    assert phase.gradient_updates == (20 * played if played else 0)
    assert math.isfinite(phase.critic_loss) == (played > 0)
    assert math.isnan(phase.value_loss)


def test_cut_plays_exactly_the_steps_and_bootstraps_at_the_cut():
    sac = learner()
    phase = sac.phase(Line(terminate=True), 0, 9, 50, cut=True)
    assert (phase.env_steps, phase.episodes, phase.gradient_updates, sac.env_steps) == (50, 2, 50, 50)
    assert np.flatnonzero(sac.replay.rows(0, 50)["terminated"]).tolist() == [19, 39]
    assert phase.episodic_return == pytest.approx(sac.replay.rows(0, 40)["reward"].sum() / 2, rel=1e-5)
    truncated = learner()
    truncated.phase(Line(), 0, 0, 40)
    assert not truncated.replay.rows(0, 40)["terminated"].any()


def test_no_update_before_a_batch_is_there_and_no_fraction_is_lost():
    sac = learner(sac__batch_size=32, sac__updates_per_step=0.12)
    phases = [sac.phase(Line(), k, 1, 0) for k in range(5)]
    assert [p.gradient_updates for p in phases] == [0, 3, 2, 3, 2]  # of 20 steps: 2.4 each; round(.12 * 20 k) = 2 5 7 10 12
    assert math.isnan(phases[0].critic_loss)
    interleaved = learner(sac__batch_size=32, sac__interleaved=True)
    assert [interleaved.phase(Line(), k, 1, 0).gradient_updates for k in range(3)] == [0, 9, 20]  # from the 32nd step on


def test_the_first_steps_are_uniform_and_actions_are_scaled_to_the_bounds():
    env, sac = Line(), learner(sac__start_steps=400, sac__updates_per_step=0.0)
    sac.actor.values.fill_(0.0)
    sac.actor.values[-2:] = torch.tensor([0.4, -20.0])  # mean and log std of every action of the actor
    sac.phase(env, 0, 0, 440)
    stored = sac.replay.rows(0, 440)["action"][:, 0]
    assert np.abs(env.actions - stored).max() < 1e-6  # [-1, 1] is what is stored, [-3, 1] what the task got
    assert np.abs(np.histogram(stored[:400], 4, (-1, 1))[0] - 100).max() < 5 * np.sqrt(75)
    assert np.abs(stored[400:] - np.tanh(0.4)).max() < 1e-6


@pytest.mark.parametrize("form", FORMS)
def test_a_phase_is_a_function_of_the_learner_and_its_address(form):
    """Saved after two phases and loaded into a fresh learner, the third one has the same bits; another k has others."""
    straight = learner(**form)
    for k in (0, 3):
        straight.phase(Line(), k, 1, 30)
    saved, rows = straight.arrays(), straight.replay.rows(0, 80)
    resumed, elsewhere = learner(**form), learner(**form)
    for sac in (resumed, elsewhere):
        sac.load(saved)
        sac.replay.restore(0, rows)
    torch.manual_seed(99)  # nothing hangs on torch's own generator
    first, again, other = straight.phase(Line(), 4, 1, 30), resumed.phase(Line(), 4, 1, 30), elsewhere.phase(Line(), 5, 1, 30)
    assert np.array_equal(first.vector(), again.vector(), equal_nan=True)
    ours, theirs = straight.arrays(), resumed.arrays()
    assert ours.keys() == theirs.keys() == saved.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert np.array_equal(straight.theta, resumed.theta)
    assert other.episodic_return != first.episodic_return
    assert not np.array_equal(elsewhere.theta, straight.theta)
    assert not np.array_equal(saved["actor_values"], ours["actor_values"])  # arrays are copies


def test_arrays_of_another_learner_are_refused():
    with pytest.raises(ValueError, match="learner arrays must be"):
        learner().load(learner(sac__value_network=True).arrays())
    with pytest.raises(ValueError, match=r"must be float32 \[\d+\], got float32 \[\d+\]"):
        learner().load(learner((1, 9, 9, 1)).arrays())


def test_episodes_have_their_own_start_states_and_phases_their_own_exploration():
    env, sac = Line(), learner(sac__start_steps=1000)
    sac.phase(env, 0, 2, 0)
    sac.phase(env, 1, 2, 0)
    assert len(set(env.seeds)) == 4
    assert len(set(env.actions)) == 80


@pytest.mark.parametrize("how", ["raise", "warn", "reward", "observation"])
def test_a_broken_transition_ends_the_episode_and_is_not_stored(how):
    sac = learner()
    phase = sac.phase(Breaking(how), 0, 2, 0)
    assert (phase.env_steps, phase.episodes, sac.replay.added) == (8, 0, 6)
    assert math.isnan(phase.episodic_return)
    assert all(np.isfinite(column).all() for column in sac.replay.rows(0, 6).values())


@pytest.mark.parametrize("name", ["actor", "critic", "target"])
def test_a_learner_that_is_not_finite_says_so(name):
    sac = learner(sac__start_steps=1000)
    getattr(sac, name).values[3] = math.nan
    with pytest.raises(LearnerNotFinite, match=f"{name}.* no longer finite at training step 20"):
        sac.phase(Line(), 0, 1, 0)


def test_a_policy_that_is_not_finite_takes_no_step():
    env, sac = Line(), learner(sac__start_steps=0)
    sac.actor.values[-2] = math.nan
    with pytest.raises(LearnerNotFinite, match="action"):
        sac.phase(env, 0, 1, 0)
    assert not env.actions


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sac_learns_a_line(seed):
    """a = x/2 in 800 updates: rms error of the mean over [-1, 1] below 0.06 (8 seeds: 0.006-0.027; at first 0.28-0.37)."""
    sac = learner(
        seed=seed, policy__hidden=(32, 32), sac__lr_sac=3e-3, sac__gamma=0.5, sac__temperature=0.01, sac__batch_size=64,
        sac__replay_capacity=1000, sac__start_steps=100, sizes=(1, 32, 32, 1),
    )  # fmt: skip
    policy = Policy(Layout((1, 32, 32, 1)), "relu", "tanh", -np.ones(1), np.ones(1))
    x = np.linspace(-1, 1, 41, dtype=np.float32)

    def error() -> float:
        policy.set(sac.theta)
        return float(np.sqrt(np.mean([(policy(x[i : i + 1])[0] - x[i] / 2) ** 2 for i in range(len(x))])))

    before = error()
    updates = sum(sac.phase(Line(), k, 0, 100).gradient_updates for k in range(8))
    assert updates == 800
    assert error() < 0.06 < before


# --- what it costs the others


def test_importing_the_package_imports_no_torch():
    code = "import sys, esac_mpi.learners, esac_mpi.learners.phase, esac_mpi.learners.replay; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_learners_are_made_by_name():
    from esac_mpi.learners import LEARNERS, make

    config = updated(Config(), SMALL)
    layout = Layout((1, 8, 8, 1))
    for name in LEARNERS:
        assert np.array_equal(make(name, config, layout, layout.initial(0, 1)).theta, layout.initial(0, 1))
