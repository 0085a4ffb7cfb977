"""The room of AES-RL's replay for what comes in while others are at work."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import EAGER, run
from in_process import started
from test_aes_rl import SMALL, TASK
from whole_runs import assert_same_run, science
from words import words

from esac_mpi.algorithms import aes_driver, aes_state
from esac_mpi.comm.virtual_time import Agenda
from esac_mpi.config import Config, amend, load, to_toml
from esac_mpi.config.fields import value_of

SLOW = [*SMALL, *TASK, *words("--aes_rl.update_cost 20 --aes_rl.critic_cost 0.01")]
SLOW += words("--aes_rl.replay_capacity 60 --aes_rl.rl_share 0.1 --budget.generations")
AES = {"algorithm": "aes_rl"}


def make_run(path, generations):
    assert started(*SLOW, generations, "--run-dir", path) == 0


def narrow(monkeypatch, around: float, anyway: int) -> None:
    monkeypatch.setattr(aes_state, "AROUND", around)
    monkeypatch.setattr(aes_state, "ANYWAY", anyway)


@pytest.fixture
def passed_over(monkeypatch):
    """Return the virtual ends of results that were passed over, as they come."""
    found, honest = [], aes_driver.has_room

    def keeps(config, horizon, state, *arguments):
        may = honest(config, horizon, state, *arguments)
        found.extend([] if may else [state.told])
        return may

    monkeypatch.setattr(aes_driver, "has_room", keeps)
    return found


@pytest.mark.slow
def test_where_room_is_narrow_results_wait_alike_on_any_ranks(tmp_path, monkeypatch, passed_over):
    """Room for three episodes of each worker beside the 60 transitions that are read."""
    # An individual learns for 1,800 steps. So it is over restarts, too.
    narrow(monkeypatch, 0, 3)
    make_run(tmp_path / "straight", 10)
    for generations in (3, 4, 7, 10):
        make_run(tmp_path / "parts", generations)
    assert len(passed_over) > 10
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    gaps = np.diff(science(tmp_path / "straight")["metrics/virtual_end"].ravel())
    assert (gaps >= 0).all()
    assert (gaps == 0).any()  # who waited comes with whom it waited for
    monkeypatch.setenv("ANYWAY", "3")
    monkeypatch.setenv("NODES", "2")
    run(3, *SLOW, 10, "--run-dir", tmp_path / "ranks", program=EAGER)
    assert_same_run(tmp_path / "straight", tmp_path / "ranks")


HORIZON, CAPACITY = 10, 40
WORST = {
    **{"workers": 3, "replay_capacity": CAPACITY, "update_cost": 2.0, "critic_chunk": 5},
    **{"actor_updates_window": 2, "mean_episodes": 1},
}


@pytest.mark.parametrize("seed", range(30))
def test_with_room_for_the_most_that_can_come_in_nothing_waits(seed, monkeypatch):
    """Whole episodes of individuals beside the shortest of the mean."""
    # While a few learn for as long as they can: 40 steps.
    narrow(monkeypatch, 0, 10**6)
    config = amend(Config(), {**AES, **{f"aes_rl.{name}": n for name, n in WORST.items()}})
    room = aes_state.reserve(config, HORIZON)
    assert room == 3 * (2 * 2 * 10 + (2 + 2) * 10 + 1)
    state = SimpleNamespace(transitions=0, replay=np.zeros(CAPACITY + room))
    choose = random.Random(seed)
    rare, whole, lags = choose.choice((0.02, 0.2)), choose.random(), []

    def may(task):
        others = [other.order for other in agenda if other is not task and other.order is not None]
        return aes_state.has_room(config, HORIZON, state, task.result, task.order, others)

    def give(worker, start):
        learns = choose.random() < rare
        length = 10 if choose.random() < whole else choose.randint(1, 10)
        task = agenda.give(worker, start, state.transitions if learns else None)
        task.progress, task.result = 40 * learns + length + 1, length
        agenda.end(task)

    agenda = Agenda(may)
    for worker in range(3):
        give(worker, 0)
    for _ in range(500):
        expected = min(agenda, key=lambda task: task.earliest)
        told = agenda.tell()
        assert told is expected
        state.transitions += told.result
        read = [task.order for task in agenda if task.order is not None]
        lags.append(state.transitions - min(read, default=state.transitions))
        give(told.worker, told.start + told.progress)
    assert max(lags) > 40  # as much as two that play bring while the third learns


def test_what_is_no_longer_there_is_refused():
    config = amend(Config(), {**AES, "aes_rl.replay_capacity": 40})
    state = SimpleNamespace(transitions=100, replay=np.zeros(70))
    aes_state.refuse_overwritten(config, state, 0, [70, 100])  # who reads 30 to 70
    aes_state.refuse_overwritten(config, state, 500, [])
    with pytest.raises(aes_state.Overwritten, match=r"from number 30 on, .* room for 70 of 101"):
        aes_state.refuse_overwritten(config, state, 1, [70, 100])
    state.transitions = 71
    with pytest.raises(aes_state.Overwritten, match=r"from number 0 on, .* room for 70 of 71"):
        aes_state.refuse_overwritten(config, state, 0, [20])


@pytest.mark.slow
def test_where_nothing_waits_the_room_changes_no_row(tmp_path, monkeypatch, passed_over):
    """Also of a run that goes on with an older version's checkpoint."""
    # That version kept more; the surplus is let go of.
    rows = []
    for name, rooms in (("wide", [1e9, 1e9]), ("former", [1e9, 1]), ("now", [1, 1])):
        for around, generations in zip(rooms, (8, 12), strict=True):
            narrow(monkeypatch, around, 5)
            make_run(tmp_path / name, generations)
        rows.append(science(tmp_path / name))
    assert not passed_over
    assert rows[0]["metrics/nominal_steps"][7] > 60 + 3 * (60 + 5 * 30)  # what there was room for
    for name, column in rows[0].items():
        for other in rows[1:]:
            np.testing.assert_array_equal(column, other[name], err_msg=name)
    assert_same_run(tmp_path / "former", tmp_path / "now")


@pytest.mark.parametrize(
    ("workers", "arrivals"), [(1, 10), (5, 10), (10, 10), (11, 11), (1000, 1000)]
)
def test_a_generation_has_an_arrival_of_each_worker(workers, arrivals, tmp_path):
    name, many = "aes_rl.arrivals_per_generation", words("--algorithm aes_rl --aes_rl.workers")
    found = load([*many, str(workers)])[0]
    assert value_of(found, name) == arrivals
    assert value_of(load([*many, str(workers), f"--{name}", "10"])[0], name) == 10
    file = tmp_path / "config.toml"
    file.write_text(to_toml(found))
    assert load([str(file)])[0] == found
    # of a version that gave ten to any number of workers
    file.write_text(to_toml(amend(found, {name: 10})))
    assert value_of(load([str(file)])[0], name) == 10
