"""What an arrival does to AES-RL's distribution, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_moves import move
from esac_mpi.algorithms.aes_state import COLUMNS
from esac_mpi.algorithms.aes_work import Result
from esac_mpi.config import AESRL
from esac_mpi.play.counters import Counters

PAST = {"workers": 1, "relative_baseline": 100.0, "start_steps": 0}  # nobody waits for the start
SUCCESS = {"mean_rule": "full_move", "variance_rule": "success", "success_window": 1}


def distribution(workers=1, size=1, **more):
    """Return a state of that many numbers, mean 0 and variance 1."""
    return SimpleNamespace(**{
        "mean": np.zeros(size, np.float32), "variance": np.ones(size, np.float32),
        "counters": Counters(), "mean_return": np.nan, "length_of_mean": 0.0, "time": 5,
        "task_told": np.zeros(workers + 1, int), "task_updates": np.zeros(workers + 1, int),
        "task_mean": np.zeros((workers + 1, size), np.float32),
        "row": np.zeros((9, len(COLUMNS))), "arrived": 0, "told": 0, "mean_told": 0,
        "mean_known": 0, "damp": 0.1, "ring": np.zeros((3, size), np.float32),
        "ring_fitness": np.zeros(3), "successes": np.zeros(1, int), **more,
    })  # fmt: skip


def result(fitness, length=4, theta=(1.0,), means=(), lengths=None):
    """Return a task's result: of an individual, and of the mean's episodes."""
    lengths = np.full(len(means), 4) if lengths is None else np.array(lengths)
    nothing, theta = np.zeros((0, 0)), np.array(theta, np.float32)
    return Result(fitness, length, nothing, theta, np.array(means), lengths, 0, 0.0)


def arrive(aes, state, *results, workers=None):
    """Tell results of these workers; return the rows' columns by name."""
    params = SimpleNamespace(config=SimpleNamespace(aes_rl=aes))
    driver = SimpleNamespace(params=params, state=state, _store=lambda result: None)
    for worker, one in zip(workers or [0] * len(results), results, strict=True):
        Driver._take_individual(driver, SimpleNamespace(worker=worker), one)
    return dict(zip(COLUMNS, state.row[: len(results)].T.tolist(), strict=True))


def test_an_individual_is_compared_with_the_newest_mean():
    """Worker 0's was trained, and drawn from an old mean."""
    # What the others' tasks said of a newer one stands when it comes.
    state = distribution(3, task_told=np.array([2, 7, 7, 0]), told=9)
    given = result(110.0, means=[100.0, 120.0]), result(60.0, means=[10.0, 10.0])
    given = *given, result(130.0, means=[130.0, 130.0])
    rows = arrive(AESRL(**{**PAST, "workers": 3}), state, *given, workers=[1, 0, 2])
    assert rows["mean_return"] == [110.0, 110.0, 130.0]
    # (100 + 60 - 110) / (100 + that); by its own mean's return 150 / 250
    assert rows["p"] == pytest.approx([0.5, 50 / 150, 0.5])


def test_an_unstable_episode_of_the_mean_tells_nothing_of_it():
    aes = AESRL(**PAST)
    plays = [np.nan, np.nan], [400.0, np.nan], [np.nan, np.nan]
    rows = arrive(aes, distribution(), *(result(50.0, means=means) for means in plays))
    np.testing.assert_array_equal(rows["mean_return"], [np.nan, 400, 400])
    assert rows["p"] == [aes.p_positive, 0, 0]  # where nothing is known it gives way


@pytest.mark.parametrize(
    ("fitness", "mean_return", "variance", "successes"),
    [
        (np.nan, 5.0, 1.0, [0]),
        (4.0, 5.0, 0.99, [0]),
        (6.0, 5.0, 1 / 0.99, [1]),
        (4.0, np.nan, 1 / 0.99, [1]),
    ],
)
def test_the_rule_of_one_fifth_by_hand(fitness, mean_return, variance, successes):
    state = distribution(size=2, mean_return=mean_return, length_of_mean=4.0)
    move(AESRL(**SUCCESS, start_steps=0), state, result(fitness, theta=[0, 0]))
    assert state.variance == pytest.approx([variance] * 2, rel=1e-6)
    assert state.successes.tolist() == successes


def test_rank_based_oldest_by_hand():
    """Three stand, the best one is the elite."""
    # The mean goes a third of the way to it, and damping a third of its step.
    damping = {"damp": 0.1, "damp_limit": 0.0, "damp_tau": 0.125, "start_steps": 0}
    aes = AESRL(mean_rule="rank_oldest", ring_size=3, elite_fraction=0.3, **damping)
    state, found = distribution(), []
    for theta, fitness in ((3.0, 5.0), (6.0, 1.0), (9.0, 2.0), (12.0, 4.0), (15.0, np.nan)):
        p = move(aes, state, result(fitness, 1, [theta]))
        state.told += 1
        found.append((float(state.mean[0]), float(state.variance[0]), p))
    assert found[:2] == [(0.0, 1.0, 0.0)] * 2  # not full yet
    # elite 3: 3 / 3; 3 ** 2 + 0.1 * 0.125 ** (1 / 3)
    assert found[2] == pytest.approx((1.0, 9.05, 0.0))
    assert found[3] == pytest.approx((1 + 11 / 3, 121.025, 1 / 3))  # 3 gave way to 12, the best
    # 12 again: nan is no elite
    assert found[4] == pytest.approx((14 / 3 + 22 / 9, (22 / 3) ** 2 + 0.0125, 0.0))


def test_an_arrival_is_compared_with_the_mean_by_fitness():
    """Of the mean's episodes the finite ones count, 90 in 60 steps: 60 with a shift of 0.5."""
    # The arrival has 80 in 10: 75.
    state = distribution()
    one = result(80.0, 10, means=[80.0, np.nan, 100.0], lengths=[50, 1, 70])
    rows = arrive(AESRL(**PAST, reward_shift=0.5), state, one)
    assert (rows["fitness"], rows["length"], rows["mean_return"]) == ([80], [10], [90])
    assert rows["p"] == pytest.approx([(75 - 60 + 100) / (75 - 60 + 100 + 100)])
    for shift, expected in ((0.5, 1.0), (0.0, 0.0)):
        state = distribution(mean_return=90.0, length_of_mean=60.0)
        aes = AESRL(**SUCCESS, start_steps=0, reward_shift=shift)
        assert move(aes, state, result(80.0, 10)) == expected
        assert state.successes.tolist() == [int(expected)]


def test_among_the_newest_arrivals_ranks_go_by_fitness():
    aes = AESRL(mean_rule="rank_oldest", ring_size=3, start_steps=0, reward_shift=2.0)
    state = distribution()
    rows = arrive(aes, state, result(80.0, 10), result(90.0, 40), result(np.nan, 40))
    np.testing.assert_array_equal(state.ring_fitness, [60, 10, np.nan])
    assert rows["fitness"][:2] == [80, 90]
