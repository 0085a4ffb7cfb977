"""Kill runs at random moments, start them again on other ranks, compare with undisturbed runs.

    python -m tools.torture [--kills 200] [--seed 0]

Each part runs on the cyclic MDP beside the others. It is killed (SIGKILL of one random rank, or of
everything at once) while it starts, while it publishes a file, or at any other moment, and goes on,
on 1 to 3 ranks, until it is finished; then it begins again in another directory, until the kills
are used up. After every kill the published rows must equal the undisturbed run's; at the end all
rows, theta, the state's hash and the best policy must. In order of arrival no two runs are equal:
there rows once published must stay, and a run made again from the record (aes_rl.replay) must equal
the killed one.

200 kills take 7 to 17 minutes on 2 cores, and 1 GB of memory. Needs mpirun and Linux. Prints what
was hit; exits with 1 if anything was lost, differs, or was not down 10 s after a kill.
"""

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

from esac_mpi.config.exact import whole
from esac_mpi.record import Columns, Run, read
from esac_mpi.studies.experiments.running import launcher
from tools import parser
from tools.processes import alive, end, environ, family, shared_files

PROGRAM = """
import sys
from esac_mpi import __main__, record
record.run.PUBLISH_EVERY, record.replays.SEGMENT = 0.0, 50  # rows of every generation; \
replay segments that close
record.history.SEGMENT_BYTES = 6000  # and segments of the history, of a few rows each
sys.exit(__main__.main(sys.argv[1:]))
"""
GENERATIONS = 40
PATIENCE = 60.0  # longest wait for a moment, and for a run left alone to publish or to end [s]
DOWN = 10.0  # longest time from a kill to the end of all processes [s]
COMMON = (
    "--task.id=CyclicMDP-v0 --task.horizon=40 --policy.hidden 8 8 "
    "--evaluation.every=3 --evaluation.episodes=4 "
    "--checkpoint.every_generations=3 --checkpoint.every_minutes=0 "
    f"--budget.generations={GENERATIONS}"
)
ESAC = (
    "--esac.population_size=10 --esac.sigma=0.3 --esac.lr_es=0.05 "
    "--esac.sac_min_steps=30 --sac.start_steps=20 "
    "--sac.batch_size=16 --sac.replay_capacity=200"
)
INTERVAL = "--esac.preset=corrected --esac.gradient_interval=2 --esac.sac_episodes=2"
CARRIED = (
    "--esac.resimulated=sample --esac.transfer=tested "
    "--esac.transfer_episodes=2 --esac.transfer_wins=2"
)
AES = (
    "--algorithm=aes_rl --aes_rl.workers=2 "
    "--aes_rl.arrivals_per_generation=2 --aes_rl.mean_episodes=1 "
    "--aes_rl.start_steps=200 --aes_rl.actor_updates_window=2 "
    "--aes_rl.p_negative=0.1 --aes_rl.batch_size=16 "
    "--aes_rl.critic_chunk=40 --aes_rl.replay_capacity=400 "
    "--aes_rl.relative_baseline=20 --aes_rl.update_cost=0.2"
)
PARTS = {
    "ES": "--algorithm=es --es.population_size=10 --es.sigma=0.3 --es.lr_es=0.05 "
    "--es.sigma_rule=one_fifth",
    "ESAC": f"{ESAC} {INTERVAL} {CARRIED} --esac.sigma_rule=one_fifth",
    "ESAC beside": f"{ESAC} {INTERVAL} --esac.learner_lag=2 --esac.resimulated=better",
    "ESAC continuous": f"{ESAC} --esac.phase_timing=continuous "
    "--esac.workers=2 --esac.update_cost=0.4",
    "ESAC virtual": f"{ESAC} {CARRIED} --esac.sigma_rule=grow --esac.amt_trigger=generation "
    "--esac.workers=2 --esac.update_cost=0.4 --esac.length_cap=2",
    "PDERL": "--algorithm=pderl --erl.population_size=5 --erl.memory_size=60 --erl.sync_interval=3 "
    "--erl.distillation_epochs=2 --erl.distillation_batch=8 "
    "--erl.mutation_batch=16 --erl.batch_size=16 "
    "--erl.replay_capacity=400 --erl.updates_per_step=0.2",
    "AES-RL": AES,
    "AES-RL arrival": f"{AES} --aes_rl.order=arrival",
}
Arrays = dict[str, np.ndarray]


