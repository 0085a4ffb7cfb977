"""What runs of ERL's family, CEM-RL, AES-RL or one's own will cost by hand, and its measures."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from in_process import checked
from test_forecast import BUDGET, FREE, PIECES, taken
from warm_starts import COMMON, options
from words import words

from esac_mpi import config
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import ES, Config
from esac_mpi.operators.selection import Kind
from esac_mpi.training.forecast import generations
from esac_mpi.training.forecast.outlook import advice

pytestmark = pytest.mark.slow

PDERL = {"crossover": "distillation", "mutation": "proximal"}
CEM_RL = {"population_size": 4, "start_steps": 400}
AES_RL = {"workers": 1, "arrivals_per_generation": 2, "mean_episodes": 1}


def settings(algorithm, changes=None, **fields) -> Config:
    """Return settings of an algorithm: fields of its table, and others by name."""
    own = {f"{config.table_of(algorithm)}.{name}": value for name, value in fields.items()}
    return config.amend(Config(), {**BUDGET, "algorithm": algorithm, **own, **(changes or {})})


def of_erl(changes=None):
    return settings("erl", changes, population_size=4, mutation_probability=1.0)


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
    assert taken(of_erl(), ranks, with_times(mutating=mutating)).seconds == pytest.approx(seconds)


def test_the_learner_of_erl_owes_no_updates_for_its_first_steps():
    erl = of_erl({"erl.learner": "td3", "td3.start_steps": 700})
    assert taken(erl, 1).seconds == pytest.approx(4 * 5 + 0 + 6 + 10 + 10)


def test_a_distilled_child_takes_its_parents_memories():
    sizes = {"memory_size": 300, "mutation_batch": 100, "distillation_epochs": 3}
    pderl = settings("pderl", **PDERL, **sizes)
    births = SimpleNamespace(
        kind=np.array([Kind.KEPT, Kind.COPY, Kind.CHILD, Kind.CHILD]),
        mutated=np.array([True, False, True, False]),
    )
    pieces = with_times(imitating=0.5, mutating=0.25, crossing=9.0)
    lasted = [
        generations.lasting(pderl.erl, births, pieces, held).tolist() for held in (50, 100, 300)
    ]
    # of 100, of 128, and 2 of 128
    assert lasted == [[0.25, 0, 1.75, 1.5], [0.25, 0, 1.75, 1.5], [0.25, 0, 3.25, 3.0]]
    n_point = config.amend(pderl, {"algorithm": "perl", "erl.crossover": "n_point"})
    assert generations.lasting(n_point.erl, births, pieces, 300).tolist() == [0.25, 0, 9.25, 9.0]


def test_who_is_born_is_as_many_as_the_algorithm_has():
    form = {**PDERL, "parent_selection": "distance", "mutation_probability": 1.0}
    births = generations.draw_births(settings("pderl", **form), 3)
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
    cem_rl = settings("cem_rl", **CEM_RL, critic=critic)
    assert taken(cem_rl, ranks, with_times(training=0.01)).seconds == pytest.approx(seconds)


def test_a_parallel_critic_is_named_where_it_helps():
    cem_rl = settings("cem_rl", {"budget.generations": 40}, **CEM_RL)
    pieces, on = with_times(training=0.001), Cluster(4, 64, **FREE)
    told = advice(cem_rl, pieces, on, taken(cem_rl, 4, pieces))
    assert "--cem_rl.critic parallel would help most (" in told


@pytest.mark.parametrize(
    ("ranks", "workers", "seconds", "idle"),
    [(1, 1, 16, 0), (2, 1, 16, 0.5), (3, 2, 8, 1 / 3), (2, 2, 8, 0), (1, 2, 16, 0)],
)
def test_aes_rl_has_its_arrivals_on_its_workers(ranks, workers, seconds, idle):
    # eight individuals of two episodes, before anything learns
    aes = settings("aes_rl", **{**AES_RL, "workers": workers})
    found = taken(aes, ranks)
    assert found.seconds == pytest.approx(seconds, abs=0.1)
    assert found.idle == pytest.approx(idle, abs=0.01)
    steps = config.amend(aes, {"budget.generations": 0, "budget.env_steps": 800})
    assert taken(steps, ranks).seconds == pytest.approx(seconds / 2, abs=0.1)


def test_the_critic_of_aes_rl_has_its_turns_on_rank_0():
    begun = {"start_steps": 0, "batch_size": 1, "critic_chunk": 100, "order": "arrival"}
    aes = settings("aes_rl", **AES_RL, **begun, rl_share=0.0, mean_rule="linear")
    pieces = with_times(updating=0.019, training=0.001)
    found = taken(aes, 2, pieces)
    assert found.seconds == pytest.approx(16)
    assert found.idle == pytest.approx(1 - (16 + 7 * 1.9) / 32)  # a turn after each arrival
    # 1,000 updates, from the third on: given out after the first turn
    trained = config.amend(aes, {"aes_rl.rl_share": 1.0})
    assert taken(trained, 2, pieces).seconds == pytest.approx(16 + 6)


TIME = r"\S+( to \S+)?"
FORECAST = f"{TIME} s a generation, {TIME} for the whole budget, {TIME} core-hours; ranks idle"


@pytest.mark.parametrize(
    "name", ["es", "esac", "sac", "td3", "ppo", "cem", "cem_rl", "erl", "pderl", "aes_rl"]
)
def test_check_measures_a_run_of_any_of_these(tmp_path, capsys, name):
    if name == "ppo":
        pytest.importorskip("stable_baselines3")
    own = [*COMMON, *words("--algorithm td3 --td3.episodes_on ranks")]
    line = own if name == "td3" else options(name)
    assert checked(*line, "--budget.generations", 4, "--run-dir", tmp_path / "run") == 0
    (line,) = re.findall(r"^  forecast +(.*)$", capsys.readouterr().out, re.M)
    assert re.match(FORECAST, line)
    assert not list(tmp_path.iterdir())


def test_an_own_algorithm_may_say_what_generations_take(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(generations.WITH_BARRIERS, ES)  # as if it were not among those that ship
    assert checked(*options("es"), "--run-dir", tmp_path / "run") == 0
    assert re.findall(r"^  forecast +not known for es: .*`expected`", capsys.readouterr().out, re.M)

    def expected(chosen, pieces, k):
        members = Generation(pieces.members(3, 1, k), np.ones(3))
        return Made(members, 3 * pieces.length, pieces.horizon)

    monkeypatch.setattr(ALGORITHMS["es"], "expected", expected, raising=False)
    assert taken(settings("es"), 2).seconds == pytest.approx(4 * 2)
