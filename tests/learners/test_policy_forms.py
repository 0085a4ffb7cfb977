"""policy.layer_norm and policy.linear: in theta, in the passes, in files and in whole runs."""

import numpy as np
import pytest
import torch
from gradients import distance, flat, modules
from saved_policies import LINEAR, NORMED
from warm_starts import NETWORK, options, started

from esac_mpi import Policy as SavedPolicy
from esac_mpi import envs
from esac_mpi.config import Config, amend
from esac_mpi.config.reads import find_unread
from esac_mpi.config.run import automatic_gain
from esac_mpi.learners.explorers import forward
from esac_mpi.learners.network import Network, Operations, Pass
from esac_mpi.operators import kernels
from esac_mpi.operators.policy import Layout, Normaliser, Policy
from esac_mpi.play.params import Params
from esac_mpi.training.task_set_up import describe_task, resolve_by_task

pytestmark = pytest.mark.slow

OF_NORM, OF_PATH = Layout((2, 2, 1), layer_norm=True), Layout((2, 2, 1), linear=2.0)
SIZES = [(1, 1, 1), (3, 2, 2), (5, 7, 3), (17, 33, 65, 6), (100, 8, 4), (9, 16, 17, 15, 1)]
FORMS = [(False, 0.0), (True, 0.0), (False, 0.75), (True, 0.75)]  # layer_norm, gain of the path


def test_gain_and_shift_follow_the_bias_of_every_hidden_layer():
    layout = Layout((3, 4, 5, 2), layer_norm=True)
    hidden = ["weight", "bias", "gain", "shift"]
    assert [tensor.kind for tensor in layout.tensors] == [*hidden, *hidden, "weight", "bias"]
    assert layout.d == Layout((3, 4, 5, 2)).d + 2 * (4 + 5) == 12 + 3 * 4 + 20 + 3 * 5 + 10 + 2
    first, last = OF_NORM.layers(NORMED)
    numbers = [[[1, -1], [0.5, 2]], [0.25, -1], [2, 0.5], [3, -1]]
    assert [tensor.tolist() for tensor in first] == numbers
    assert (last.weight.tolist(), last.bias.tolist()) == ([[0.5, -0.25]], [0.125])
    assert last.gain is last.shift is None
    np.testing.assert_array_equal(OF_NORM.rows(), [0, 2, 4, 5, 6, 7, 8, 9, 10, 12, 13])
    assert Layout((3, 2), layer_norm=True).tensors == Layout((3, 2)).tensors


def test_an_outputs_row_has_weights_from_the_observation():
    layout = Layout((3, 4, 5, 2), linear=4.0)
    shapes = [(4, 3), (4,), (5, 4), (5,), (2, 5 + 3), (2,)]
    assert [tensor.shape for tensor in layout.tensors] == shapes
    assert layout.d == Layout((3, 4, 5, 2)).d + 2 * 3
    np.testing.assert_array_equal(OF_PATH.rows(), [0, 2, 4, 5, 6, 10, 11])
    np.testing.assert_array_equal(OF_PATH.scale(0.0), [1] * 6 + [0] * 5)
    assert Layout((3, 2), linear=4.0).tensors == Layout((3, 2)).tensors


def test_initial_weights_are_as_without_it_gain_1_and_shift_0():
    plain, normed = Layout((3, 4, 5, 2)), Layout((3, 4, 5, 2), layer_norm=True)
    pairs = plain.layers(plain.initial(3, 1)), normed.layers(normed.initial(3, 1))
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)
        assert not other.bias.any()
        assert other.gain is None or ((other.gain == 1).all() and not other.shift.any())