class Broken(Exception):
    """A promise that was not kept."""


def inode(path: Path) -> int:
    """Return the inode of metrics.h5, another one at each publication; 0 where there is none."""
    try:
        return (path / "metrics.h5").stat().st_ino
    except OSError:
        return 0


def publishing(path: Path) -> list[str]:
    """Name what is being published, by its final name; a segment by its folder's."""
    found = (file.relative_to(path) for file in path.rglob("*.tmp.*"))
    return [str(file).partition(".tmp.")[0].partition("/")[0] for file in found]


def rows(path: Path) -> Arrays:
    """Return the published rows, empty before the first."""
    columns = Columns(path / "metrics.h5" if inode(path) else None)
    return columns.read(name for name in columns if name.startswith("metrics/"))


def science(path: Path) -> Arrays:
    """Collect what must not depend on kills: rows, hashes, last evaluation, best policy."""
    columns = Run.open(path).columns
    kept = columns.read(name for name in columns if not name.startswith("timing/"))
    for name in ("theta_sha256", "state_sha256", "checkpoint_generation"):
        kept[name] = np.array(columns.attributes[name])
    policy, about = read(path / "policy.h5")
    return {**kept, "policy": policy["theta"], "policy return": np.array(about["episodic_return"])}


def compare(found: Arrays, straight: Arrays, whole: bool) -> None:
    """Raise Broken unless these are the straight run's arrays, or its first rows."""
    if whole and found.keys() != straight.keys():
        raise Broken(f"not the same arrays: {sorted(found.keys() ^ straight.keys())}")
    for name, array in found.items():
        expected = straight[name] if whole else straight[name][: len(array)]
        same = array.dtype == expected.dtype and array.shape == expected.shape
        if not same or array.tobytes() != expected.tobytes():
            raise Broken(f"{name} differs from the straight run's")


