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
from esac_mpi.learners import LearnerNotFinite, make
from esac_mpi.learners.network import Adam, Network, forward
from esac_mpi.learners.sac import SAC
from esac_mpi.learning import Phase
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
        bad = {"reward": np.inf, "huge": -3.5e38}  # the second is finite in float64, not in a replay
        return observation, bad.get(self.how, reward) if fourth else reward, terminated, truncated


def learner(sizes: tuple[int, ...] = (1, 8, 8, 1), reserve: int = 0, **values) -> SAC:
    config = updated(Config(), {**SMALL, **{name.replace("__", "."): value for name, value in values.items()}})
    layout = Layout(sizes)
    return make("sac", config, layout, layout.initial(config.seed, 1), reserve)


def fill(sac: SAC, seed: int = 0) -> None:
    """Give the next update a batch, every third transition of which is terminal, and noise."""
    random, rows, columns = np.random.default_rng(seed), sac.update.rows, sac.replay.columns
    rows[:] = random.uniform(-1, 1, rows.shape)
    rows[:, columns.terminated] = np.arange(len(rows)) % 3 == 0
    sac.update.noise[:] = random.standard_normal(sac.update.noise.shape)


def learn(sac: SAC, seed: int = 0) -> dict[str, float]:
    """Make an update; return what it measured."""
    fill(sac, seed)
    sac.update.start()
    sac.update.learn_critics()
    sac.update.learn_actor()
    return sac.update.means(1)


def modules(network: Network, activation: str = "relu") -> list[nn.Sequential]:
    """Return the members of a network as plain modules with the same weights, in double precision."""
    members = []
    for member in range(network.members):
        tensors = [t if network.members == 1 else t[member] for t in network.tensors]
        layers: list[nn.Module] = []
        for weight, bias in zip(tensors[::2], tensors[1::2], strict=True):
            linear = nn.Linear(*weight.shape)
            linear.weight.data, linear.bias.data = weight.T.clone(), bias[0].clone()
            layers += [linear, nn.ReLU() if activation == "relu" else nn.Tanh()]
        members.append(nn.Sequential(*layers[:-1]).double())
    return members


def flat(members: list[nn.Sequential], what: str = "data") -> torch.Tensor:
    """Return parameters, or their gradients, of plain modules in the order of `Network.values`."""
    tensors = zip(*(list(m.parameters()) for m in members), strict=True)
    return torch.cat([getattr(p, what).flatten() for each in tensors for p in each])


