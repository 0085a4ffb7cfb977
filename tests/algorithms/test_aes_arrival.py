"""AES-RL in order of arrival: its record, runs made again from it, what a ring must keep."""

import os
import random
import signal
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import EAGER, command, environment
from in_process import started
from test_aes_rl import SMALL, TASK
from whole_runs import assert_same_run, rows_published, science, wait_for
from words import words

from esac_mpi import record
from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_state import State, has_room
from esac_mpi.algorithms.aes_work import Order, fill_ring
from esac_mpi.comm.virtual_time import Arrival
from esac_mpi.config import Config, amend
from esac_mpi.play.transitions import read_ring, write_ring
from esac_mpi.record import Refused, Run

ARRIVAL = [*SMALL, *TASK, *words("--aes_rl.order arrival --aes_rl.replay_capacity 500")]
ARRIVAL += words("--budget.generations 8 --run-dir")
AES = {"algorithm": "aes_rl"}
BY_ARRIVAL = {**AES, "aes_rl.order": "arrival"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory, together):
    """A run killed on three ranks, with published rows beyond its checkpoint, finished on two."""
    path = tmp_path_factory.mktemp("arrival") / "killed"
    line = [*ARRIVAL, path, "--checkpoint.every_generations", 100]
    process = subprocess.Popen(
        command(3, *line, program=EAGER), env=environment(), start_new_session=True
    )
    wait_for(lambda: rows_published(path) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = science(path)
    together(2, *line)
    return path, before


@pytest.mark.slow
def test_what_was_told_before_a_kill_is_told_again_in_that_order(killed):
    path, before = killed
    after = science(path)
    count = len(before["metrics/generation"])
    assert count >= 3
    for name, column in before.items():
        np.testing.assert_array_equal(column, after[name][:count], err_msg=name)
    turns = after["metrics/critic_turns"]
    assert turns.sum() == after["metrics/learner_phases"][-1] > 0
    assert set(after["metrics/worker"].ravel().tolist()) == {0, 1, 2}


@pytest.mark.slow
def test_it_is_made_again_at_once_or_in_parts(killed, tmp_path, alone, together):
    again = ["--aes_rl.replay", killed[0]]
    alone(*ARRIVAL, tmp_path / "one", *again, "--budget.generations", 3)
    alone(*ARRIVAL, tmp_path / "one", *again)
    assert_same_run(killed[0], tmp_path / "one")
    together(2, *ARRIVAL, tmp_path / "two", *again, nodes=2)
    assert_same_run(killed[0], tmp_path / "two")


@pytest.mark.slow
def test_only_a_run_of_the_same_settings_and_task_is_made_again(killed, tmp_path):
    path, elsewhere = killed[0], tmp_path / "new"
    config, now = Run.open(path).config, Run.open(path).provenance

    def source(place=elsewhere, provenance=now, **changes):
        changes = {"aes_rl.replay": str(path), **changes}
        return record.source(amend(config, changes), place, provenance).generations

    assert source() == source(**{"budget.generations": 5}) == 8
    for changes, message in (
        ({"aes_rl.workers": 4}, "has other settings: aes_rl.workers: 3 -> 4; "),
        ({"budget.generations": 9}, "has a smaller budget, at whose end its record ends"),
        ({"budget.generations": 0, "budget.env_steps": 500}, "has a smaller budget"),
        ({"aes_rl.replay": str(tmp_path)}, "not a run directory of esac_mpi"),
        ({"aes_rl.replay": "x" * 5000}, "File name too long"),
    ):
        with pytest.raises(Refused, match=rf"^aes_rl.replay: .*{message}"):
            source(**changes)
    with pytest.raises(Refused, match="is the run directory itself"):
        source(path)
    with pytest.raises(Refused, match="is of another task; changed: its wrappers"):
        source(provenance={**now, "task_wrappers": "Other"})


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"algorithm": "es"}, "complete", "has other settings: algorithm: es -> aes_rl"),
        (AES, "complete", "has other settings: aes_rl.order: virtual"),
        (BY_ARRIVAL, "requeue", r"is not finished \(requeue\)"),
    ],
)
def test_a_run_of_another_kind_is_not_made_again(changes, status, message, tmp_path):
    held = Run.begin(tmp_path / "run", amend(Config(), changes), {})
    held.checkpoint(0, {"theta_es": np.zeros(1, np.float32)}, {})
    held.status(status, 0)
    held.close()
    now = amend(Config(), {**BY_ARRIVAL, "aes_rl.replay": str(tmp_path / "run")})
    with pytest.raises(Refused, match=message):
        record.source(now, tmp_path / "new", {})


