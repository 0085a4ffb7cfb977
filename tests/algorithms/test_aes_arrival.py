"""AES-RL in order of arrival: runs made again, the room of its ring; what an arrival moves."""

import os
import random
import signal
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import EAGER, command, environment
from in_process import refused, started
from run_files import leave
from small_runs import Ending
from test_aes_rl import SMALL, TASK
from whole_runs import assert_same_run, rows_published, science, wait_for
from words import words

from esac_mpi import record
from esac_mpi.algorithms import aes_driver, aes_state
from esac_mpi.algorithms.aes_driver import Driver
from esac_mpi.algorithms.aes_moves import move
from esac_mpi.algorithms.aes_state import COLUMNS, State, has_room
from esac_mpi.algorithms.aes_work import Order, Result, fill_ring, train_and_play
from esac_mpi.comm.virtual_time import Agenda, Arrival
from esac_mpi.config import AESRL, Config, amend, load, to_toml
from esac_mpi.config.fields import value_of
from esac_mpi.host import cooperative
from esac_mpi.learners import make_operators
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.play.counters import Counters
from esac_mpi.play.params import Params, make_layout
from esac_mpi.play.transitions import read_ring, width, write_ring
from esac_mpi.record import Refused

ARRIVAL = [*SMALL, *TASK, *words("--aes_rl.order arrival --aes_rl.replay_capacity 500")]
ARRIVAL += words("--budget.generations 8 --run-dir")
AES = {"algorithm": "aes_rl"}


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


def test_what_was_told_before_a_kill_is_told_again_in_that_order(killed):
    path, before = killed
    after = science(path)
    count = len(before["metrics/generation"])
    assert count >= 3
    np.testing.assert_equal({name: after[name][:count] for name in before}, before)
    assert after["metrics/critic_turns"].sum() == after["metrics/learner_phases"][-1] > 0
    assert set(after["metrics/worker"].ravel().tolist()) == {0, 1, 2}


def test_it_is_made_again_at_once_or_in_parts(killed, tmp_path, alone, together):
    again = ["--aes_rl.replay", killed[0]]
    alone(*ARRIVAL, tmp_path / "one", *again, "--budget.generations", 3)
    alone(*ARRIVAL, tmp_path / "one", *again)
    assert_same_run(killed[0], tmp_path / "one")
    together(2, *ARRIVAL, tmp_path / "two", *again, nodes=2)
    assert_same_run(killed[0], tmp_path / "two")


