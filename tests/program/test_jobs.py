"""The shipped job scripts, shortened by variables, in a real Slurm of two virtual nodes.

And under a stand-in for PBS. Where Slurm cannot be unpacked (tests/slurm/prepare.sh says why) its
tests are skipped; what the scripts decide is tested with stand-ins in test_job_scripts.py.

Open MPI under srun --mpi=pmix, with Debian's PMIx: two ranks a node at most. On a machine of two
processors the third rank of a node fails in MPI_Init; its place is not there.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path

import launchers
import pytest
import whole_runs
from conftest import JOBS, PATIENCE, ROOT, ROUTINE, SMALL, SMALL_ES, environment
from slurm.cluster import Cluster
from whole_runs import assert_same_run, run_once, summary, wait_for

pytestmark = pytest.mark.slow

# what tests/slurm/prepare.sh unpacks
SOFTWARE = Path(os.environ.get("SLURM_SOFTWARE", ROOT / ".venv/slurm"))
GENERATIONS = 30
CONFIG = "configs/esac/cyclic-mdp.toml"  # what TASKS=cyclic-mdp stands for in the arrays
FEW = f"--budget.generations {GENERATIONS} --checkpoint.every_generations 2"
TASK = ["--task.id", "own_envs:Paced-v0", *FEW.split()]
RUN = ["--algorithm", "esac", *SMALL, *TASK]
EVOLUTION = [*SMALL_ES, *TASK]  # where the job is what matters: it begins sooner
SRUN, MPIRUN, PMIX = "srun -K1 --mpi=pmi2", "mpirun -n 3", "srun -K1 --mpi=pmix"
# in place of the program: begins, sees its GPU, is complete
STAND_IN = r"""#!/bin/bash
echo "${CUDA_VISIBLE_DEVICES-none}" >>"$SEEN"
[ $SLURM_PROCID = 0 ] || exit 0
echo begin >>"$LOG"; sleep 0.5; mkdir -p "${@: -1}"
printf '{\n "status": "complete"\n}\n' >"${@: -1}/status.json"; echo end >>"$LOG"
"""
needs_slurm = pytest.mark.skipif(
    not (SOFTWARE / "ready").exists(), reason="no Slurm here: tests/slurm/prepare.sh says why"
)
lacks = launchers.missing("openmpi")
if not any(SOFTWARE.glob("usr/lib/*/pmix2/lib/libpmix.so.2")):
    lacks = f"no PMIx in {SOFTWARE}: tests/slurm/prepare.sh unpacks it"
needs_pmix = pytest.mark.skipif(bool(lacks), reason=lacks)
LAUNCHES = [SRUN, pytest.param(PMIX, marks=needs_pmix)]


# the runs that the jobs below must equal, made without a scheduler
straight, evolved = (run_once(ROOT / CONFIG, *line) for line in (RUN, EVOLUTION))


@contextmanager
def started(node: str = "CPUs=4") -> Iterator[Cluster]:
    """Yield a Slurm of two such nodes; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="slurm", dir="/tmp") as work:
        slurm = Cluster(SOFTWARE, Path(work), node)
        try:
            slurm.up()
            yield slurm
        finally:
            slurm.down()
            print(slurm.logs())
        assert slurm.processes() == []


@pytest.fixture
def cluster():
    with started() as slurm:
        yield slurm


class Job:
    """A job script's run in a test: its settings, and what its run directory and its output say."""

    def __init__(self, path: Path, run: list[object] = RUN, **settings: str) -> None:
        self.run, self.slow, self.out = path / "run", path / "slow", path / "out"
        self.slow.write_text("0.1")
        self.settings = {
            "PYTHONPATH": environment()["PYTHONPATH"],
            "VENV": str(launchers.OPENMPI) if settings["LAUNCH"] == PMIX else sys.prefix,
            "RUN": str(self.run),
            "OPTIONS": shlex.join(map(str, [CONFIG, *run])),
            "PACE": str(self.slow),
            "PAUSES": "1 1 1",
            **settings,
        }

    @property
    def status(self) -> dict:
        return whole_runs.status(self.run)

    def wait_until_under_way(self) -> None:
        """Return when the run has saved some generations; it cannot end before `hurry`."""
        wait_for(lambda: self.status["generation"] >= 2, PATIENCE)

    def hurry(self) -> None:
        self.slow.unlink()

    def assert_saved_midway(self) -> None:
        assert self.status["status"] == "requeue"
        assert 2 <= self.status["generation"] < GENERATIONS


