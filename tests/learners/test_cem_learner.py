"""CEM-RL's gradients against plain modules and autograd: the critic's lessons, and individuals."""

import math

import numpy as np
import pytest
import torch
from gradients import distance, flat, modules, same
from plain_td3 import PlainCritic

from esac_mpi.config import Config, amend
from esac_mpi.host import cooperative
from esac_mpi.learners import LearnerNotFinite, make, make_operators
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.policy import Layout
from esac_mpi.play.transitions import columns, width

SIZES = (3, 12, 8, 2)
FORMS = [("tanh", False, False), ("relu", True, True)]  # activation, layer_norm, linear


def settings(activation="tanh", layer_norm=False, linear=False, **values) -> Config:
    """Return settings of CEM-RL; `values` are fields of its table."""
    policy = {"hidden": SIZES[1:-1], "activation": activation}
    policy |= {"layer_norm": layer_norm, "linear": linear}
    chosen = {f"policy.{name}": value for name, value in policy.items()}
    chosen |= {f"cem_rl.{name}": value for name, value in {"batch_size": 16, **values}.items()}
    return amend(Config(), {"algorithm": "cem_rl", "learner.device": "cpu", **chosen})


def transitions(count: int) -> np.ndarray:
    """Return random transitions, every third of which is terminal, float32 [count, width]."""
    rows = np.random.default_rng(5).uniform(-1, 1, (count, width(3, 2))).astype(np.float32)
    rows[:, columns(3, 2).terminated] = np.arange(count) % 3 == 0
    return rows


def learner(config: Config, rows: np.ndarray, count: int | None = None):
    """Return the critic of a replay that others filled with rows, `count` transitions so far."""
    layout = Layout(SIZES, config.policy.layer_norm, config.policy.path_gain(SIZES[0]))
    made = make("cem", config, layout, layout.initial(0, 1), rows=rows)
    made.advance(len(rows) if count is None else count, 70)
    return made


def perturbed(layout: Layout, number: int) -> np.ndarray:
    """Return an actor whose biases are not zero."""
    noise = np.random.default_rng(number).standard_normal(layout.d, dtype=np.float32)
    return layout.initial(0, number) + 0.1 * noise


