"""What runs of ERL's family, of CEM-RL, AES-RL or an algorithm of one's own will cost, by hand; and
what is measured for it.
"""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from test_forecast import BUDGET, FREE, PIECES, taken

from esac_mpi import config
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.comm.world import World
from esac_mpi.config import ES, Config
from esac_mpi.operators.selection import Kind
from esac_mpi.training import check
from esac_mpi.training.check import cost
from esac_mpi.training.forecast import advice, genetic, operators, phases, work

pytestmark = pytest.mark.slow

ERL = {"erl.population_size": 4, "erl.mutation_probability": 1.0}
PDERL = {"algorithm": "pderl", "erl.crossover": "distillation", "erl.mutation": "proximal"}
CEM_RL = {"algorithm": "cem_rl", "cem_rl.population_size": 4, "cem_rl.start_steps": 400}
AES_RL = {
    "algorithm": "aes_rl",
    "aes_rl.workers": 1,
    "aes_rl.arrivals_per_generation": 2,
    "aes_rl.mean_episodes": 1,
}


def settings(changes) -> Config:
    return config.updated(Config(), {**BUDGET, **changes})


def with_times(**times) -> Pieces:
    return Pieces(**{**vars(PIECES), **times})


@pytest.mark.parametrize(
    ("ranks", "mutating", "seconds"),
    [
        # four members and the learner play 100 steps each, for which it makes 500 updates
        (1, 0.0, 4 * (5 + 10)),
        (1, 1.0, 4 * (5 + 3 + 10)),  # all but the elite's copy are mutated
        (2, 1.0, 4 * (3 + 10)),  # beside the phase
        (2, 8.0, 4 * (3 + 18)),  # two on rank 1, to 16; rank 0 begins the third at 10
    ],
)
def test_erl_breeds_beside_its_learner(ranks, mutating, seconds):
    erl = settings({"algorithm": "erl", **ERL})
    assert taken(erl, ranks, with_times(mutating=mutating)).seconds == pytest.approx(seconds)


def test_the_learner_of_erl_owes_no_updates_for_its_first_steps():
    erl = settings({"algorithm": "erl", **ERL, "erl.learner": "td3", "td3.start_steps": 700})
    assert taken(erl, 1).seconds == pytest.approx(4 * 5 + 0 + 6 + 10 + 10)


def test_a_distilled_child_takes_as_many_steps_as_its_parents_remember():
    pderl = settings(
        {**PDERL, "erl.memory_size": 300, "erl.mutation_batch": 100, "erl.distillation_epochs": 3}
    )
    births = SimpleNamespace(
        kind=np.array([Kind.KEPT, Kind.COPY, Kind.CHILD, Kind.CHILD]),
        mutated=np.array([True, False, True, False]),
    )
    pieces = with_times(imitating=0.5, mutating=0.25, crossing=9.0)
    lasted = [genetic.lasting(pderl.erl, births, pieces, held).tolist() for held in (50, 100, 300)]
    # of 100, of 128, and 2 of 128
    assert lasted == [[0.25, 0, 1.75, 1.5], [0.25, 0, 1.75, 1.5], [0.25, 0, 3.25, 3.0]]
    n_point = config.updated(pderl, {"algorithm": "perl", "erl.crossover": "n_point"})
    assert genetic.lasting(n_point.erl, births, pieces, 300).tolist() == [0.25, 0, 9.25, 9.0]


def test_who_is_born_is_as_many_as_the_algorithm_has():
    births = genetic.draw(
        settings({**PDERL, "erl.parent_selection": "distance", "erl.mutation_probability": 1.0}), 3
    )
    assert births.kind.size == 10
    assert (births.kind == Kind.COPY).sum() == 1
    assert births.mutated.sum() == 9


@pytest.mark.parametrize(
    ("ranks", "critic", "seconds"),
    [
        # 400 updates of the critic; two individuals train for 4 s, and play
        (1, "serial", 4 + 3 * (2 + 8 + 10)),
        (2, "serial", 2 + 3 * (8 + 5)),  # all wait for the lesson
        # rank 1 plays for two, and takes both that train, but at first, when all play as drawn:
        # rank 0 teaches until 8
        (2, "parallel", 2 + 8 + 2 * (2 + 10)),
    ],
)
def test_cem_rl_teaches_first_or_beside(ranks, critic, seconds):
    cem_rl = settings({**CEM_RL, "cem_rl.critic": critic})
    assert taken(cem_rl, ranks, with_times(training=0.01)).seconds == pytest.approx(seconds)


