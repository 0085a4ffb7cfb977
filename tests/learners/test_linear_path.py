"""policy.linear: a path from the observation straight to the output.

In theta, in the passes, in files and in whole runs.
"""

import numpy as np
import pytest
import torch
from conftest import CYCLIC
from gradients import distance, flat, modules
from saved_policies import LINEAR
from small_sac import learner
from warm_starts import options, started
from whole_runs import assert_same_run

from esac_mpi import Policy as SavedPolicy
from esac_mpi.config import Config, updated
from esac_mpi.config.reads import unread
from esac_mpi.learners.base import forward
from esac_mpi.learners.network import Network, Operations, Pass
from esac_mpi.operators import genetics, kernels
from esac_mpi.operators.policy import Layout, Normaliser, Policy
from esac_mpi.play.params import Params

pytestmark = pytest.mark.slow

LAYOUT, THETA = Layout((2, 2, 1), linear=2.0), LINEAR
SIZES = [(1, 1, 1), (3, 2, 2), (5, 7, 3), (17, 33, 65, 6), (100, 8, 4), (9, 16, 17, 15, 1)]


# --- theta


def test_an_output_units_row_has_its_weights_from_the_units_and_from_the_observation():
    layout = Layout((3, 4, 5, 2), linear=4.0)
    assert [tensor.shape for tensor in layout.tensors] == [
        (4, 3),
        (4,),
        (5, 4),
        (5,),
        (2, 5 + 3),
        (2,),
    ]
    assert layout.d == Layout((3, 4, 5, 2)).d + 2 * 3
    np.testing.assert_array_equal(LAYOUT.rows(), [0, 2, 4, 5, 6, 10, 11])
    np.testing.assert_array_equal(LAYOUT.scale(0.0), [1] * 6 + [0] * 5)
    assert Layout((3, 2), linear=4.0).tensors == Layout((3, 2)).tensors


