"""What the shipped job scripts decide; stand-ins for scheduler and launcher log their orders."""

import os
import re
import shlex
import signal
import subprocess
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import JOBS, PATIENCE, ROOT
from whole_runs import wait_for

pytestmark = pytest.mark.slow

SCRIPTS = sorted(path for path in JOBS.iterdir() if path.suffix in (".sh", ".sbatch"))
STAND_INS = {
    "scontrol": """
        [ "$1" = show ] && echo "JobId=7 PreemptTime=${PREEMPTED:-None}" && exit
        echo "$@" >>"$LOG"
        kill -KILL $PPID  # as Slurm does
        """,
    # 2: between two signals
    "sleep": '[ "$1" = 2 ] || echo "pause $1" >>"$LOG"; exec /bin/sleep "$1"',
    "qsub": """
        [ "$1" = -l ] && echo "on $2" >>"$LOG" && shift 2
        [ "$TELL" ] && echo "kept $2" >>"$LOG"
        echo "round $ROUND of $3" >>"$LOG"
        """,
    "launcher": """
        [ "$1" = --version ] && echo "$VERSION" && exit
        [ "$(grep -c began "$LOG")" -lt "$FAILURES" ] && echo began >>"$LOG" && \
exit 1  # as MPI_Init does
        for name in TERM USR1; do trap "echo got $name >>'$LOG'; got=x\\$got" $name; done
        text='{\\n "status": "%s",%s\\n "pid": %s\\n}\\n'
        [ "$STATUS" ] && mkdir -p "$RUN" && printf "$text" "$STATUS" \
"${JOB:+ \\"job\\": \\"$JOB\\",}" $$ >"$RUN/status.json"
        echo began >>"$LOG"
        while [ "$got" != "$SIGNALS" ]; do /bin/sleep 0.05; done
        exit $CODE
        """,
}
# three launches after the first one
AGAIN = ["pause 0.1", "began", "pause 0.2", "began", "pause 0.3", "began"]