@pytest.mark.parametrize(("activation", "layer_norm", "linear"), FORMS)
def test_the_critics_lessons_are_those_of_autograd(activation, layer_norm, linear):
    """Four updates for each of two actors, by the phase's own streams; targets follow at each."""
    rows = transitions(90)
    form = {"tau": 0.1, "critic_layer_norm": layer_norm}
    made = learner(settings(activation, layer_norm, linear, **form), rows)
    plain = PlainCritic(made, made.options.lr_critic)
    actors = [perturbed(made.actor.layout, number) for number in (1, 2)]
    sampling, noise = (generator(0, Purpose.LEARNER, 7, member) for member in (1, 2))
    losses, after = [], []
    for theta in actors:
        made.actor.values[:] = torch.from_numpy(theta)
        (actor,) = modules(made.actor, activation)
        for _ in range(4):
            batch = rows[sampling.integers(90, size=16)]
            drawn = noise.standard_normal((16, 2), dtype=np.float32)
            losses.append(plain.learn(actor, batch, drawn))
            plain.follow()
        after.append(flat(plain.critic[:1]).numpy())
    phase = cooperative.run(made.teach(actors, 4, 7))
    assert (phase.gradient_updates, phase.env_steps) == (8, 0)
    assert phase.critic_loss == pytest.approx(np.mean(losses), rel=1e-5)
    for taught, expected in zip(made.taught, after, strict=True):
        np.testing.assert_allclose(taught, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(made.taught[0] - made.taught[1]).max() > 1e-3
    networks = {made.critic: plain.critic, made.targets["target_critic"]: plain.target}
    for network, members in networks.items():
        assert torch.allclose(network.values.double(), flat(members), rtol=1e-4, atol=1e-5)


def test_a_ring_that_has_wrapped_is_sampled_oldest_first():
    """100 transitions in a ring of 90: number i lies in row i mod 90; draw 0 is the tenth."""
    rows = transitions(90)
    made, sampled = learner(settings(), rows, 100), np.zeros((16, width(3, 2)), np.float32)
    made.replay.sample(generator(0, Purpose.LEARNER, 7, 1), sampled)
    drawn = generator(0, Purpose.LEARNER, 7, 1).integers(90, size=16)
    np.testing.assert_array_equal(sampled, rows[(drawn + 10) % 90])


def test_without_a_batch_the_critic_is_not_taught():
    made = learner(settings(), transitions(90), 15)
    before = made.arrays()
    phase = cooperative.run(made.teach([perturbed(made.actor.layout, 1)], 5, 1))
    assert phase.gradient_updates == 0
    assert math.isnan(phase.critic_loss)
    assert same(before, made.arrays())


def test_steps_that_come_in_while_the_critic_is_held_are_counted():
    made = learner(settings(), transitions(90))
    made.hold_critic()
    before = made.arrays()
    made.advance(0, 5)
    assert same({**before, "env_steps": np.array(75)}, made.arrays())


def test_a_critic_that_is_not_finite_says_so():
    made = learner(settings(), transitions(90))
    made.targets["target_critic"].values[3] = math.nan
    said = "CEM-RL learner's losses, target_critic, critic are no longer finite at training step 70"
    with pytest.raises(LearnerNotFinite, match=said):
        cooperative.run(made.teach([made.theta], 1, 1))


@pytest.mark.parametrize(("activation", "layer_norm", "linear"), FORMS)
def test_an_individuals_training_is_autograds_with_a_fresh_adam(activation, layer_norm, linear):
    """25 steps up the critic, one individual after another in the same buffers."""
    form = {"lr_actor": 0.01, "critic_layer_norm": layer_norm}
    config = settings(activation, layer_norm, linear, **form)
    layout = Layout(SIZES, layer_norm, config.policy.path_gain(SIZES[0]))
    operators, states = make_operators("individuals", config, layout), transitions(40)[:, :3]
    made = learner(config, transitions(40))
    for number in (1, 2):
        theta, noise = perturbed(layout, number), torch.Generator().manual_seed(number)
        made.actor.values[:] = torch.from_numpy(theta)
        made.critic.values.add_(0.3 * torch.randn(made.critic.values.shape, generator=noise))
        (actor,), critic = modules(made.actor, activation), modules(made.critic)[0]
        adam, random = torch.optim.Adam(actor.parameters(), lr=0.01), np.random.default_rng(number)
        for _ in range(25):
            batch = torch.from_numpy(states[random.integers(40, size=16)]).double()
            adam.zero_grad()
            (-critic(torch.cat((batch, actor(batch).tanh()), 1)).mean()).backward()
            adam.step()
        before, up = theta.copy(), made.critic_vector()
        trained = operators.trained(theta, up, states, 25, np.random.default_rng(number))
        assert np.array_equal(theta, before)
        assert trained.dtype == np.float32
        assert distance(torch.from_numpy(trained), flat([actor])) < 1e-4
        assert np.abs(trained - theta).max() > 0.05
        assert np.array_equal(operators.trained(theta, up, states, 0, random), theta)


def test_slow_updates_yield_after_each_and_come_to_the_same(monkeypatch):
    operators = make_operators("individuals", settings(), Layout(SIZES))
    theta, states = perturbed(Layout(SIZES), 1), transitions(40)[:, :3]
    critic, counts = learner(settings(), transitions(40)).critic_vector(), []
    expected = operators.trained(theta, critic, states, 25, np.random.default_rng(1))
    for longest in (math.inf, 0.0):
        monkeypatch.setattr(cooperative, "LONGEST", longest)
        training = operators.training(theta, critic, states, 25, np.random.default_rng(1))
        work = cooperative.report(training, lambda done, _: counts.append(done))
        assert np.array_equal(cooperative.run(work), expected)
    assert counts == [10, 20, 25, *range(1, 26)]
