"""Kill runs at random moments, start them again on other numbers of ranks, and compare with runs that nobody disturbed.

    python tools/torture.py [--kills 200] [--seed 0] [--dir DIR]

Three parts run side by side on the cyclic MDP: ES, ESAC, and ESAC with SAC phases beside the evaluation (learner_lag = 2).
Each is killed (SIGKILL of one random rank, or of everything at once) while it starts, while it publishes a file, in a SAC
phase, or at any other moment, and started again on 1 to 3 ranks until it is finished; then it begins again in another
directory, until the kills are used up. After every kill the published rows must equal the undisturbed run's; at the end all
rows, theta, the state's hash and the best policy must.

Cost: 2 to 5 s a kill on 2 cores (200 kills: 7 to 17 minutes), 1 GB of memory. Needs mpirun and Linux. Prints what was hit;
exits with 1 if anything was lost, differs, or was not down 10 s after a kill.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from esac_mpi.record import Columns, Run, read

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys
from esac_mpi import __main__, record
record.run.PUBLISH_EVERY, record.replays.SEGMENT = 0.0, 50  # rows of every generation; replay segments that close
record.history.SEGMENT_BYTES = 6000  # and segments of the history, of a few rows each
sys.exit(__main__.main(sys.argv[1:]))
"""
GENERATIONS = 40
LAG = 2
PATIENCE = 60.0  # longest wait for a moment, and for a run to end by itself [s]
DOWN = 10.0  # longest time from a kill to the end of all processes [s]

EVOLUTION = ["population_size=10", "sigma=0.3", "lr_es=0.05"]
COMMON = [
    *("--task.id=CyclicMDP-v0", "--task.horizon=40", "--policy.hidden", "8", "8", "--evaluation.every=3"),
    *("--evaluation.episodes=4", "--checkpoint.every_generations=3", "--checkpoint.every_minutes=0"),
]
PHASES = [
    *("--esac.gradient_interval=2", "--esac.sac_min_steps=30", "--esac.sac_episodes=2"),
    *("--sac.start_steps=20", "--sac.batch_size=16", "--sac.replay_capacity=200"),
]
PARTS = {
    "ES": ["--algorithm=es", *(f"--es.{option}" for option in EVOLUTION), *COMMON],
    "ESAC": [*(f"--esac.{option}" for option in EVOLUTION), *COMMON, *PHASES],
    "ESAC beside": [*(f"--esac.{option}" for option in EVOLUTION), *COMMON, *PHASES, f"--esac.learner_lag={LAG}"],
}


class Broken(Exception):
    """A promise that was not kept."""


@dataclass
class Part:
    """What happened to one part."""

    name: str
    arguments: list[str]
    place: Path
    choose: random.Random
    straight: dict[str, np.ndarray] = field(default_factory=dict)  # what every run of the part must become
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)  # kills by (moment, victim)
    runs: int = 0
    starts: int = 0
    slowest: float = 0.0  # longest time from a kill to the end of all processes [s]


@dataclass
class Job:
    """A started run."""

    process: subprocess.Popen
    path: Path
    inode: int  # of metrics.h5 when it was started
    processes: dict[int, str] = field(default_factory=dict)  # with their ranks, as last looked at
    shared: set[Path] = field(default_factory=set)  # files in /dev/shm that a killed MPI leaves there

    @property
    def published(self) -> bool:
        """Whether it has published rows."""
        return inode(self.path) != self.inode

    def look(self) -> None:
        """Find the processes: beforehand, because the moment to hit is short."""
        self.processes = family(self.process.pid)
        self.shared |= shared_files([pid for pid, rank in self.processes.items() if rank])


# What must not change


def science(path: Path) -> dict[str, np.ndarray]:
    """Return all that must not depend on kills: rows, hashes, the evaluation at the end, the best policy."""
    columns = Run.open(path).columns
    kept, attributes = columns.read(name for name in columns if not name.startswith("timing/")), columns.attributes
    kept |= {name: np.array(attributes[name]) for name in ("theta_sha256", "state_sha256", "checkpoint_generation")}
    policy, about = read(path / "policy.h5")
    return {**kept, "policy": policy["theta"], "policy return": np.array(about["episodic_return"])}


def rows(path: Path) -> dict[str, np.ndarray]:
    """Return the published rows, empty before the first."""
    columns = Columns(path / "metrics.h5" if (path / "metrics.h5").exists() else None)
    return columns.read(name for name in columns if name.startswith("metrics/"))


