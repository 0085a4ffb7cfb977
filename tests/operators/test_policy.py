"""The flat layout and the forward pass against hand-computed numbers."""

import numpy as np
import pytest

from esac_mpi.operators import kernels
from esac_mpi.operators.policy import Layout, Normaliser, Policy

LAYOUT = Layout((2, 2, 1))
#                  W1 [2, 2]             b1 [2]      W2 [1, 2]  b2
THETA = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 0.5, -0.25, 0.125], np.float32)
X = np.array([1.0, 2.0])


def make(activation="relu", output="tanh", low=-1.0, high=1.0, normaliser=None) -> Policy:
    bounds = np.array([low]), np.array([high])
    return Policy(LAYOUT, activation, output, *bounds, normaliser).set(THETA)


def linear(*theta) -> Policy:
    made = Policy(Layout((2, 1)), "relu", "clip", -np.ones(1), np.ones(1))
    return made.set(np.array(theta, np.float32))


def test_layout_of_the_papers_halfcheetah_policy():
    assert Layout((17, 512, 512, 6)).d == 17 * 512 + 512 + 512 * 512 + 512 + 512 * 6 + 6
    np.testing.assert_array_equal(LAYOUT.rows(), [0, 2, 4, 5, 6, 8, 9])  # of matrices and biases
    with pytest.raises(ValueError, match=r"float32 \[9\], got float64 \[9\]"):
        LAYOUT.views(np.zeros(9))


@pytest.mark.parametrize(
    ("how", "x", "action"),
    [
        # hidden: relu(1*1 - 1*2 + .25) = 0, relu(.5*1 + 2*2 - 1) = 3.5; out: -.25*3.5 + .125 = -.75
        ({}, X, np.tanh(-0.75)),
        ({"activation": "tanh"}, X, np.tanh(np.tanh([-0.75, 3.5]) @ [0.5, -0.25] + 0.125)),
        ({"output": "clip"}, X, -0.75),
        ({"output": "clip"}, [1.0, 9.0], -1.0),
        ({"low": -0.4, "high": 0.4}, X, 0.4 * np.tanh(-0.75)),
        ({"low": 0.0, "high": 3.0}, X, 1.5 + 1.5 * np.tanh(-0.75)),
    ],
)
def test_forward_passes_by_hand(how, x, action):
    np.testing.assert_allclose(make(**how)(np.array(x)), [action], rtol=1e-6)


