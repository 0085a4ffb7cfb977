"""policy.layer_norm: torch's LayerNorm in theta and in the passes.

The forward passes, and the learners' passes by hand.
"""

import numpy as np
import pytest
import torch
from conftest import CYCLIC
from gradients import distance, flat, modules
from saved_policies import NORMED
from torch import nn
from whole_runs import assert_same_run

from esac_mpi import Policy as SavedPolicy
from esac_mpi.learners.base import forward
from esac_mpi.learners.network import Network, Operations, Pass
from esac_mpi.operators import kernels
from esac_mpi.operators.policy import Layout, Policy

LAYOUT, THETA = Layout((2, 2, 1), layer_norm=True), NORMED
SIZES = [(1, 1, 1), (3, 2, 2), (5, 7, 3), (17, 33, 65, 6), (9, 64, 64, 17), (1, 16, 17, 15, 1)]


def network(sizes, theta, activation="relu"):
    """Return a function that runs a forward pass without the last squashing but clip(-1, 1)."""
    bound = np.ones(sizes[-1], np.float32)
    made, out = (
        kernels.Perceptron(sizes, activation, "clip", -bound, bound, True),
        np.zeros_like(bound),
    )
    made.load(theta)

    def act(x):
        made.act(x, out, False, None, None)
        return out.copy()

    return act


def random_theta(layout: Layout) -> np.ndarray:
    return (0.2 * np.random.default_rng(0).standard_normal(layout.d)).astype(np.float32)


# --- theta


def test_gain_and_shift_follow_the_bias_of_every_hidden_layer():
    layout = Layout((3, 4, 5, 2), layer_norm=True)
    hidden = ["weight", "bias", "gain", "shift"]
    assert [tensor.kind for tensor in layout.tensors] == [*hidden, *hidden, "weight", "bias"]
    assert layout.d == Layout((3, 4, 5, 2)).d + 2 * (4 + 5) == 12 + 3 * 4 + 20 + 3 * 5 + 10 + 2
    first, last = LAYOUT.layers(THETA)
    assert [tensor.tolist() for tensor in first] == [
        [[1, -1], [0.5, 2]],
        [0.25, -1],
        [2, 0.5],
        [3, -1],
    ]
    assert (last.weight.tolist(), last.bias.tolist(), last.gain, last.shift) == (
        [[0.5, -0.25]],
        [0.125],
        None,
        None,
    )
    np.testing.assert_array_equal(LAYOUT.rows(), [0, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13])
    assert Layout((3, 2), layer_norm=True).tensors == Layout((3, 2)).tensors


def test_initial_weights_are_those_without_it_and_gain_1_and_shift_0():
    plain, normed = Layout((3, 4, 5, 2)), Layout((3, 4, 5, 2), layer_norm=True)
    for one, other in zip(
        plain.layers(plain.initial(3, 1)), normed.layers(normed.initial(3, 1)), strict=True
    ):
        np.testing.assert_array_equal(one.weight, other.weight)
        assert not other.bias.any()
        assert other.gain is None or ((other.gain == 1).all() and not other.shift.any())


# --- the forward pass of a policy


def test_a_forward_pass_by_hand():
    """Sums -0.75 and 3.5 have mean 1.375 and deviation 2.125: -1 and 1.

    Times 2, 0.5 plus 3, -1: 1 and -0.5, by relu 0.
    """
    assert network((2, 2, 1), THETA)(np.array([1.0, 2.0])) == pytest.approx(
        [0.5 * 1 + 0.125], rel=1e-5
    )


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_forward_pass_is_torchs_in_float64(sizes, activation):
    layout, layers = Layout(sizes, layer_norm=True), []
    theta = random_theta(layout)
    for weight, _, gain, _ in layout.layers(theta):
        layers += [
            nn.Linear(*weight.shape[::-1]),
            *([] if gain is None else [nn.LayerNorm(len(gain))]),
        ]
        layers.append(nn.ReLU() if activation == "relu" else nn.Tanh())
    module = nn.Sequential(*layers[:-1]).double()
    nn.utils.vector_to_parameters(torch.from_numpy(theta).double(), module.parameters())
    act = network(sizes, theta, activation)
    for x in np.random.default_rng(1).standard_normal((5, sizes[0])).astype(np.float32):
        expected = module(torch.from_numpy(x).double()).detach().clamp(-1, 1).numpy()
        np.testing.assert_allclose(act(x), expected, atol=1e-5)