def submit(cluster: Cluster, job: Job, script: str, *options: object) -> str:
    """Submit a shipped script for three ranks on two nodes; return the job's id."""
    size = ["--ntasks=3", "--gpus=0", *["--nodes=2"] * (script == "slurm.sbatch")]
    out = f"--output={job.out}"
    return cluster.submit(JOBS / script, *size, out, "--time=60", *options, **job.settings)


def wait_for_state(cluster: Cluster, job: str, state: str) -> None:
    """Return when the job is in that state; fail if it ends in another.

    PREEMPTED and NODE_FAIL are on the way to PENDING.
    """
    ended = {state, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"}
    assert wait_for(lambda: {cluster.job(job)["JobState"]} & ended, PATIENCE) == {state}


def finish(cluster: Cluster, job: Job, number: str) -> None:
    """Let a requeued job begin again and run to its end, unwarned."""
    job.hurry()
    cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=60")
    cluster.begin_again(number)
    wait_for_state(cluster, number, "COMPLETED")
    assert cluster.job(number)["Restarts"] == "1"


@needs_slurm
@pytest.mark.parametrize(
    ("script", "launch"),
    [
        ("slurm.sbatch", SRUN),
        ("slurm-gpu.sbatch", MPIRUN),
        pytest.param("slurm.sbatch", PMIX, marks=needs_pmix),
    ],
)
def test_a_job_warned_of_its_limit_is_requeued_and_completes(
    cluster, straight, tmp_path, script, launch
):
    job = Job(tmp_path, LAUNCH=launch)
    job.slow.write_text("0.3")  # Slurm looks at limits every half minute
    number = submit(cluster, job, script, "--signal=B:USR1@3000")
    job.wait_until_under_way()
    if launch == SRUN:
        cluster.run("scontrol", "update", f"JobId={number}", "TimeLimit=50")  # the 3000 s begin
    else:
        cluster.run("scancel", "--batch", "--signal=USR1", number)
    wait_for_state(cluster, number, "PENDING")
    job.assert_saved_midway()
    finish(cluster, job, number)
    assert ("Open MPI v" in job.out.read_text()) == (launch == PMIX)
    assert summary(job.run)["ranks"] == 3
    assert_same_run(straight, job.run)


@needs_slurm
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_cancelled_job_is_saved_and_can_be_submitted_again(cluster, evolved, tmp_path, launch):
    job = Job(tmp_path, EVOLUTION, LAUNCH=launch)
    number = submit(cluster, job, "slurm.sbatch")
    job.wait_until_under_way()
    cluster.run("scancel", number)
    wait_for_state(cluster, number, "CANCELLED")
    cluster.wait_for_steps()
    job.assert_saved_midway()
    about = cluster.job(number)
    assert (about["JobState"], about["Restarts"]) == ("CANCELLED", "0")
    job.hurry()
    wait_for_state(cluster, submit(cluster, job, "slurm.sbatch", "--ntasks=2"), "COMPLETED")
    assert_same_run(evolved, job.run)


@needs_slurm
def test_a_preempted_job_saves_and_goes_on_afterwards(cluster, evolved, tmp_path):
    job = Job(tmp_path, EVOLUTION, LAUNCH=SRUN)
    number = submit(cluster, job, "slurm.sbatch", "--partition=low")
    job.wait_until_under_way()
    line = "sbatch --parsable --partition=urgent --ntasks=8 --output=/dev/null --wrap=true"
    urgent = cluster.run(*line.split()).strip()
    wait_for_state(cluster, number, "PENDING")
    job.assert_saved_midway()
    wait_for_state(cluster, urgent, "COMPLETED")
    finish(cluster, job, number)
    assert_same_run(evolved, job.run)


@needs_slurm
def test_a_lost_node_is_survived(cluster, straight, tmp_path):
    job = Job(tmp_path, LAUNCH=SRUN)
    number = submit(cluster, job, "slurm.sbatch")
    job.wait_until_under_way()
    cluster.kill_node("n1")  # with rank 0, srun and the script
    # by itself Slurm sees it in half a minute
    cluster.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=lost")
    assert job.status["status"] == "running"
    wait_for_state(cluster, number, "PENDING")  # Slurm does that by itself
    cluster.start_node("n1")
    finish(cluster, job, number)
    assert "resumed at generation" in job.out.read_text()
    assert_same_run(straight, job.run)


@needs_slurm
@pytest.mark.parametrize("launch", LAUNCHES)
def test_killed_ranks_are_survived(cluster, evolved, tmp_path, launch):
    job = Job(tmp_path, EVOLUTION, LAUNCH=launch)
    number = submit(cluster, job, "slurm.sbatch", "--nodes=1", "--ntasks=2")
    job.wait_until_under_way()
    cluster.kill("SLURM_STEP_ID=0")  # the ranks, not the script
    wait_for_state(cluster, number, "PENDING")  # the script does that
    assert job.status["status"] == "running"
    finish(cluster, job, number)
    assert_same_run(evolved, job.run)


@needs_slurm
def test_the_time_left_is_known_of_every_element_of_an_array(cluster, tmp_path):
    """Also of the last one, whose id is the array's."""
    script = tmp_path / "left.sh"
    ask = "from esac_mpi.host import batch_system; print(batch_system.seconds_left(os.environ))"
    left = f"{sys.executable} -c 'import os; {ask}'"
    script.write_text(f"#!/bin/bash\nunset SLURM_JOB_END_TIME\n{left}\nsleep 5\n")
    options = ("--ntasks=1", "--array=0-1", f"--output={tmp_path}/out%a", "--time=20")
    array = cluster.submit(script, *options, PYTHONPATH=environment()["PYTHONPATH"])
    for element in range(2):
        wait_for_state(cluster, f"{array}_{element}", "COMPLETED")
        assert 1000 < float((tmp_path / f"out{element}").read_text()) <= 1200


@needs_slurm
def test_an_array_requeues_the_one_element_that_was_stopped(cluster, evolved, tmp_path):
    job = Job(tmp_path, LAUNCH=SRUN, TASKS="cyclic-mdp", SEEDS="2", RUNS=str(tmp_path))
    job.run = tmp_path / "cyclic-mdp-seed0"
    job.settings["OPTIONS"] = shlex.join(EVOLUTION)
    several = ["--array=0-1", "--ntasks=2", f"--output={tmp_path}/out%a"]
    array = submit(cluster, job, "slurm-array.sbatch", *several)
    job.wait_until_under_way()
    cluster.run("scancel", "--batch", "--signal=USR1", f"{array}_0")
    wait_for_state(cluster, f"{array}_0", "PENDING")
    job.assert_saved_midway()
    finish(cluster, job, f"{array}_0")
    wait_for_state(cluster, f"{array}_1", "COMPLETED")
    assert cluster.job(f"{array}_1")["Restarts"] == "0"
    other = summary(tmp_path / "cyclic-mdp-seed1")
    assert (other["status"], other["seed"], other["generation"]) == ("complete", 1, GENERATIONS)
    assert_same_run(evolved, job.run)


@needs_slurm
def test_cores_of_two_threads_have_a_rank_each_and_a_gpu_is_seen(tmp_path):
    program, log, seen = (tmp_path / name for name in ("program", "log", "seen"))
    program.write_text(STAND_IN)
    program.chmod(0o755)
    own = {"VENV": sys.prefix, "LAUNCH": SRUN, "PROGRAM": str(program), "RUNS": str(tmp_path)}
    own |= {"TASKS": "ant", "LOG": str(log), "SEEN": str(seen)}
    refused = pytest.raises(AssertionError, match="Requested node configuration is not available")
    with started("Sockets=1 CoresPerSocket=2 ThreadsPerCore=2 Gres=gpu:1") as cluster:

        def ended(script, *options, **more):
            out = ["--time=5", f"--output={tmp_path}/out%a"]
            job = cluster.submit(JOBS / script, *out, *options, **own, **more)
            array = "array" in script
            for each in [f"{job}_{element}" for element in range(4)] if array else [job]:
                wait_for_state(cluster, each, "COMPLETED")
            return job

        with refused:  # eight threads, but four cores
            cluster.submit(JOBS / "slurm.sbatch", "--ntasks=5", **own)
        ended("slurm-array.sbatch", "--array=0-3%2", "--ntasks=1")
        going = [{"begin": 1, "end": -1}[line] for line in log.read_text().split()]
        assert max(accumulate(going)) == 2
        made = sorted(path.name for path in tmp_path.glob("ant-seed*"))
        assert made == [f"ant-seed{seed}" for seed in range(4)]
        wide = cluster.job(ended("slurm.sbatch", "--ntasks=4", RUN=f"{tmp_path}/a"))
        assert (wide["NumNodes"], wide["NumTasks"]) == ("2", "4")
        assert set(seen.read_text().split()) == {"none"}
        seen.unlink()
        ended("slurm-gpu.sbatch", "--ntasks=2", RUN=f"{tmp_path}/g")
        assert seen.read_text().split() == ["0", "0"]
        with refused:  # on one node
            cluster.submit(JOBS / "slurm-gpu.sbatch", "--gpus=2", "--ntasks=2", **own)


@needs_slurm
def test_scaling_makes_the_same_run_on_1_2_and_4_ranks(cluster, tmp_path):
    job = Job(tmp_path, LAUNCH=SRUN, RUNS=str(tmp_path))
    job.hurry()
    own = "--algorithm es --task.id CyclicMDP-v0 --budget.generations 3 --policy.hidden 8 8"
    job.settings["OPTIONS"] = own
    number = submit(cluster, job, "scaling.sbatch", "--nodes=1", "--ntasks=4")
    wait_for_state(cluster, number, "COMPLETED")
    found = [summary(tmp_path / f"ranks{ranks}") for ranks in (1, 2, 4)]
    assert [(each["ranks"], each["status"]) for each in found] == [
        (ranks, "complete") for ranks in (1, 2, 4)
    ]
    assert len({each["state_sha256"] for each in found}) == 1
    assert len(re.findall(r"ranks\d", job.out.read_text())) >= 3


# PBS, with a qsub of our own that starts jobs on this machine, sends TERM at the end and, 10 s
# later, KILL.


@pytest.fixture
def pbs(tmp_path):
    """Return how to submit: (job, arguments) -> None; what is left of the jobs is killed."""
    (tmp_path / "pbs").mkdir()

    def qsub(job: Job, *arguments: object) -> None:
        own = {"QSUB_DIR": str(tmp_path / "pbs")}
        own["PATH"] = f"{ROOT / 'tests/pbs'}:{os.environ['PATH']}"
        names = ",".join(name for name in job.settings if name not in ("PYTHONPATH", "PACE"))
        line = [ROOT / "tests/pbs/qsub", "-v", names, *map(str, arguments)]
        variables = {**os.environ, **own, **job.settings}
        subprocess.run(line, cwd=ROOT, env=variables, check=True, timeout=PATIENCE)

    yield qsub
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"QSUB_DIR={tmp_path / 'pbs'}".encode() in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)