class Plain:
    """An update of SAC by modules, autograd and torch.optim.Adam, from the papers' formulas, in double precision."""

    def __init__(self, sac: SAC):
        self.options, self.columns = sac.options, sac.replay.columns
        activation = sac._activation
        self.networks = {"actor": modules(sac.actor, activation), "critic": modules(sac.critic)}
        if sac.value:
            self.networks["value"] = modules(sac.value)
        self.target = modules(sac.target)
        self.adam = {name: self.optimiser([p for m in ms for p in m.parameters()]) for name, ms in self.networks.items()}
        self.log_temperature = torch.tensor(math.log(float(sac.temperature)), dtype=torch.float64, requires_grad=True)
        if sac.options.automatic_temperature:
            self.adam["log_temperature"] = self.optimiser([self.log_temperature])

    def optimiser(self, parameters) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=self.options.lr_sac)

    def policy(self, observation, noise):
        """Return action and log pi by torch's own distributions."""
        mean, log_std = self.networks["actor"][0](observation).chunk(2, -1)
        scale = log_std.clamp(-20, 2).exp()
        gaussian = mean + scale * noise
        squashed = TransformedDistribution(Independent(Normal(mean, scale), 1), [TanhTransform(cache_size=1)])
        action = squashed.transforms[0](gaussian)
        return action, squashed.log_prob(action)

    def q(self, critics, observation, action) -> list[torch.Tensor]:
        return [critic(torch.cat((observation, action), 1))[:, 0] for critic in critics]

    def descend(self, name: str, loss: torch.Tensor) -> float:
        parameters = self.adam[name].param_groups[0]["params"]  # the actor's loss also depends on the critics'
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = gradient
        self.adam[name].step()
        return float(loss.detach())

    def learn(self, rows: np.ndarray, noise: np.ndarray) -> dict[str, float]:
        """Make an update in the order value, critics, actor, temperature, target; return what it measures."""
        batch = {name: torch.from_numpy(rows[:, column]).double() for name, column in self.columns._asdict().items()}
        observation, following = batch["observation"], batch["next_observation"]
        noise1, noise2 = torch.from_numpy(noise).double()
        temperature, measured = self.log_temperature.exp().detach(), {}
        with torch.no_grad():
            if "value" in self.networks:
                action, log_prob = self.policy(observation, noise1)
                wanted = torch.minimum(*self.q(self.networks["critic"], observation, action)) - temperature * log_prob
                value = self.target[0](following)[:, 0]
            else:
                action, log_prob = self.policy(following, noise1)
                value = torch.minimum(*self.q(self.target, following, action)) - temperature * log_prob
            backup = batch["reward"] + self.options.gamma * (1 - batch["terminated"]) * value
        if "value" in self.networks:
            loss = ((self.networks["value"][0](observation)[:, 0] - wanted) ** 2).mean() / 2
            measured["value_loss"] = self.descend("value", loss)
        losses = [((q - backup) ** 2).mean() / 2 for q in self.q(self.networks["critic"], observation, batch["action"])]
        measured["critic_loss"] = self.descend("critic", sum(losses))
        action, log_prob = self.policy(observation, noise2)
        q = torch.minimum(*self.q(self.networks["critic"], observation, action))
        measured |= {"mean_q": q.mean().item(), "temperature": temperature.item(), "entropy": -log_prob.mean().item()}
        measured["actor_loss"] = self.descend("actor", (temperature * log_prob - q).mean())
        if "log_temperature" in self.adam:
            a = action.shape[1]
            self.descend("log_temperature", -(self.log_temperature.exp() * (log_prob.detach() - a)).mean())
        followed = self.networks.get("value") or self.networks["critic"]
        with torch.no_grad():
            for own, its in zip(self.target, followed, strict=True):
                for p, new in zip(own.parameters(), its.parameters(), strict=True):
                    p += self.options.tau * (new - p)
        return measured


def perturbed(sac: SAC) -> SAC:
    """Move all weights, so that biases, and what separates targets from what they follow, are not zero."""
    random = torch.Generator().manual_seed(3)
    for values in (sac.target.values, *(adam.values for name, adam in sac.adam.items() if name != "log_temperature")):
        values.add_(0.3 * torch.randn(values.shape, generator=random))
    return sac


def saturated(sac: SAC) -> SAC:
    """Move the medians of both log standard deviations to the bounds, so that about half of them are outside."""
    observations = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (500, 3)))
    median = modules(sac.actor, sac._activation)[0](observations)[:, -2:].detach().median(0).values
    sac.actor.tensors[-1][0, -2:] += torch.tensor([2.0, -20.0]) - median
    return sac


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return |one - other| / |other|."""
    return float((one.double() - other).norm() / other.norm())


# --- the equations


@pytest.mark.parametrize("hidden", [(8, 8), (16,), (8, 12, 6)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("value", [False, True])
def test_updates_are_those_of_autograd_and_torchs_adam(value, automatic, activation, hidden):
    """Five updates: what is measured, each loss's gradient, parameters, temperature and target."""
    form = {"sac__value_network": value, "sac__automatic_temperature": automatic, "policy__activation": activation}
    sac = saturated(perturbed(learner((3, *hidden, 2), sac__batch_size=64, **form)))
    plain = Plain(sac)
    outside = []
    for step in range(5):
        measured = learn(sac, seed=step)
        expected = plain.learn(sac.update.rows, sac.update.noise)
        assert measured == pytest.approx(expected, rel=1e-5, abs=1e-6)
        for name, members in plain.networks.items():
            assert distance(getattr(sac, name).gradient, flat(members, "grad")) < 1e-5, (name, step)
        outside.append((sac.update._raw[-1] != sac.update._log_std[-1]).double().mean(0))
    assert ((torch.stack(outside) > 0.1) & (torch.stack(outside) < 0.9)).all()  # log std on either side of both bounds
    for name, members in plain.networks.items():
        assert torch.allclose(getattr(sac, name).values.double(), flat(members), rtol=1e-4, atol=1e-6), name
    assert torch.allclose(sac.target.values.double(), flat(plain.target), rtol=1e-4, atol=1e-6)
    assert sac.temperature.item() == pytest.approx(plain.log_temperature.exp().item(), rel=1e-6)
    assert (float(sac.temperature) != pytest.approx(0.2, rel=1e-6)) == automatic


