"""Lists of jobs, a command line each, and the commands that submit them as job arrays."""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from esac_mpi.analysis.messages import Unusable
from esac_mpi.host.invocation import call_of
from esac_mpi.host.paths import whole_file

SCRIPTS = Path("jobs")  # the shipped job scripts
AT_ONCE = 10  # elements of an array that Slurm runs at the same time
MOST = 1001  # elements that it takes by default: MaxArraySize


def write(out: Path, lines: Iterable[list[str]]) -> None:
    """Write a list; make its folder. Raises Unusable for a word with a line break."""
    listed = [*lines]
    if word := next((word for line in listed for word in line if "\n" in word), ""):
        raise Unusable(f"{word!r} has a line break, and a list has a line a job: rename it")
    with whole_file(out) as file:
        file.write_bytes(os.fsencode("".join(f"{shlex.join(line)}\n" for line in listed)))


def submission(out: Path, count: int, ranks: int = 0, program: str = "") -> Iterator[str]:
    """Yield how a list of so many jobs is submitted, to Slurm and to PBS.

    ranks: of each job; 0: as the job script says. program: what runs a line; "": the training.
    The tasks of a program share its work, and are of use together alone: all run at the same time.
    """
    variables = {"LIST": str(out)}
    if program:
        variables["PROGRAM"] = program
    tasks = [f"--ntasks={ranks}"] if ranks else []
    array = f"--array=0-{count - 1}{'' if program else f'%{AT_ONCE}'}"
    yield f"SLURM    {spell(variables, ['sbatch', *tasks, array, 'jobs/slurm-array.sbatch'])}"
    more = []
    if ranks:
        select = f"select=1:ncpus={ranks}:mpiprocs={ranks}:ompthreads=1"
        # in SELECT for the rounds that follow
        variables |= {"LAUNCH": f"mpiexec -n {ranks}", "SELECT": select}
        more += ["-l", select]
    if count > 1:
        more += ["-J", f"0-{count - 1}"]
    else:  # an array of PBS has two elements or more
        variables["INDEX"] = "0"
    call = ["qsub", "-v", ",".join(variables), *more, "jobs/pbs-array.sh"]
    yield f"PBS      {spell(variables, call)}"
    if count > MOST:
        pieces = f"split -l {MOST} {shlex.quote(str(out))} {shlex.quote(f'{out}-')}"
        yield f"split    {pieces}  # an array each: Slurm takes {MOST:,} elements by default"
    if not SCRIPTS.is_dir():
        what = f"{SCRIPTS}/ is not here: {call_of('examples')} copies it"
        yield f"jobs     {what}, to be edited for your machine"


def spell(variables: Mapping[str, str], line: list[str]) -> str:
    """Write a command line with the environment variables before it."""
    assigned = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*assigned, shlex.join(line)])