def ended(tmp_path: Path, number: int) -> int:
    path = tmp_path / f"pbs/{number}.exit"
    wait_for(lambda: path.exists() and path.read_text(), PATIENCE)
    return int(path.read_text())


def test_a_pbs_job_goes_on_after_walltime_and_a_failed_launch(pbs, straight, tmp_path):
    launch, broken = tmp_path / "launch", tmp_path / "broken"
    fails = f'[ "$1" = --version ] || ! rm {broken} 2>/dev/null || exit 15'
    launch.write_text(f'#!/bin/sh\n{fails}\nexec mpiexec -n 2 "$@"\n')
    launch.chmod(0o755)
    job = Job(tmp_path, LAUNCH=str(launch), HOURS="0")
    pbs(job, "jobs/pbs.sh")
    job.wait_until_under_way()
    broken.touch()
    (tmp_path / "pbs/1.over").touch()
    assert ended(tmp_path, 1) == 0
    assert 2 <= job.status["generation"] < GENERATIONS
    job.hurry()
    assert ended(tmp_path, 2) == 0
    assert (tmp_path / "pbs/log").read_text() == "1  jobs/pbs.sh\n2  jobs/pbs.sh\n"
    said = (tmp_path / "pbs/2.out").read_text()
    assert "the launch failed, exit code 15" in said
    assert "round 1, exit code 0, status complete" in said
    assert_same_run(straight, job.run)