def decide(
    tmp_path: Path, script: str, signals: Sequence[str] = (), **settings: object
) -> tuple[int, list[str]]:
    """Run a job script; return its exit code, -9 = requeued, and what the stand-ins logged.

    That is after they began. A signal is sent for each line of that log; "" = none.
    """
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/activate").touch()
    for name, text in STAND_INS.items():
        executable(tmp_path / name, f"#!/bin/bash\n{textwrap.dedent(text)}")
    log, run = tmp_path / "log", tmp_path / "run"
    log.touch()
    seen = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "VENV": tmp_path, "RUN": run, "LOG": log,
        "LAUNCH": "launcher", "SLURM_JOB_ID": "7", "PBS_O_WORKDIR": tmp_path,
        "SIGNALS": "x" * len(signals), "STATUS": "requeue", "CODE": "75", "FAILURES": "0",
        "PAUSES": "0.1 0.2 0.3", **settings,
    }  # fmt: skip
    if "BEFORE" in settings:
        run.mkdir()
        (run / "status.json").write_text(f'{{\n "status": "{settings["BEFORE"]}"\n}}\n')
    process = subprocess.Popen(
        ["bash", JOBS / script], env={name: str(value) for name, value in seen.items()},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        for count, name in enumerate(signals, 1):
            wait_for(lambda lines=count: len(log.read_text().splitlines()) >= lines)
            process.send_signal(signal.Signals[f"SIG{name}"] if name else 0)
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert "not found" not in output
    return process.returncode, log.read_text().splitlines()[1:]


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def decide_alone(
    tmp_path: Path, script: str, says: str, status: str = "complete", index: int = 0, **settings
) -> tuple[int, list[str]]:
    """Run a script whose program logs by `says`, a shell's line; the last word is its run."""
    ends = f"""mkdir -p "$where"; echo ' "status": "{status}"' >"$where/status.json"\n"""
    text = f"#!/bin/sh\n{says}\nfor where; do :; done\n{ends}"
    program = executable(tmp_path / "program", text)
    (tmp_path / "log").write_text("began\n")
    which = {"SLURM_ARRAY_TASK_ID": index, "PBS_ARRAY_INDEX": index}
    own = {"PROGRAM": program, "LAUNCH": "env", "STOP": "", **which}
    return decide(tmp_path, script, **own | settings)


@pytest.mark.parametrize(
    ("settings", "signals", "answer"),
    [
        ({"CODE": "143"}, [], (-9, ["requeue 7"])),  # srun -K1 has garbled a 75
        ({"CODE": "0"}, [], (-9, ["requeue 7"])),
        ({"STATUS": "running", "CODE": "9"}, [], (-9, ["requeue 7"])),  # a rank was killed
        ({"STATUS": "complete", "CODE": "143"}, [], (0, [])),
        # Open MPI's mpirun says 0 when it loses a node
        ({"STATUS": "failed", "CODE": "0"}, [], (1, [])),
        ({"STATUS": "failed", "CODE": "3"}, [], (3, [])),
        ({"STATUS": "", "CODE": "2"}, [], (2, [])),  # wrong usage: nothing was written
        ({"STATUS": "", "CODE": "65", "BEFORE": "running"}, [], (65, [])),  # no readable checkpoint
        ({"STATUS": "", "CODE": "2", "BEFORE": "complete"}, [], (2, [])),
        # another job's run, which goes on
        ({"STATUS": "running", "CODE": "2", "JOB": "8"}, [], (2, [])),
        # srun -K1 has garbled a 2
        ({"STATUS": "running", "CODE": "143", "JOB": "8"}, [], (143, [])),
        ({"STATUS": "running", "CODE": "0", "JOB": "8"}, [], (1, [])),
        # its own ranks of before live still
        ({"STATUS": "running", "CODE": "2", "JOB": "7"}, [], (-9, ["requeue 7"])),
        ({"STATUS": "running", "CODE": "9", "JOB": "7"}, [], (-9, ["requeue 7"])),
        # a launch died before the program's first word
        ({"FAILURES": "1"}, [], (-9, [*AGAIN[:2], "requeue 7"])),
        ({"FAILURES": "3", "BEFORE": "failed"}, [], (-9, [*AGAIN, "requeue 7"])),
        ({"FAILURES": "4"}, [], (1, [*AGAIN, "pause 0"])),
        # its budget was raised
        ({"FAILURES": "4", "BEFORE": "complete"}, [], (1, [*AGAIN, "pause 0"])),
        # Open MPI's mpirun has lost a node
        ({"STATUS": "", "CODE": "0"}, [], (1, [*AGAIN, "pause 0"])),
        ({"STATUS": "", "CODE": "0", "BEFORE": "complete"}, [], (0, [])),
        # no failed launch
        ({"STATUS": "", "CODE": "0", "OPTIONS": "--task.id Hopper-v5 --check"}, [], (0, [])),
        ({"STATUS": "", "CODE": "2", "OPTIONS": "--check", "BEFORE": "requeue"}, [], (2, [])),
        ({"FAILURES": "1", "PAUSES": "100"}, ["", "USR1"], (-9, ["pause 100", "requeue 7"])),
        ({"FAILURES": "1", "PAUSES": "100"}, ["", "TERM"], (1, ["pause 100"])),
        # while it was starting
        ({"STATUS": "", "PREEMPTED": "2026-11-21T09:00:00"}, [], (-9, ["requeue 7"])),
        ({}, ["USR1"], (-9, ["got USR1", "requeue 7"])),
        ({}, ["USR2"], (-9, ["got USR1", "requeue 7"])),
        ({"STATUS": ""}, ["USR1"], (-9, ["got USR1", "requeue 7"])),
        ({}, ["TERM"], (75, ["got TERM"])),  # scancel
        # the limit came before the run had stopped
        ({}, ["USR1", "TERM"], (-9, ["got USR1", "got TERM", "requeue 7"])),
        ({"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "3"}, [], (-9, ["requeue 5_3"])),
        ({"SLURM_RESTART_COUNT": "49"}, [], (-9, ["requeue 7"])),
        ({"SLURM_RESTART_COUNT": "50"}, [], (75, [])),
    ],
)
def test_what_a_slurm_job_does_at_the_end_of_a_run(tmp_path, settings, signals, answer):
    assert decide(tmp_path, "slurm.sbatch", signals, **settings) == answer


def test_a_job_with_a_gpu_differs_by_its_settings_alone():
    plain, gpu = ((JOBS / f"{name}.sbatch").read_text() for name in ("slurm", "slurm-gpu"))
    settings = re.compile(r"^(#.*|: .*\{(RUN|OPTIONS):=.*)$", re.M)
    assert settings.sub("", plain).split() == settings.sub("", gpu).split()


def test_open_mpi_is_told_to_stop_by_usr1_twice(tmp_path):
    says = {"VERSION": "mpirun (Open MPI) 5.0.11", "SIGNALS": "xx"}
    assert decide(tmp_path, "slurm.sbatch", ["TERM"], **says) == (75, ["got USR1", "got USR1"])


ROUND = "round 1 of jobs/pbs.sh"


@pytest.mark.parametrize(
    ("settings", "signals", "answer"),
    [
        ({}, [], (0, [ROUND])),
        ({"ROUND": "7"}, [], (0, ["round 8 of jobs/pbs.sh"])),
        ({"ROUND": "50"}, [], (75, [])),
        ({"STATUS": "", "CODE": "0", "OPTIONS": "--check"}, [], (0, [])),
        ({"STATUS": "running", "CODE": "9"}, [], (0, [ROUND])),
        ({"STATUS": "complete", "CODE": "1"}, [], (0, [])),
        ({"STATUS": "failed", "CODE": "0"}, [], (1, [])),
        ({"STATUS": "", "CODE": "2"}, [], (2, [])),
        ({"STATUS": "", "CODE": "2", "BEFORE": "complete"}, [], (2, [])),
        # another job's run
        ({"STATUS": "running", "CODE": "2", "JOB": "8.a", "PBS_JOBID": "7.a"}, [], (2, [])),
        ({"STATUS": "running", "CODE": "65", "JOB": "7.a", "PBS_JOBID": "7.a"}, [], (0, [ROUND])),
        # a launch died before the program's first word
        ({"FAILURES": "1"}, [], (0, [*AGAIN[:2], ROUND])),
        ({"FAILURES": "3", "BEFORE": "failed"}, [], (0, [*AGAIN, ROUND])),
        ({"FAILURES": "4"}, [], (1, [*AGAIN, "pause 0"])),
        ({"FAILURES": "4", "BEFORE": "complete"}, [], (1, [*AGAIN, "pause 0"])),
        ({"STATUS": "", "CODE": "0", "BEFORE": "complete"}, [], (0, [])),
        ({"FAILURES": "1", "PAUSES": "100", "HOURS": "0.5"}, ["", "TERM"], (1, ["pause 100"])),
        ({"FAILURES": "1", "PAUSES": "100", "HOURS": "0"}, ["", "TERM"], (0, ["pause 100", ROUND])),
        ({"HOURS": "0.5"}, ["TERM"], (75, ["got TERM"])),  # qdel
        # the clock was set on by two hours
        ({"HOURS": "0.5", "SECONDS": "7200"}, ["TERM"], (75, ["got TERM"])),
        ({"HOURS": "0"}, ["TERM"], (0, ["got TERM", ROUND])),  # the walltime
        ({"HOURS": "0.5"}, ["USR1"], (0, ["got USR1", ROUND])),
        ({"HOURS": "0.5", "SIGNALS": "xx"}, ["XCPU", "HUP"], (0, ["got USR1", "got USR1", ROUND])),
    ],
)
def test_what_a_pbs_job_does_at_the_end_of_a_run(tmp_path, settings, signals, answer):
    assert decide(tmp_path, "pbs.sh", signals, **settings) == answer


ARRAYS = ["slurm-array.sbatch", "pbs-array.sh"]
SAYS = 'echo "$@" >>"$LOG"'


@pytest.mark.parametrize("select", ["", "select=1:ncpus=4:mpiprocs=4"])
def test_later_rounds_of_a_pbs_array_have_the_same_resources(tmp_path, select):
    own = {"TASKS": "cyclic-mdp", "SEEDS": "1", "RUNS": tmp_path, "SELECT": select}
    told = decide_alone(tmp_path, "pbs-array.sh", "", "requeue", OPTIONS="-x", **own)
    assert told == (0, [*[f"on {select}"] * bool(select), "round 1 of jobs/pbs-array.sh"])


@pytest.mark.parametrize(
    ("index", "task", "seed"), [(0, "ant", 0), (3, "ant", 3), (4, "hopper", 0), (11, "swimmer", 3)]
)
@pytest.mark.parametrize("script", ARRAYS)
def test_an_array_is_tasks_by_seeds(tmp_path, script, index, task, seed):
    own = {"TASKS": "ant hopper swimmer", "SEEDS": "4", "RUNS": tmp_path, "OPTIONS": "-x"}
    told = decide_alone(tmp_path, script, SAYS, index=index, **own)
    place = f"{tmp_path}/{task}-seed{seed}"
    assert told == (0, [f"configs/esac/{task}.toml --seed {seed} -x --run-dir {place}"])
    assert (ROOT / f"configs/esac/{task}.toml").exists()


@pytest.mark.parametrize("script", ["slurm.sbatch", "pbs.sh", *ARRAYS, "scaling.sbatch"])
def test_options_are_no_patterns_of_files(tmp_path, monkeypatch, script):
    """There is a file "log", which [l]og would be."""
    monkeypatch.chdir(tmp_path)
    text = '#!/bin/sh\nwhile [ $1 != "$PROGRAM" ]; do shift; done; "$@"\n'
    launch = executable(tmp_path / "launch", text)
    executable(tmp_path / "esac-mpi", "#!/bin/sh\n")
    ranks = {"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1"}
    own = {"TASKS": "ant", "SEEDS": "1", "RUNS": tmp_path, "LAUNCH": launch, **ranks}
    code, told = decide_alone(tmp_path, script, SAYS, OPTIONS="--policy.hidden [l]og", **own)
    assert code == 0
    last = [line.partition(" --run-dir")[0].split()[-2:] for line in told]
    assert last == [["--policy.hidden", "[l]og"]]


@pytest.mark.parametrize("script", ["slurm.sbatch", "pbs.sh", "slurm-array.sbatch", "pbs-array.sh"])
def test_a_home_directory_that_no_shell_has_read_is_read_here(tmp_path, script):
    (tmp_path / "list").write_text("--seed 1 --run-dir ~/run\n")
    places = {"HOME": str(tmp_path), "VENV": "~/", "RUN": "~/run"}
    places |= {"LIST": "~/list"} if "array" in script else {}
    which = {"SLURM_ARRAY_TASK_ID": "0", "PBS_ARRAY_INDEX": "0", "CODE": "0", "STATUS": "complete"}
    launcher = STAND_INS["launcher"].replace("$RUN", f"{tmp_path}/run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STAND_INS, "launcher", launcher)
        assert decide(tmp_path, script, [], **places, **which) == (0, [])
    assert (tmp_path / "run/status.json").exists()


@pytest.mark.parametrize("script", ARRAYS)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_list_has_a_shells_words_and_a_run_for_each_line(tmp_path, script, index):
    run = tmp_path / "my, runs/it's"
    words = ["my, dir/my, conf.toml", "--task.kwargs", '{"a b": "*"}', "--policy.hidden", "8", "8"]
    words += ["--run-dir", str(run)]
    (tmp_path / "my, list").write_text(f"--run-dir a --seed 3\n{shlex.join(words)}\n")
    own = "my, list" if script == "pbs-array.sh" else tmp_path / "my, list"  # PBS begins at home
    says = """printf '<%s>\\n' "$@" >>"$LOG\""""
    told = decide_alone(tmp_path, script, says, index=index, LIST=own)
    assert told == ((0, [f"<{word}>" for word in words]) if index == 1 else (2, []))


def test_directives_of_pbs_have_no_comment_behind_them():
    for path in SCRIPTS:
        for line in re.findall(r"^#PBS.*", path.read_text(), re.M):
            assert "#" not in line[1:], f"{path.name}: PBS takes it for an option: {line}"


@pytest.mark.parametrize("script", ["pbs.sh", "pbs-array.sh"])
def test_later_rounds_of_a_pbs_job_are_given_what_the_first_was(tmp_path, script):
    text = (JOBS / script).read_text()
    (names,) = re.findall(r"for n in (.*?); do", text)
    always = re.findall(r"^KEEP=([\w,]+);", text, re.M)[0].split(",")
    assert {*names.split(), *always} == set(re.findall(r'"\$\{(\w+):?=', text))
    own = {"TASKS": "cyclic-mdp", "SEEDS": "1", "RUNS": tmp_path, "HOURS": "3", "OPTIONS": "-x"}
    _, said = decide_alone(tmp_path, script, "", "requeue", TELL="yes", **own)
    (kept,) = [set(line.split()[1].split(",")) for line in said if line.startswith("kept ")]
    given = {*own, "VENV", "RUN", "LAUNCH", "PROGRAM", "PAUSES", "STOP"}
    assert kept == {*always, *given & {*names.split(), *always}}


def test_job_scripts_are_short_and_name_files_that_exist():
    names = "pbs-array.sh pbs.sh scaling.sbatch slurm-array.sbatch slurm-gpu.sbatch slurm.sbatch"
    assert [path.name for path in SCRIPTS] == names.split()
    for path in SCRIPTS:
        text = path.read_text()
        assert len(text.splitlines()) < 60, path
        for name in re.findall(r"configs/(?:esac|tuned)/[\w-]+\.toml", text):
            assert (ROOT / name).exists(), name
        for task in re.findall(r"TASKS:=([^}]+)", text):
            assert all((ROOT / f"configs/esac/{name}.toml").exists() for name in task.split())