@pytest.mark.slow
def test_a_replay_that_is_refused_creates_nothing(tmp_path, capsys):
    assert started(*ARRIVAL, tmp_path / "new", "--aes_rl.replay", tmp_path) == 2
    said = f"esac_mpi: aes_rl.replay: {tmp_path}: not a run directory of esac_mpi\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "new").exists()


def test_the_order_of_a_record_by_hand():
    worker, turns = np.array([[1, 0, 1], [0, 0, 1]]), np.array([[0, 2, 0], [1, 0, 1]])
    record = {"metrics/worker": worker, "metrics/critic_turns": turns}

    def due(arrived: int, turns: list[int]) -> list[int]:
        of_critic = {"task_number": np.zeros(3), "turns": np.array(turns)}
        state = SimpleNamespace(generation=0, arrived=arrived, due=np.zeros(0), **of_critic)
        assert State.follow(state, record)
        assert not State.follow(state, record)
        return state.due.tolist()

    assert due(0, [0, 0, 0]) == [1, 2, 2, 0, 1, 2, 0, 0, 2, 1]
    assert due(1, [0, 1, 0]) == [2, 0, 1, 2, 0, 0, 2, 1]  # one of the critic's two is told


@pytest.mark.parametrize("seed", range(20))
def test_the_slow_find_their_transitions_and_none_starve(seed):
    """Tasks that read the newest 40 of a ring: all of them can be begun anew at any time."""
    # They are told in any order that is allowed.
    choose, horizon = random.Random(seed), 10
    config = amend(Config(), {**AES, "aes_rl.workers": 3, "aes_rl.replay_capacity": 40})
    state = SimpleNamespace(transitions=0, replay=np.zeros(40 + 3 * 3 * horizon))
    held = {worker: None for worker in range(4)}  # the last is the critic's
    slow, waited = choose.randrange(4), 0
    for _ in range(400):
        done = [w for w in held if w != slow or choose.random() < 0.02]
        coming = {w: choose.randint(1, horizon) if w < 3 else 0 for w in held}

        def may(w, coming=coming):
            others = [h for v, h in held.items() if v != w and h is not None]
            return has_room(config, horizon, state, coming[w], held[w], others)

        can = [w for w in done if may(w)]
        waited += len(done) - len(can)
        if not can:
            assert slow not in done
            continue
        worker = choose.choice(can)
        state.transitions += coming[worker]
        held[worker] = choose.choice((None, state.transitions)) if worker < 3 else state.transitions
        oldest = state.transitions - len(state.replay)
        assert all(h is None or oldest <= max(0, h - 40) for h in held.values())
    assert waited > 0


def test_a_node_that_lags_gets_what_tasks_begun_later_read_too():
    """Capacity 40; the node has 20 of 150."""
    # Who reads up to 150 is begun before who reads up to 145, by what it lasts.
    ring, there = np.zeros((310, 1), np.float32), np.zeros((310, 1), np.float32)
    write_ring(ring, np.arange(1.0, 151, dtype=np.float32)[:, None], 150)
    write_ring(there, np.arange(1.0, 21, dtype=np.float32)[:, None], 20)
    config = amend(Config(), {**AES, "aes_rl.replay_capacity": 40})
    driver = object.__new__(Driver)
    driver.params = SimpleNamespace(config=config)
    driver.state, driver.agenda = SimpleNamespace(replay=ring), Arrival()
    driver.world = SimpleNamespace(node=0, node_of=lambda rank: 1)
    driver._brought = np.array([150, 20])
    orders = [
        Order(worker, 0, 5, held, *[np.zeros(1)] * 3) for worker, held in ((1, 150), (0, 145))
    ]
    for order in orders:
        driver.agenda.give(order.worker, 0, order)
    node = SimpleNamespace(replay=there, written=np.array([20]))
    fences = []  # what is said to be there, and the newest that is

    def fence():
        fences.append((node.written[0], there.max()))

    for order in orders:
        list(fill_ring(node, fence, driver.complete_order(order, 5)))
        newest = read_ring(there, order.held - 40, order.held).ravel()
        assert newest.tolist() == list(range(order.held - 39, order.held + 1))
    # rows, then that they are there; then they are read
    assert fences == [(20, 150), (150, 150), (150, 150)]
