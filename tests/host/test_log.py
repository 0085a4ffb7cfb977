"""log.py: who speaks, where to, and what a person sees of a run's progress."""

import itertools
import logging
import math
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from conftest import ROOT, environment, finish

from esac_mpi.comm.command_ranks import on_all
from esac_mpi.config import Config
from esac_mpi.host import log, streams
from esac_mpi.host.log import Display, compact, duration, figures
from esac_mpi.play.params import Params
from esac_mpi.training import loop
from esac_mpi.training.active_run import Job
from esac_mpi.training.check import ranks
from esac_mpi.training.ended import run_together

VALUES = {
    "generation": 120, "progress": 0.31, "env_steps": 1_230_000, "fitness_mean": 812.3,
    "fitness_max": 1034.0,
    "evaluation_theta_es": 950.4, "evaluation_sac": 1021.0, "sigma": 0.02131,
    "gradient_updates": 41_000,
    "steps_per_second": 5120.0, "seconds_left": 130.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def logger_as_it_was(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "node7")
    with log.preserve_log():
        log.setup(0)
        yield


def row(generation, progress=0.0, env_steps=0, **more):
    return {"generation": generation, "progress": progress, "env_steps": env_steps, **more}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_only_rank_0_speaks_but_for_warnings(capsys):
    for rank in (0, 3):
        log.setup(rank)
        log.say("hello")
        log.warn("odd")
    logging.getLogger("esac_mpi.record").warning("from %s", "below")
    assert capsys.readouterr().out.splitlines() == [
        "hello", "WARNING [rank 0 node7] odd", "WARNING [rank 3 node7] odd",
        "WARNING [rank 3 node7] from below",
    ]  # fmt: skip


def test_log_file_has_messages_of_every_start_and_no_progress(tmp_path, capsys):
    for message in ("first", "zweite läufe"):
        log.setup(0)
        log.append_to(tmp_path / "log.txt")
        log.say(message)
    Display(0.0).update(row(1))
    log.warn("odd")
    shown = ["first", "zweite läufe", "gen 1  0 %  0 steps", "WARNING [rank 0 node7] odd"]
    assert capsys.readouterr().out.splitlines() == shown
    lines = (tmp_path / "log.txt").read_text("utf-8").splitlines()
    times, messages = zip(*(line.split(" ", 1) for line in lines), strict=True)
    assert messages == (*shown[:2], shown[3])
    assert all(len(t) == len("2024-05-01T12:00:00Z") and t.endswith("Z") for t in times)
    log.append_to(tmp_path / "missing" / "log.txt")
    assert "No such file" in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_lines_and_nothing_else(capsys):
    log.append_to(Path("/dev/full"))
    log.say("hello")
    assert capsys.readouterr() == ("hello\n", "")


CODE = """
import time
from esac_mpi.host import log
log.setup(0)
display = log.Display(0.0)
for generation in range(200):
    display.update({"generation": generation, "env_steps": 0, "progress": generation / 200})
    log.say("x" * 1000)
    time.sleep(0.002)
display.close()
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_does_not_end_the_run():
    with open("/dev/full", "w") as full:
        streams = {"stdout": full, "stderr": subprocess.PIPE, "env": environment()}
        done = subprocess.run([sys.executable, "-c", CODE], **streams, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "words",
    ["esac_mpi --seed x", "esac_mpi.commands summary nowhere", "esac_mpi.commands plot --oops"],
)
def test_a_refusal_keeps_its_exit_code_where_stderr_is_full(words):
    variables = environment() | {"PYTHONUNBUFFERED": ""}  # without which something is left over
    line = [sys.executable, "-m", *words.split()]
    with open("/dev/full", "w") as full:
        assert subprocess.run(line, stderr=full, env=variables, check=False).returncode == 2


def test_a_line_is_one_piece_so_that_no_other_ranks_line_cuts_it(monkeypatch):
    pieces = []
    stream = SimpleNamespace(write=pieces.append, flush=list)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    log.tell("asked for")
    log.complain(OSError("wrong"))
    with streams.answer_alone(False) as answer:
        answer("an answer")
    assert [piece for piece in pieces if piece] == ["asked for\n", "wrong\n", "an answer\n"]
    for path in (ROOT / "esac_mpi").rglob("*.py"):
        assert "file=sys.stderr" not in path.read_text("utf-8"), f"{path}: complain() is there"


def test_ascii_stdout_gets_every_line():
    code = "from esac_mpi.host import log; log.setup(0); log.say('läufe'); log.say('end')"
    done = finish([sys.executable, "-c", code], PYTHONIOENCODING="ascii")
    assert done.stdout == "l\\xe4ufe\nend\n"


def test_a_progress_line_names_its_figures():
    assert log.progress_line(VALUES) == (
        "gen 120  31 %  1.23M steps  fitness mean 812 max 1034  theta_es 950  sac 1021  "
        "sigma 0.0213  updates 41k"
        "  5.12k steps/s  left 2m10s"
    )


@pytest.mark.parametrize(
    ("every", "pause", "shown"), [(5.0, 1.0, [0, 5, 10, 11]), (0.0, 0.01, [*range(12)])]
)
def test_a_display_speaks_as_seldom_as_wished(capsys, every, pause, shown):
    clock = Clock()
    display = Display(every, clock)
    for generation in range(12):
        display.update(row(generation, evaluation_sac=float("nan")))
        clock.now += pause
    display.close()
    display.close()
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"gen {generation}  0 %  0 steps" for generation in shown]


def test_lines_thin_out_as_a_run_goes_on(capsys):
    clock, times = Clock(), []
    display = Display(5.0, clock)
    for second in range(36_001):  # ten hours
        clock.now = float(second)
        display.update(row(second))
        times += [second] * bool(capsys.readouterr().out)
    pauses = {before: after - before for before, after in itertools.pairwise(times)}
    assert [pauses[second] for second in (0, 250)] == [5, 5]  # 2 % of 250 s
    for before, pause in pauses.items():
        assert pause == min(max(5, math.ceil(0.02 * before)), 300)
    assert 200 < len(times) < 500


def test_seldom_values_stay_and_speed_follows(capsys):
    clock = Clock()
    display = Display(0.0, clock)
    display.update(row(10, 0.5, 1000, evaluation_sac=7.0))
    clock.now = 10.0
    display.update(row(11, 0.6, 3000, evaluation_sac=float("nan")))
    second = capsys.readouterr().out.splitlines()[1]
    assert second == "gen 11  60 %  3k steps  sac 7  200 steps/s  left 40s"


def test_returns_that_are_not_finite_are_told_ever_more_rarely(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(log, "say", lines.append)
    config = Config()
    params = Params(config, None, 10, None)
    job = Job(config, None, None, params, SimpleNamespace(generation=0), None, None)
    for k in range(1, 1001):
        job.state.generation = k
        loop.tell_not_finite(job, [k % 50, 7] if k % 2 else [])  # 500 generations have some
    words = [line.split() for line in lines]
    assert [int(w[1].strip(":")) for w in words] == [1, 3, 5, 7, 9, 15, 31, 63, 127, 255, 511]
    found = "the return of member(s) {} is not finite: ranked last, counted"
    assert lines[1] == f"generation 3: {found.format([3, 7])}"
    assert lines[-1] == f"generation 511: {found.format([11, 7])}, in 256 generations so far"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (compact, {0: "0", 7: "7", 99.5: "99.5", 812: "812", 999.9: "1k", 5120: "5.12k",
                   41_000: "41k", 999_999: "1M", 1_234_567: "1.23M", 2.5e9: "2.5G"}),
        (figures, {9359.86: "9359.9", -12.34: "-12.3", 0.8549: "0.855", -0.004: "-0.004", 1: "1",
                   9e8: "900000000.0", -3.4e38: "-3.4e+38"}),
        (duration, {0.4: "0s", 59.4: "59s", 130: "2m10s", 3600 * 3 + 300: "3h05m",
                    86400 * 4 + 7200: "4d02h", math.inf: "?"}),
    ],
)  # fmt: skip
def test_figures(shown, expected):
    assert {number: shown(number) for number in expected} == expected


def test_a_log_without_room_is_no_error():
    class Full(logging.Handler):
        def close(self):
            super().close()
            raise OSError(28, "No space left on device")

    before = log.logger.handlers[:], log.logger.propagate
    with log.preserve_log():
        log.logger.addHandler(Full())
    assert (log.logger.handlers[:], log.logger.propagate) == before


def test_a_pipe_in_place_of_the_log_is_let_be(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with log.preserve_log():
        before = log.logger.handlers[:]
        log.append_to(tmp_path / "pipe")
        assert log.logger.handlers == before


def look_at(world, make):
    with mock.patch.object(ranks, "make_task", side_effect=lambda config: make()):
        ranks.look(Config(), world)


@pytest.mark.parametrize("together", [run_together, on_all, look_at])
def test_of_what_all_ranks_make_rank_0_alone_shows_warnings(together):
    """Unless the task has a function of its own that shows them."""
    watchdog = SimpleNamespace(works_on=lambda what: None)
    for rank, shown in ((0, ["made"]), (1, [])):
        world = SimpleNamespace(
            rank=rank, node=0, hosts=["a", "a"], watchdog=watchdog, gather=lambda value: [value]
        )
        with warnings.catch_warnings(record=True, action="always") as seen:
            together(world, lambda: warnings.warn("made", stacklevel=1))
            assert [str(each.message) for each in seen] == shown
            warnings.warn("played", stacklevel=1)
            own = mock.Mock()
            together(world, lambda own=own: setattr(warnings, "showwarning", own))
            assert warnings.showwarning is own
        assert str(seen[-1].message) == "played"
