"""TD3 and DDPG: their updates by autograd, TD3's delay."""

import math

import numpy as np
import pytest
from gradients import FORMS, Line
from plain_td3 import Plain, assert_updates_are_autograds
from small_learners import RIVALS, learner, perturbed, run_phase


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
    o = made.options

    def noise_is_clipped():
        share = np.mean(np.abs(o.policy_noise * made.update.noise) > o.noise_clip)
        assert 0.05 < share < 0.95

    own = (2, 0.0, noise_is_clipped) if name == "td3" else (1, o.critic_weight_decay)
    assert_updates_are_autograds(made, Plain(made, name, activation), *own)
