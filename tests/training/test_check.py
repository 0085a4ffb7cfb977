"""--check: it says what is so, names what is wrong with what to do, and leaves nothing behind."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import launchers
import pytest
from conftest import CORRECTED, CYCLIC, CYCLIC_ES, TINY_ES, run
from in_process import checked, started
from run_files import publish
from short_runs import HOLD, elsewhere, failing, flip, snapshot
from small_runs import shared_bytes

from esac_mpi import config
from esac_mpi.config import Config
from esac_mpi.envs import identity, make
from esac_mpi.envs.probe import Probe
from esac_mpi.host import affinity
from esac_mpi.learners import cpu
from esac_mpi.operators.policy import Layout
from esac_mpi.play.params import Params
from esac_mpi.record import read
from esac_mpi.training import check, set_up
from esac_mpi.training.check import cost, directory, learner, memory, report
from esac_mpi.training.check import ranks as surroundings
from esac_mpi.training.check import run as start_of

pytestmark = pytest.mark.slow

SUBJECTS = """MPI, mpi4py, ranks, node 0, BLAS, exchange, time left, directory,
free space, writing, all nodes, task, physics, episodes, torch, work, memory, replay, run, core,
forecast"""
SMALL = {
    **CORRECTED,
    **{"task.id": "CyclicMDP-v0", "policy.hidden": (8, 8)},
    **{"algorithm": "es", "es.population_size": 50},
}


def lines(output: str) -> dict[str, str]:
    """Return {subject: the rest of its line} of a report."""
    return dict(re.findall(r"^  (\S+(?: \S+)*?)  +(.*)$", output, re.M))


def settings(**changes) -> Config:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return config.amend(Config(), {**SMALL, **named})


@pytest.fixture
def refused(world, capsys):
    """Return a function that checks settings, which must be refused: the lines of its report."""

    def look(path, **changes):
        assert check.check(settings(run_dir=str(path), **changes), world) == 2
        return lines(capsys.readouterr().out)

    return look


def test_a_good_place_is_ready_and_left_as_it_was(tmp_path):
    done = run(2, "--check", *CYCLIC, "--run-dir", tmp_path / "deep" / "run")
    found = lines(done.stdout)
    assert list(found) == SUBJECTS.replace("\n", " ").split(", ")
    assert re.match(r"\d+\.\S+, module MPI\S* +ok", found["mpi4py"])
    assert found["ranks"].startswith("2 on 1 node(s)")
    assert ": ranks 0-1; cores " in found["node 0"]
    blas = r": 1 thread\(s\) a rank, as the library says +ok|cannot be asked"
    assert re.search(blas, found["BLAS"])
    assert re.search(r"imported in \d+\.\d s on rank 0", found["torch"])
    assert re.match(r"token read on 1 of 1 node\(s\) +ok", found["all nodes"])
    assert found["exchange"].startswith("4 members")
    assert "WRONG" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("ready to run")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_nodes_do_not_share_is_2(tmp_path):
    if reason := launchers.missing("mpich", 2):
        pytest.skip(reason)
    program = [launchers.python("mpich"), "-m", "esac_mpi", "--check", *CYCLIC_ES]
    line = ["env", f"PRIVATE={tmp_path}", *launchers.launcher("mpich", 2, 2), *program]
    done = launchers.run(line, "--run-dir", tmp_path / "run", code=2)
    found = lines(done.stdout)
    assert re.search(r"1 of 2 node\(s\) +WRONG: not seen from node3", found["all nodes"])
    assert found["node 0"].startswith("node2: ranks 0;")
    assert found["node 1"].startswith("node3: ranks 1;")
    assert done.stdout.splitlines()[-1].endswith("before a run can start: all nodes")
    assert not list(tmp_path.iterdir())


def test_a_task_that_cannot_be_made_is_2_and_the_rest_looked_at(refused, tmp_path):
    found = refused(tmp_path, task__id="HalfCheetah-v55")
    assert re.search(r"on ranks 0 +WRONG: TaskError: .*HalfCheetah", found["task"])
    assert not {"physics", "torch", "run"} & {*found}
    assert re.match(r"token read on 1 of 1 node\(s\) +ok", found["all nodes"])


def test_a_disk_with_little_room_is_not_filled(tmp_path, monkeypatch):
    monkeypatch.setattr(directory.shutil, "disk_usage", lambda place: SimpleNamespace(free=2**26))
    (room,) = directory.space(tmp_path)
    assert (room.subject, room.remedy[:6]) == ("free space", "little")


def test_kernels_that_are_not_there_are_2(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(cpu, "mkl_library", lambda: None)
    found = refused(tmp_path, algorithm="cem_rl", learner__kernels="mkl")
    assert "WRONG: learner.kernels = mkl: this installation has none" in found["torch"]
    assert "memory" not in found


def test_a_place_that_is_a_file_is_2(refused, tmp_path):
    (tmp_path / "file").write_text("kept")
    assert "WRONG: Not a directory" in refused(tmp_path / "file" / "run")["directory"]
    assert (tmp_path / "file").read_text() == "kept"


def test_a_full_disk_is_2_and_nothing_stays(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(directory.os, "fsync", failing())
    assert "WRONG: No space left on device" in refused(tmp_path)["directory"]
    assert not list(tmp_path.iterdir())


def test_an_exchange_with_wrong_results_is_2(world, refused, tmp_path, monkeypatch):
    honest = world.map
    monkeypatch.setattr(world, "map", lambda *arguments: (honest(*arguments)[0] + 1, None))
    assert "WRONG: wrong results on ranks 0" in refused(tmp_path)["exchange"]


def test_shared_memory_needed_is_what_a_run_allocates(world):
    chosen = settings(algorithm="esac", esac__noise="table", esac__noise_table_size=1000)
    env, sizes = make("CyclicMDP-v0"), shared_bytes(world)
    layout = Layout((env.observation_size, 8, 8, env.action_size))
    noise = set_up.make_epsilon(chosen, layout, world)
    set_up.make_state(Params(chosen, layout, env.horizon, noise), world)
    sums = 8  # the table's own sums over blocks, one float64
    assert memory.count_shared(chosen, env, 1) - 2**20 == sum(sizes) - sums
    # members, evaluation, confirmation; five of each rank; twice
    boards = 2 * 8 * ((50 * 5 + 5) + (20 * 3 + 5) + (10 * 3 + 5))
    # two thetas, moments, ten children
    assert memory.count_shared(chosen, env, 1) - 2**20 == 4 * (1000 + (4 + 10) * layout.d) + boards


def test_what_no_machine_has_is_told_in_a_line():
    huge = settings(algorithm="cem_rl", cem_rl__replay_capacity=10**13)
    huge = config.amend(huge, {"budget.nominal_steps": 0, "budget.env_steps": 10**13})
    (line,) = memory.shared(huge, make("CyclicMDP-v0"), [seen()])
    assert line.fatal
    assert line.remedy.startswith("Unable to allocate ")


def test_the_boards_of_transitions_that_travel_are_counted():
    env = make("CyclicMDP-v0", 40)
    o, a = env.observation_size, env.action_size
    packed = 40 * (2 * o + a + 2) // 2  # float64 that hold 40 transitions of float32
    for name in ("td3", "ddpg"):
        root = settings(algorithm=name)
        ranks = config.amend(root, {f"{name}.episodes_on": "ranks"})
        more = 2 * 8 * (8 * (5 + packed) + 3 * 5)  # eight episodes, headers of three ranks
        assert memory.count_shared(ranks, env, 3) - memory.count_shared(root, env, 3) == more


def test_trials_and_resimulated_members_are_counted():
    env, d = make("CyclicMDP-v0"), Layout((3, 8, 8, 3)).d

    def more(**changes):
        chosen = {f"esac__{name}": value for name, value in changes.items()}
        plain = memory.count_shared(settings(algorithm="esac"), env, 3)
        return memory.count_shared(settings(algorithm="esac", **chosen), env, 3) - plain

    assert more(transfer="tested", transfer_episodes=4) == 2 * 8 * ((50 + 2 * 4) * 5 + 3 * 5)
    assert more(resimulated="winners") == 0  # their parents are there when all wait for the phase
    for beside in ({"learner_lag": 2}, {"phase_timing": "virtual"}):
        assert more(resimulated="winners", resimulated_members=3, **beside) == 3 * d * 4
        assert more(resimulated="sample", resimulated_members=60, **beside) == 50 * d * 4


def seen(**changes) -> surroundings.Rank:
    blas = "openblas: 1 thread(s) a rank"
    return replace(surroundings.Rank(0, "a", [0, 1], blas, 2**30, "", 0.1, 1000.0), **changes)


def test_nodes_that_make_other_bits_are_named():
    other = seen(host="b", found=Probe("d2"), steps_per_second=3000.0)
    played, physics, _ = start_of.playing(settings(), [seen(), other])
    assert "1,000 / 2,000 / 3,000 steps/s" in played.found
    assert physics.remedy.startswith("other bits on b:")
    assert not physics.fatal


NONE = seen(shared_free=0)


@pytest.mark.parametrize(
    ("ranks", "small", "said"),
    [
        ([seen(), seen(host="b", shared_free=2**20)], True, "too small on b"),
        ([seen(), seen(host="b", shared_free=2**21)], False, "free on b"),
        ([NONE, replace(NONE, node=1)], False, "one rank a node needs no /dev/shm"),
        ([NONE, *[seen(node=1, host="b")] * 2], False, "free on b"),
    ],
)
def test_the_smallest_memory_that_ranks_of_a_node_share_decides(ranks, small, said):
    (line,) = memory.shared(settings(), make("CyclicMDP-v0"), ranks)
    assert (line.fatal, bool(line.remedy)) == (small, small)
    assert said in (line.remedy if small else line.found)


LAGGED = {"algorithm": "esac", "esac__learner_lag": 5}
ON_RANKS = {"algorithm": "td3", "td3__episodes_on": "ranks"}
UNTRAINED = {"algorithm": "cem_rl", "cem_rl__population_size": 6, "cem_rl__trained_fraction": 0.0}
WORK = [  # settings, ranks, what is found, what would be better
    ({}, 64, "50 members a generation on 64 evaluating rank(s)", "14 rank(s) never have one: 50"),
    ({}, 25, "2 turn(s)", ""),
    ({}, 32, "2 turn(s)", "18 of 32 have work in the last: 25 take as many turns, 50 take 1"),
    (LAGGED, 51, "on 50 evaluating rank(s): 1 turn(s), rank 0 is with the learner", ""),
    (LAGGED, 64, "on 63 evaluating", "13 rank(s) never have one: 50 would do"),
    (UNTRAINED, 1, "6 episodes a generation on 1 evaluating rank", ""),
    ({**UNTRAINED, "cem_rl__trained_fraction": 0.5}, 1, "3 episodes a generation on 1 eval", ""),
    ({"algorithm": "sac"}, 1, "rank 0 plays and learns", ""),
    ({"algorithm": "sac"}, 4, "rank 0 plays", "the other 3 only play evaluations, 10 episode(s)"),
    ({"algorithm": "td3"}, 4, "rank 0 plays", "in a new run with --td3.episodes_on ranks they"),
    (ON_RANKS, 9, "8 episodes a generation", "1 rank(s) never have one: 8 would do"),
    ({"algorithm": "erl"}, 11, "1 turn(s); then 10 members are made on the other 10, rank 0", ""),
    ({"algorithm": "aes_rl"}, 2, "5 individuals at a time on 2 rank(s), rank 0 decides", ""),
    ({"algorithm": "aes_rl"}, 8, "5 individuals at a time on 8 rank(s)", "2 rank(s) never have"),
    ({"algorithm": "pderl"}, 1, "11 turn(s); then 10 members are made", ""),
]


@pytest.mark.parametrize(("changes", "ranks", "found", "better"), WORK)
def test_ranks_without_work_and_better_numbers_of_them(changes, ranks, found, better):
    (line,) = start_of.work(settings(**changes), make("CyclicMDP-v0", 1000), ranks)
    assert found in line.found
    assert better in line.remedy
    assert bool(better) == bool(line.remedy)
    assert not line.fatal


def test_a_learner_whose_episodes_are_cut_has_a_line():
    _, line = start_of.work(settings(algorithm="sac"), make("CyclicMDP-v0"), 1)  # 2,000 steps
    assert (line.subject, line.found) == ("learner", "its episodes are cut")
    assert line.remedy.endswith("in a new run --sac.steps_per_generation 2000 for all")


def test_a_shared_core_and_libraries_with_threads_are_noted(world):
    world.size, world.nodes = 2, 1
    *_, node = surroundings.launch([seen(cores=[3]), seen(cores=[3])], world)
    assert node.found == "a: ranks 0-1; cores 3, 1 for each rank"
    assert "bind each to a core of its own" in node.remedy
    world.size, world.nodes = 3, 2
    *_, one, two = surroundings.launch([seen(), seen(node=1, host="b", cores=[4]), seen()], world)
    assert one.found == "a: ranks 0,2; cores 0-1, 2 for each rank"
    assert two.found == "b: ranks 1; cores 4, 1 for each rank"
    (blas,) = surroundings.libraries([seen(blas="mkl: 12 thread(s) a rank"), seen()])
    assert "OMP_NUM_THREADS=1" in blas.remedy
    assert not surroundings.libraries([seen()])[0].remedy


@pytest.mark.parametrize(
    ("hosts", "allowed", "threads", "said"),
    [
        ("aab", [[0, 1, 2], [0, 1, 2], [0]], 2, []),
        ("aab", [[0, 1], [0, 1], [0]], 2, ["2 ranks of a and 1 more thread(s) of the learner"]),
        ("aab", [[3], [3], [0, 1]], 0, ["2 ranks of a share 1 core(s)"]),
        ("a", [[0]], 2, ["learner.threads = 2, but rank 0 may run on 1 core(s)"]),
    ],
)
def test_ranks_that_share_cores_and_threads_without_one_are_named(hosts, allowed, threads, said):
    found = affinity.complaints([*hosts], allowed, threads)
    assert [text[: len(words)] for text, words in zip(found, said, strict=True)] == said


def library(cores, ranks, **changes):
    """Return what --check says of SAC's learner on a rank of a node."""
    return learner.library(settings(algorithm="sac", **changes), [seen(cores=cores)] * ranks)