def test_only_termination_ends_the_sum_of_rewards():
    """Where all transitions are terminal, the critics' loss is that of the rewards alone."""
    sac = perturbed(learner((3, 8, 8, 2)))
    fill(sac)
    columns = sac.replay.columns
    sac.update.rows[:, columns.terminated] = 1
    taken = torch.from_numpy(sac.update.rows[:, :5]).double()
    reward = torch.from_numpy(sac.update.rows[:, columns.reward]).double()
    expected = sum(((critic(taken)[:, 0] - reward) ** 2).mean() / 2 for critic in modules(sac.critic))
    sac.update.start()
    sac.update.learn_critics()
    sac.update.learn_actor()
    assert sac.update.means(1)["critic_loss"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_the_actors_step_leaves_the_critics_alone():
    sac = perturbed(learner((3, 8, 8, 2)))
    fill(sac)
    sac.update.start()
    sac.update.learn_critics()
    values, gradients, actor = sac.critic.values.clone(), sac.critic.gradient.clone(), sac.actor.values.clone()
    sac.update.learn_actor()
    assert torch.equal(sac.critic.values, values)
    assert torch.equal(sac.critic.gradient, gradients)
    assert not torch.equal(sac.actor.values, actor)


def test_where_both_critics_agree_each_has_half_the_gradient():
    """As torch.amin's backward has it: with twins that are equal, the actor's gradient is that of either."""
    sac = perturbed(learner((3, 8, 8, 2), sac__lr_sac=0.0))
    for tensor in sac.critic.tensors:
        tensor[1] = tensor[0]
    plain = Plain(sac)
    learn(sac)
    plain.learn(sac.update.rows, sac.update.noise)
    assert distance(sac.actor.gradient, flat(plain.networks["actor"], "grad")) < 1e-5


def test_bfloat16_products_are_close_and_parameters_stay_float32():
    """bfloat16 has 8 bits: gradients within a few percent; the weights that Adam steps are float32."""
    full, half = (perturbed(learner((3, 32, 32, 2), sac__batch_size=64, learner__precision=p)) for p in ("fp32", "bf16"))
    measured, close = learn(full), learn(half)
    assert close == pytest.approx(measured, rel=0.03, abs=0.02)
    for name in ("actor", "critic"):
        one, other = getattr(full, name), getattr(half, name)
        assert 1e-4 < distance(other.gradient, one.gradient.double()) < 0.05
        assert other.values.dtype == other.gradient.dtype == torch.float32
        assert torch.allclose(one.values, other.values, atol=2 * 3e-4 + 1e-6)  # one step of Adam each, either way
    for step in range(20):
        learn(full, step), learn(half, step)
    assert distance(half.critic.values, full.critic.values.double()) < 0.02


@pytest.mark.parametrize("sign", [1, -1])
def test_log_prob_holds_where_tanh_saturates(sign):
    """At u = 30: log pi = log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 u to double precision."""
    sac = learner((1, 8, 8, 1), sac__batch_size=1)
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0 * sign, 0.0])  # biases of mean and log std
    fill(sac)
    sac.update.noise[:] = 0.5
    sac.update.learn_critics()
    sac.update.learn_actor()
    u = sign * 30.0 + 0.5
    expected = -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(u)
    assert -sac.update.means(1)["entropy"] == pytest.approx(expected, rel=1e-6)


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
    mean = modules(sac.actor)[0](torch.from_numpy(observations).double())[:, :2].tanh().detach().numpy()
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
    expected = modules(sac.actor, activation)[0](torch.from_numpy(observations).double()).detach()
    assert np.abs(outputs - expected.numpy()).max() < 2e-6
    sac.env_steps = 1000
    noise = torch.from_numpy(np.random.default_rng(7).standard_normal(2, dtype=np.float32))
    drawn = sac._action(sac.actor.numpy(), observations[0], np.random.default_rng(7))
    action, _ = Plain(sac).policy(torch.from_numpy(observations[:1]).double(), noise)
    assert np.abs(drawn - action[0].detach().numpy()).max() < 1e-6


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


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def grown(**form) -> SAC:
    """Return a learner after phases that have wrapped its ring of 60 transitions."""
    sac = learner(sac__replay_capacity=60, **form)
    for k in (0, 3):
        sac.phase(Line(), k, 2, 50)
    assert sac.replay.added == 120
    return sac


