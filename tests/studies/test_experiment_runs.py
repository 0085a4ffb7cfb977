"""How the runs of an experiment are carried out, ended and resumed, and its products drawn."""

import glob
import signal
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace

import pytest
from commands import begun
from conftest import CORRECTED, command, environment, finish
from run_files import leave
from toy_experiments import TOY, finished, planned
from whole_runs import wait_for
from words import written

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results.rows import read_rows
from esac_mpi.config import Config, amend
from esac_mpi.record import Run
from esac_mpi.studies.experiments import design, products, running

pytestmark = pytest.mark.slow


def configured(**values):
    return amend(Config(), CORRECTED | values)


def a_run(tmp_path, config, ranks=0, name="run"):
    return design.Planned("t", "v", "", config.seed, ranks, "", {}, tmp_path / name, config)


def done_in(folder):
    """Return the variants of the runs that results.csv, if any, has as done."""
    if not (folder / "results.csv").exists():
        return []
    return [row.variant for row in read_rows([folder / "results.csv"]) if row.complete]


def line(place, text=None, action="run"):
    """Return the command line of the experiment in a folder, after its file is written anew."""
    path = place / "toy.toml"
    if text is not None:
        written(path, text)
    return f"experiment {action} {path} --budget smoke --root {place}"


def test_an_experiment_runs_draws_and_goes_on_with_more(tmp_path, call):
    """Two real runs of ES on a toy, a picture, then nothing left to run, then more generations."""
    text = TOY.replace("seeds = 2", "seeds = 1")
    product = """
[[products]]
tool = "plot"
arguments = ["{runs}", "--what", "sensitivity", "--field", "lr_es", "--measure", "mean"]
out = "picture.png"
"""
    folder = tmp_path / "toy-smoke"
    told = call(line(tmp_path, text + product)).out.splitlines()
    assert told[0] == f"{folder}: 2 runs, 0 finished"
    done = {f"cyclic-{name}-seed0: done" for name in ("ES", "ES-two")}
    assert {row.split(",")[0].split("] ")[1] for row in told[1:3]} == done
    assert all(", generation 4, " in row for row in told[1:3])
    assert told[3:] == [f"{folder}/results.csv", f"{folder}/picture.png"]
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert done_in(folder) == ["ES", "ES two"]
    told = call(line(tmp_path, text)).out.splitlines()
    assert told == [f"{folder}: 2 runs, 2 finished", f"{folder}/results.csv"]
    text = TOY.replace("seeds = 2", "variants = ['ES']")
    text = text.replace("generations = 4", "generations = 6")
    told = call(line(tmp_path, f"points = 3\n{text}")).out
    assert "cyclic-ES-seed0: done, generation 6" in told
    assert "resumed at generation 4" in (folder / "cyclic-ES-seed0/log.txt").read_text()
    rows = read_rows([folder / "results.csv"])
    assert {row.run for row in rows} == {("toy", "smoke", "CyclicMDP-v0", "ES", "", 0)}
    assert [(row.generation, row.complete) for row in rows] == [(1, False), (3, False), (6, True)]


@pytest.mark.parametrize(
    ("limit", "met", "passed"),
    [("generations", 2, 1), ("env_steps", 15, 10), ("nominal_steps", 20, 9), ("minutes", 1, 0.5)],
)
def test_a_run_beyond_a_budget_is_not_done_with_it(tmp_path, limit, met, passed):
    """It was started and ended at once, as finished, which counted as failed for ever."""
    config = configured(algorithm="es")
    one = a_run(tmp_path, config)
    rows = []
    for g in (1, 2):
        counted = {"generation": g, "env_steps_population": 10 * g, "nominal_steps": 10 * g}
        rows.append((counted, {"wall_seconds": 30.0 * g}))
    leave(one.run_dir, rows, config)

    def planned(number):
        budget = {"budget.nominal_steps": 0, f"budget.{limit}": number}
        return replace(one, config=amend(config, budget))

    assert running.is_done(planned(met))
    assert not running.is_done(planned(1000))
    with pytest.raises(Unusable, match="beyond the budget"):
        running.is_done(planned(passed))


def test_an_interrupted_experiment_goes_on_where_it_was(tmp_path, monkeypatch, call, alone):
    """Stopped by SIGINT in the middle, and started again, runs end as they do straight."""
    text = TOY.replace('config = "cyclic-mdp"', 'task.id = "own_envs:Paced-v0"')
    text = text.replace("generations = 4", "generations = 30")
    text = text.replace("[settings]", '[settings]\nalgorithm = "es"\nes.sigma = 0.1')
    text, slow = text.replace("seeds = 2", "variants = ['ES']"), tmp_path / "slow"
    slow.write_text("0.05")
    monkeypatch.setenv("PACE", str(slow))
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    words = line(tmp_path, text)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = begun(*words.split(), **pipes)
    place = tmp_path / "toy-smoke/cyclic-ES-seed0"
    wait_for(lambda: (place / "status.json").exists() and Run.open(place).generation > 0)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (75, "stopped; the same command goes on\n")
    assert "cyclic-ES-seed0: stopped, generation" in out
    assert 0 < Run.open(place).generation < 30
    slow.unlink()
    call(words)
    (one,) = planned(tmp_path / "toy.toml", text, root=tmp_path)
    alone(*one.line, "--run-dir", tmp_path / "straight")
    straight = Run.open(tmp_path / "straight").provenance
    assert Run.open(place).provenance["state_sha256"] == straight["state_sha256"]