def test_a_gpu_that_is_not_there_is_wrong():
    line = library([0, 1], 1, learner__device="cuda:77")
    assert line.fatal
    assert "learner.device = cuda:77: torch sees" in line.remedy
    assert "tf32" in library([0, 1], 1, learner__precision="tf32").remedy
    assert "give it more" in library([0, 1], 1, learner__threads=3).remedy


def test_threads_for_the_learner_are_for_a_new_run_alone():
    large = {"learner__device": "cpu", "policy__hidden": (256, 256)}
    of_four = library([0, 1, 2, 3], 2, **large)
    said = "2 core(s) have no rank, a new run could use them: --learner.threads 3"
    assert of_four.found.endswith(said)
    assert "a new run" not in library([0, 1], 2, **large).found
    small = {**large, "policy__hidden": (64, 64)}  # two threads were eight times slower there
    assert "a new run" not in library([0, 1, 2, 3], 2, **small).found
    assert "a new run" not in library([0, 1, 2, 3], 2, **large, learner__threads=3).found


@pytest.mark.parametrize(
    ("job", "seconds", "found", "remedy"),
    [
        ("17", 7200.0, "2h00m of job 17", ""),
        ("17", 100.0, "1m40s of job 17", "ask for more time"),
        ("3.server", math.inf, "not known for job 3.server", "give --max-hours"),
        ("", math.inf, "no limit known", ""),
        ("", -5.0, "none: a run would stop at once", "unset SLURM_JOB_END_TIME"),
    ],
)
def test_the_time_that_a_job_has_left_is_shown(job, seconds, found, remedy):
    line = surroundings.time_left(job, seconds)
    assert line.found.startswith(found)
    assert line.remedy.startswith(remedy)
    assert (bool(line.remedy), line.fatal) == (bool(remedy), seconds <= 0)