def test_the_output_begins_at_zero_and_hidden_layers_as_they_do_without():
    config, plain = updated(Config(), {"seed": 3, "policy.linear": True}), Layout((3, 4, 5, 2))
    layout = Layout(plain.sizes, linear=config.policy.path_gain)
    theta = Params(config, layout, 10, None).initial(1)
    assert not any(view.any() for view in layout.views(theta)[-2:])
    for one, other in zip(
        layout.views(theta)[:-2], plain.views(plain.initial(3, 1))[:-2], strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_members_of_the_erl_family_begin_small_as_a_mutation_leaves_zeros_as_they_are():
    drawn, small = LAYOUT.initial(0, 1), genetics.initial(LAYOUT, 0, 1)
    assert drawn[6:10].all()
    np.testing.assert_array_equal(small[6:], np.float32(0.1) * drawn[6:])


# --- the forward pass


def network(sizes, theta, activation="relu", layer_norm=False, linear=2.0):
    """Return a function that runs a forward pass without the last squashing but clip(-1, 1)."""
    bound = np.ones(sizes[-1], np.float32)
    made, out = (
        kernels.Perceptron(sizes, activation, "clip", -bound, bound, layer_norm, linear),
        np.zeros_like(bound),
    )
    made.load(theta)

    def act(x):
        made.act(x, out, False, None, None)
        return out.copy()

    return act


def test_a_forward_pass_by_hand():
    """Units relu(0.5) and relu(-0.25): 0.5 * 0.5 / 2.

    The path 2 * (0.5 / 8 - 0.25 / 2) = -0.125; the bias 0.125.
    """
    act = network((2, 2, 1), THETA)
    for _ in range(2):
        assert act(np.array([0.5, 0.25])) == pytest.approx([0.125 - 0.125 + 0.125])
        assert act(np.zeros(2)) == pytest.approx([0.5 * 0.25 / 2 + 0.125])


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_forward_pass_is_torchs_in_float64(sizes, layer_norm):
    layout, random = Layout(sizes, layer_norm, 0.75), np.random.default_rng(0)
    theta = (0.2 * random.standard_normal(layout.d)).astype(np.float32)
    act = network(sizes, theta, "tanh", layer_norm, 0.75)
    (plain,) = modules(Network(layout, [theta], "tanh", torch.device("cpu")), "tanh")
    for x in random.standard_normal((5, sizes[0])).astype(np.float32):
        expected = plain(torch.from_numpy(x[None]).double())[0].detach().clamp(-1, 1).numpy()
        np.testing.assert_allclose(act(x), expected, atol=1e-5)


def test_the_path_sees_the_observation_as_the_network_does():
    """Standardised: (3 - 1) / 4 and (0.5 - 0) / 2."""
    normaliser = Normaliser(np.array([1.0, 0.0], np.float32), np.array([4.0, 2.0], np.float32))
    policy = Policy(LAYOUT, "relu", "clip", -np.ones(1), np.ones(1), normaliser).set(THETA)
    assert policy(np.array([3.0, 0.5])) == pytest.approx([0.125])


# --- a learner's passes


@pytest.mark.parametrize("sizes", [(3, 8, 12, 2), (3, 8, 1)])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("members", [1, 2])
def test_passes_are_those_of_autograd_whole_and_of_the_last_rows(members, layer_norm, sizes):
    layout, lead = Layout(sizes, layer_norm, 4.0), (members,) if members > 1 else ()
    made = Network(
        layout,
        [layout.initial(0, member) for member in range(members)],
        "tanh",
        torch.device("cpu"),
    )
    random = torch.Generator().manual_seed(1)
    made.values.add_(0.3 * torch.randn(made.values.shape, generator=random))
    x, delta = (torch.randn(*lead, 20, size, generator=random) for size in (sizes[0], sizes[-1]))
    buffers, do = Pass(made, 20), Operations()
    output = buffers.forward(do, made, x)
    for rows in (20, 5):
        part = do if rows == 20 else Operations()
        (buffers if rows == 20 else buffers.tail(5)).backward(
            part, made, x[..., -rows:, :], delta[..., -rows:, :]
        )
        part.run()
        plain = modules(made, "tanh")
        each = [(x, delta)] if members == 1 else list(zip(x, delta, strict=True))
        expected = [
            module(one[-rows:].double()) for module, (one, _) in zip(plain, each, strict=True)
        ]
        torch.autograd.backward(expected, [by_output[-rows:].double() for _, by_output in each])
        assert (
            distance(output[..., -rows:, :].reshape(-1, sizes[-1]), torch.cat(expected).detach())
            < 1e-6
        )
        assert distance(made.gradient, flat(plain, "grad")) < 1e-6
    if members == 1:
        alone = np.stack([forward(made.numpy(), "tanh", row, 4.0) for row in x.numpy()])
        assert np.abs(alone - output.numpy()).max() < 2e-6


def test_sacs_standard_deviation_begins_as_without_a_linear_path():
    with_path, without = (
        learner((3, 8, 8, 2), policy__linear=linear).actor for linear in (True, False)
    )
    rows, plain = with_path.layers[-1].weight.mT, without.layers[-1].weight.mT
    assert torch.equal(rows[2:, :8], plain[2:])
    assert not rows[2:, 8:].any()


# --- settings


def test_what_nothing_reads_is_said():
    plain = updated(Config(), {"policy.linear": False})
    assert unread(plain, ["policy.linear_gain"]).keys() == {"policy.linear_gain"}


# --- whole runs


def test_the_run_does_not_depend_on_ranks_or_restarts(tmp_path, alone, together):
    """ESAC with everything in it.

    What it leaves acts by the path, and another run may begin from it.
    """
    arguments = [
        *CYCLIC,
        "--policy.linear",
        "true",
        "--policy.linear_gain",
        3,
        "--esac.observation_normalisation",
        "true",
    ]
    alone(*arguments, "--budget.generations", 9, "--run-dir", tmp_path / "straight")
    alone(*arguments, "--budget.generations", 4, "--run-dir", tmp_path / "parts")
    together(3, *arguments, "--budget.generations", 9, "--run-dir", tmp_path / "parts")
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    policy = SavedPolicy.load(tmp_path / "parts")
    assert policy.layout == Layout((3, 8, 8, 3), linear=3.0)
    assert policy.layout.layers(policy.theta)[-1].weight[:, 8:].any()
    assert repr(policy).endswith("3-8-8-3 linear relu tanh)")


@pytest.mark.parametrize(
    "name", ["esac", "es", "sac", "td3", "ddpg", "cem", "cem_rl", "aes_rl", "erl", "pderl"]
)
@pytest.mark.parametrize("form", [["--policy.linear", "true"], ["--policy.hidden"]])
def test_every_algorithm_has_it_and_policies_without_hidden_layers(name, form, tmp_path):
    assert started(tmp_path, *options(name), *form, "--budget.generations", 2) == 0
    saved = SavedPolicy.load(tmp_path)
    assert saved.layout == (Layout((3, 6, 3), linear=4.0) if "true" in form else Layout((3, 3)))


def test_a_run_begins_from_one_with_the_same_path_alone(tmp_path, capfd):
    linear = [
        *options("es"),
        "--budget.generations",
        2,
        "--policy.linear",
        "true",
        "--policy.linear_gain",
        2,
    ]
    assert started(tmp_path / "a", *linear) == 0
    for source in (tmp_path / "a", tmp_path / "a/policy.h5"):
        plain = [
            *options("es"),
            "--budget.generations",
            2,
            "--policy.linear",
            "false",
            "--seed",
            1,
            "--from",
            source,
        ]
        assert started(tmp_path / "b", *plain) == 2
        told = capfd.readouterr().err
        assert "policy.linear = true, this run's false" in told
        way = ["--policy.linear", "true", "--policy.linear_gain", 2]
        assert started(tmp_path / f"of {source.name}", *plain, *way) == 0