def test_a_reader_that_has_seen_enough_ends_an_experiment_without_a_word(tmp_path):
    text = TOY.replace("seeds = 2", "seeds = 1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = begun(*line(tmp_path, text).split(), **pipes)
    assert process.stdout.readline() == f"{tmp_path}/toy-smoke: 2 runs, 0 finished\n"
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=300)) == ("", 0)


def test_what_is_done(tmp_path):
    config = configured(algorithm="es")
    one = a_run(tmp_path, config)
    assert not running.is_done(one)
    finished(one.run_dir, config, ranks=4)
    for ranks in (0, 4):
        assert running.is_done(replace(one, ranks=ranks))
    with pytest.raises(Unusable, match=r"was made on 4 rank\(s\), and is planned on 2"):
        running.is_done(replace(one, ranks=2))
    killed = a_run(tmp_path, config, ranks=2, name="killed")  # before its first checkpoint
    chosen = {"policy.hidden": (8,), "es.reward_shift": 1.0}  # by the task
    Run.begin(killed.run_dir, amend(config, chosen), {"ranks": 2}).close()
    left = amend(config, {"policy.hidden": "auto", "es.reward_shift": "survival"})
    assert not running.is_done(replace(killed, config=left))
    more = replace(one, config=amend(config, {"budget.nominal_steps": 2_000_000}))
    assert not running.is_done(more)  # its budget was raised
    with pytest.raises(Unusable, match=r"other settings:\n  es\.sigma: 0\.02 -> 0\.1"):
        running.is_done(replace(one, config=amend(config, {"es.sigma": 0.1})))
    for status in ("requeue", "failed"):
        half = a_run(tmp_path, config, name=status)
        finished(half.run_dir, config, status=status)
        assert not running.is_done(half)


@pytest.mark.parametrize(
    ("ranks", "number"), [(0, signal.SIGTERM), (1, signal.SIGTERM), (2, signal.SIGUSR1)]
)
def test_a_launcher_gets_the_signal_that_all_launchers_pass_on(tmp_path, ranks, number):
    heard = []
    one = replace(a_run(tmp_path, Config()), ranks=ranks)
    going = running.Going(one, Namespace(send_signal=heard.append), 0.0)
    going.stop()
    assert (heard, going.interrupted) == ([number], True)


def test_a_run_that_is_not_done_is_named(tmp_path, call):
    text = TOY.replace("seeds = 2", "")
    done, short = planned(tmp_path / "toy.toml", text, root=tmp_path)
    finished(done.run_dir, done.config)
    finished(short.run_dir, short.config, status="requeue")
    told = call(line(tmp_path, text, "draw")).err
    assert done_in(tmp_path / "toy-smoke") == ["ES"]
    assert "not finished: cyclic-ES-two-seed0; all are compared at what" in told
    text = text.replace("es.lr_es = 0.02", "es.lr_es = 0.03")
    told = call(line(tmp_path, text, "draw"), code=2).err
    assert "other settings:\n  es.lr_es: 0.02 -> 0.03\n" in told


def test_under_nohup_a_lost_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with running.collected_signals() as heard:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may be under nohup themselves
        with running.collected_signals() as heard:
            for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                signal.raise_signal(number)
        assert heard == [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2]
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("status", "interrupted", "code", "how"),
    [
        ("complete", False, 0, "done"), ("complete", True, 75, "done"),
        ("requeue", False, 75, "stopped"), ("requeue", True, 0, "stopped"),
        ("requeue", False, 1, "failed"), ("running", True, -15, "stopped"),
        ("running", False, -9, "failed"), (None, True, -15, "stopped"), (None, False, 2, "failed"),
    ],
)  # fmt: skip
def test_how_a_run_ended(tmp_path, status, interrupted, code, how):
    one = a_run(tmp_path, configured(algorithm="es"))
    if status:
        finished(one.run_dir, one.config, status=status)
    assert running.Going(one, Namespace(returncode=code), 0.0, interrupted=interrupted).end == how


def test_nothing_goes_on_where_its_reader_wants_no_more(tmp_path, monkeypatch):
    """Of two runs one ends at once; then who asked does not want more."""
    ending, lasting = (a_run(tmp_path, Config(), name=name) for name in ("ending", "lasting"))
    lines = {"ending": "", "lasting": "import time; time.sleep(600)"}
    monkeypatch.setattr(
        running, "command", lambda planned: [sys.executable, "-c", lines[planned.run_dir.name]]
    )
    begun, begin = [], running.begin
    monkeypatch.setattr(running, "begin", lambda *run: begun.append(begin(*run)) or begun[-1])
    results = running.run_all([ending, lasting], 2, [])
    assert (next(results).end, begun[1].process.poll()) == ("failed", None)
    results.close()
    assert begun[1].process.poll() == -signal.SIGTERM