def compare(found: dict[str, np.ndarray], straight: dict[str, np.ndarray], whole: bool) -> None:
    """Raise Broken unless these are the straight run's arrays, or, unless `whole`, its first rows."""
    if whole and found.keys() != straight.keys():
        raise Broken(f"not the same arrays: {sorted(found.keys() ^ straight.keys())}")
    for name, array in found.items():
        expected = straight[name] if whole else straight[name][: len(array)]
        if array.dtype != expected.dtype or array.shape != expected.shape or array.tobytes() != expected.tobytes():
            raise Broken(f"{name} differs from the straight run's")


# Processes


def launch(part: Part, path: Path, ranks: int) -> Job:
    """Start or go on with the run in `path`."""
    ours = Path(sys.executable).parent / "mpirun"
    launcher = [str(ours) if ours.exists() else "mpirun", "-n", str(ranks)]
    options = [*part.arguments, "--budget.generations", str(GENERATIONS), "--run-dir", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(part.place / "output.txt", "ab") as output:
        process = subprocess.Popen(
            [*launcher, sys.executable, "-c", PROGRAM, *options],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    part.starts += 1
    return Job(process, path, inode(path))


def family(pid: int) -> dict[int, str]:
    """Return the processes that this one has started, and theirs, each with its rank; "" for one that is no rank."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, ahead = {}, [pid]
    while ahead:
        for child in parents.get(ahead.pop(), []):
            found[child] = rank_of(child)
            ahead.append(child)
    return found


def rank_of(pid: int) -> str:
    """Return the rank that the launcher gave a process."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.decode(errors="replace").partition("=")
            if name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
                return value
    return ""


def shared_files(pids: list[int]) -> set[Path]:
    """Return the files in /dev/shm that these processes have mapped."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
            found |= {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}
    return found


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill(part: Part, job: Job) -> str:
    """Kill one random rank or everything; wait until all is down; return the victim. Raises Broken."""
    ranks = [pid for pid, rank in job.processes.items() if rank]
    everything = [job.process.pid, *job.processes]
    victim = part.choose.choice(ranks) if ranks and part.choose.random() < 2 / 3 else 0
    start = time.monotonic()
    for pid in [victim] if victim else everything:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while time.monotonic() - start < DOWN and (job.process.poll() is None or any(map(alive, everything))):
        time.sleep(0.005)
    took = time.monotonic() - start
    for pid in filter(alive, everything):
        os.kill(pid, signal.SIGKILL)
    job.process.wait()
    for file in job.shared:
        file.unlink(missing_ok=True)
    if took >= DOWN:
        raise Broken(f"not down {DOWN:.0f} s after the kill of {victim or 'everything'}")
    part.slowest = max(part.slowest, took)
    return "everything" if not victim else "rank 0" if job.processes[victim] == "0" else "another rank"


# Moments


def inode(path: Path) -> int:
    """Return the inode of metrics.h5, another one at each publication; 0 where there is none."""
    try:
        return (path / "metrics.h5").stat().st_ino
    except OSError:
        return 0


def wait(job: Job, condition: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.002) -> bool:
    """Return whether the condition came true before the run ended or the time was over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.process.poll() is None:
        if condition():
            return True
        time.sleep(pause)
    return False


def temporaries(path: Path) -> list[str]:
    """Return what is being published, by its final name; a segment as replay/."""
    return [name.partition(".tmp.")[0] for name in names(path) if ".tmp." in name] + [
        "replay/" for name in names(path / "replay") if ".tmp." in name
    ]


def names(path: Path) -> list[str]:
    """Return the names in a directory, none where there is no such directory."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def in_phase(part: Part, generation: int) -> bool:
    """Return whether a SAC phase runs in a generation of this part (1, 2, ...)."""
    begun = part.straight.get("metrics/sac_phase", np.zeros(GENERATIONS))
    first = generation - LAG if part.name == "ESAC beside" else generation
    return bool(begun[max(first - 1, 0) : generation].any())


def made(path: Path) -> int:
    """Return the number of published rows."""
    return Columns(path / "metrics.h5" if (path / "metrics.h5").exists() else None).generations


def wait_for_moment(part: Part, job: Job, progress: bool) -> bool:
    """Wait for a random moment; return whether the run was still going on then. progress: not before the next checkpoint."""
    choose = part.choose
    kind = choose.choices(["start", "row", "publish", "phase"], [15, 30, 30, 25])[0]
    if kind == "start" and not progress:
        wait(job, lambda: False, choose.uniform(0, 3))
        job.look()
        return job.process.poll() is None
    if not wait(job, lambda: job.published):
        return False
    job.look()
    goal = min(made(job.path) + (5 if progress else choose.randrange(8)), GENERATIONS)
    wait(job, Grown(job, goal))
    if kind == "publish":
        some = choose.choice(["", "checkpoint", "checkpoint", "replay/"])
        wait(job, lambda: [name for name in temporaries(job.path) if name.startswith(some)], 1.0, pause=0.0)
    elif kind == "phase":
        wait(job, lambda: in_phase(part, made(job.path) + 1), 2.0)
    if kind != "publish":
        wait(job, lambda: False, choose.uniform(0, 0.1))
    return job.process.poll() is None


@dataclass
class Grown:
    """Whether a run has published `goal` rows; the file is read only when it is a new one."""

    job: Job
    goal: int
    seen: int = 0

    def __call__(self) -> bool:
        """Look again."""
        before, self.seen = self.seen, inode(self.job.path)
        return before != self.seen and made(self.job.path) >= self.goal


def moment(part: Part, job: Job) -> str:
    """Return what a killed run was doing, by what it left."""
    if left := temporaries(job.path):
        return f"publishing {left[0]}"
    if not job.published:
        return "starting"
    return "SAC phase" if in_phase(part, made(job.path) + 1) else "elsewhere in a generation"


# A part


def torture(part: Part, kills: int) -> str:
    """Kill the part that often, to the end of its runs; return what went wrong, empty if nothing."""
    try:
        straight = part.place / "straight"
        finish(launch(part, straight, 1))
        part.straight = science(straight)
        while sum(part.hits.values()) < kills or not part.runs:
            part.runs += 1
            one_run(part, part.place / f"run {part.runs}", kills)
    except Exception as error:
        output = (part.place / "output.txt").read_text(errors="replace")[-3000:]
        return f"{part.name}, run {part.runs}, start {part.starts} in {part.place}: {error!r}\n{output}"
    return ""


def one_run(part: Part, path: Path, kills: int) -> None:
    """Kill and restart one run until it is finished. Raises Broken."""
    committed = (0, 0)  # rows, and generation of the checkpoint
    idle = 0  # kills in a row without a newer checkpoint
    while True:
        job = launch(part, path, part.choose.randint(1, 3))
        more = sum(part.hits.values()) < kills
        if not more or not wait_for_moment(part, job, progress=idle >= 3):
            finish(job)
            break
        victim = kill(part, job)
        part.hits[moment(part, job), victim] += 1
        found = rows(path)
        compare(found, part.straight, whole=False)
        checkpoint = read(path / "metrics.h5")[1]["checkpoint_generation"] if found else 0
        now = (len(found.get("metrics/generation", ())), checkpoint)
        if now[1] < committed[1] or now[0] < committed[1]:
            raise Broken(f"rows lost: {committed} rows and checkpoint before, {now} after a kill")
        idle = idle + 1 if now[1] == committed[1] else 0
        committed = now
    compare(science(path), part.straight, whole=True)
    if (status := Run.open(path).state) != "complete":
        raise Broken(f"finished, but the status is {status}")


def finish(job: Job) -> None:
    """Let a run go on to its end. Raises Broken."""
    try:
        code = job.process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in (*family(job.process.pid), job.process.pid):
            os.kill(pid, signal.SIGKILL)
        raise Broken(f"not finished after {PATIENCE:.0f} s") from None
    if code:
        raise Broken(f"ended by itself with exit code {code}")


def table(parts: list[Part]) -> str:
    """Return how often which moment of which victim was hit."""
    victims = ("rank 0", "another rank", "everything")
    hits: Counter[tuple[str, str]] = sum((part.hits for part in parts), Counter())
    lines = [f"{'hit by kill -9':32}" + "".join(f"{victim:>14}" for victim in victims)]
    for what in sorted({what for what, _ in hits}):
        lines.append(f"{what:32}" + "".join(f"{hits[what, victim]:14}" for victim in victims))
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Run all parts; return 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kills, over all parts")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, victims and numbers of ranks")
    parser.add_argument("--dir", type=Path, help="keep the runs here, in an empty directory")
    options = parser.parse_args(argv)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        place = (options.dir or Path(temporary)).resolve()
        parts = []
        for number, (name, arguments) in enumerate(PARTS.items()):
            (place / name).mkdir(parents=True)
            parts.append(Part(name, arguments, place / name, random.Random(f"{options.seed} {number}")))
        fourth = options.kills // 4
        shares = [options.kills - 2 * fourth, fourth, fourth]  # ES starts fastest: it needs no torch
        with ThreadPoolExecutor() as pool:
            problems = list(filter(None, pool.map(torture, parts, shares)))
    print(table(parts))
    kills, runs, starts = sum(sum(p.hits.values()) for p in parts), sum(p.runs for p in parts), sum(p.starts for p in parts)
    print(f"{kills} kills in {runs} runs of {GENERATIONS} generations, {starts} starts, {time.monotonic() - start:.0f} s")
    print(f"slowest end of all processes after a kill: {max(part.slowest for part in parts):.2f} s")
    print(
        "\n".join(problems) or "0 committed rows lost; all rows, theta, state_sha256 and policies equal to the undisturbed runs"
    )
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
