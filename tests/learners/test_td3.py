"""TD3 and DDPG: their losses by hand and by autograd, TD3's three changes, their phases."""

import math

import numpy as np
import pytest
import torch
from gradients import FORMS, Breaking, Line, distance, flat, modules, same, through
from small_learners import RIVALS, learner

from esac_mpi.learners import LearnerNotFinite
from esac_mpi.operators.policy import Layout, Policy


def fill(made, seed: int = 0) -> None:
    """Give the next update a batch, every third transition of which is terminal, and noise.

    The noise is clipped here and there.
    """
    random, rows = np.random.default_rng(seed), made.update.rows
    rows[:] = random.uniform(-1, 1, rows.shape)
    rows[:, made.replay.columns.terminated] = np.arange(len(rows)) % 3 == 0
    if hasattr(made.update, "noise"):
        made.update.noise[:] = 2 * random.standard_normal(made.update.noise.shape)


def learn(made, actor: bool = True) -> None:
    """Make an update of what `fill` gave."""
    update = made.update
    update.learn_critic()
    if actor:
        update.learn_actor()


def perturbed(made):
    """Move all weights: no bias is zero, and no target equals what it follows."""
    random = torch.Generator().manual_seed(3)
    for network in (made.actor, made.critic, *made.targets.values()):
        network.values.add_(0.3 * torch.randn(network.values.shape, generator=random))
    made.update.start()
    return made


# --- by hand: one observation, one action, no hidden layer, so that pi(x) = tanh(w x + b)
# and Q(x, a) = w_x x + w_a a + b


def two_transitions(name: str, **values):
    """Return a learner with weights that do not move, and a batch of two transitions.

    The weights are whole and half numbers.
    """
    rates = {"lr_td3": 0.0} if name == "td3" else {"lr_actor": 0.0, "lr_critic": 0.0}
    made = learner(name, (1, 1), batch_size=2, gamma=0.5, **rates, **values)
    made.actor.values[:] = torch.tensor([0.5, 0.5])
    made.targets["target_actor"].values[:] = torch.tensor([1.0, 0.0])
    twins = name == "td3"  # w_x, w_a of each critic, then b of each
    made.critic.values[:] = torch.tensor(
        [2.0, 1.0, 1.0, -1.0, 0.0, 1.0] if twins else [2.0, 1.0, 0.0]
    )
    made.targets["target_critic"].values[:] = torch.tensor(
        [1.0, 2.0, 3.0, -1.0, 0.5, 0.0] if twins else [1.0, 2.0, 0.5]
    )
    made.update.rows[:] = [
        [1.0, 0.5, 1.0, 0.0, 0.0],
        [-1.0, -1.0, 2.0, 1.0, 1.0],
    ]  # x, a, r, terminated, next x
    made.update.start()
    return made


def test_td3_on_two_transitions():
    """The noise is 5 x 0.2 = 1, clipped to 0.5.

    y = 1 + (min(1.5, -0.5)) / 2 = 0.75, and 2 where the episode is terminated.

    Errors: Q1 2.5 - 0.75 and -3 - 2; Q2 1.5 - 0.75 and 1 - 2.
    The actor's actions are tanh 1 and tanh 0; of Q1 alone.
    """
    made = two_transitions("td3")
    made.update.noise[:] = 5
    learn(made)
    means = made.update.means(2)  # as if of two updates: the actor's is one of them
    assert (
        2 * means["critic_loss"]
        == pytest.approx((1.75**2 + 25) / 2 + (0.75**2 + 1) / 2)
        == pytest.approx(14.8125)
    )
    gradient = [1.75 + 5, 0.875 + 5, 0.75 + 1, 0.375 + 1, 1.75 - 5, 0.75 - 1]
    assert made.critic.gradient.tolist() == pytest.approx(gradient, rel=1e-6)
    assert made.actor.gradient.tolist() == pytest.approx(
        [0.2900128, -0.7099872], rel=1e-5
    )  # -(1 - tanh^2) (x, 1) / 2, added
    assert made.update.sums[1].item() / 2 == pytest.approx((2 + math.tanh(1) - 2) / 2)