def test_the_output_with_a_path_begins_at_zero():
    config, plain = amend(Config(), {"seed": 3, "policy.linear": True}), Layout((3, 4, 5, 2))
    layout = Layout(plain.sizes, linear=config.policy.path_gain(plain.sizes[0]))
    views = layout.views(Params(config, layout, 10, None).initial(1))
    assert not any(view.any() for view in views[-2:])
    for one, other in zip(views[:-2], plain.views(plain.initial(3, 1))[:-2], strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_gain_of_the_linear_path_is_by_the_observations():
    gains = {n: automatic_gain(n) for n in (8, 17, 24, 105, 348)}
    assert gains == {8: 4.0, 17: 4.0, 24: 3.4, 105: 1.6, 348: 1.0}  # 4 sqrt(17 / n), at least 1
    ant = envs.make("Ant-v5")
    config, names = resolve_by_task(Config(), ant)
    assert (config.policy.linear_gain, "policy.linear_gain" in names.split()) == (1.6, True)
    assert "policy.linear_gain 1.6: for 105 observations" in list(describe_task(config, names, ant))
    kept, names = resolve_by_task(amend(Config(), {"policy.linear_gain": 4.0}), ant)
    assert (kept.policy.linear_gain, "linear_gain" in names) == (4.0, False)
    for no_path in ({"policy.hidden": ()}, {"policy.linear": False}):  # as 0.2.0 had it
        assert resolve_by_task(amend(Config(), no_path), ant)[0].policy.linear_gain == 4.0


def network(sizes, theta, activation="relu", layer_norm=False, linear=0.0):
    """Return a function that runs a forward pass without the last squashing but clip(-1, 1)."""
    bound = np.ones(sizes[-1], np.float32)
    made = kernels.Perceptron(sizes, activation, "clip", -bound, bound, layer_norm, linear)
    made.load(theta)
    out = np.zeros_like(bound)

    def act(x):
        made.act(x, out, False, None, None)
        return out.copy()

    return act


def test_a_forward_pass_with_a_path_by_hand():
    # units relu(0.5) and relu(-0.25): 0.5 * 0.5 / 2;
    # the path 2 * (0.5 / 8 - 0.25 / 2) = -0.125; the bias 0.125
    act = network((2, 2, 1), LINEAR, linear=2.0)
    for _ in range(2):
        assert act(np.array([0.5, 0.25])) == pytest.approx([0.125 - 0.125 + 0.125])
        assert act(np.zeros(2)) == pytest.approx([0.5 * 0.25 / 2 + 0.125])
    # the path sees the observation as the network does: standardised, (3 - 1) / 4 and (0.5 - 0) / 2
    normaliser = Normaliser(np.array([1.0, 0.0], np.float32), np.array([4.0, 2.0], np.float32))
    policy = Policy(OF_PATH, "relu", "clip", -np.ones(1), np.ones(1), normaliser).set(LINEAR)
    assert policy(np.array([3.0, 0.5])) == pytest.approx([0.125])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("layer_norm", "linear"), FORMS)
def test_the_forward_pass_is_torchs_in_float64(layer_norm, linear, activation, sizes):
    layout, random = Layout(sizes, layer_norm, linear), np.random.default_rng(0)
    theta = (0.2 * random.standard_normal(layout.d)).astype(np.float32)
    act = network(sizes, theta, activation, layer_norm, linear)
    (plain,) = modules(Network(layout, [theta], activation, torch.device("cpu")), activation)
    for x in random.standard_normal((5, sizes[0])).astype(np.float32):
        expected = plain(torch.from_numpy(x[None]).double())[0].detach().clamp(-1, 1).numpy()
        np.testing.assert_allclose(act(x), expected, atol=1e-5)


@pytest.mark.parametrize("units", [1, 5, 16, 33, 300])
def test_compiled_sums_over_units_run_in_sixteen_parts(units):
    """One input of 1, zero biases: the sums are the weights. The output: one unit / 8, exactly."""
    one = np.float32
    weights = np.random.default_rng(units).standard_normal(units).astype(np.float32)
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
        theta = np.concatenate([weights, 0 * gain, gain, shift, last, [0]]).astype(np.float32)
        assert network((1, units, 1), theta, layer_norm=True)(np.ones(1)) == expected[unit] / 8


def passes(members, sizes, activation="tanh", layer_norm=True, linear=0.0, products=torch.float32):
    """Return a network of random values, a pass of it, inputs and the gradient by its outputs."""
    layout, lead = Layout(sizes, layer_norm, linear), (members,) if members > 1 else ()
    thetas = [layout.initial(0, member) for member in range(members)]
    made = Network(layout, thetas, activation, torch.device("cpu"), products)
    random = torch.Generator().manual_seed(1)
    made.values.add_(0.3 * torch.randn(made.values.shape, generator=random))
    made.refresh()
    x, delta = (torch.randn(*lead, 20, size, generator=random) for size in (sizes[0], sizes[-1]))
    return made, Pass(made, 20), x, delta


