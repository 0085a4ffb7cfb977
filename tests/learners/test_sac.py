"""The SAC learner's equations against plain torch.nn and numpy."""

import math

import numpy as np
import pytest
import torch
from gradients import FORMS, distance, flat
from plain_sac import Plain, assert_updates_are_autograds, saturated
from small_learners import fill, learn, perturbed
from small_learners import sac as learner

from esac_mpi.learners import cpu


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("value", [False, True])
def test_updates_are_those_of_autograd_and_torchs_adam(
    value, automatic, activation, hidden, layer_norm, of_critics, linear
):
    form = {"sac__value_network": value, "sac__automatic_temperature": automatic}
    form |= {"policy__layer_norm": layer_norm, "sac__critic_layer_norm": of_critics}
    form |= {"policy__linear": linear, "policy__activation": activation}
    sac = saturated(perturbed(learner((3, *hidden, 2), sac__batch_size=64, **form)))
    outside: list[torch.Tensor] = []

    def count_outside():
        outside.append((sac.update._raw[-1] != sac.update._log_std[-1]).double().mean(0))

    assert_updates_are_autograds(sac, count_outside)
    shares = torch.stack(outside)  # of log std, on either side of both bounds
    assert ((shares > 0.1) & (shares < 0.9)).all()
    assert (float(sac.temperature) != pytest.approx(0.2, rel=1e-6)) == automatic


def test_where_both_critics_agree_each_has_half_the_gradient():
    """As torch.amin's backward has it: with equal twins, the actor's gradient is either's."""
    sac = perturbed(learner((3, 8, 8, 2), sac__lr_sac=0.0))
    for tensor in sac.critic.tensors:
        tensor[1] = tensor[0]
    plain = Plain(sac)
    learn(sac)
    plain.learn(sac.update.rows, sac.update.noise)
    assert distance(sac.actor.gradient, flat(plain.networks["actor"], "grad")) < 1e-5


@pytest.mark.parametrize("kernels", ["torch", *(["compiled"] if cpu.KIND else [])])
@pytest.mark.parametrize("sign", [1, -1])
def test_log_prob_holds_where_tanh_saturates(sign, kernels):
    """Of u = 30 sign + 0.5: log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 |u| in doubles."""
    sac = learner((1, 8, 8, 1), sac__batch_size=1, learner__kernels=kernels)
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0 * sign, 0.0])  # biases of mean and log std
    fill(sac)
    sac.update.noise[:] = 0.5
    sac.update.learn_critic()
    sac.update.learn_actor()
    log_prob = -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(sign * 30.0 + 0.5)
    assert sac.update.means(1)["entropy"] == pytest.approx(-log_prob, rel=1e-6)


def test_an_action_is_drawn_as_from_torchs_distribution():
    sac, observation = perturbed(learner((3, 8, 8, 2))), np.array([0.5, -1.0, 0.2], np.float32)
    sac.env_steps = 1000
    drawn = sac._action(sac.actor.numpy(), observation, np.random.default_rng(7))
    noise = torch.from_numpy(np.random.default_rng(7).standard_normal(2, dtype=np.float32))
    action, _ = Plain(sac).policy(torch.from_numpy(observation[None]).double(), noise)
    assert np.abs(drawn - action[0].detach().numpy()).max() < 1e-6


def test_the_standard_deviation_begins_as_without_a_linear_path():
    of_path, without = (
        learner((3, 8, 8, 2), policy__linear=linear).actor.layers[-1].weight.mT
        for linear in (True, False)
    )
    assert torch.equal(of_path[2:, :8], without[2:])
    assert not of_path[2:, 8:].any()
