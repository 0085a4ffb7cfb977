"""The tutorials and guides: their commands are run at tiny size, or read by the program."""

import os
import re
import shlex
import shutil
import signal
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from conftest import JOBS, ROOT, finish
from whole_runs import assert_same_run, ended, wait_for

from esac_mpi.config import load
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROUTINE = (
    "--budget.generations 6 --policy.hidden 4 --task.horizon 20 --evaluation.every 2 "
    "--evaluation.episodes 2"
).split()
POPULATION = "--esac.population_size 4 --esac.workers 1 --esac.update_cost 1"
PHASES = "--esac.sac_min_steps 10 --sac.start_steps 10 --sac.batch_size 8"
TINY = [*ROUTINE, *POPULATION.split(), *PHASES.split()]
TINY_ES = [*ROUTINE, *"--algorithm es --es.population_size 4".split()]  # begins without torch


def commands(page: str) -> list[list[str]]:
    """List the words of each command line in a page's plain fences, comments left out."""
    fences = FENCE.findall((DOCS / page).read_text(encoding="utf-8"))
    text = "\n".join(text for language, text in fences if not language)
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def training(words: list[str]) -> list[str]:
    """Return the arguments of the program where it is what a line starts, else []."""
    text = " ".join(words)
    return words[words.index("esac_mpi") + 1 :] if "python -m esac_mpi" in text else []


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Stand in a directory with the checkout's configs."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_pages_install_exists():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    pages = [*(DOCS / "start").glob("*.md"), *(DOCS / "how-to").glob("*.md")]
    found = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = {*",".join(re.findall(r"-e '\.\[([a-z,]+)\]'", found)).split(",")}
    assert {"mpich", "analysis", "render", "export", "tensorboard"} <= named
    assert named <= {*setup["options.extras_require"]}
    versions = (ROOT / "constraints.txt").read_text()
    for torch in re.findall(r"torch==[\d.]+", found):
        assert torch in versions


def stopped_by_ctrl_c(start, arguments: list[str]) -> int:
    """Start a training and press Ctrl-C once it has a row; return in which generation it ended."""
    place = Path(arguments[arguments.index("--run-dir") + 1])
    process = start(2, *arguments, *TINY, "--budget.generations", 1_000_000)
    wait_for(lambda: (place / "metrics.h5").exists() and Run.open(place).generation)
    process.send_signal(signal.SIGINT)
    ended(process, 75)
    return Run.open(place).status["generation"]


def test_the_first_run_does_what_its_page_says(here, start, together, call):
    """The run that is stopped comes first: it tells how long the one that is compared must be."""
    lines = commands("start/first-run.md")
    trains = [(int(words[2]), training(words)) for words in lines if words[0] == "mpirun"]
    assert [ranks for ranks, _ in trains] == [2, 2, 3, 2]
    quickstart, stopped, resumed, other = (arguments for _, arguments in trains)
    assert stopped == resumed == [*quickstart, "--run-dir", "runs/stopped"]
    length = ["--budget.generations", stopped_by_ctrl_c(start, stopped) + 2]
    together(3, *resumed, *TINY, *length)
    together(2, *quickstart, *TINY, *length)
    assert_same_run(Path("runs/quickstart"), Path("runs/stopped"))
    together(2, *other, *TINY)

    shows = [words[1:] for words in lines if words[0] == "esac-mpi"]
    assert [words[0] for words in shows] == "plot summary evaluate summary watch render".split()
    said = {" ".join(words): call(*words).out for words in shows[:-1]}
    assert Path("runs/quickstart/learning_curve.png").exists()
    assert "complete" in said["summary runs/quickstart"]
    assert "return  mean" in said["evaluate runs/quickstart --episodes 20"]
    equal = f"equal for the {length[1]} generations both have"
    assert equal in said["summary runs/quickstart runs/stopped --compare"]
    assert "complete" in said["watch runs/cheetah"]