@pytest.mark.parametrize("sizes", [(3, 8, 12, 2), (3, 8, 1), (3, 2)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("layer_norm", "linear"), [(False, 4.0), (True, 0.0), (True, 4.0)])
@pytest.mark.parametrize("members", [1, 2])
def test_passes_are_those_of_autograd(members, layer_norm, linear, activation, sizes):
    """Outputs, gradients of all rows and of the last ones; beside them that by the first sums."""
    linear = linear if len(sizes) > 2 else 0.0  # there is no path without hidden layers
    made, buffers, x, delta = passes(members, sizes, activation, layer_norm, linear)
    whole = Operations()
    output = buffers.forward(whole, made, x)
    for rows in (20, 5):
        do, alone = whole if rows == 20 else Operations(), Operations()
        part = buffers if rows == 20 else buffers.tail(5)
        part.backward(do, made, x[..., -rows:, :], delta[..., -rows:, :])
        do.run()
        plain = modules(made, activation)
        inputs = x[..., -rows:, :].reshape(members, rows, -1).double()
        by_output = delta[..., -rows:, :].reshape(members, rows, -1).double()
        expected = [module(one) for module, one in zip(plain, inputs, strict=True)]
        torch.autograd.backward(expected, list(by_output))
        outputs = output[..., -rows:, :].reshape(-1, sizes[-1])
        assert distance(outputs, torch.cat(expected).detach()) < 1e-6
        assert distance(made.gradient, flat(plain, "grad")) < 1e-6
        if rows == 20 and not linear:
            kept = made.gradient.clone()
            first = buffers.inputs_backward(alone, made, delta)
            alone.run()
            by_bias = torch.cat([module[0].bias.grad for module in plain])
            assert distance(first.sum(-2).flatten(), by_bias) < 1e-5
            assert torch.equal(made.gradient, kept)
    if members == 1:
        in_numpy = np.stack([forward(made.numpy(), activation, row, linear) for row in x.numpy()])
        assert np.abs(in_numpy - output.numpy()).max() < 2e-6


@pytest.mark.parametrize("members", [1, 2])
def test_between_bfloat16_products_the_normalisation_is_float32(members):
    """bfloat16 has 8 bits: outputs, and the gradient by each tensor, are within a few percent."""
    full, one, x, delta = passes(members, (3, 64, 64, 2))
    half, other, _, _ = passes(members, (3, 64, 64, 2), products=torch.bfloat16)
    outputs, do = [], Operations()
    for made, buffers in ((full, one), (half, other)):
        outputs.append(buffers.forward(do, made, x))
        buffers.backward(do, made, x, delta)
    do.run()
    assert 1e-4 < distance(outputs[1], outputs[0].double()) < 0.03
    gradients = half._views(half.gradient), full._views(full.gradient)
    for of_half, of_full in zip(*gradients, strict=True):
        assert 1e-4 < distance(of_half, of_full.double()) < 0.05
    assert {layer.gain.dtype for layer in half.layers[:-1]} == {torch.float32}
    assert half.layers[0].weight.dtype == torch.bfloat16


def test_a_gain_of_no_path_is_not_read():
    plain = amend(Config(), {"policy.linear": False})
    assert find_unread(plain, ["policy.linear_gain"]).keys() == {"policy.linear_gain"}


@pytest.mark.parametrize(
    "name", ["esac", "es", "sac", "td3", "ddpg", "cem", "cem_rl", "aes_rl", "erl", "pderl"]
)
@pytest.mark.parametrize("form", [["--policy.linear", "true"], ["--policy.hidden", "[]"]])
def test_every_algorithm_has_a_path_and_policies_without_layers(name, form, tmp_path):
    line = options(name)
    for word in NETWORK.split() if "[]" in form else ():
        line.remove(word)  # which says more of layers
    assert started(tmp_path, *line, *form, "--budget.generations", 2) == 0
    saved = SavedPolicy.load(tmp_path)
    bare = Layout((3, 3), saved.layout.layer_norm)  # as the preset has it, of no layer
    assert saved.layout == (Layout((3, 6, 3), linear=4.0) if "true" in form else bare)