def test_ddpg_on_two_transitions():
    """y = 1 + 0.5 / 2 = 1.25, and 2 where the episode is terminated.

    Errors 2.5 - 1.25 and -3 - 2; a tenth of the weights.
    """
    made = two_transitions("ddpg", critic_weight_decay=0.1)
    learn(made)
    means = made.update.means(1)
    assert means["critic_loss"] == pytest.approx((1.25**2 + 25) / 2) == pytest.approx(13.28125)
    assert made.critic.gradient.tolist() == pytest.approx(
        [1.25 + 5 + 0.2, 0.625 + 5 + 0.1, 1.25 - 5], rel=1e-6
    )
    assert means["actor_loss"] == -means["mean_q"] == pytest.approx(-math.tanh(1) / 2)
    assert made.actor.gradient.tolist() == pytest.approx([0.2900128, -0.7099872], rel=1e-5)


def test_td3s_noise_is_scaled_and_clipped_and_the_action_kept_in_its_bounds():
    made = learner("td3", (1, 1), batch_size=5)
    made.targets["target_actor"].values[:] = torch.tensor([0.0, math.atanh(0.9)])  # 0.9 everywhere
    fill(made)
    made.update.noise[:, 0] = [1, 5, -5, -1, 0]
    learn(made, actor=False)
    assert made.update._following[:, 1].tolist() == pytest.approx(
        [1.0, 1.0, 0.4, 0.7, 0.9], rel=1e-5
    )


def test_td3s_actor_and_targets_move_once_in_policy_delay_updates_over_phases_and_restarts():
    def state(made) -> list[np.ndarray]:
        return [
            made.actor.values.numpy().copy(),
            *(target.values.numpy().copy() for target in made.targets.values()),
        ]

    made = learner("td3", policy_delay=3, start_steps=16, interleaved=False)
    changed, before = [], state(made)
    for k in range(9):  # a step each after the first 16: one update a phase
        if k == 4:
            other = learner("td3", policy_delay=3, start_steps=16, interleaved=False)
            other.load(made.arrays())
            other.replay.restore(0, made.replay.rows(0, made.replay.added))
            made = other
        phase = made.phase(Line(), k, 0, 1 if k else 17, cut=True)
        assert phase.gradient_updates == 1
        changed.append(
            [not np.array_equal(old, new) for old, new in zip(before, state(made), strict=True)]
        )
        assert math.isfinite(phase.mean_q) == changed[-1][0]
        before = state(made)
    assert changed == [[k % 3 == 2] * 3 for k in range(9)]


# --- by autograd


