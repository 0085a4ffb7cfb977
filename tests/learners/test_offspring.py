"""Distillation crossover and proximal mutation: against plain torch, by hand, on any threads."""

import math
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from gradients import modules
from torch import nn

from esac_mpi.config import Config, amend
from esac_mpi.learners import critics, make_operators, offspring
from esac_mpi.learners.network import Network
from esac_mpi.learners.offspring import GeneticOperators
from esac_mpi.operators.policy import Layout, Policy

LAYOUT = Layout((3, 8, 6, 2), layer_norm=True)


def operators(layout: Layout, judge=None, **erl) -> GeneticOperators:
    """Return those of a layout; judge: what to judge by in place of the learner's critic."""
    named = {f"erl.{name}": value for name, value in erl.items()}
    made = GeneticOperators(amend(Config(), {"policy.activation": "tanh", **named}), layout)
    if judge is not None:
        made._judge = Mock(side_effect=judge)
    return made


def moved(layout: Layout, number: int) -> np.ndarray:
    """Return a policy [d] none of whose numbers is 0."""
    noise = np.random.default_rng(number).normal(0, 0.3, layout.d)
    return layout.initial(0, number) + noise.astype(np.float32)


def plain(layout: Layout, theta: np.ndarray) -> nn.Module:
    """Return a policy in plain modules, in double precision."""
    network = Network(layout, [theta], "tanh", torch.device("cpu"))
    return nn.Sequential(modules(network, "tanh")[0], nn.Tanh())


def some_states(n: int, o: int = 3) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(n, o)).astype(np.float32)


