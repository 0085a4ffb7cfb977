"""Counts that are a share or a rate of something: of the decimal that was written."""

import re
from decimal import Decimal
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from drawn import Drawn
from words import refused, written

from esac_mpi import config
from esac_mpi.algorithms import aes_moves, cem_rl
from esac_mpi.config import Config, amend, load
from esac_mpi.config.exact import whole
from esac_mpi.config.genetic import elites
from esac_mpi.config.resolution import change
from esac_mpi.learners import training
from esac_mpi.operators import genetics
from esac_mpi.operators.policy import Layout
from esac_mpi.play import population


def of(table, **values):
    settings = {f"{table}.{name}": value for name, value in values.items()}
    return getattr(amend(Config(), settings), table)


def winners(share, n):
    return config.winners(of("esac", winner_fraction=share, population_size=n))


def trained(share, n):
    return config.individuals(of("cem_rl", trained_fraction=share, population_size=n))[1]


def updates_of_one(share, n):
    config = amend(Config(), {"cem_rl.actor_updates_per_step": share})
    return cem_rl.updates_of_one(SimpleNamespace(config=config), SimpleNamespace(last_steps=n))


def best(table):
    sized = lambda share, n: of(table, elite_fraction=share, population_size=n)  # noqa: E731
    return lambda share, n: config.individuals(sized(share, n))[0]


def ring(share, n, monkeypatch):
    """Return how many of a full ring of n are the best, which the distribution moves to."""
    aes = of("aes_rl", mean_rule="rank_oldest", elite_fraction=share, ring_size=n)
    select = Mock(return_value=np.zeros(0, int))
    monkeypatch.setattr(aes_moves, "select_winners", select)
    state = SimpleNamespace(ring=np.zeros((n, 1)), ring_fitness=np.zeros(n), told=0)
    episode = SimpleNamespace(theta=0.0, episodic_return=0.0, length=1)
    aes_moves.move_by_rank(aes, state, episode, True)
    return select.call_args.args[1]


@pytest.mark.parametrize(
    "count",
    [winners, trained, updates_of_one, best("cem"), best("cem_rl"), training.count_due, ring],
)
@pytest.mark.parametrize(
    ("share", "n", "by_float"), [(0.7, 45, 31), (0.35, 90, 31), (0.82, 75, 61), (0.14, 75, 11)]
)
def test_a_rounded_share_is_that_of_the_decimal(count, share, n, by_float, monkeypatch):
    assert round(share * n) == by_float  # each lies at a half
    more = {training.count_due: (0, n), ring: (n, monkeypatch)}.get(count, (n,))
    assert count(share, *more) == round(Decimal(str(share)) * n) != by_float


@pytest.mark.parametrize(
    ("share", "n", "count"),
    [
        *((0.29, 100, 29), (0.58, 50, 29), (0.57, 100, 57), (0.3, 10, 3), (0.299, 10, 2)),
        *((0.1, 10, 1), (0.5, 5, 2), (0.05, 10, 1), (0.0, 10, 1)),  # one at least
    ],
)
def test_elites_are_the_whole_ones_of_the_decimal(share, n, count):
    assert elites(n, share) == count


def test_a_matrix_changes_in_as_many_places_as_the_decimal_says():
    random, erl = Drawn(0.0, 1.0, 0, [], [], []), of("erl", mutated_fraction=0.07)
    genetics.gaussian(np.ones(101, np.float32), Layout((100, 1)), erl, random)
    assert random.calls[2] == (7,)  # 0.07 * 100 is 7.000000000000001


def test_the_length_cap_is_no_step_longer_by_rounding():
    table = of("esac", length_cap=1.1)
    assert 1.1 * 100.0 > 110
    assert [population.length_cap(table, mean) for mean in (0.0, 100.0, 100.5)] == [0, 110, 111]
    assert population.length_cap(of("esac", length_cap=1.5), 2000 / 3) == 1000


NUMBERS = {
    "7": 7, "1e3": 1000, "2.0": 2, "1.5e1": 15, "-3.": -3, "+1E+6": 10**6, "1_000": 1000
}  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_whole_numbers_as_people_write_them(text):
    assert whole(text) == NUMBERS[text]


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1e400", "", "x", "inf", "nan", "0x10"])
def test_other_texts_are_no_whole_numbers(text):
    with pytest.raises(ValueError, match="invalid literal"):
        whole(text)


def test_a_whole_number_may_be_written_as_a_float(tmp_path):
    text = "[budget]\ngenerations = 1e3\n[policy]\nhidden = [64.0, 32]\n"
    line = [written(tmp_path / "a.toml", text), "--seed", "2e1", "--budget.env_steps=1e6"]
    found, _ = load(line, print)
    assert (found.budget.generations, found.policy.hidden) == (1000, (64, 32))
    assert (found.seed, found.budget.env_steps) == (20, 10**6)
    assert change(found, {"budget.generations": 2e3}, "settings").budget.generations == 2000
    for words in ("--budget.generations 1.5", "--policy.hidden 64 1.5"):
        assert re.search(r"1.5\]?: expected (an integer|integers)", refused(*words.split()))
    file = written(tmp_path / "a.toml", "[budget]\ngenerations = 1.5\n")
    assert "budget.generations = 1.5: expected an integer" in refused(file)