SBATCH = """#!/bin/bash
export SLURM_JOB_ID=7 SLURM_NTASKS=2
bash "$1" >esac-7.out 2>&1
"""
SRUN = """#!/bin/bash
while [[ $1 = -* ]]; do shift; done
exec {mpirun} -n 2 "$@"
"""
QSUB = """#!/bin/bash
[ "$1 $2" = "-v RUN,OPTIONS" ] || exit 2
export PBS_JOBID=8 PBS_O_WORKDIR=$PWD
bash "$3" >esac.o8 2>&1
"""
MPIEXEC = """#!/bin/bash
[ "$1" = --version ] && exit
exec {mpirun} -n 2 "${{@:3}}"
"""
STAND_INS = {"sbatch": SBATCH, "srun": SRUN, "qsub": QSUB, "mpiexec": MPIEXEC, "scontrol": ""}


def submit(here: Path, line: list[str], tiny: list[str]) -> None:
    """Submit as a line says, to stand-ins for the scheduler that run the script at once."""
    set_first = [word for word in line if word.startswith(("RUN=", "OPTIONS="))]
    settings = dict(word.split("=", 1) for word in set_first)
    settings["OPTIONS"] = " ".join([settings["OPTIONS"], *tiny])
    words = [word for word in line if word not in set_first]
    finish(words, PATH=f"{here / 'bin'}:{os.environ['PATH']}", **settings)


def test_a_job_of_the_cluster_page_trains_and_ends(here, call):
    (here / "bin").mkdir()
    (here / "jobs").symlink_to(JOBS)
    (here / ".venv/bin").mkdir(parents=True)
    (here / ".venv/bin/activate").write_text(f"PATH={Path(sys.executable).parent}:$PATH\n")
    ours = Path(sys.executable).parent / "mpirun"
    mpirun = ours if ours.exists() else shutil.which("mpirun")
    for name, text in STAND_INS.items():
        (here / "bin" / name).write_text(text.format(mpirun=mpirun) if text else "#!/bin/sh\n")
        (here / "bin" / name).chmod(0o755)
    # the stand-ins go before what .venv/bin/activate puts in front
    with (here / ".venv/bin/activate").open("a") as file:
        file.write(f"PATH={here / 'bin'}:$PATH\n")

    lines = commands("start/cluster.md")
    checks = [line for line in lines if "--check" in " ".join(line)]
    jobs = [line for line in lines if line[0].startswith("RUN=") and line not in checks]
    assert [line[-1] for line in (*checks, *jobs)] == 2 * ["jobs/slurm.sbatch", "jobs/pbs.sh"]
    submit(here, checks[0], TINY_ES)
    assert "ready to run" in Path("esac-7.out").read_text()
    assert not Path("runs/hopper").exists()
    for line, output in zip(jobs, ("esac-7.out", "esac.o8"), strict=True):
        submit(here, line, TINY_ES)
        assert "status complete" in Path(output).read_text()
        looks = [words[1:] for words in lines if words[0] == "esac-mpi"]
        assert [words[0] for words in looks] == ["watch", "summary", "plot", "evaluate"]
        said = [call(*words).out for words in looks]
        assert "complete" in said[0]
        shutil.rmtree("runs")


def test_the_cluster_page_names_what_the_scripts_have():
    page = (DOCS / "start/cluster.md").read_text(encoding="utf-8")
    slurm, pbs = (JOBS / "slurm.sbatch").read_text(), (JOBS / "pbs.sh").read_text()
    for named in ("--ntasks=8", "--time=12:00:00", "--mpi=pmi2", "esac-%j.out"):
        assert named in slurm
        assert named.replace("%j", "<job>") in page
    for named in ("select=1:ncpus=8:mpiprocs=8", "walltime=12:00:00", "esac.o<job>"):
        assert named in pbs
        assert named in page
    assert slurm.count("<- ") == 3


@pytest.mark.parametrize(
    "page", ["how-to/resume.md", "how-to/tune.md", "how-to/track.md", "start/cluster.md"]
)
def test_command_lines_of_a_page_are_accepted(page, here, call):
    """The program's by its own parser; those of `esac-mpi` exist and have the options."""
    for place in ("a", "b", "hopper"):
        Path("runs", place).mkdir(parents=True)
        Path("runs", place, "config.toml").write_text('[task]\nid = "Hopper-v5"\n')
    found = 0
    for words in commands(page):
        arguments = training(words)
        if arguments:
            load([word for word in arguments if word not in ("--check", "--fresh")])
        elif words[0] == "esac-mpi":
            options = call(words[1], "--help").out
            assert all(word in options for word in words[2:] if word.startswith("--"))
        found += bool(arguments) or words[0] == "esac-mpi"
    assert found