def test_a_parallel_critic_is_named_where_it_helps():
    cem_rl, pieces, on = (
        settings({**CEM_RL, "budget.generations": 40}),
        with_times(training=0.001),
        Cluster(4, 64, **FREE),
    )
    told = advice.advice(cem_rl, pieces, on, taken(cem_rl, 4, pieces))
    assert "--cem_rl.critic parallel (" in told


@pytest.mark.parametrize(
    ("ranks", "workers", "seconds", "idle"),
    [(1, 1, 16, 0), (2, 1, 16, 0.5), (3, 2, 8, 1 / 3), (2, 2, 8, 0), (1, 2, 16, 0)],
)
def test_aes_rl_has_its_arrivals_on_its_workers(ranks, workers, seconds, idle):
    # eight individuals of two episodes, before anything learns
    aes = settings({**AES_RL, "aes_rl.workers": workers})
    found = taken(aes, ranks)
    assert found.seconds == pytest.approx(seconds, abs=0.1)
    assert found.idle == pytest.approx(idle, abs=0.01)
    steps = config.updated(aes, {"budget.generations": 0, "budget.env_steps": 800})
    assert taken(steps, ranks).seconds == pytest.approx(seconds / 2, abs=0.1)


def test_the_critic_of_aes_rl_has_its_turns_on_rank_0():
    begun = {
        "aes_rl.start_steps": 0,
        "aes_rl.batch_size": 1,
        "aes_rl.critic_chunk": 100,
        "aes_rl.order": "arrival",
    }
    aes = settings({**AES_RL, **begun, "aes_rl.rl_share": 0.0, "aes_rl.mean_rule": "linear"})
    pieces = with_times(updating=0.019, training=0.001)
    found = taken(aes, 2, pieces)
    assert found.seconds == pytest.approx(16)
    assert found.idle == pytest.approx(1 - (16 + 7 * 1.9) / 32)  # a turn after each arrival
    # 1,000 updates, from the third on: given out after the first turn
    trained = config.updated(aes, {"aes_rl.rl_share": 1.0})
    assert taken(trained, 2, pieces).seconds == pytest.approx(16 + 6)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(operators, "MEASURING", 0.01)
    for name, seconds in {"PLAYING": 0.02, "UPDATING": 0.02}.items():
        monkeypatch.setattr(cost, name, seconds)
    monkeypatch.setattr(phases, "UPDATES", 20)
    alone = World(MPI.COMM_SELF)
    yield alone
    alone.free()


CYCLIC = {"task.id": "CyclicMDP-v0", "task.horizon": 40, "policy.hidden": (8, 8), **BUDGET}


@pytest.mark.parametrize(
    "name", ["es", "esac", "sac", "td3", "ppo", "cem", "cem_rl", "erl", "pderl", "aes_rl"]
)
def test_check_measures_a_run_of_any_of_these(world, tmp_path, capsys, name):
    if name == "ppo":
        pytest.importorskip("stable_baselines3")
    more = {"ppo.steps_per_generation": 64, "ppo.batch_size": 32} if name == "ppo" else {}
    more |= {"td3.episodes_on": "ranks"} if name == "td3" else PDERL if name == "pderl" else {}
    chosen = config.resolved(
        {}, {**CYCLIC, **more, "algorithm": name, "run_dir": str(tmp_path / "run")}
    )
    assert check.check(chosen, world) == 0
    (line,) = re.findall(r"^  forecast +(.*)$", capsys.readouterr().out, re.M)
    assert re.match(
        r"\S+( to \S+)? s a generation, \S+( to \S+)? for the whole budget, "
        r"\S+( to \S+)? core-hours; ranks idle",
        line,
    )
    assert not list(tmp_path.iterdir())


def test_an_algorithm_of_ones_own_says_what_its_generations_ask_for_or_it_is_said_that_it_does_not(
    world, tmp_path, capsys, monkeypatch
):
    monkeypatch.delitem(work.WITH_BARRIERS, ES)  # as if it were not among those that ship
    chosen = settings({**CYCLIC, "algorithm": "es", "run_dir": str(tmp_path / "run")})
    assert check.check(chosen, world) == 0
    said = "not known for es: its module says nothing of it by `expected` (docs/how-to/extend.md)"
    assert re.findall(r"^  forecast +(.*?) +ok$", capsys.readouterr().out, re.M) == [said]

    def expected(chosen, pieces, k):
        return Made(
            Generation(pieces.members(3, 1, k), np.ones(3)), 3 * pieces.length, pieces.horizon
        )

    monkeypatch.setattr(ALGORITHMS["es"], "expected", expected, raising=False)
    assert taken(chosen, 2).seconds == pytest.approx(4 * 2)
