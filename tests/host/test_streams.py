"""What commands print: an answer in JSON alone, and nothing worse where nobody can read it."""

import json
import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from conftest import ROOT, command, environment, finish
from growing_runs import make
from saved_policies import save

from esac_mpi.host.streams import as_json

pytestmark = pytest.mark.slow

RUDE = "rude_envs:Rude-v0"


@pytest.mark.parametrize(
    ("ranks", "more", "variables"),
    [(0, [], {"RUDE": "say closed"}), (2, ["--task", "loud:Rude-v0"], {})],
)
def test_json_is_one_document_whatever_a_task_prints(ranks, more, variables, tmp_path):
    about = {"task_kwargs": json.dumps({"what": "say", "when": "step"})}
    policy = save(tmp_path / "p.h5", np.zeros(8, np.float32), (3, 2), RUDE, (-2.0, 2.0), **about)
    loud = "import atexit, rude_envs; rude_envs.say(); atexit.register(rude_envs.say)\n"
    (tmp_path / "loud.py").write_text(loud)
    program = ("-m", "esac_mpi.commands", "evaluate")
    line = command(ranks, policy, "--episodes", 3, "--json", *more, program=program)
    done = finish(line, folder=tmp_path, **variables)
    assert json.loads(done.stdout)["episodes"] == 3
    assert "a word from C" in done.stderr


def test_what_is_no_number_in_json_is_null():
    numbers = {"a": np.array([1.0, np.nan]), "b": np.float64("inf"), "c": [-np.inf, np.int64(3)]}
    expected = {"a": [1.0, None], "b": None, "c": [None, 3], "4": [True, None, "x"]}
    assert json.loads(as_json(numbers | {4: (True, None, "x")})) == expected


def test_an_infinite_argument_of_a_task_is_json(tmp_path, call):
    about = {"task_kwargs": json.dumps({"infinite": float("inf")})}
    policy = save(tmp_path / "p.h5", np.zeros(8, np.float32), (3, 2), RUDE, (-2.0, 2.0), **about)
    said = call("evaluate", policy, "--episodes=1", "--json").out
    assert json.loads(said, parse_constant=pytest.fail)["task_kwargs"] == {"infinite": None}


def called(output: str, *words: object, **variables: str) -> tuple[int, str]:
    redirected = {"closed": ">&-", "both closed": ">&- 2>&-", "full": ">/dev/full"}
    line = [sys.executable, "-m", "esac_mpi.commands", *map(str, words)]
    if output == "no reader":
        env = environment() | variables
        process = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=-1)
        process.stdout.close()
        _, errors = process.communicate(timeout=200)
        return process.returncode, errors.decode()
    done = finish(["sh", "-c", f'exec "$@" {redirected[output]}', "sh", *line], None, **variables)
    return done.returncode, done.stderr


EVALUATE = f"evaluate {ROOT}/configs/tuned/inverted-double-pendulum.h5 --episodes 1"
UNREAD = ["summary RUN", "run --help", "experiment list", EVALUATE, "--help"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("closed", "summary RUN"), ("both closed", "summary RUN"), ("both closed", "run --help"),
        ("full", "summary RUN"), ("full", "run --help"),
        *product(["no reader"], UNREAD),
    ],
)  # fmt: skip
def test_a_command_that_nobody_can_read_ends_without_a_traceback(output, words, tmp_path):
    make(tmp_path / "a")
    code, errors = called(output, *words.replace("RUN", str(tmp_path / "a")).split())
    lost = output == "full" and "RUN" in words
    assert code == (74 if lost else 0)
    assert errors.count("\n") == lost
    assert not lost or "standard output: No space left on device" in errors


@pytest.mark.parametrize("output", ["no reader", "full"])
def test_what_went_wrong_is_the_exit_code_whoever_reads(output, tmp_path):
    make(tmp_path / "a")
    words = "summary", tmp_path / "a", tmp_path / "nowhere"
    assert called(output, *words, PYTHONUNBUFFERED="")[0] == 2


def test_a_stream_that_was_closed_has_no_other_file_in_its_place():
    code = (
        "from esac_mpi.host import streams; import os; streams.open_missing(); os.write({}, "
        "b'%d' % os.open('/dev/null', 0))"
    )
    reading, writing = os.pipe()
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code.format(writing)]
    subprocess.run(shell, env=environment(), pass_fds=[writing], check=True)
    os.close(writing)
    assert int(os.read(reading, 100)) > 2
    os.close(reading)
