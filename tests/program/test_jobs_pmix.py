"""Open MPI under srun --mpi=pmix: the shipped script in a real Slurm of two virtual nodes, with
Debian's PMIx beside it.

Two ranks a node at most: on a machine of two processors the third rank of a node fails in MPI_Init;
its place is not there.
"""

import launchers
import pytest
from test_jobs import (
    EVOLUTION,
    RUN,
    SOFTWARE,
    Job,
    cluster,
    evolved,
    finish,
    needs_slurm,
    straight,
    submit,
    wait_for_state,
)
from whole_runs import assert_same_run, summary

__all__ = ["cluster", "evolved", "straight"]  # fixtures
SRUN = "srun -K1 --mpi=pmix"
needs_pmix = pytest.mark.skipif(
    not any(SOFTWARE.glob("usr/lib/*/pmix2/lib/libpmix.so.2")),
    reason=f"no PMIx in {SOFTWARE}: tests/slurm/prepare.sh unpacks it",
)
pytestmark = [
    pytest.mark.slow,
    needs_slurm,
    needs_pmix,
    pytest.mark.skipif(bool(launchers.missing("openmpi")), reason=launchers.missing("openmpi")),
]


def test_a_job_of_open_mpi_warned_of_its_limit_is_requeued_resumes_and_completes(
    cluster, straight, tmp_path
):
    job = Job(tmp_path, RUN, LAUNCH=SRUN, VENV=str(launchers.OPENMPI))
    number = submit(cluster, job, "slurm.sbatch")
    job.wait_until_under_way()
    cluster.run("scancel", "--batch", "--signal=USR1", number)
    wait_for_state(cluster, number, "PENDING")
    job.assert_saved_midway()
    finish(cluster, job, number)
    assert "Open MPI v" in job.out.read_text()
    assert summary(job.run)["ranks"] == 3
    assert_same_run(straight, job.run)


def test_killed_ranks_of_open_mpi_are_survived_and_a_cancelled_job_is_saved(
    cluster, evolved, tmp_path
):
    job = Job(tmp_path, EVOLUTION, LAUNCH=SRUN, VENV=str(launchers.OPENMPI))
    number = submit(cluster, job, "slurm.sbatch", "--nodes=1", "--ntasks=2")
    job.wait_until_under_way()
    cluster.kill("SLURM_STEP_ID=0")  # the ranks, not the script
    wait_for_state(cluster, number, "PENDING")  # the script does that
    assert job.status["status"] == "running"
    before = job.status["generation"]
    cluster.begin_again(number)
    wait_for_state(cluster, number, "RUNNING")
    launchers.wait_for(
        lambda: job.status["generation"] > before, 300, "a generation of the second round"
    )
    cluster.run("scancel", number)
    wait_for_state(cluster, number, "CANCELLED")
    cluster.wait_for_steps()
    job.assert_saved_midway()
    job.hurry()
    wait_for_state(cluster, submit(cluster, job, "slurm.sbatch"), "COMPLETED")
    assert_same_run(evolved, job.run)