class Plain:
    """An update by modules, autograd and torch.optim.Adam.

    In double precision, from the papers' formulas.
    """

    def __init__(self, made, name: str, activation: str):
        self.twins, self.options, self.columns = name == "td3", made.options, made.replay.columns
        self.actor, self.target_actor = (
            modules(n, activation)[0] for n in (made.actor, made.targets["target_actor"])
        )
        self.critic, self.target_critic = (
            modules(made.critic),
            modules(made.targets["target_critic"]),
        )
        o = self.options
        rates = (
            (o.lr_td3, o.lr_td3, 0.0)
            if self.twins
            else (o.lr_actor, o.lr_critic, o.critic_weight_decay)
        )
        parameters = [p for critic in self.critic for p in critic.parameters()]
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=rates[0])
        self.critic_adam = torch.optim.Adam(parameters, lr=rates[1], weight_decay=rates[2])

    def learn(self, rows: np.ndarray, noise: np.ndarray | None, actor: bool) -> tuple[float, float]:
        """Make an update; return the critic's loss, and the actor's before its step."""
        batch = {
            name: torch.from_numpy(rows[:, column]).double()
            for name, column in self.columns._asdict().items()
        }
        observation, following, o = batch["observation"], batch["next_observation"], self.options
        with torch.no_grad():
            action = self.target_actor(following).tanh()
            if noise is not None:
                smoothing = (o.policy_noise * torch.from_numpy(noise).double()).clamp(
                    -o.noise_clip, o.noise_clip
                )
                action = (action + smoothing).clamp(-1, 1)
            least = torch.stack(
                [q(torch.cat((following, action), 1))[:, 0] for q in self.target_critic]
            ).amin(0)
            y = batch["reward"] + o.gamma * (1 - batch["terminated"]) * least
        taken = torch.cat((observation, batch["action"]), 1)
        critic_loss = sum(torch.nn.functional.mse_loss(q(taken)[:, 0], y) for q in self.critic)
        self.critic_adam.zero_grad()
        critic_loss.backward()
        self.critic_adam.step()
        actor_loss = -self.critic[0](
            torch.cat((observation, self.actor(observation).tanh()), 1)
        ).mean()
        if actor:
            parameters = list(self.actor.parameters())  # the loss also depends on the critics'
            for p, gradient in zip(
                parameters, torch.autograd.grad(actor_loss, parameters), strict=True
            ):
                p.grad = gradient
            self.actor_adam.step()
            with torch.no_grad():
                pairs = [
                    (self.target_actor, self.actor),
                    *zip(self.target_critic, self.critic, strict=True),
                ]
                for target, network in pairs:
                    for p, new in zip(target.parameters(), network.parameters(), strict=True):
                        p += o.tau * (new - p)
        return float(critic_loss.detach()), float(actor_loss.detach())


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", RIVALS)
def test_updates_are_those_of_autograd_and_torchs_adam(
    name, activation, hidden, layer_norm, of_critics, linear
):
    """Six updates, TD3's actor in every second.

    What is measured, each gradient, parameters and targets.
    """
    form = {"policy__activation": activation, "policy__layer_norm": layer_norm}
    form |= {"critic_layer_norm": of_critics, "policy__linear": linear}
    made = perturbed(learner(name, (3, *hidden, 2), batch_size=64, tau=0.1, **form))
    plain, clipped = Plain(made, name, activation), []
    for step in range(6):
        fill(made, step)
        made.update.start()
        actor = name == "ddpg" or step % 2 == 1
        noise, critic = getattr(made.update, "noise", None), made.critic.values.clone()
        learn(made, actor)
        critic_loss, actor_loss = plain.learn(made.update.rows, noise, actor)
        means = made.update.means(1)
        assert means["critic_loss"] == pytest.approx(critic_loss, rel=1e-5)
        assert ("actor_loss" in means) == actor
        if actor:
            assert means["actor_loss"] == pytest.approx(actor_loss, rel=1e-5, abs=1e-6)
            assert distance(made.actor.gradient, flat([plain.actor], "grad")) < 1e-5
        decay = (
            made.options.critic_weight_decay * critic if name == "ddpg" else 0.0
        )  # torch adds it to a copy
        assert distance(made.critic.gradient - decay, flat(plain.critic, "grad")) < 1e-5
        if name == "td3":
            clipped.append(
                np.mean(np.abs(made.options.policy_noise * noise) > made.options.noise_clip)
            )
    members = {"actor": [plain.actor], "critic": plain.critic}
    members |= {"target_actor": [plain.target_actor], "target_critic": plain.target_critic}
    for part, expected in members.items():
        assert torch.allclose(
            getattr(made.update.parts, part).values.double(), flat(expected), rtol=1e-4, atol=1e-6
        ), part
    assert all(0.05 < share < 0.95 for share in clipped)


@pytest.mark.parametrize("name", RIVALS)
def test_bfloat16_products_are_close_and_parameters_stay_float32(name):
    """bfloat16 has 8 bits: gradients within a few percent; Adam steps float32 weights."""
    full, half = (
        perturbed(learner(name, (3, 32, 32, 2), batch_size=64, learner__precision=p))
        for p in ("fp32", "bf16")
    )
    for made in (full, half):
        fill(made)
        learn(made)
    for part in ("actor", "critic"):
        one, other = getattr(full, part), getattr(half, part)
        assert 1e-4 < distance(other.gradient, one.gradient.double()) < 0.05
        assert other.values.dtype == other.gradient.dtype == torch.float32
        assert (
            0
            < distance(
                half.targets[f"target_{part}"].values,
                full.targets[f"target_{part}"].values.double(),
            )
            < 1e-3
        )


# --- the actor


@pytest.mark.parametrize("name", RIVALS)
def test_theta_is_the_policys_and_plays_with_noise_of_its_size(name):
    made = learner(name, (3, 8, 8, 2), exploration_noise=0.05)
    assert np.array_equal(made.theta, Layout((3, 8, 8, 2)).initial(0, 1))
    perturbed(made)
    made.theta[:] = 0  # a copy
    policy = Policy(Layout((3, 8, 8, 2)), "relu", "tanh", -np.ones(2), np.ones(2)).set(made.theta)
    observation = np.array([0.1, -0.2, 0.3], np.float32)
    made.env_steps, random = 30, np.random.default_rng(0)
    drawn = np.stack([made._action(made.actor.numpy(), observation, random) for _ in range(4000)])
    assert drawn.dtype == np.float32
    assert np.abs(drawn.mean(0) - policy(observation)).max() < 5 * 0.05 / math.sqrt(4000)
    assert drawn.std(0) == pytest.approx([0.05, 0.05], rel=0.06)
    made.actor.tensors[-1][:] = 30.0  # mean 1
    drawn = np.stack([made._action(made.actor.numpy(), observation, random) for _ in range(100)])
    assert drawn.max() == 1 > drawn.min() > 0.7


