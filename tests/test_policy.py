"""The flat layout and the forward pass against hand-computed numbers."""

import numpy as np
import pytest

from esac_mpi.policy import Layout, Normaliser, Policy

LAYOUT = Layout((2, 2, 1))
#                  W1 [2, 2]             b1 [2]      W2 [1, 2]  b2
THETA = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 0.5, -0.25, 0.125], np.float32)


def make(activation="relu", output="tanh", low=-1.0, high=1.0, normaliser=None) -> Policy:
    return Policy(LAYOUT, activation, output, np.array([low]), np.array([high]), normaliser).set(THETA)


def test_layout_of_the_papers_halfcheetah_policy():
    assert Layout((17, 512, 512, 6)).d == 17 * 512 + 512 + 512 * 512 + 512 + 512 * 6 + 6


def test_relu_forward_pass():
    # hidden: relu(1*1 - 1*2 + .25) = 0, relu(.5*1 + 2*2 - 1) = 3.5; out: -.25*3.5 + .125 = -.75
    np.testing.assert_allclose(make()(np.array([1.0, 2.0])), [np.tanh(-0.75)], rtol=1e-6)


def test_tanh_forward_pass():
    hidden = np.tanh([-0.75, 3.5])
    np.testing.assert_allclose(make("tanh")(np.array([1.0, 2.0])), [np.tanh(hidden @ [0.5, -0.25] + 0.125)], rtol=1e-6)


def test_clip_output():
    assert make(output="clip")(np.array([1.0, 2.0])) == np.float32(-0.75)
    assert make(output="clip")(np.array([1.0, 9.0])) == np.float32(-1.0)


def test_actions_are_scaled_to_the_bounds():
    squashed = np.tanh(-0.75)
    np.testing.assert_allclose(make(low=-0.4, high=0.4)(np.array([1.0, 2.0])), [0.4 * squashed], rtol=1e-6)
    np.testing.assert_allclose(make(low=0.0, high=3.0)(np.array([1.0, 2.0])), [1.5 + 1.5 * squashed], rtol=1e-6)


def test_observations_are_normalised_and_clipped():
    normaliser = Normaliser(np.array([1.0, 0.0], np.float32), np.array([2.0, 0.001], np.float32))
    np.testing.assert_array_equal(normaliser(np.array([5.0, -3.0], np.float32)), [2.0, -5.0])
    plain, normalised = make(), make(normaliser=normaliser)
    np.testing.assert_array_equal(normalised(np.array([5.0, -3.0], np.float32)).copy(), plain(np.array([2.0, -5.0], np.float32)))


def test_a_policy_keeps_its_own_copy_of_theta():
    theta = THETA.copy()
    policy = make().set(theta)
    theta[:] = 0
    np.testing.assert_array_equal(policy.theta, THETA)


def test_initial_weights_are_xavier_uniform_with_zero_biases():
    layout = Layout((17, 64, 6))
    weights, bias, last, _ = layout.views(layout.initial(0, 0))
    bound = np.sqrt(6 / (17 + 64))
    assert np.abs(weights).max() <= bound
    assert weights.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)
    assert not bias.any()
    assert last.any()
    assert (layout.initial(0, 0) != layout.initial(0, 1)).any()


def test_rows_bound_every_row_of_a_matrix_and_every_element_of_a_bias():
    np.testing.assert_array_equal(LAYOUT.rows(), [0, 2, 4, 5, 6, 8, 9])


def test_a_wrong_theta_is_refused_naming_the_shape():
    with pytest.raises(ValueError, match=r"float32 \[9\], got float64 \[9\]"):
        LAYOUT.views(np.zeros(9))
