"""What the batch system says of this job, without MPI: the time it has left, and earlier rounds."""

import math
import re
import subprocess
import time
from collections.abc import Callable, Mapping

LATE = 600.0  # a job whose end is longer past is not this one: batch systems kill sooner [s]
# how launchers name a process's rank
RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
# A launcher's variables for its job's size; the first that is set decides, so that `mpirun -n 1`
# inside a larger step is taken at its word. Not SLURM_NTASKS, PBS_NP and the like: they are the
# allocation's, also in a batch script's own processes.
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")

# beginnings of what MPICH's mpirun, and srun, tell a process of its place among the ranks
PMI = ("PMI_", "MPI_LOCAL")


def is_speaker(environ: Mapping[str, str]) -> bool:
    """Whether this process, of all that a launcher started, speaks for them before MPI does."""
    return all((environ.get(name) or "0") == "0" for name in RANKS)


def of_several(environ: Mapping[str, str]) -> str:
    """Name the variable by which a launcher says that it started several processes, or ""."""
    name = next((name for name in SIZES if environ.get(name, "").isdecimal()), "")
    return name if name and int(environ[name]) > 1 else ""


def seconds_left(
    environ: Mapping[str, str], ask: Callable[[list[str]], str] | None = None
) -> float:
    """Find how long this batch job may still run, inf where nothing says so [s].

    To be called before MPI starts, for it may run `squeue` or `qstat` (ask); processes of other
    ranks than 0 do not ask.
    """
    if not is_speaker(environ):
        return math.inf
    ask = ask or _output
    end = _number(environ.get("SLURM_JOB_END_TIME", ""))
    if end < math.inf and not is_stale(environ):
        start = _number(environ.get("SLURM_JOB_START_TIME", ""))
        # this node's clock may be behind
        return end - max(time.time(), start if start < end else 0.0)
    if environ.get("SLURM_JOB_ID"):
        told = ask(["squeue", "-h", "-j", environ["SLURM_JOB_ID"], "-o", "%A %L"])
        # of an array's last job or a heterogeneous one: of all of its jobs
        lines = (line.split() for line in told.splitlines())
        found = [clock_time(words[1]) for words in lines if words[:-1] == [environ["SLURM_JOB_ID"]]]
        if found:
            return found[0]
    if environ.get("PBS_JOBID"):
        about = ask(["qstat", "-f", environ["PBS_JOBID"]])
        names = "Resource_List", "resources_used"
        limit, used = (re.search(rf"{name}\.walltime = (\S+)", about) for name in names)
        spent = clock_time(used[1]) if used else 0.0
        # of a job that does not say how long it runs, the whole limit: it has just begun
        return clock_time(limit[1]) - (spent if spent < math.inf else 0.0) if limit else math.inf
    return math.inf


def is_stale(environ: Mapping[str, str]) -> bool:
    """Tell whether SLURM_JOB_END_TIME is well past, so that it is another job's."""
    late = time.time() - _number(environ.get("SLURM_JOB_END_TIME", ""))
    return late >= (LATE if environ.get("SLURM_JOB_ID") else 0.0)


def job_name(environ: Mapping[str, str]) -> str:
    """Return the name of this batch job, "" outside one."""
    return environ.get("SLURM_JOB_ID") or environ.get("PBS_JOBID", "")


def later_round(environ: Mapping[str, str], status: Mapping[str, object]) -> str:
    """Say what shows that this batch job was at a run before, "" where it was not.

    status: status.json of the run to be taken up, {} for none that can be read. A requeued job of
    Slurm, or one that PBS runs again, has its name; the next round of jobs/pbs.sh has another.
    """
    if environ.get("PBS_JOBID") and _counts(environ, "ROUND"):
        return f"ROUND={environ['ROUND']}"
    requeued = environ.get("SLURM_JOB_ID") and _counts(environ, "SLURM_RESTART_COUNT")
    # one that cannot be read may be its own: a file system comes back later than the nodes
    unread = requeued and not status
    if not job_name(environ) or (status.get("job") != job_name(environ) and not unread):
        return ""
    if requeued:
        return f"SLURM_RESTART_COUNT={environ['SLURM_RESTART_COUNT']}"
    in_batch = environ.get("PBS_ENVIRONMENT") == "PBS_BATCH"  # somebody at a terminal means it
    return f"{job_name(environ)} has been at this run before" if in_batch else ""


def _counts(environ: Mapping[str, str], name: str) -> bool:
    """Tell whether a variable is a number above 0."""
    return re.fullmatch(r"0*[1-9]\d*", environ.get(name, "")) is not None


def clock_time(text: str) -> float:
    """Read [days-]hours:minutes:seconds, or a part from the right [s]; inf for anything else."""
    # Torque has a colon after the days; PBS takes parts of a second
    form = r"(?:(?:(?:(\d+)[-:](?=\d+:\d+:))?(\d+):)?(\d+):)?(\d+(?:\.\d*)?)"
    found = re.fullmatch(form, text.strip())
    if not found:
        return math.inf
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _number(text: str) -> float:
    """Return a number, inf for anything else."""
    return float(text) if re.fullmatch(r"\d+(\.\d*)?", text) else math.inf


def _output(command: list[str]) -> str:
    try:  # qstat shows what users have set, in any encoding
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=20, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