def test_a_pbs_array_element_goes_on_alone(pbs, tmp_path, alone):
    options = ["--algorithm", "es", *ROUTINE, *TASK, "--es.population_size", "6"]
    own = {"HOURS": "0", "TASKS": "cyclic-mdp", "SEEDS": "3", "RUNS": str(tmp_path)}
    job = Job(tmp_path, LAUNCH="mpiexec -n 1", **own)
    job.settings["OPTIONS"] = shlex.join(options)
    job.run = tmp_path / "cyclic-mdp-seed2"
    pbs(job, "-J", "1-2", "jobs/pbs-array.sh")
    job.wait_until_under_way()
    (tmp_path / "pbs/2.over").touch()
    assert ended(tmp_path, 2) == 0
    job.hurry()
    assert ended(tmp_path, 1) == ended(tmp_path, 3) == 0
    log = (tmp_path / "pbs/log").read_text().splitlines()
    assert log == [f"{n} {i} jobs/pbs-array.sh" for n, i in ((1, 1), (2, 2), (3, ""))]
    for seed in (1, 2):
        alone(ROOT / CONFIG, *options, "--seed", seed, "--run-dir", tmp_path / f"straight{seed}")
        assert_same_run(tmp_path / f"straight{seed}", tmp_path / f"cyclic-mdp-seed{seed}")