def test_runs_of_the_page_on_resuming_are_what_it_says(here, alone, together):
    """Its lines one after the other: begun, resumed by its file, extended, begun anew, repeated."""
    lines = [(int(words[2]), training(words)) for words in commands("how-to/resume.md")[:5]]
    begun, resumed, by_file, extended, fresh = (arguments for _, arguments in lines)
    assert begun == resumed
    together(2, *begun, *TINY_ES)
    together(3, *resumed, *TINY_ES, "--budget.generations", 8)
    assert Run.open("runs/hopper").generation == 8
    assert "is finished; raise its budget" in together(2, *by_file).stdout
    together(2, *extended, "--budget.generations", 10)
    assert Run.open("runs/hopper").generation == 10
    again = next(words for words in commands("how-to/resume.md") if "runs/again" in words)
    alone(*training(again), "--budget.generations", 10)
    assert_same_run(Path("runs/hopper"), Path("runs/again"))
    together(2, *fresh, "--budget.generations", 2)
    assert (Run.open("runs/hopper").generation, Run.open("runs/hopper.old-1").generation) == (2, 10)


TRACKERS = {
    "wandb": """
run, rows = None, []
def init(**given):
    global run
    run = __import__("sys").modules["wandb"]
    return run
def log(row, step):
    rows.append((step, row))
""",
    "mlflow": """
rows, files = [], []
def log_metrics(row, step):
    rows.append((step, row))
def log_artifact(path):
    files.append(path.name)
def end_run():
    files.append("ended")
""",
}


def test_callbacks_for_trackers_send_every_generation(here, monkeypatch):
    """Against stand-ins for the libraries; the page says with which versions they were tried."""
    text = (DOCS / "how-to/track.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    (here / "configs").unlink()
    (here / "configs").mkdir()
    quick = ["task.id = 'CyclicMDP-v0'", "task.horizon = 9", "es.population_size = 4"]
    quick += ["algorithm = 'es'", "policy.hidden = [4]", "budget.generations = 3"]
    Path("configs/quickstart.toml").write_text("\n".join(quick))
    for (name, stand_in), block in zip(TRACKERS.items(), blocks, strict=True):
        module = type(sys)(name)
        exec(stand_in, module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
        exec(block, {})
        assert [step for step, _ in module.rows] == [1, 2, 3]
        row = Run.open("runs/first" if name == "wandb" else "runs/second").columns
        assert module.rows[-1][1]["fitness"] == row["metrics/fitness"][-1].mean()
        assert "generation" in module.rows[0][1]
    assert sys.modules["mlflow"].files == ["policy.h5", "ended"]


def test_messages_of_the_troubleshooting_page_are_the_programs():
    """Each quoted message has words in a row that the code has, or MPICH."""
    page = (DOCS / "how-to/troubleshooting.md").read_text(encoding="utf-8")
    shown = [row.split(" | ")[0] for row in page.splitlines() if row.startswith("| ")]
    quoted = [text for row in shown for text in re.findall(r'"([^"]+)"', row)]
    sources = [*(ROOT / "esac_mpi").rglob("*.py"), *JOBS.glob("*.s*")]
    code = " ".join(path.read_text(encoding="utf-8") for path in sources)
    code = re.sub(r'"\s*f?"', "", code)  # strings that are written in parts
    # MPICH's, and Python's
    others = {"Message truncated", "failed to unpack address", "No module named 'h5py'"}
    unknown = [text for text in quoted if text not in others and not is_in(text, code)]
    assert (len(quoted) > 25, unknown) == (True, [])


def is_in(text: str, code: str) -> bool:
    """Return whether of each part of a message, between dots, three words are in the code."""
    return all(any(run in code for run in runs(part)) for part in text.split("..."))


def runs(part: str) -> list[str]:
    """List all three words in a row of a text, or the whole of a shorter one."""
    words = part.strip(" .,?:()").split(" ")
    count = min(3, len(words))
    return [" ".join(words[i : i + count]) for i in range(len(words) - count + 1)]