@pytest.mark.parametrize(
    ("numbers", "text"), [([0, 1, 2, 3, 6], "0-3,6"), ([5], "5"), ([], ""), ([1, 3], "1,3")]
)
def test_spans(numbers, text):
    assert report.format_ranges(numbers) == text


# the line about the run: it says what a start then does, and changes nothing

FURTHER = ["--budget.generations", "3"]


@pytest.fixture
def place(tmp_path):
    return tmp_path / "run"


def said(argv, capfd):
    """Return the exit code of --check, its line about the run and the lines that go on with it."""
    capfd.readouterr()
    code = checked(*argv)
    return code, re.search(r"^  run  +(.*(?:\n {8}.*)*)", capfd.readouterr().out, re.M)[1]


def nothing(path, monkeypatch):
    pass


def strange(path, monkeypatch):
    path.mkdir()
    (path / "x").write_text("kept")


def empty(path, monkeypatch):
    path.mkdir()


def complete(path, monkeypatch):
    assert started(*TINY_ES, "--run-dir", path) == 0


def damaged(path, monkeypatch):
    complete(path, monkeypatch)
    for file in path.glob("checkpoint*.h5"):
        flip(file)


def in_vain(path, monkeypatch):
    complete(path, monkeypatch)
    status = json.loads((path / "status.json").read_text())
    status |= {"status": "running", "starts": 10, "since": 2}
    (path / "status.json").write_text(json.dumps(status))


