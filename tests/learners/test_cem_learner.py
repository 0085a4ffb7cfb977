"""What CEM-RL's gradients do, against plain modules and autograd.

The critic's lessons, and an individual's training.
"""

import math

import numpy as np
import pytest
import torch
from gradients import distance, flat, modules, same
from torch import nn

from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.learners import LearnerNotFinite, make, make_operators
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.transitions import columns, width

SIZES = (3, 12, 8, 2)


def settings(activation="tanh", layer_norm=False, linear=False, **values) -> Config:
    """Return settings of CEM-RL; `values` are fields of its table."""
    policy = {
        "policy.hidden": SIZES[1:-1],
        "policy.activation": activation,
        "policy.layer_norm": layer_norm,
    }
    policy |= {"policy.linear": linear}
    own = {f"cem_rl.{name}": value for name, value in {"batch_size": 16, **values}.items()}
    return updated(Config(), {"algorithm": "cem_rl", "learner.device": "cpu", **policy, **own})


def transitions(count: int) -> np.ndarray:
    """Return random transitions, every third of which is terminal, float32 [count, width]."""
    rows = np.random.default_rng(5).uniform(-1, 1, (count, width(3, 2))).astype(np.float32)
    rows[:, columns(3, 2).terminated] = np.arange(count) % 3 == 0
    return rows


def learner(config: Config, rows: np.ndarray, count: int | None = None):
    """Return the critic of a replay that others filled with rows, `count` transitions so far."""
    layout = Layout(SIZES, config.policy.layer_norm, config.policy.path_gain)
    made = make("cem", config, layout, layout.initial(0, 1), rows=rows)
    made.advance(len(rows) if count is None else count, 70)
    return made


def perturbed(layout: Layout, number: int) -> np.ndarray:
    """Return an actor whose biases are not zero."""
    return layout.initial(0, number) + 0.1 * np.random.default_rng(number).standard_normal(
        layout.d, dtype=np.float32
    )


class Lessons:
    """The critic's lessons by modules, autograd and torch.optim.Adam.

    In double precision, from TD3's formulas.
    """

    def __init__(self, made):
        self.made, self.options = made, made.options
        self.critic, self.target = modules(made.critic), modules(made.targets["target_critic"])
        self.adam = torch.optim.Adam(
            [p for q in self.critic for p in q.parameters()], lr=self.options.lr_critic
        )

    def teach(self, actor: nn.Sequential, rows: np.ndarray, noise: np.ndarray) -> float:
        """Make an update for an actor; return the loss before it."""
        o, named = self.options, columns(3, 2)._asdict()
        batch = {name: torch.from_numpy(rows[:, column]).double() for name, column in named.items()}
        with torch.no_grad():
            smoothing = (o.policy_noise * torch.from_numpy(noise).double()).clamp(
                -o.noise_clip, o.noise_clip
            )
            action = (actor(batch["next_observation"]).tanh() + smoothing).clamp(-1, 1)
            following = torch.cat((batch["next_observation"], action), 1)
            least = torch.stack([q(following)[:, 0] for q in self.target]).amin(0)
            y = batch["reward"] + o.gamma * (1 - batch["terminated"]) * least
        taken = torch.cat((batch["observation"], batch["action"]), 1)
        loss = sum(nn.functional.mse_loss(q(taken)[:, 0], y) for q in self.critic)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        with torch.no_grad():
            for target, q in zip(self.target, self.critic, strict=True):
                for p, new in zip(target.parameters(), q.parameters(), strict=True):
                    p += o.tau * (new - p)
        return float(loss.detach())


