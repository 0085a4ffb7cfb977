"""esac-mpi watch on runs whose numbers were worked out by hand, and on a terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from contextlib import suppress

import pytest
from commands import begun
from conftest import environment
from growing_runs import going, make, one_more
from run_files import young

from esac_mpi.analysis.followed import Followed
from esac_mpi.record import lock, reading


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_watch_shows_one_run(tmp_path, call):
    run = make(tmp_path / "a", status="requeue", command="python -m esac_mpi")
    said = call("watch", run, "--once")
    shown = {line[:15].strip(): line[15:].strip() for line in said.out.splitlines()}
    expected = {
        "job": "esac on HalfCheetah-v5, seed 0",
        "ranks": "2 on node1",
        "generation": "40, 4 % of the budget",  # 40,000 of 1,000,000 nominal steps
        # at every fifth generation: 170, 320, ... 1,220
        "return": "1,220.0  ▁▂▃▄▅▆▇█  best 1,220.0",
        "last evaluation": "theta_es 1,200.0, sac 1,220.0",
        "sigma": f"0.005  {'▁' * 24}",
        "speed": "85 steps/s",
        "idle": "97 % of the ranks' time",  # 1 - 4 / (2 * 60)
        "time": "40m00s so far",
    }
    assert {name: shown[name] for name in expected} == expected
    assert shown["status"].startswith("requeue; go on with: mpirun -n 2 python -m esac_mpi ")
    assert re.fullmatch(r"\d+s ago", shown["last row"])
    assert re.fullmatch(r"\d+s ago", shown["last checkpoint"])


def test_a_run_that_has_saved_nothing_has_no_age(tmp_path, call):
    said = call("watch", young(tmp_path / "young"), "--once").out
    assert re.findall(r"last (?:row|checkpoint) +(\S.*?) *$", said, re.M) == ["-", "-"]


def test_watch_shows_several_runs_and_names_the_bad_ones(tmp_path, call):
    killed = make(tmp_path / "killed", status="running")
    status = json.loads((killed / "status.json").read_text())
    (killed / "status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}))
    held = going(tmp_path / "held", status="running")
    os.utime(tmp_path / "held/metrics.h5", (0, 0))
    places = make(tmp_path / "done"), killed, held.path, tmp_path / "nothing"
    said = call("watch", *places, "--once", code=2)
    held.close()
    assert "nothing: no such directory" in said.err
    title, header, *rows = said.out.splitlines()
    assert sorted(title.strip().split(", ")) == ["1 complete", "1 dead", "1 running"]
    heads = "run status gen budget return returns left row best sigma steps/s idle checkpoint"
    assert header.split() == heads.split()
    assert [" ".join(row.split()[:5]) for row in rows] == [
        "killed dead 40 4 %", "held running 40 4 %", "done complete 40 4 %",
    ]  # fmt: skip
    assert "16h00m" in rows[1]  # 960,000 nominal steps at 1,000 a minute
    # its rows are of 1970, its checkpoint is not
    assert re.search(r" \d{5}d\d\dh .* \d+s$", rows[1].strip())
    assert "16h00m" not in rows[0]


def test_a_pipe_gets_whole_lines(tmp_path, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on many a build server
    about = {"status": "requeue", "command": "python -m esac_mpi"}
    places = [make(tmp_path / name, **about) for name in ("a", "b")]
    resume = f"go on with: mpirun -n 2 python -m esac_mpi {places[0]}/config.toml"
    assert any(line.endswith(resume) for line in call("watch", places[0], "--once").out.split("\n"))
    _, header, *rows = call("watch", *places).out.splitlines()
    assert (header.rstrip()[-10:], len(rows)) == ("checkpoint", 2)
    assert all(len(row.split()) > 10 for row in rows)


def live(path):
    """Start watch on a terminal of its own; return the process and a reader of what is shown."""
    terminal, end = pty.openpty()
    variables = {**environment(), "TERM": "xterm", "COLUMNS": "120"}
    streams = {"stdin": end, "stdout": end, "stderr": end}
    process = begun("watch", "--every=0.2", path, env=variables, **streams)
    os.close(end)

    def read(until=None):
        shown = b""
        with suppress(OSError):  # of a terminal whose other end is closed
            while until is None or until not in shown.decode(errors="replace"):
                came = select.select([terminal], [], [], 300)[0]
                assert came, f"{until} did not come after {shown}"
                piece = os.read(terminal, 65536)
                if not piece:
                    break
                shown += piece
        return shown.decode(errors="replace")

    return process, read


@pytest.mark.slow
def test_watch_follows_a_run_to_its_end(tmp_path):
    run = going(tmp_path / "a", generations=4, status="running")
    process, read = live(tmp_path / "a")
    assert "running" in read(until="last checkpoint")
    one_more(run)
    assert "5, 0 % of the budget" in read(until="5, 0 % of the budget")
    run.status("complete", 5)
    run.close()
    assert "complete" in read()
    assert process.wait(300) == 0


@pytest.mark.parametrize("line", ["watch nowhere", "export nowhere --format tensorboard --follow"])
def test_no_look_is_for_ever_away(call, line):
    for pause in ("inf", "1e300", "nan", "-1"):
        said = call(f"{line} --every={pause}", code=2).err
        assert f"--every: {pause}: must be from 0 to 86400 seconds" in said


def test_a_single_run_of_another_status_is_not_shown(tmp_path, call):
    run = make(tmp_path / "a", status="requeue")
    assert call("watch --once", run, "--status=failed").out == "1 requeue; 0 chosen\n"


def test_a_status_of_any_text_is_shown(tmp_path, call):
    make(tmp_path / "a")
    (tmp_path / "a/status.json").write_text('{"status": "[/x]"}')
    assert "[/x]" in call("watch --once", tmp_path / "a").out


def test_a_run_that_ends_between_two_looks_is_read_once_more(tmp_path, monkeypatch):
    run = going(tmp_path / "a", generations=4, status="running")
    watched = Followed([tmp_path / "a"])
    monkeypatch.setattr(reading.os, "getpid", lambda: -1)  # as another process sees it
    monkeypatch.setattr(lock, "is_free", lambda path: False)
    looks = watched.poll(0.0)
    assert not next(looks)
    one_more(run)
    run.status("complete", 5)
    monkeypatch.setattr(lock, "is_free", lambda path: True)
    assert next(looks)
    monkeypatch.undo()
    run.close()
    seen = watched.runs[tmp_path / "a"]
    assert (seen.state, seen.generation) == ("complete", 5)


@pytest.mark.slow
def test_watch_gives_a_pipe_the_last_view(tmp_path):
    run = going(tmp_path / "a", generations=4, status="running")
    process = begun("watch", tmp_path / "a", "--every=0.2", stdout=subprocess.PIPE, text=True)
    one_more(run)
    run.status("complete", 5)
    run.close()
    said = process.stdout.read()
    assert said.count("5, 0 % of the budget") == said.count("% of the budget") == 1
    assert process.wait(300) == 0


@pytest.mark.slow
def test_ctrl_c_leaves_the_terminal_clean(tmp_path):
    run = going(tmp_path / "a", status="running")
    process, read = live(tmp_path / "a")
    shown = read(until="last checkpoint")
    process.send_signal(signal.SIGINT)
    shown += read()
    assert process.wait(300) == 130
    run.close()
    assert "Traceback" not in shown
    assert "\x1b[?25l" not in shown.rpartition("\x1b[?25h")[2]  # the cursor is visible
    assert re.sub(r"\x1b\[\?25[hl]", "", shown).endswith("\n")  # and on a line of its own