# --- phases


@pytest.mark.parametrize("name", RIVALS)
def test_the_first_steps_are_uniform_and_without_updates(name):
    env, made = Line(), learner(name, start_steps=400, updates_per_step=0.5)
    made.actor.values.zero_()
    phase = made.phase(env, 0, 0, 399, cut=True)
    assert (phase.env_steps, phase.episodes, phase.gradient_updates) == (399, 19, 0)
    assert math.isnan(phase.critic_loss)
    assert np.abs(np.histogram(env.actions[:399], 4, (-1, 1))[0] - 100).max() < 5 * np.sqrt(75)
    assert [made.phase(env, k, 0, 7, cut=True).gradient_updates for k in (1, 2)] == [
        3,
        3,
    ]  # of 6 and 7: round(3), round(6.5) - 3
    assert np.abs(env.actions[400:403]).max() < 0.6


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("name", RIVALS)
def test_a_phase_in_parts_and_one_begun_again_have_the_bits_of_a_phase_at_once(name, interleaved):
    """From a ring that has wrapped, in the middle of TD3's delay: at once, and in parts.

    And held, saved, loaded and begun again.
    """

    def grown(**more):
        made = learner(name, replay_capacity=60, interleaved=interleaved, **more)
        for k in (0, 3):
            made.phase(Line(), k, 0, 61, cut=True)
        assert made.replay.added == 122
        assert made.adam["critic"].steps == 92
        made.phase(Line(), 5, 0, 1, cut=True)  # 93 updates
        return made

    straight, parts = grown(), grown(reserve=60)
    arrays, rows = parts.arrays(), parts.replay.rows(63, 123)
    phase = straight.phase(Line(), 4, 0, 51, cut=True)
    parts.hold()
    work = parts.begin(Line(), 4, 0, 51, cut=True)
    for _ in range(70):
        next(work)
    assert same(parts.arrays(), arrays)
    saved, kept = parts.arrays(), parts.stored_replay.rows(63, 123)
    assert same(kept, rows)
    pauses, again = through(work)
    assert 70 + pauses == 51 + 2 * 51
    assert np.array_equal(phase.vector(), again.vector(), equal_nan=True)
    parts.release()
    assert same(parts.arrays(), straight.arrays())
    assert not same(parts.arrays(), arrays)

    resumed, elsewhere = (
        learner(name, replay_capacity=60, interleaved=interleaved) for _ in range(2)
    )
    for made in (resumed, elsewhere):
        made.load(saved)
        made.replay.restore(63, kept)
    torch.manual_seed(99)  # nothing hangs on torch's own generator
    assert np.array_equal(
        resumed.phase(Line(), 4, 0, 51, cut=True).vector(), phase.vector(), equal_nan=True
    )
    assert same(resumed.arrays(), straight.arrays())
    assert np.array_equal(resumed.theta, straight.theta)
    elsewhere.phase(Line(), 6, 0, 51, cut=True)
    assert not np.array_equal(elsewhere.theta, straight.theta)


@pytest.mark.parametrize("name", RIVALS)
def test_what_cannot_be_learned_from_is_not_stored(name):
    made = learner(name)
    phase = made.phase(Breaking("raise"), 0, 2, 0)
    assert (phase.env_steps, phase.episodes, phase.unstable_episodes, made.replay.added) == (
        8,
        0,
        2,
        6,
    )


@pytest.mark.parametrize("part", ["actor", "critic", "target_actor", "target_critic"])
@pytest.mark.parametrize("name", RIVALS)
def test_a_learner_that_is_not_finite_says_so(name, part):
    made = learner(name, start_steps=1000)
    getattr(made.update.parts, part).values[3] = math.nan
    with pytest.raises(
        LearnerNotFinite,
        match=f"the {name.upper()} learner's {part} are no longer finite at training step 20",
    ):
        made.phase(Line(), 0, 1, 0)
    made = learner(name, start_steps=0)
    made.actor.values[-1] = math.nan
    with pytest.raises(LearnerNotFinite, match="action"):
        made.phase(Line(), 0, 1, 0)


def test_arrays_of_another_learner_are_refused():
    with pytest.raises(ValueError, match="learner arrays must be"):
        learner("td3").load(learner("sac").arrays())
    with pytest.raises(ValueError, match=r"must be float32 \[\d+\], got float32 \[\d+\]"):
        learner("td3").load(learner("ddpg").arrays())  # the same names, another number of critics