def test_actions_are_the_policys():
    theta, states = moved(LAYOUT, 1), some_states(5)
    policy = Policy(LAYOUT, "tanh", "tanh", -np.ones(2), np.ones(2)).set(theta)
    expected = np.stack([policy(state) for state in states])
    found = operators(LAYOUT).actions(theta, states)
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_better_action_is_imitated_or_the_second():
    """Q is the action's one number: 1 against 0, 0 against 1, a tie, and nan."""
    first = np.array([[1.0], [0.0], [2.5], [np.nan]], np.float32)
    second = np.array([[0.0], [1.0], [2.0], [3.0]], np.float32)

    states, judge = np.zeros((4, 1), np.float32), lambda states, actions: np.floor(actions[:, 0])
    chosen = offspring.choose_better(judge, states, first, second)
    assert chosen[:, 0].tolist() == [1.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("layout", [LAYOUT, Layout((3, 8, 1)), Layout((3, 8, 2), linear=2.0)])
def test_a_child_is_that_of_autograd_and_torchs_adam(layout):
    """Algorithm 1 as the paper writes it: two epochs of three batches of 16 among 50 states."""
    thetas = [moved(layout, number) for number in (1, 2, 3)]
    states, batch, rate, scales = some_states(50), 16, 1e-3, np.array([3.0, -1.0, 2.0])

    def judge(states, actions):  # sometimes the first parent, sometimes the second
        return (states @ scales * actions[:, 0]).astype(np.float32)

    made = operators(
        layout, judge, distillation_epochs=2, distillation_batch=batch, lr_distillation=rate
    )
    child = made.distilled(thetas[:2], thetas[2], states, None, np.random.default_rng(5))

    x, y, z = (plain(layout, theta) for theta in thetas)
    adam, random = torch.optim.Adam(z.parameters(), lr=rate), np.random.default_rng(5)
    for indices in random.integers(50, size=(6, batch)):
        s = torch.from_numpy(states[indices]).double()
        with torch.no_grad():
            qx, qy = (torch.from_numpy(states[indices] @ scales) * each(s)[:, 0] for each in (x, y))
        from_x = ((z(s) - x(s).detach()) ** 2).sum(1) * (qx > qy)
        from_y = ((z(s) - y(s).detach()) ** 2).sum(1) * (qy > qx)
        loss = from_x.sum() + from_y.sum() + (z(s) ** 2).sum() / batch
        adam.zero_grad()
        loss.backward()
        adam.step()
        assert 0 < (qx > qy).sum() < batch
    expected = torch.cat([p.flatten() for p in z.parameters()]).detach().numpy()
    assert child.dtype == np.float32
    assert np.allclose(child, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(child - thetas[2]).max() > 3e-3


@pytest.mark.parametrize("n", [0, 1, 15, 16, 31])
def test_a_child_imitates_in_the_few_states_there_are(n):
    *parents, start = [moved(LAYOUT, number) for number in (1, 2, 3)]
    kept, made = start.copy(), []
    for batch in (16, min(n, 16) or 1):
        random = np.random.default_rng(5)
        form = {"distillation_epochs": 3, "distillation_batch": batch}
        own = operators(LAYOUT, lambda states, actions: np.zeros(len(states), np.float32), **form)
        made.append(own.distilled(parents, start, some_states(n), None, random))
    assert np.array_equal(*made)  # as with a batch of all that there is
    assert (not np.array_equal(made[0], kept)) == (n > 0)
    assert not np.shares_memory(made[0], start)
    assert np.array_equal(start, kept)


@pytest.mark.parametrize(
    "layout", [LAYOUT, Layout((3, 8, 1)), Layout((3, 4)), Layout((3, 8, 2), linear=2.0)]
)
def test_sensitivities_are_those_of_autograd_per_output(layout):
    """Eq. 1: the root of the sum over outputs of their gradients' squares, summed over states."""
    theta, states = moved(layout, 1), some_states(20)
    network = plain(layout, theta)
    squares = torch.zeros(layout.d, dtype=torch.float64)
    for k in range(layout.sizes[-1]):
        output = network(torch.from_numpy(states).double())[:, k].sum()
        gradients = torch.autograd.grad(output, network.parameters())
        squares += torch.cat([g.flatten() for g in gradients]) ** 2
    matrix = np.concatenate([np.full(t.stop - t.start, len(t.shape) == 2) for t in layout.tensors])
    sensitive = operators(layout).sensitivity(theta, states)
    assert np.allclose(sensitive, np.where(matrix, squares.sqrt().numpy(), 0), rtol=1e-5, atol=1e-6)
    assert (sensitive[matrix] > 0).all()


def test_a_mutation_of_two_weights_by_hand():
    # mu = tanh(w x + b), two of them;
    # where w, b = 0: s = 4 in x = 1 and 3; below the floor in x = 0.001; 1 where they are 0
    made, theta = operators(Layout((1, 2))), np.zeros(4, np.float32)
    noise = np.random.default_rng(5).standard_normal(2, dtype=np.float32)
    for x, s in (([1.0, 3.0], 4.0), ([0.001], 0.01), ([0.0], 1.0), ([2.0, -2.0], 1.0)):
        states = np.array(x, np.float32)[:, None]
        mutated = made.proximal(theta, states, np.random.default_rng(5))
        assert mutated.dtype == np.float32
        assert mutated == pytest.approx([*(0.1 * noise / s), 0, 0], rel=1e-6)
    assert not theta.any()
    theta[:] = [1, 0, 0.5, 0]
    sensitive = made.sensitivity(theta, np.array([[1.0], [-2.0]], np.float32))
    expected = abs(1 - math.tanh(1.5) ** 2 - 2 * (1 - math.tanh(-1.5) ** 2))
    assert sensitive == pytest.approx([expected, 1, 0, 0], rel=1e-5)


def test_a_child_and_a_mutation_do_not_depend_on_torchs_threads():
    """Large enough that torch would divide the work; threads are given back, also after errors."""
    layout = Layout((17, 64, 64, 6), layer_norm=True)
    own, critic = operators(layout, distillation_epochs=1), critics.initial(Config(), layout)
    parents = moved(layout, 1), moved(layout, 2)
    states, before, made = some_states(2000, 17), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            random = np.random.default_rng(5)
            child = own.distilled(parents, parents[0], states, critic, random)
            made.append(own.proximal(child, states, random))
            assert torch.get_num_threads() == threads
        with pytest.raises(ValueError, match="theta must be float32"):
            own.sensitivity(parents[0][1:], states)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*made)


def test_beside_compiled_kernels_they_are_torchs():
    """SAC's update may be in C in ERL's family, too; mutants are as beside any other learner."""
    named = {"algorithm": "pderl", "erl.learner": "sac", "learner.kernels": "compiled"}
    config, layout = amend(Config(), named), Layout((3, 8, 2))
    made = make_operators("offspring", config, layout), GeneticOperators(config, layout)
    theta, states = moved(layout, 1), some_states(20)
    found = [each.proximal(theta, states, np.random.default_rng(0)) for each in made]
    assert np.array_equal(*found)