def edited(path, monkeypatch):
    complete(path, monkeypatch)
    made = {"model": "", "source": "arm 1234", "wrappers": ""}
    monkeypatch.setattr(identity, "identity", lambda env: made)


def resized(path, monkeypatch):
    complete(path, monkeypatch)
    arrays, attributes = read(path / "checkpoint.h5")
    publish(path / "checkpoint.h5", arrays, {**attributes, "sizes": "2 4 2"})


WARNED = [*FURTHER, "--task.changed", "warn"]
STARTS = [  # before, options, exit code, what the check says
    (nothing, [], 0, r"a new run +ok"),
    (empty, ["--fresh"], 0, r"a new run +ok"),
    (strange, [], 2, r"refused +WRONG: {path}: not empty, and not a run of esac_mpi"),
    (strange, ["--fresh"], 2, r"refused +WRONG: {path}: not empty"),
    (complete, [], 0, r"finished at generation 2 +NOTE: the run in {path} is finished"),
    (complete, FURTHER, 0, r"goes on from generation 2, checkpoint.h5 +ok"),
    (complete, ["--fresh"], 0, r"a new run; the old one is moved to {path}.old-1 +ok"),
    (complete, ["--es.sigma", "0.5"], 2, r"refused +WRONG: {path} .*\n {{10}}es.sigma: .*-> 0.5\n"),
    (damaged, FURTHER, 65, r"refused +WRONG: {path}: no readable checkpoint"),
    (in_vain, FURTHER, 1, r"failed at generation 2 +WRONG: 10 starts in a row"),
    (edited, FURTHER, 2, r"refused +WRONG: {path} .*its source \(arm\)\.\n {{8}}Choose"),
    (resized, WARNED, 2, r"refused +WRONG: {path} .* have 2 4 2 units .*, here 3 4 3\. Choose"),
    (edited, WARNED, 0, r"goes on .* NOTE: the task has changed: its source \(arm\); the best"),
]