def boxes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random float32 bounds [count]: asymmetric of all sizes; some 0, equal or symmetric."""
    random = np.random.default_rng(0)
    ends = random.uniform(-2, 2, (2, count)) * 10.0 ** random.integers(-6, 7, count)
    low, high = np.sort(ends, axis=0).astype(np.float32)
    low[:50], high[50:100], low[100:150] = 0, np.maximum(low[50:100], 0), high[100:150]
    low[150:200] = -np.abs(high[150:200])
    return low, np.maximum(low, high)


def test_no_action_leaves_the_bounds_by_rounding():
    low, high = boxes(4000)
    random, size, outside = np.random.default_rng(1), low.size, 0
    some, ends = random.uniform(-1, 1, size), random.choice([-1.0, 1.0], size)
    network = kernels.Perceptron((1, size), "relu", "clip", low, high)
    for y in (1.0, -1.0, 1 - 2**-24, some, ends):
        theta = np.concatenate([np.zeros(size), np.full(size, y)]).astype(np.float32)
        action = np.zeros_like(low)
        network.load(theta)
        network.act(np.zeros(1), action, True, None, None)
        assert ((low <= action) & (action <= high)).all()
        plain = (high + low) / 2 + (high - low) / 2 * theta[size:]
        inside = (low <= plain) & (plain <= high)
        np.testing.assert_array_equal(action[inside], plain[inside])
        outside += (~inside).sum()
    assert outside > 1000


def test_a_policy_keeps_its_own_copy_of_theta_and_of_an_action():
    theta = THETA.copy()
    policy = make().set(theta)
    theta[:] = 0
    np.testing.assert_array_equal(policy.theta, THETA)
    first = policy(X)
    kept = first.copy()
    assert policy(np.array([-3.0, 1.0])) != kept
    np.testing.assert_array_equal(first, kept)


def test_initial_weights_are_xavier_uniform_with_zero_biases():
    layout = Layout((17, 64, 6))
    weights, bias, last, _ = layout.views(layout.initial(0, 0))
    bound = np.sqrt(6 / (17 + 64))
    assert np.abs(weights).max() <= bound
    assert weights.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert not bias.any()
    assert last.any()
    assert (layout.initial(0, 0) != layout.initial(0, 1)).any()


def test_written_weights_count_after_refresh():
    policy = make(output="clip")
    policy.theta[-1] = 1.0
    assert policy.refresh()(X) == np.float32(0.125)
    policy.theta[-1] = 0.5
    assert policy.set(policy.theta)(X) == np.float32(-0.375)


SIZES = [(1, 1), (3, 2), (5, 7, 3), (2, 1, 1), (17, 33, 65, 6), (9, 64, 64, 17)]
SIZES += [(1, 16, 17, 15, 1), (40, 31, 16)]


def random_policy(sizes, activation="relu", output="clip", scale=1.0, normaliser=None, norm=False):
    layout, random = Layout(sizes, layer_norm=norm), np.random.default_rng(len(sizes))
    low = random.uniform(-3, 0, sizes[-1])
    high = low + random.uniform(1, 4, sizes[-1])
    policy = Policy(layout, activation, output, low, high, normaliser)
    return policy.set(scale * random.standard_normal(layout.d).astype(np.float32))


def layers(policy):
    views = policy.layout.views(policy.theta)
    return zip(views[::2], views[1::2], strict=True)


def sequential(policy: Policy, x: np.ndarray) -> np.ndarray:
    """Return the output before squashing: bias first, then nonzero inputs in order, all float32."""
    for i, (weight, bias) in enumerate(layers(policy)):
        x = np.maximum(x, 0) if i else x
        s = bias.copy()
        for j in np.flatnonzero(x):
            s = s + x[j] * weight[:, j]
        x = s
    return x


@pytest.mark.parametrize("sizes", SIZES)
def test_compiled_sums_run_in_the_order_of_the_inputs(sizes):
    policy = kernels.Perceptron(sizes, "relu", "clip", *2 * [np.zeros(sizes[-1], np.float32)])
    out, random = np.zeros(sizes[-1], np.float32), np.random.default_rng(0)
    reference = random_policy(sizes, scale=0.1)
    policy.load(reference.theta)
    for zeros in (0.0, 0.4, 1.0):
        x = random.standard_normal(sizes[0]).astype(np.float32) * (random.random(sizes[0]) >= zeros)
        expected = sequential(reference, x.astype(np.float32))
        assert np.abs(expected).max() < 1  # or the clip hides it
        policy.act(x, out, False, None, None)
        np.testing.assert_array_equal(out, expected)


def test_the_observation_may_be_float64_or_strided():
    policy, x = random_policy((4, 5, 2)), np.array([0.3, -1.2, 0.7, 2.1])
    single = x.astype(np.float32)
    for same in (x, np.repeat(x, 3)[::3], np.repeat(single, 2)[::2], x[::-1].copy()[::-1]):
        np.testing.assert_array_equal(policy(same), policy(single))


@pytest.mark.parametrize(
    "wrong", [np.zeros(3), np.zeros(5), np.zeros((4, 1)), np.zeros(4, np.int64), np.zeros(4, ">f4")]
)
def test_a_wrong_observation_is_refused(wrong):
    with pytest.raises(ValueError, match=r"the observation must be float32 or float64 \[4\]"):
        random_policy((4, 5, 2))(wrong)


def test_a_wrong_normaliser_is_refused():
    normaliser = Normaliser(np.zeros(3, np.float32), np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"mean must be float32 \[4\]"):
        random_policy((4, 5, 2), normaliser=normaliser)(np.zeros(4))


@pytest.mark.parametrize("sizes", [(2, 1), (2, 20, 3)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("output", ["tanh", "clip"])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("norm", [True, False])
def test_a_nan_observation_gives_a_nan_action(sizes, activation, output, normalised, norm):
    normaliser = Normaliser(np.zeros(2, np.float32), np.ones(2, np.float32)) if normalised else None
    policy = random_policy(sizes, activation, output, normaliser=normaliser, norm=norm)
    assert np.isnan(policy(np.array([np.nan, 1.0]))).all()
    assert np.isfinite(policy(np.array([0.5, 1.0]))).all()


def test_an_infinite_observation_propagates():
    assert linear(1, -1, 0)(np.array([0.5, np.inf])) == -1
    with np.errstate(invalid="ignore"):
        assert np.isnan(linear(1, -1, 0)(np.array([np.inf, np.inf])))


def test_a_nan_weight_shows_where_its_input_is_not_zero():
    assert np.isnan(linear(np.nan, 1, 0)(np.array([0.5, 0.25])))
    assert linear(np.nan, 1, 0)(np.array([0.0, 0.25])) == 0.25