@pytest.mark.parametrize("units", [1, 5, 16, 33, 300])
def test_compiled_sums_over_units_run_in_sixteen_parts(units):
    """One input of 1, zero biases: the sums are the weights.

    The output is one unit times 1/8, in whose bits nothing is lost.
    """
    one, weights = (
        np.float32,
        np.random.default_rng(units).standard_normal(units).astype(np.float32),
    )
    gain, shift = np.random.default_rng(0).standard_normal((2, units)).astype(np.float32)

    def added(x):
        lanes = np.zeros(16, np.float32)
        for i, value in enumerate(x):
            lanes[i % 16] += value
        return np.add.accumulate(lanes)[-1]

    centred = weights - added(weights) / one(units)
    scale = one(1) / np.sqrt(added(centred * centred) / one(units) + one(1e-5))
    expected = np.maximum(centred * scale * gain + shift, 0)
    for unit in {0, units // 2, units - 1}:
        last = np.zeros(units, np.float32)
        last[unit] = 0.125
        act = network(
            (1, units, 1),
            np.concatenate([weights, 0 * gain, gain, shift, last, [0]]).astype(np.float32),
        )
        assert act(np.ones(1)) == expected[unit] / 8


def test_a_nan_observation_gives_a_nan_action():
    policy = network((2, 20, 3), random_theta(Layout((2, 20, 3), layer_norm=True)))
    assert np.isnan(policy(np.array([np.nan, 1.0]))).all()
    assert np.isfinite(policy(np.array([0.5, 1.0]))).all()


def test_a_theta_without_gains_is_refused():
    with pytest.raises(ValueError, match=r"theta must be float32 \[?13\]?"):
        network((2, 2, 1), THETA[:9])


def test_a_policy_of_a_layout_acts_by_it():
    policy = Policy(LAYOUT, "relu", "clip", -np.ones(1), np.ones(1)).set(THETA)
    assert policy(np.array([1.0, 2.0])) == pytest.approx([0.625], rel=1e-5)


# --- a learner's passes


def passes(members: int, sizes, activation: str, products=torch.float32):
    """Return a network of random values, a pass of it, inputs and the gradient by its outputs."""
    layout, lead = Layout(sizes, layer_norm=True), (members,) if members > 1 else ()
    thetas = [layout.initial(0, member) for member in range(members)]
    made = Network(layout, thetas, activation, torch.device("cpu"), products)
    random = torch.Generator().manual_seed(1)
    made.values.add_(0.3 * torch.randn(made.values.shape, generator=random))
    made.refresh()
    x, delta = (torch.randn(*lead, 20, size, generator=random) for size in (sizes[0], sizes[-1]))
    return made, Pass(made, 20), x, delta


@pytest.mark.parametrize("sizes", [(3, 8, 12, 2), (3, 8, 1), (3, 2)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("members", [1, 2])
def test_passes_are_those_of_autograd(members, activation, sizes):
    """Outputs, the gradient by all parameters and the one by the first layer's sums.

    The latter without touching the former.
    """
    made, buffers, x, delta = passes(members, sizes, activation)
    do, alone = Operations(), Operations()
    output = buffers.forward(do, made, x)
    buffers.backward(do, made, x, delta)
    do.run()
    plain = modules(made, activation)
    rows = [(x, delta)] if members == 1 else list(zip(x, delta, strict=True))
    made_by_torch = [module(one.double()) for module, (one, _) in zip(plain, rows, strict=True)]
    torch.autograd.backward(made_by_torch, [by_output.double() for _, by_output in rows])
    expected = torch.stack(made_by_torch).detach()
    assert distance(output, expected if members > 1 else expected[0]) < 1e-6
    assert distance(made.gradient, flat(plain, "grad")) < 1e-6

    kept = made.gradient.clone()
    first = buffers.inputs_backward(alone, made, delta)
    alone.run()
    by_bias = torch.cat([module[0].bias.grad for module in plain])
    assert distance(first.sum(-2).flatten(), by_bias) < 1e-5
    assert torch.equal(made.gradient, kept)


def test_a_member_passes_as_it_does_beside_the_others():
    made, buffers, x, _ = passes(2, (3, 8, 2), "tanh")
    do = Operations()
    both, one = buffers.forward(do, made, x), made.member(1)
    alone = Pass(one, 20).forward(do, one, x[1])
    do.run()
    assert torch.allclose(alone, both[1], atol=1e-6)


def test_the_tail_of_a_pass_is_that_of_its_rows():
    made, buffers, x, delta = passes(1, (3, 8, 12, 2), "tanh")
    do = Operations()
    buffers.forward(do, made, x)
    buffers.tail(5).backward(do, made, x[-5:], delta[-5:])
    do.run()
    (plain,) = modules(made, "tanh")
    plain(x[-5:].double()).backward(delta[-5:].double())
    assert distance(made.gradient, flat([plain], "grad")) < 1e-6


def test_the_pass_in_numpy_is_torchs():
    made, buffers, x, _ = passes(1, (3, 8, 12, 2), "tanh")
    do = Operations()
    output = buffers.forward(do, made, x)
    do.run()
    assert (
        np.abs(
            np.stack([forward(made.numpy(), "tanh", row) for row in x.numpy()]) - output.numpy()
        ).max()
        < 2e-6
    )


@pytest.mark.parametrize("members", [1, 2])
def test_between_bfloat16_products_the_normalisation_is_float32(members):
    """bfloat16 has 8 bits: outputs, and the gradient by each tensor, are within a few percent."""
    full, one, x, delta = passes(members, (3, 64, 64, 2), "tanh")
    half, other, _, _ = passes(members, (3, 64, 64, 2), "tanh", torch.bfloat16)
    outputs, do = [], Operations()
    for made, buffers in ((full, one), (half, other)):
        outputs.append(buffers.forward(do, made, x))
        buffers.backward(do, made, x, delta)
    do.run()
    assert 1e-4 < distance(outputs[1], outputs[0].double()) < 0.03
    for of_half, of_full in zip(
        half._views(half.gradient), full._views(full.gradient), strict=True
    ):
        assert 1e-4 < distance(of_half, of_full.double()) < 0.05
    assert {layer.gain.dtype for layer in half.layers[:-1]} == {torch.float32}
    assert half.layers[0].weight.dtype == torch.bfloat16


# --- whole runs


def test_the_run_does_not_depend_on_ranks_or_restarts(tmp_path, alone, together):
    """ESAC with everything in it, so both its halves; test_learners.py has DDPG's actor."""
    arguments = [*CYCLIC, "--policy.layer_norm", "true", "--sac.critic_layer_norm", "true"]
    alone(*arguments, "--budget.generations", 9, "--run-dir", tmp_path / "straight")
    alone(*arguments, "--budget.generations", 4, "--run-dir", tmp_path / "parts")
    together(3, *arguments, "--budget.generations", 9, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    policy = SavedPolicy.load(tmp_path / "parts")
    assert policy.layout == Layout((3, 8, 8, 3), layer_norm=True)
    gains = np.concatenate([layer.gain for layer in policy.layout.layers(policy.theta)[:-1]])
    assert 0 < np.abs(gains - 1).max() < 10