def test_a_failed_run_is_named_and_the_others_go_on(tmp_path, monkeypatch, call):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("FAILS", "0 1000")
    bad = '[tasks.bad]\ntask.id = "own_envs:Failing-v0"\nalgorithm = "es"\n[variants.ES]'
    text = TOY.replace("[variants.ES]", bad).replace("seeds = 2", "variants = ['ES']")
    told = call(line(tmp_path, text.replace("generations = 4", "generations = 60")), code=1)
    assert "failed: bad-ES-seed0\n" in told.err
    assert "bad-ES-seed0: failed" in told.out
    assert "cyclic-ES-seed0: done, generation 60" in told.out
    folder = tmp_path / "toy-smoke"
    assert done_in(folder) == ["ES"]
    assert "the simulator lost its licence" in (folder / ".logs/bad-ES-seed0.txt").read_text()
    assert "complete" in call("summary", *glob.glob(f"{folder}/*/")).out  # all are runs


@pytest.mark.parametrize(("ranks", "code", "ended"), [(1, 0, True), (2, 2, False)])
def test_runs_are_no_ranks_of_who_starts_an_experiment(tmp_path, ranks, code, ended):
    """As in a shell of `srun --pty`; several processes would make the same runs at once."""
    text = TOY.replace("seeds = 2", "seeds = 1\nranks = [1, 2]\nvariants = ['ES']")
    words = line(tmp_path, text).split()
    told = finish(command(ranks, *words, program=("-m", "esac_mpi.commands")), code)
    assert done_in(tmp_path / "toy-smoke") == ["ES, 1 rank", "ES, 2 ranks"] * ended
    assert (told.stdout + told.stderr).count("PMI_SIZE") == 2 * (not ended)


def test_runs_on_ranks_have_the_machine_to_themselves(tmp_path):
    single, parallel = a_run(tmp_path, Config()), a_run(tmp_path, Config(), ranks=2)
    going = [running.Going(single, None, 0.0)]
    assert [running.has_room(single, going, n) for n in (1, 2)] == [False, True]
    assert running.has_room(parallel, [], 1)
    assert not running.has_room(parallel, going, 8)
    assert not running.has_room(single, [running.Going(parallel, None, 0.0)], 8)
    assert running.command(parallel)[1:3] == ["-n", "2"]
    assert running.command(single)[:3] == [sys.executable, "-m", "esac_mpi"]


def test_products_are_made_once_or_for_each_task_or_run(tmp_path):
    runs = [a_run(tmp_path, configured(**{"task.id": f"{n.upper()}-v0"}), name=n) for n in "ab"]
    runs = [replace(run, task=run.run_dir.name) for run in runs]
    csv, a, b = (str(tmp_path / name) for name in ("results.csv", "a", "b"))

    def made(out, *arguments):
        product = design.Product("x.py", list(arguments), out)
        found = list(products.calls(product, runs, tmp_path / "results.csv"))
        assert all(line[1:4] == ["-m", "esac_mpi.commands", "x"] for _, line in found)
        return [(path.name, line[4:]) for path, line in found]

    out = str(tmp_path / "p.png")
    words = made("p.png", "draw", "{csv}", "{runs}")
    assert words == [("p.png", ["draw", csv, a, b, "--out", out])]
    second = made("p-{task}.png", "{runs}", "{task}")[1]
    assert second == ("p-b.png", [b, "B-v0", "--out", str(tmp_path / "p-b.png")])
    assert [name for name, _ in made("{run}.png", "{run}")] == ["a.png", "b.png"]
    runs = [replace(run, task=f"suite/{run.run_dir.name}") for run in runs]
    names = [name for name, _ in made("p-{task}.png", "{task}")]
    assert names == ["p-suite-a.png", "p-suite-b.png"]


def test_a_product_that_fails_is_named_and_nothing_to_draw_too(tmp_path, call):
    text = TOY + '[[products]]\ntool = "plot"\narguments = ["{csv}", "--what", "losses"]\n'
    text += 'out = "x.png"\n'
    draw = line(tmp_path, text, "draw")
    assert "nothing to draw yet" in call(draw, code=2).err
    one, *others = planned(tmp_path / "toy.toml", text, root=tmp_path)
    found = design.experiment(f"{tmp_path}/toy.toml")
    with pytest.raises(Unusable, match="nothing to draw yet") as error:
        next(products.make_products(found, [one], "smoke", failed=["cyclic-ES-seed0"]))
    assert error.value.code == 1
    finished(one.run_dir, one.config)
    told = call(draw, code=1).err
    names = ", ".join(run.run_dir.name for run in others)
    assert f"1 of 4 runs have something to draw, left out are {names}\n" in told
    assert "failed: x.png" in told
