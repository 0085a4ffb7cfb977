"""AES-RL in order of arrival: its record, runs made again from it, what a ring must keep.

They are made again after a kill or as a whole.
"""

import os
import random
import signal
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import EAGER, command, environment, run
from test_aes_rl import SMALL, TASK
from whole_runs import assert_same_run, rows_published, science, wait_for

from esac_mpi import record
from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_moves import by_rank
from esac_mpi.algorithms.aes_state import keeps, told_order
from esac_mpi.algorithms.aes_work import Order, bring
from esac_mpi.comm.virtual_time import Arrival
from esac_mpi.config import AESRL, Config, updated
from esac_mpi.play.transitions import read_ring, write_ring
from esac_mpi.record import Refused, Run

pytestmark = pytest.mark.slow

ARRIVAL = [*SMALL, *TASK, "--aes_rl.order", "arrival", "--aes_rl.replay_capacity", 500]
BUDGET = ["--budget.generations", 8]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run killed on three ranks, with published rows beyond its checkpoint, finished on two."""
    path = tmp_path_factory.mktemp("arrival") / "killed"
    line = [*ARRIVAL, "--checkpoint.every_generations", 100, "--run-dir", path]
    process = subprocess.Popen(
        command(3, *line, *BUDGET, program=EAGER), env=environment(), start_new_session=True
    )
    wait_for(lambda: rows_published(path) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = science(path)
    run(2, *line, *BUDGET, program=EAGER)
    return path, before


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


def test_it_is_made_again_on_other_ranks_and_nodes_at_once_or_in_parts(
    killed, tmp_path, alone, monkeypatch
):
    line = [*ARRIVAL, "--aes_rl.replay", killed[0]]
    for budget in (["--budget.generations", 3], BUDGET):
        alone(*line, *budget, "--run-dir", tmp_path / "one")
    assert_same_run(killed[0], tmp_path / "one")
    monkeypatch.setenv("NODES", "2")
    run(2, *line, *BUDGET, "--run-dir", tmp_path / "two", program=EAGER)
    assert_same_run(killed[0], tmp_path / "two")


def config_of(path, **changes):
    return updated(Run.open(path).config, {"aes_rl.replay": str(path), **changes})


def test_only_a_finished_run_of_the_same_settings_with_a_record_is_made_again(killed, tmp_path):
    path, elsewhere = killed[0], tmp_path / "new"
    now = Run.open(path).provenance
    assert record.source(config_of(path), elsewhere, now).generations == 8
    assert (
        record.source(config_of(path, **{"budget.generations": 5}), elsewhere, now).generations == 8
    )
    for changes, message in (
        (
            {"aes_rl.workers": 4},
            r"has other settings: aes_rl.workers: 3 -> 4; .*config.toml has them all",
        ),
        ({"budget.generations": 9}, "has a smaller budget, at whose end its record ends"),
        ({"budget.generations": 0, "budget.env_steps": 500}, "has a smaller budget"),
        ({"aes_rl.replay": str(tmp_path)}, "not a run directory of esac_mpi"),
        ({"aes_rl.replay": "x" * 5000}, "File name too long"),
    ):
        with pytest.raises(Refused, match=rf"^aes_rl.replay: .*{message}"):
            record.source(config_of(path, **changes), elsewhere, now)
    with pytest.raises(Refused, match="is the run directory itself; choose another --run-dir"):
        record.source(config_of(path), path, now)
    with pytest.raises(Refused, match="is of another task; changed: its wrappers"):
        record.source(config_of(path), elsewhere, {**now, "task_wrappers": "Other"})


def test_a_run_of_another_kind_is_not_made_again(tmp_path):
    for changes, status, message in (
        ({"algorithm": "es"}, "complete", "is a run of es, not of aes_rl"),
        (
            {"algorithm": "aes_rl"},
            "complete",
            "has no record of an order: aes_rl.order = virtual gives the same run",
        ),
        (
            {"algorithm": "aes_rl", "aes_rl.order": "arrival"},
            "requeue",
            r"is not finished \(requeue\)",
        ),
    ):
        was = updated(Config(), changes)
        path = tmp_path / str(len(message))
        held = Run.begin(path, was, {})
        held.checkpoint(0, {"theta_es": np.zeros(1, np.float32)}, {})
        held.status(status, 0)
        held.close()
        now = updated(
            Config(), {"algorithm": "aes_rl", "aes_rl.order": "arrival", "aes_rl.replay": str(path)}
        )
        with pytest.raises(Refused, match=message):
            record.source(now, tmp_path / "new", {})


def test_a_replay_that_is_refused_creates_nothing(tmp_path):
    line = [*ARRIVAL, *BUDGET, "--aes_rl.replay", tmp_path, "--run-dir", tmp_path / "new"]
    assert (
        run(0, *line, code=2).stderr
        == f"esac_mpi: aes_rl.replay: {tmp_path}: not a run directory of esac_mpi\n"
    )
    assert not (tmp_path / "new").exists()


def test_the_order_of_a_record_by_hand():
    worker, turns = np.array([[1, 0, 1], [0, 0, 1]]), np.array([[0, 2, 0], [1, 0, 1]])
    fresh = SimpleNamespace(task_number=np.zeros(3), arrived=0, turns=np.zeros(3, np.int64))
    assert told_order(fresh, worker, turns).tolist() == [1, 2, 2, 0, 1, 2, 0, 0, 2, 1]
    part = SimpleNamespace(
        task_number=np.zeros(3), arrived=1, turns=np.array([0, 1, 0])
    )  # one of the critic's two is told
    assert told_order(part, worker, turns).tolist() == [2, 0, 1, 2, 0, 0, 2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_slow_finds_its_transitions_and_nobody_waits_for_ever(seed):
    """Tasks that read the newest 40 of a ring: all of them can be begun anew at any time.

    They are told in any order that is allowed.
    """
    choose, horizon = random.Random(seed), 10
    config = updated(
        Config(), {"algorithm": "aes_rl", "aes_rl.workers": 3, "aes_rl.replay_capacity": 40}
    )
    state = SimpleNamespace(transitions=0, replay=np.zeros(40 + 3 * 3 * horizon))
    held = {worker: None for worker in range(4)}  # the last is the critic's
    slow = choose.randrange(4)
    waited = 0
    for _ in range(400):
        done = [w for w in held if w != slow or choose.random() < 0.02]
        coming = {w: choose.randint(1, horizon) if w < 3 else 0 for w in held}
        can = [
            w for w in done
            if keeps(
                config, horizon, state, coming[w], held[w],
                [h for v, h in held.items() if v != w and h is not None],
            )
        ]  # fmt: skip
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
    """Capacity 40; the node has 20 of 150.

    Who reads up to 150 is begun before who reads up to 145, by what it lasts.
    """
    ring, there = np.zeros((310, 1), np.float32), np.zeros((310, 1), np.float32)
    write_ring(ring, np.arange(1.0, 151, dtype=np.float32)[:, None], 150)
    write_ring(there, np.arange(1.0, 21, dtype=np.float32)[:, None], 20)
    driver = object.__new__(Driver)
    driver.params = SimpleNamespace(
        config=SimpleNamespace(aes_rl=SimpleNamespace(replay_capacity=40))
    )
    driver.state, driver.agenda = SimpleNamespace(replay=ring), Arrival()
    driver.world, driver._brought = (
        SimpleNamespace(node=0, node_of=lambda rank: 1),
        np.array([150, 20]),
    )
    orders = [
        Order(worker, 0, 5, held, *[np.zeros(1)] * 3) for worker, held in ((1, 150), (0, 145))
    ]
    for order in orders:
        driver.agenda.give(order.worker, 0, order)
    node = SimpleNamespace(replay=there, written=np.array([20]))
    fences = []  # what is said to be there, and the newest that is
    for order in orders:
        list(
            bring(
                node,
                lambda: fences.append((node.written[0], there.max())),
                driver.ordered(order, 5),
            )
        )
        assert read_ring(there, order.held - 40, order.held).ravel().tolist() == list(
            range(order.held - 39, order.held + 1)
        )
    assert fences == [
        (20, 150),
        (150, 150),
        (150, 150),
    ]  # rows, then that they are there; then they are read


def test_rank_based_oldest_by_hand():
    """Three stand, the best one is the elite.

    The mean goes a third of the way to it, and damping a third of its step.
    """
    aes = AESRL(
        mean_rule="rank_oldest",
        ring_size=3,
        elite_fraction=0.3,
        damp=0.1,
        damp_limit=0.0,
        damp_tau=0.125,
        start_steps=0,
    )
    state = SimpleNamespace(
        mean=np.zeros(1, np.float32), variance=np.ones(1, np.float32),
        ring=np.zeros((3, 1), np.float32),
        ring_fitness=np.zeros(3), damp=0.1, told=0, counters=SimpleNamespace(nominal_steps=0),
    )  # fmt: skip
    found = []
    for theta, fitness in ((3.0, 5.0), (6.0, 1.0), (9.0, 2.0), (12.0, 4.0), (15.0, np.nan)):
        result = SimpleNamespace(
            theta=np.array([theta], np.float32), episodic_return=fitness, length=1
        )
        p = by_rank(aes, state, result, moves=True)
        state.told += 1
        found.append((float(state.mean[0]), float(state.variance[0]), p))
    assert found[:2] == [(0.0, 1.0, 0.0)] * 2  # not full yet
    assert found[2] == pytest.approx(
        (1.0, 9.05, 0.0)
    )  # elite 3: 3 / 3; 3 ** 2 + 0.1 * 0.125 ** (1 / 3)
    assert found[3] == pytest.approx((1 + 11 / 3, 121.025, 1 / 3))  # 3 gave way to 12, the best
    assert found[4] == pytest.approx(
        (14 / 3 + 22 / 9, (22 / 3) ** 2 + 0.0125, 0.0)
    )  # 12 again: nan is no elite