@pytest.mark.parametrize(
    ("activation", "layer_norm", "linear"), [("tanh", False, False), ("relu", True, True)]
)
def test_the_critics_lessons_are_those_of_autograd(activation, layer_norm, linear):
    """Four updates for each of two actors; targets follow at each.

    From batches and noise of the phase's own streams.
    """
    rows = transitions(90)
    form = {"tau": 0.1, "critic_layer_norm": layer_norm}
    made = learner(settings(activation, layer_norm, linear, **form), rows)
    plain, actors = Lessons(made), [perturbed(made.actor.layout, number) for number in (1, 2)]
    sampling, noise = (generator(0, Purpose.LEARNER, 7, member) for member in (1, 2))
    losses, after = [], []
    for theta in actors:
        made.actor.values[:] = torch.from_numpy(theta)
        (actor,) = modules(made.actor, activation)
        for _ in range(4):
            batch = rows[sampling.integers(90, size=16)]
            losses.append(
                plain.teach(actor, batch, noise.standard_normal((16, 2), dtype=np.float32))
            )
        after.append(flat(plain.critic[:1]).numpy())
    phase = cooperative.run(made.teach(actors, 4, 7))
    assert (phase.gradient_updates, phase.env_steps) == (8, 0)
    assert phase.critic_loss == pytest.approx(np.mean(losses), rel=1e-5)
    for taught, expected in zip(made.taught, after, strict=True):
        np.testing.assert_allclose(taught, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(made.taught[0] - made.taught[1]).max() > 1e-3
    assert torch.allclose(made.critic.values.double(), flat(plain.critic), rtol=1e-4, atol=1e-5)
    assert torch.allclose(
        made.targets["target_critic"].values.double(), flat(plain.target), rtol=1e-4, atol=1e-5
    )


def test_a_ring_that_has_wrapped_is_sampled_oldest_first():
    """100 transitions in a ring of 90: number i lies in row i mod 90.

    Draw 0 of them is the tenth, the oldest.
    """
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


def test_a_saved_critic_goes_on_with_the_same_bits_and_a_held_one_stays():
    rows = transitions(90)
    straight, resumed = learner(settings(), rows), learner(settings(), rows)
    theta = perturbed(straight.actor.layout, 1)
    cooperative.run(straight.teach([theta], 3, 1))
    straight.hold()
    resumed.load(straight.arrays())
    torch.manual_seed(99)  # nothing hangs on torch's own generator
    phases = [cooperative.run(made.teach([theta], 3, 2)).vector() for made in (straight, resumed)]
    assert np.array_equal(*phases, equal_nan=True)
    assert not same(straight.arrays(), resumed.arrays())
    straight.release()
    assert same(straight.arrays(), resumed.arrays())
    assert straight.adam["critic"].steps == 6


def test_a_critic_that_is_not_finite_says_so():
    made = learner(settings(), transitions(90))
    made.targets["target_critic"].values[3] = math.nan
    with pytest.raises(
        LearnerNotFinite,
        match="the CEM-RL learner's losses, target_critic, critic are no longer finite "
        "at training step 70",
    ):
        cooperative.run(made.teach([made.theta], 1, 1))


@pytest.mark.parametrize(
    ("activation", "layer_norm", "linear"), [("tanh", False, False), ("relu", True, True)]
)
def test_an_individuals_training_is_that_of_autograd_and_a_fresh_adam(
    activation, layer_norm, linear
):
    """25 steps up the critic, one individual after another in the same buffers."""
    form = {"lr_actor": 0.01, "critic_layer_norm": layer_norm}
    config = settings(activation, layer_norm, linear, **form)
    layout = Layout(SIZES, layer_norm, config.policy.path_gain)
    operators, states = make_operators("individuals", config, layout), transitions(40)[:, :3]
    made = learner(config, transitions(40))
    for number in (1, 2):
        theta = perturbed(layout, number)
        made.actor.values[:] = torch.from_numpy(theta)
        made.critic.values.add_(
            0.3
            * torch.randn(made.critic.values.shape, generator=torch.Generator().manual_seed(number))
        )
        (actor,), critic = modules(made.actor, activation), modules(made.critic)[0]
        adam, random = torch.optim.Adam(actor.parameters(), lr=0.01), np.random.default_rng(number)
        for _ in range(25):
            batch = torch.from_numpy(states[random.integers(40, size=16)]).double()
            adam.zero_grad()
            (-critic(torch.cat((batch, actor(batch).tanh()), 1)).mean()).backward()
            adam.step()
        before = theta.copy()
        trained = operators.trained(
            theta, made.critic_vector(), states, 25, np.random.default_rng(number)
        )
        assert np.array_equal(theta, before)
        assert trained.dtype == np.float32
        assert distance(torch.from_numpy(trained), flat([actor])) < 1e-4
        assert np.abs(trained - theta).max() > 0.05
        assert np.array_equal(
            operators.trained(theta, made.critic_vector(), states, 0, random), theta
        )


def test_slow_updates_let_others_have_their_turn_after_each_and_come_to_the_same(monkeypatch):
    layout, states = Layout(SIZES), transitions(40)[:, :3]
    operators, critic = (
        make_operators("individuals", settings(), layout),
        learner(settings(), transitions(40)).critic_vector(),
    )
    found, expected = (
        [],
        operators.trained(perturbed(layout, 1), critic, states, 25, np.random.default_rng(1)),
    )
    for longest in (math.inf, 0.0):
        monkeypatch.setattr(cooperative, "LONGEST", longest)
        training = operators.training(
            perturbed(layout, 1), critic, states, 25, np.random.default_rng(1)
        )
        work = cooperative.told(training, lambda done, _: found.append(done))
        assert np.array_equal(cooperative.run(work), expected)
    assert found == [10, 20, 25, *range(1, 26)]


def test_an_individual_acts_as_the_policy_that_plays_it():
    """The critic sees what the policy plays: tanh of the output, whatever policy.output says."""
    config, layout = settings(), Layout(SIZES)
    made = learner(config, transitions(40))
    policy = Policy(layout, "tanh", "tanh", -np.ones(2), np.ones(2)).set(made.theta)
    x = np.array([0.1, -0.2, 0.3], np.float32)
    (actor,) = modules(made.actor, "tanh")
    np.testing.assert_allclose(
        policy(x), actor(torch.from_numpy(x).double()).tanh().detach().numpy(), atol=1e-6
    )
