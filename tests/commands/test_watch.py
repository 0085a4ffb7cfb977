"""esac-mpi watch on runs whose numbers were worked out by hand, and on a terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress

from conftest import ROOT
from growing_runs import make, one_more, tool

from esac_mpi.analysis import views
from esac_mpi.commands.watch import Watched
from esac_mpi.record import lock, reading


def figures(shown):
    """Return the view of one run as {label: text}."""
    return {line[:15].strip(): line[15:].strip() for line in shown.splitlines()}


def test_watch_shows_one_run(tmp_path):
    make(tmp_path / "a", status="requeue", command="python -m esac_mpi").close()
    done = tool("watch", tmp_path / "a", "--once", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    shown = figures(done.stdout)
    assert shown["job"] == "esac on HalfCheetah-v5, seed 0"
    assert shown["ranks"] == "2 on node1"
    assert shown["status"].startswith("requeue; go on with: mpirun -n 2 python -m esac_mpi ")
    assert shown["generation"] == "40, 4 % of the budget"  # 40,000 of 1,000,000 nominal steps
    assert (
        shown["return"] == "1,220.0  ▁▂▃▄▅▆▇█  best 1,220.0"
    )  # at every fifth generation: 170, 320, ... 1,220
    assert shown["last evaluation"] == "theta_es 1,200.0, sac 1,220.0"
    assert shown["sigma"] == f"0.005  {'▁' * 24}"
    assert shown["speed"] == "85 steps/s"
    assert shown["idle"] == "97 % of the ranks' time"  # 1 - 4 / (2 * 60)
    assert shown["time"] == "40m00s so far, - left"
    assert re.fullmatch(r"\d+s ago", shown["last row"])
    assert re.fullmatch(r"\d+s ago", shown["last checkpoint"])


def test_watch_shows_several_runs_and_names_the_bad_ones(tmp_path):
    make(tmp_path / "done").close()
    make(tmp_path / "killed", status="running").close()
    status = json.loads((tmp_path / "killed/status.json").read_text())
    (tmp_path / "killed/status.json").write_text(json.dumps({**status, "pid": 2**22 + 1}))
    held = make(tmp_path / "held", status="running")
    os.utime(tmp_path / "held/metrics.h5", (0, 0))
    done = tool(
        "watch",
        *(tmp_path / name for name in ("done", "killed", "held", "nothing")),
        "--once",
        COLUMNS="200",
    )
    held.close()
    assert done.returncode == 2
    assert "nothing: not a run directory" in done.stderr
    title, header, *rows = done.stdout.splitlines()
    assert sorted(title.strip().split(", ")) == ["1 complete", "1 dead", "1 running"]
    assert (
        " ".join(header.split())
        == "run status gen budget return returns left row best sigma steps/s idle checkpoint"
    )
    assert [row.split()[:5] for row in rows] == [
        ["killed", "dead", "40", "4", "%"], ["held", "running", "40", "4", "%"],
        ["done", "complete", "40", "4", "%"],
    ]  # fmt: skip
    assert "16h00m" in rows[1]  # 960,000 nominal steps at 1,000 a minute
    assert re.search(
        r" \d{5}d\d\dh .* \d+s$", rows[1].strip()
    )  # its rows are of 1970, its checkpoint is not
    assert "16h00m" not in rows[0]


def live(*arguments):
    """Start watch on a terminal of its own; return the process and a reader of what is shown."""
    terminal, end = pty.openpty()
    line = [
        sys.executable,
        "-m",
        "esac_mpi.commands",
        "watch",
        "--every",
        "0.2",
        *map(str, arguments),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    heard = signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a background job may have it ignored, and its children with it
    process = subprocess.Popen(line, env=environment, stdin=end, stdout=end, stderr=end)
    signal.signal(signal.SIGINT, heard)
    os.close(end)

    def read(until=None):
        shown = b""
        with suppress(OSError):  # of a terminal whose other end is closed
            while until is None or until not in shown.decode(errors="replace"):
                assert select.select([terminal], [], [], 300)[0], (
                    f"{until} did not come after {shown}"
                )
                piece = os.read(terminal, 65536)
                if not piece:
                    break
                shown += piece
        return shown.decode(errors="replace")

    return process, read


def test_watch_follows_a_run_to_its_end(tmp_path):
    run = make(tmp_path / "a", generations=4, status="running")
    process, read = live(tmp_path / "a")
    first = read(until="last checkpoint")
    assert "running" in first
    one_more(run)
    assert "5, 0 % of the budget" in read(until="5, 0 % of the budget")
    run.status("complete", 5)
    run.close()
    assert "complete" in read()
    assert process.wait(300) == 0


def test_a_run_that_ends_between_two_looks_is_read_once_more(tmp_path, monkeypatch):
    run = make(tmp_path / "a", generations=4, status="running")
    watched = Watched([tmp_path / "a"], ())
    monkeypatch.setattr(reading.os, "getpid", lambda: -1)  # as another process sees it
    monkeypatch.setattr(lock, "is_free", lambda path: False)
    assert not watched.are_over()
    one_more(run)
    run.status("complete", 5)
    monkeypatch.setattr(lock, "is_free", lambda path: True)
    assert watched.are_over()
    monkeypatch.undo()
    run.close()
    assert ": complete, generation 5, " in views.line(watched.runs[tmp_path / "a"])


def test_watch_tells_a_pipe_by_lines_how_runs_go_on(tmp_path):
    run = make(tmp_path / "a", generations=4, status="running")
    line = [sys.executable, "-m", "esac_mpi.commands", "watch", tmp_path / "a", "--every", "0.2"]
    process = subprocess.Popen(
        line, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().startswith(
        f"{tmp_path / 'a'}: running, generation 4, 0 % of the budget, "
    )
    one_more(run)
    assert ": running, generation 5, " in process.stdout.readline()
    run.status("complete", 5)
    run.close()
    rest = process.stdout.read().splitlines()
    assert (": complete, generation 5, " in rest[-1], process.wait(300)) == (True, 0)


def test_ctrl_c_leaves_the_terminal_clean(tmp_path):
    run = make(tmp_path / "a", status="running")
    process, read = live(tmp_path / "a")
    shown = read(until="last checkpoint")
    process.send_signal(signal.SIGINT)
    shown += read()
    assert process.wait(300) == 130
    run.close()
    assert "Traceback" not in shown
    assert "\x1b[?25l" not in shown.rpartition("\x1b[?25h")[2]  # the cursor is visible
    assert re.sub(r"\x1b\[\?25[hl]", "", shown).endswith("\n")  # and on a line of its own