MINE = {**AES, "aes_rl.order": "arrival", "budget.generations": 8, "budget.nominal_steps": 0}


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ({}, {}, ""),
        ({}, {"budget.generations": 5}, ""),
        ({}, {"aes_rl.workers": 4}, "has other settings: aes_rl.workers: 5 -> 4; "),
        ({"algorithm": "es"}, {}, "has other settings: algorithm: es -> aes_rl"),
        ({"aes_rl.order": "virtual"}, {}, "has other settings: aes_rl.order: virtual"),
        ({}, {"budget.generations": 9}, "has a smaller budget, at whose end its record ends"),
        ({}, {"budget.generations": 0, "budget.env_steps": 500}, "has a smaller budget"),
        ({}, {"aes_rl.replay": "."}, "not a run directory of esac_mpi"),
        ({}, {"aes_rl.replay": "x" * 5000}, "File name too long"),
        ({}, {"run_dir": "run"}, "is the run directory itself"),
        ({}, {"task_wrappers": "Other"}, "is of another task; changed: its wrappers"),
        ({"status": "requeue"}, {}, r"is not finished \(requeue\)"),
    ],
)
def test_only_a_finished_run_of_the_same_settings_and_task_is_made_again(
    was, now, told, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = [({"generation": g}, {"wall_seconds": g}) for g in range(1, 9)]
    settings = {**MINE, **was}
    status = settings.pop("status", "complete")
    leave("run", rows, settings, {"task_wrappers": "Mine"}, status)
    settings = {**MINE, "aes_rl.replay": "run", **now}
    here = {"task_wrappers": settings.pop("task_wrappers", "Mine")}
    place = Path(settings.pop("run_dir", "new"))
    refused = pytest.raises(Refused, match=rf"^aes_rl.replay: .*{told}")
    with refused if told else nullcontext():
        assert record.source(amend(Config(), settings), place, here).generations == 8


@pytest.mark.slow
def test_a_replay_that_is_refused_creates_nothing(tmp_path):
    said = f"esac_mpi: aes_rl.replay: {tmp_path}: not a run directory of esac_mpi"
    assert refused(*ARRIVAL, tmp_path / "new", "--aes_rl.replay", tmp_path) == said


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
    choose, horizon = random.Random(seed), 10  # in any order that is allowed
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


def test_an_individual_learns_from_the_ring_where_it_lies(monkeypatch):
    """Transitions 25 to 64 in 50 rows; a copy on every rank would come to be as large as these."""
    settings = {"aes_rl.replay_capacity": 40, "aes_rl.batch_size": 8, "aes_rl.update_cost": 1.0}
    settings |= {"policy.hidden": (4,), "policy.linear_gain": 1.0, "learner.kernels": "torch"}
    config = amend(Config(), {**AES, **settings})
    env, ring = Ending(), np.zeros((50, width(3, 3)), np.float32)
    write_ring(ring, np.random.default_rng(0).normal(size=(50, ring.shape[1])), 65)
    layout = make_layout(config, env)
    operators, given = make_operators("individuals", config, layout), []
    theta = layout.initial(0, 0)
    critic = np.random.default_rng(1).normal(size=operators.critic_size).astype(np.float32)
    states, random = read_ring(ring[:, :3], 25, 65), generator(0, Purpose.TRAINING, 9)
    expected = operators.trained(theta, critic, states, 7, random)
    honest = operators.training

    def training(theta, critic, states, *more):
        given.append(np.shares_memory(states, ring))
        return honest(theta, critic, states, *more)

    monkeypatch.setattr(operators, "training", training)
    order = Order(0, 9, 7, 65, theta, theta, critic)
    params = Params(config, layout, env.horizon, None, operators, env)
    work = train_and_play(params, SimpleNamespace(replay=ring), order, theta)
    _, result = cooperative.run(work)
    np.testing.assert_array_equal(result.theta, expected)
    assert (result.theta != theta).any()
    assert given == [True]


SLOW = [*SMALL, *TASK, *words("--aes_rl.update_cost 20 --aes_rl.critic_cost 0.01")]
SLOW += words("--aes_rl.replay_capacity 60 --aes_rl.rl_share 0.1 --budget.generations")


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


def test_where_room_is_narrow_results_wait_alike_on_any_ranks(
    tmp_path, monkeypatch, passed_over, together
):
    """Room for three episodes of each worker beside the 60 transitions that are read."""
    narrow(monkeypatch, 0, 3)  # an individual learns for 1,800 steps
    make_run(tmp_path / "straight", 10)
    for generations in (3, 4, 7, 10):
        make_run(tmp_path / "parts", generations)
    assert len(passed_over) > 10
    assert_same_run(tmp_path / "straight", tmp_path / "parts")
    gaps = np.diff(science(tmp_path / "straight")["metrics/virtual_end"].ravel())
    assert (gaps >= 0).all()
    assert (gaps == 0).any()  # who waited comes with whom it waited for
    monkeypatch.setenv("ANYWAY", "3")
    together(3, *SLOW, 10, "--run-dir", tmp_path / "ranks", nodes=2)
    assert_same_run(tmp_path / "straight", tmp_path / "ranks")


HORIZON, CAPACITY = 10, 40
WORST = {
    **{"workers": 3, "replay_capacity": CAPACITY, "update_cost": 2.0, "critic_chunk": 5},
    **{"actor_updates_window": 2, "mean_episodes": 1},
}


@pytest.mark.parametrize("seed", range(30))
def test_with_room_for_the_most_that_can_come_in_nothing_waits(seed, monkeypatch):
    """Whole episodes of individuals, of whom a few learn for 40 steps, the most there can be."""
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
    """Also of a run that goes on with an older version's checkpoint, of which a part is let go."""
    rows = []
    for name, rooms in (("wide", [1e9, 1e9]), ("former", [1e9, 1]), ("now", [1, 1])):
        for around, generations in zip(rooms, (8, 12), strict=True):
            narrow(monkeypatch, around, 5)
            make_run(tmp_path / name, generations)
        rows.append(science(tmp_path / name))
    assert not passed_over
    assert rows[0]["metrics/nominal_steps"][7] > 60 + 3 * (60 + 5 * 30)  # what there was room for
    np.testing.assert_equal(rows, rows[:1] * 3)
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
    """By a shift of 0.5 the mean's finite ones, 90 in 60 steps, are 60, and the arrival's 75."""
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