@dataclass
class Part:
    """One part: its run as it was started last, and what happened to it."""

    name: str
    place: Path
    choose: random.Random
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)  # kills by (moment, victim)
    runs: int = 0

    def launch(self, path: Path, ranks: int, *more: str) -> None:
        """Start or go on with the run in `path`; more: options beside the part's."""
        self.path, self.before = path, inode(path)
        options = [*f"{PARTS[self.name]} {COMMON}".split(), *more, "--run-dir", str(path)]
        line = [*launcher(ranks), sys.executable, "-c", PROGRAM, *options]
        with open(self.place / "output.txt", "ab") as output:
            self.process = subprocess.Popen(
                line, env=environ(), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def wait(self, condition: Callable[[], object], seconds: float | None = None) -> bool:
        """Return whether the condition came true before the run ended or the time was over."""
        until = time.monotonic() + (PATIENCE if seconds is None else seconds)
        while time.monotonic() < until and self.process.poll() is None:
            if condition():
                return True
            time.sleep(0.002)
        return False

    def wait_for_rows(self) -> bool:
        """Return whether it published once more before its end."""
        before = inode(self.path)
        return self.wait(lambda: inode(self.path) != before)

    def finish(self, path: Path, ranks: int, *more: str) -> None:
        """Run to the end. Raises Broken, also where nothing is published for PATIENCE."""
        self.launch(path, ranks, *more)
        while self.wait_for_rows():
            pass
        if self.process.poll() is None:
            end(self.process)
            raise Broken(f"neither ended nor published for {PATIENCE:.0f} s")
        self.check()

    def check(self) -> None:
        """Raise Broken where it ended by itself with an error."""
        if self.process.returncode:
            raise Broken(f"ended by itself with exit code {self.process.returncode}")

    def kill(self) -> bool:
        """Kill at a random moment; return whether the run still went on then. Raises Broken."""
        kind = self.choose.choices(["start", "publish", "any"], [15, 35, 50])[0]
        if kind == "start":
            self.wait(lambda: False, self.choose.uniform(0, 3))
        for _ in range(0 if kind == "start" else self.choose.randint(1, 8)):
            self.wait_for_rows()
        processes = family(self.process.pid)  # beforehand, because the moment to hit is short
        ranks = [pid for pid, rank in processes.items() if rank]
        shared = shared_files(ranks)  # which a killed MPI leaves
        if kind == "publish":
            self.wait(lambda: publishing(self.path), 1.0)
        elif kind == "any":
            self.wait(lambda: False, self.choose.uniform(0, 0.1))
        if self.process.poll() is not None:
            self.check()
            return False
        everything = [self.process.pid, *processes]
        one = self.choose.choice(ranks) if ranks and self.choose.random() < 2 / 3 else 0
        start = time.monotonic()
        for pid in [one] if one else everything:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(alive, everything)) and time.monotonic() - start < DOWN:
            self.process.poll()
            time.sleep(0.005)
        left = [pid for pid in everything if alive(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for file in shared:
            file.unlink(missing_ok=True)
        if left:
            raise Broken(f"not down {DOWN:.0f} s after the kill of {one or 'everything'}")
        victim = "rank 0" if processes.get(one) == "0" else "another rank" if one else "everything"
        began = "in a generation" if inode(self.path) != self.before else "starting"
        found = publishing(self.path)
        self.hits[f"publishing {found[0]}" if found else began, victim] += 1
        return True


def one_run(part: Part, straight: Arrays, path: Path, kills: int) -> None:
    """Kill and restart one run until it is finished. Raises Broken."""
    committed = (0, 0)  # rows, and generation of the checkpoint
    recorded = part.name.endswith("arrival")  # no two runs are equal, but for one made again
    expected = {} if recorded else straight
    while part.hits.total() < kills:
        part.launch(path, part.choose.randint(1, 3))
        if not part.kill():
            break
        found = rows(path)
        now = len(found.get("metrics/generation", ())), 0
        if found:
            now = now[0], read(path / "metrics.h5")[1]["checkpoint_generation"]
        if recorded and now[0] > len(expected.get("metrics/generation", ())):
            found, expected = expected, found
        compare(found, expected, whole=False)
        if min(now) < committed[1]:
            raise Broken(f"rows lost: {committed} rows and checkpoint before, {now} after a kill")
        committed = now
    part.finish(path, part.choose.randint(1, 3))
    if recorded:
        compare(expected, science(path), whole=False)
        again = path.with_name(f"{path.name} again")
        part.finish(again, part.choose.randint(1, 3), f"--aes_rl.replay={path}")
        expected = science(again)
    compare(science(path), expected, whole=True)
    if (status := Run.open(path).state) != "complete":
        raise Broken(f"finished, but the status is {status}")


def torture(part: Part, kills: int) -> str:
    """Kill the part that often, to the end of its runs; return what went wrong."""
    part.place.mkdir(parents=True)
    try:
        part.finish(part.place / "straight", 1)
        straight = science(part.place / "straight")
        while part.hits.total() < kills or not part.runs:
            part.runs += 1
            one_run(part, straight, part.place / f"run {part.runs}", kills)
    except Exception as error:
        output = (part.place / "output.txt").read_text(errors="replace")[-3000:]
        return f"{part.name}, run {part.runs}: {error!r}\n{output}"
    return ""


def main(argv: list[str]) -> int:
    """Run all parts; return 1 if a promise was not kept."""
    line = parser(__doc__)
    line.add_argument("--kills", type=whole, default=200, help="kills, over all parts")
    line.add_argument("--seed", type=whole, default=0, help="of moments, victims, numbers of ranks")
    options = line.parse_args(argv)
    start = time.monotonic()
    share = options.kills // (len(PARTS) + 1)  # ES has the rest: it starts fastest, without torch
    shares = [options.kills - share * (len(PARTS) - 1), *[share] * (len(PARTS) - 1)]
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(len(PARTS)) as pool:
        seeds = {name: random.Random(f"{options.seed} {name}") for name in PARTS}
        parts = [Part(name, Path(temporary) / name, seed) for name, seed in seeds.items()]
        problems = list(filter(None, pool.map(torture, parts, shares)))
    hits: Counter[tuple[str, str]] = sum((part.hits for part in parts), Counter())
    for (moment, victim), count in sorted(hits.items()):
        print(f"{count:5}  {moment}: {victim}")
    runs, seconds = sum(part.runs for part in parts), time.monotonic() - start
    print(f"{hits.total()} kills in {runs} runs of {GENERATIONS} generations, {seconds:.0f} s")
    print("\n".join(problems) or "0 committed rows lost; all equal to the undisturbed runs")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
