"""TD3 and DDPG: their updates by autograd, TD3's delay."""

import math

import numpy as np
import pytest
import torch
from gradients import FORMS, Line, distance, flat
from plain_td3 import Plain
from small_learners import RIVALS, learn, learner, perturbed, run_phase


def test_td3s_actor_moves_once_in_policy_delay_updates():
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
        phase = run_phase(made, Line(), k, 0, 1 if k else 17, cut=True)
        assert phase.gradient_updates == 1
        pairs = zip(before, state(), strict=True)
        changed.append([not np.array_equal(old, new) for old, new in pairs])
        assert math.isfinite(phase.mean_q) == changed[-1][0]
        before = state()
    assert changed == [[k % 3 == 2] * 3 for k in range(9)]


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