def through(work) -> tuple[int, Phase]:
    """Run a begun phase to its end, other things in between; return how often it yielded, and the phase."""
    other, pauses = Line(), 0
    while True:
        other.reset(pauses)
        other.step(np.zeros(1, np.float32))
        torch.rand(pauses % 7)
        np.random.rand(pauses % 5)  # noqa: NPY002
        try:
            next(work)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


@pytest.mark.parametrize("form", FORMS)
def test_a_phase_in_parts_has_the_bits_of_a_phase_at_once(form):
    """It pauses after each of 60 steps, and twice in each of 60 updates."""
    straight, parts = grown(**form), grown(reserve=60, **form)
    phase = straight.phase(Line(), 4, 1, 60)
    parts.hold()
    pauses, again = through(parts.begin(Line(), 4, 1, 60))
    assert pauses == 60 + 2 * 60
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    parts.release()
    assert same(straight.arrays(), parts.arrays())
    assert same(straight.replay.rows(120, 180), parts.stored_replay.rows(120, 180))


@pytest.mark.parametrize("pauses", [0, 1, 45, 60, 61, 101, 179])
@pytest.mark.parametrize("form", FORMS)
def test_a_held_learner_is_that_of_the_hold_and_the_phase_begun_again_has_the_same_bits(form, pauses):
    """Interrupted after any number of its 180 parts, in a ring that has wrapped."""
    sac = grown(reserve=60, **form)
    arrays, rows = sac.arrays(), sac.replay.rows(60, 120)
    sac.hold()
    work = sac.begin(Line(), 4, 1, 60)
    for _ in range(pauses):
        next(work)
    saved, stored = sac.arrays(), sac.stored_replay
    assert same(saved, arrays)
    assert (stored.added, stored.capacity) == (120, 60)
    kept = stored.rows(60, 120)
    assert same(kept, rows)
    with pytest.raises(ValueError, match="transitions 60 to 120; asked for 60 to 121"):
        stored.rows(60, 121)

    resumed = learner(sac__replay_capacity=60, **form)
    resumed.load(saved)
    resumed.replay.restore(60, kept)
    again = resumed.phase(Line(), 4, 1, 60)
    _, phase = through(work)
    assert same(sac.arrays(), arrays)
    sac.release()
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    assert same(sac.arrays(), resumed.arrays())
    assert same(sac.stored_replay.rows(120, 180), resumed.stored_replay.rows(120, 180))
    assert sac.stored_replay is sac.replay
    assert not same(sac.arrays(), arrays)


def test_a_held_replay_is_not_overwritten():
    sac = grown(reserve=59)
    sac.hold()
    with pytest.raises(RuntimeError, match="holds a state for 59 more transitions"):
        sac.phase(Line(), 4, 3, 0)
    assert len(sac.stored_replay.rows(60, 120)["reward"]) == 60


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


@pytest.mark.parametrize("how", ["raise", "warn", "reward", "huge", "observation"])
def test_a_broken_transition_ends_the_episode_and_is_not_stored(how):
    sac = learner()
    phase = sac.phase(Breaking(how), 0, 2, 0)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes, sac.replay.added) == (8, 0, 2, 6)
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
    code = "import sys, esac_mpi.learners, esac_mpi.learning, esac_mpi.learners.replay; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_learners_are_made_by_name():
    config = updated(Config(), SMALL)
    layout = Layout((1, 8, 8, 1))
    for name in ("sac", "td3", "ddpg"):
        made = make(name, config, layout, layout.initial(0, 1), reserve=7)
        assert np.array_equal(made.theta, layout.initial(0, 1))
        assert made.replay.reserve == 7
