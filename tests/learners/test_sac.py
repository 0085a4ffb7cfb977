"""The SAC learner: its equations against plain torch.nn and numpy."""

import numpy as np
import pytest
import torch
from gradients import FORMS, distance, flat, modules
from plain_sac import Plain, perturbed, saturated
from small_sac import entropy_where_tanh_saturates, fill, learn, learner

from esac_mpi.learners.base import forward
from esac_mpi.learners.network import Adam
from esac_mpi.operators.policy import Layout, Policy

# --- the equations


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("value", [False, True])
def test_updates_are_those_of_autograd_and_torchs_adam(
    value, automatic, activation, hidden, layer_norm, of_critics, linear
):
    """Five updates: what is measured, each loss's gradient, parameters, temperature and target."""
    form = {
        "sac__value_network": value,
        "sac__automatic_temperature": automatic,
        "policy__activation": activation,
    }
    form |= {"policy__layer_norm": layer_norm, "sac__critic_layer_norm": of_critics}
    form["policy__linear"] = linear
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
    assert (
        (torch.stack(outside) > 0.1) & (torch.stack(outside) < 0.9)
    ).all()  # log std on either side of both bounds
    for name, members in plain.networks.items():
        assert torch.allclose(
            getattr(sac, name).values.double(), flat(members), rtol=1e-4, atol=1e-6
        ), name
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
    expected = sum(
        ((critic(taken)[:, 0] - reward) ** 2).mean() / 2 for critic in modules(sac.critic)
    )
    sac.update.start()
    sac.update.learn_critic()
    sac.update.learn_actor()
    assert sac.update.means(1)["critic_loss"] == pytest.approx(float(expected.detach()), rel=1e-5)


def test_the_actors_step_leaves_the_critics_alone():
    sac = perturbed(learner((3, 8, 8, 2)))
    fill(sac)
    sac.update.start()
    sac.update.learn_critic()
    values, gradients, actor = (
        sac.critic.values.clone(),
        sac.critic.gradient.clone(),
        sac.actor.values.clone(),
    )
    sac.update.learn_actor()
    assert torch.equal(sac.critic.values, values)
    assert torch.equal(sac.critic.gradient, gradients)
    assert not torch.equal(sac.actor.values, actor)


def test_where_both_critics_agree_each_has_half_the_gradient():
    """As torch.amin's backward has it: with equal twins, the actor's gradient is either's."""
    sac = perturbed(learner((3, 8, 8, 2), sac__lr_sac=0.0))
    for tensor in sac.critic.tensors:
        tensor[1] = tensor[0]
    plain = Plain(sac)
    learn(sac)
    plain.learn(sac.update.rows, sac.update.noise)
    assert distance(sac.actor.gradient, flat(plain.networks["actor"], "grad")) < 1e-5


@pytest.mark.parametrize("layer_norm", [False, True])
def test_bfloat16_products_are_close_and_parameters_stay_float32(layer_norm):
    """bfloat16 has 8 bits: gradients within a few percent; Adam steps float32 weights."""
    forms = (
        {"sac__batch_size": 64, "learner__precision": p, "policy__layer_norm": layer_norm}
        for p in ("fp32", "bf16")
    )
    full, half = (perturbed(learner((3, 32, 32, 2), **form)) for form in forms)
    measured, close = learn(full), learn(half)
    assert close == pytest.approx(measured, rel=0.03, abs=0.02)
    for name in ("actor", "critic"):
        one, other = getattr(full, name), getattr(half, name)
        assert 1e-4 < distance(other.gradient, one.gradient.double()) < 0.05
        assert other.values.dtype == other.gradient.dtype == torch.float32
        assert torch.allclose(
            one.values, other.values, atol=2 * 3e-4 + 1e-6
        )  # one step of Adam each, either way
    for step in range(20):
        learn(full, step), learn(half, step)
    assert distance(half.critic.values, full.critic.values.double()) < 0.02


@pytest.mark.parametrize("sign", [1, -1])
def test_log_prob_holds_where_tanh_saturates(sign):
    measured, exact = entropy_where_tanh_saturates(learner((1, 8, 8, 1), sac__batch_size=1), sign)
    assert measured == pytest.approx(exact, rel=1e-6)


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


@pytest.mark.parametrize(("layer_norm", "linear"), [(False, False), (True, False), (True, True)])
def test_theta_is_the_policys(layer_norm, linear):
    form = {"policy__layer_norm": layer_norm, "policy__linear": linear}
    sac, layout = (
        perturbed(learner((3, 8, 8, 2), **form)),
        Layout((3, 8, 8, 2), layer_norm, 4.0 * linear),
    )
    policy = Policy(layout, "relu", "tanh", -np.ones(2), np.ones(2)).set(sac.theta)
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    mean = (
        modules(sac.actor)[0](torch.from_numpy(observations).double())[:, :2]
        .tanh()
        .detach()
        .numpy()
    )
    assert np.abs(np.stack([policy(o).copy() for o in observations]) - mean).max() < 1e-6
    assert np.array_equal(learner((3, 8, 8, 2), **form).theta, layout.initial(0, 1))
    sac.theta[:] = 0  # a copy
    assert sac.theta.any()


@pytest.mark.parametrize(
    ("activation", "layer_norm", "linear"),
    [("relu", False, False), ("tanh", False, True), ("tanh", True, False)],
)
def test_the_actor_that_collects_is_torchs(activation, layer_norm, linear):
    form = {
        "policy__activation": activation,
        "policy__layer_norm": layer_norm,
        "policy__linear": linear,
    }
    sac = perturbed(learner((3, 8, 8, 2), **form))
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    outputs = np.stack(
        [forward(sac.actor.numpy(), activation, o, sac.actor.layout.linear) for o in observations]
    )
    expected = modules(sac.actor, activation)[0](torch.from_numpy(observations).double()).detach()
    assert np.abs(outputs - expected.numpy()).max() < 2e-6
    sac.env_steps = 1000
    noise = torch.from_numpy(np.random.default_rng(7).standard_normal(2, dtype=np.float32))
    drawn = sac._action(sac.actor.numpy(), observations[0], np.random.default_rng(7))
    action, _ = Plain(sac).policy(torch.from_numpy(observations[:1]).double(), noise)
    assert np.abs(drawn - action[0].detach().numpy()).max() < 1e-6
