"""TD3 and DDPG: their losses by hand and by autograd, TD3's three changes."""

import math

import numpy as np
import pytest
import torch
from gradients import FORMS, Line, distance, flat
from plain_td3 import Plain
from small_learners import RIVALS, fill, learn, learner, perturbed

# --- by hand: one observation, one action, no hidden layer, so that pi(x) = tanh(w x + b)
# and Q(x, a) = w_x x + w_a a + b


def two_transitions(name: str, **values):
    """Update a learner with weights that do not move by a batch of two transitions."""
    rates = {"lr_td3": 0.0} if name == "td3" else {"lr_actor": 0.0, "lr_critic": 0.0}
    made = learner(name, (1, 1), batch_size=2, gamma=0.5, **rates, **values)
    twins = name == "td3"  # w_x, w_a of each critic, then b of each
    critic = [2.0, 1.0, 1.0, -1.0, 0.0, 1.0] if twins else [2.0, 1.0, 0.0]
    target = [1.0, 2.0, 3.0, -1.0, 0.5, 0.0] if twins else [1.0, 2.0, 0.5]
    made.actor.values[:] = torch.tensor([0.5, 0.5])
    made.targets["target_actor"].values[:] = torch.tensor([1.0, 0.0])
    made.critic.values[:] = torch.tensor(critic)
    made.targets["target_critic"].values[:] = torch.tensor(target)
    # x, a, r, terminated, next x
    made.update.rows[:] = [[1.0, 0.5, 1.0, 0.0, 0.0], [-1.0, -1.0, 2.0, 1.0, 1.0]]
    if twins:
        made.update.noise[:] = 5
    made.update.start()
    made.update.learn_critic()
    made.update.learn_actor()
    return made


def test_td3_on_two_transitions():
    # the noise is 5 x 0.2 = 1, clipped to 0.5;
    # y = 1 + (min(1.5, -0.5)) / 2 = 0.75, and 2 where the episode is terminated;
    # errors: Q1 2.5 - 0.75 and -3 - 2; Q2 1.5 - 0.75 and 1 - 2;
    # the actor's actions are tanh 1 and tanh 0; of Q1 alone
    made = two_transitions("td3")
    means = made.update.means(2)  # as if of two updates: the actor's is one of them
    assert 2 * means["critic_loss"] == pytest.approx((1.75**2 + 25) / 2 + (0.75**2 + 1) / 2)
    gradient = [1.75 + 5, 0.875 + 5, 0.75 + 1, 0.375 + 1, 1.75 - 5, 0.75 - 1]
    assert made.critic.gradient.tolist() == pytest.approx(gradient, rel=1e-6)
    # -(1 - tanh^2) (x, 1) / 2, added
    assert made.actor.gradient.tolist() == pytest.approx([0.2900128, -0.7099872], rel=1e-5)
    assert made.update.sums[1].item() / 2 == pytest.approx((2 + math.tanh(1) - 2) / 2)


def test_ddpg_on_two_transitions():
    # y = 1 + 0.5 / 2 = 1.25, and 2 where the episode is terminated;
    # errors 2.5 - 1.25 and -3 - 2; a tenth of the weights
    made = two_transitions("ddpg", critic_weight_decay=0.1)
    means = made.update.means(1)
    assert means["critic_loss"] == pytest.approx((1.25**2 + 25) / 2)
    gradient = [1.25 + 5 + 0.2, 0.625 + 5 + 0.1, 1.25 - 5]
    assert made.critic.gradient.tolist() == pytest.approx(gradient, rel=1e-6)
    assert means["actor_loss"] == -means["mean_q"] == pytest.approx(-math.tanh(1) / 2)
    assert made.actor.gradient.tolist() == pytest.approx([0.2900128, -0.7099872], rel=1e-5)


def test_td3s_noise_is_clipped_and_actions_stay_in_bounds():
    made = learner("td3", (1, 1), batch_size=5)
    made.targets["target_actor"].values[:] = torch.tensor([0.0, math.atanh(0.9)])  # 0.9 everywhere
    fill(made)
    made.update.noise[:, 0] = [1, 5, -5, -1, 0]
    made.update.learn_critic()
    following = made.update._action[:, 0].tolist()
    assert following == pytest.approx([1.0, 1.0, 0.4, 0.7, 0.9], rel=1e-5)


def test_td3s_actor_moves_once_in_policy_delay_updates():
    """Over phases and a restart."""
    form = {"policy_delay": 3, "start_steps": 16, "interleaved": False}

    def state() -> list[np.ndarray]:
        followers = (target.values.numpy().copy() for target in made.targets.values())
        return [made.actor.values.numpy().copy(), *followers]

    made, changed = learner("td3", **form), []
    before = state()
    for k in range(9):  # a step each after the first 16: one update a phase
        if k == 4:
            other = learner("td3", **form)
            other.load(made.arrays())
            other.replay.restore(0, made.replay.rows(0, made.replay.added))
            made = other
        phase = made.phase(Line(), k, 0, 1 if k else 17, cut=True)
        assert phase.gradient_updates == 1
        pairs = zip(before, state(), strict=True)
        changed.append([not np.array_equal(old, new) for old, new in pairs])
        assert math.isfinite(phase.mean_q) == changed[-1][0]
        before = state()
    assert changed == [[k % 3 == 2] * 3 for k in range(9)]


# --- by autograd


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("name", RIVALS)
def test_updates_are_those_of_autograd_and_torchs_adam(
    name, activation, hidden, layer_norm, of_critics, linear
):
    """Six updates, TD3's actor in every second; its noise is clipped here and there."""
    form = {"policy__activation": activation, "policy__layer_norm": layer_norm}
    form |= {"critic_layer_norm": of_critics, "policy__linear": linear}
    form |= {"policy_noise": 0.4} if name == "td3" else {}
    made = perturbed(learner(name, (3, *hidden, 2), batch_size=64, tau=0.1, **form))
    plain, o = Plain(made, name, activation), made.options
    for step in range(6):
        actor = name == "ddpg" or step % 2 == 1
        critic = made.critic.values.clone()
        means = learn(made, step, actor)
        noise = getattr(made.update, "noise", None)
        critic_loss, actor_loss = plain.learn(made.update.rows, noise, actor)
        assert means["critic_loss"] == pytest.approx(critic_loss, rel=1e-5)
        assert ("actor_loss" in means) == actor
        if actor:
            assert means["actor_loss"] == pytest.approx(actor_loss, rel=1e-5, abs=1e-6)
            assert distance(made.actor.gradient, flat([plain.actor], "grad")) < 1e-5
        # torch adds it to a copy
        decay = o.critic_weight_decay * critic if name == "ddpg" else 0.0
        assert distance(made.critic.gradient - decay, flat(plain.critic.critic, "grad")) < 1e-5
        if name == "td3":
            assert 0.05 < np.mean(np.abs(o.policy_noise * noise) > o.noise_clip) < 0.95
    for part, members in plain.networks.items():
        values = getattr(made.update.parts, part).values.double()
        assert torch.allclose(values, flat(members), rtol=1e-4, atol=1e-6), part