def others(place):
    """Return what lies beside a directory and in it, but for its own time: it was tried."""
    return {name: entry for name, entry in snapshot(place.parent).items() if name != str(place)}


@pytest.mark.parametrize(("before", "options", "code", "found"), STARTS)
def test_the_check_says_what_a_start_does_and_changes_nothing(
    place, before, options, code, found, monkeypatch, capfd
):
    before(place, monkeypatch)
    line = [*TINY_ES, "--stop.starts", "10", "--run-dir", str(place), *options]
    there = others(place)
    found_code, text = said(line, capfd)
    assert re.match(found.format(path=re.escape(str(place))), text), text
    assert others(place) == there
    assert found_code == started(*line) == code


def test_a_task_whose_model_changes_at_resets_is_the_same(place, capfd):
    # its target is drawn
    line = [*TINY_ES, "--task.id", "dm_control/fish-swim-v0", "--run-dir", str(place)]
    assert started(*line) == 0
    code, text = said([*line, *FURTHER], capfd)
    assert code == 0
    assert re.match(r"goes on from generation 2, checkpoint.h5 +ok", text), text


def test_a_run_in_use_is_refused_and_goes_on(place, capfd):
    line = [*TINY_ES, "--run-dir", str(place)]
    with elsewhere(HOLD.format(path=str(place))) as process:
        code, text = said(line, capfd)
        assert code == 2
        host = (place / "run.lock").read_text().split()[0]
        assert f"in use by another run: host {host}, pid {process.pid}" in text
        assert started(*line) == 2  # it still holds its lock
    assert "a new run" not in said(line, capfd)[1]  # its config.toml is of other settings


def test_a_forecast_is_of_what_is_left(place, monkeypatch, capfd):
    for before, told in (
        (nothing, "for the whole budget"),
        (complete, "for what is left of the budget"),
    ):
        before(place, monkeypatch)
        capfd.readouterr()
        assert checked(*TINY_ES, *FURTHER, "--run-dir", place) == 0
        assert told in capfd.readouterr().out
    assert checked(*TINY_ES, "--run-dir", place) == 0
    assert "a generation, " not in capfd.readouterr().out  # it is finished


def test_what_a_rank_cannot_measure_leaves_a_line(place, monkeypatch, capfd):
    """And no rank waits for another: all exchange what they found."""
    fails = Mock(side_effect=MemoryError("no room for a child"))
    monkeypatch.setattr(cost.measured, "seconds", fails)
    assert checked(*TINY_ES, "--run-dir", place) == 0
    assert "none: MemoryError: no room for a child" in capfd.readouterr().out
