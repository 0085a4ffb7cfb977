"""What `python -m esac_mpi --check` does: look at the launch, the nodes, the task and the run directory before a long job.

The first thing to run on a new cluster, with the launcher, the configuration and the options of the job itself. Every rank
looks at its own surroundings and plays 100 steps of the task; rank 0 prints one block, a line a subject, each ending in ok
or in what to do. Nothing that it makes stays.
"""

import ctypes
import errno
import fcntl
import importlib.metadata
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import affinity, capacity, envs, epsilon, job, kernels, learners, ram, set_up
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World, binding, boards, free_memory
from esac_mpi.config import Config
from esac_mpi.envs import probe
from esac_mpi.params import Params
from esac_mpi.policy import Layout
from esac_mpi.ram import GIB, size

WRITTEN = 64 * 2**20  # size of the file that the directory's speed is measured with [bytes]
REPEATS = 100  # exchanges timed
SLOW = 20e6  # a directory slower than this gets a remark [bytes/s]
SCHEDULER = re.compile(
    r"SLURM_(JOB_ID|ARRAY_TASK_ID|NTASKS|STEP_NUM_TASKS|JOB_NUM_NODES|CPUS_PER_TASK|RESTART_COUNT|JOB_PARTITION|JOB_END_TIME)"
    r"|PBS_(JOBID|ARRAY_INDEX|NP|NODEFILE|QUEUE|ENVIRONMENT)"
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ASK_THREADS = ("openblas_get_num_threads", "MKL_Get_Max_Threads", "bli_thread_get_num_threads")
DECORATED = tuple(f"{prefix}{name}{suffix}" for name in ASK_THREADS for prefix in ("", "scipy_") for suffix in ("", "64_"))


@dataclass(frozen=True)
class Line:
    """What was found about a subject; what to do about it, if anything; whether no run is possible as it is."""

    subject: str
    found: str
    remedy: str = ""
    fatal: bool = False


@dataclass(frozen=True)
class Rank:
    """What one rank sees of its surroundings."""

    node: int
    host: str
    cores: list[int]
    blas: str
    kernel: str
    shared_free: int  # of /dev/shm; -1 where there is none [bytes]
    task: str  # why the task cannot be played; empty = it can
    seconds_import: float  # to import and make the task [s]
    steps_per_second: float
    physics: str  # digests of the steps
    apart: str = ""  # what to do about episodes that are not the same again; empty = they are


@dataclass(frozen=True)
class Seen:
    """What one rank sees of rank 0's probe directory; None = it does not take part."""

    token: bool | None
    locked: bool | None  # whether the lock that rank 0 holds was refused to it


def check(config: Config, world: World, seconds_left: float = math.inf) -> int:
    """Look at everything a run of `config` needs; print what was found from rank 0. All ranks call this.

    seconds_left: what --max-hours or the batch system leaves to this job, as the run will read it [s].
    Returns the exit code: 0, or 2 if the run directory, the task or the exchange cannot work as it is.
    """
    env, mine = look(config, world)
    ranks: list[Rank] = world.gather(mine)
    directory = look_at_directory(set_up.run_directory(config), world)
    exchange = look_at_exchange(world)
    code = 0
    if world.rank == 0:
        lines = [*launch(ranks, world), *machine(config, ranks), *task(config, ranks)]
        lines += [*work(config, env, world.size), *memory(config, env, ranks), *replay(config, env)]
        lines += [*scheduler(dict(os.environ), seconds_left), *directory, exchange]
        code = job.WRONG_USAGE if any(line.fatal for line in lines) else 0
        title = f"esac_mpi --check: {config.algorithm} on {config.task.id}, {world.size} rank(s)"
        print("\n".join([title, *block(lines), verdict(lines)]), flush=True)
    return int(world.from_root(code))


def block(lines: Iterable[Line]) -> list[str]:
    """Return the lines of the report, aligned."""
    lines = list(lines)
    left = max(len(line.subject) for line in lines)
    right = min(max(len(line.found) for line in lines), 100)
    return [f"  {line.subject:<{left}}  {line.found:<{right}}  {mark(line)}" for line in lines]


def mark(line: Line) -> str:
    """Return how a line ends."""
    if not line.remedy:
        return "ok"
    return f"{'WRONG' if line.fatal else 'NOTE'}: {line.remedy}"


def verdict(lines: Iterable[Line]) -> str:
    """Return the last line of the report."""
    wrong, notes = ([line for line in lines if line.remedy and line.fatal == fatal] for fatal in (True, False))
    if wrong:
        return f"{len(wrong)} thing(s) must be put right before a run can start: {', '.join(line.subject for line in wrong)}"
    return f"ready to run; {len(notes)} note(s)" if notes else "ready to run"


def look(config: Config, world: World) -> tuple[envs.Env | None, Rank]:
    """Make the task and play it; return it (None if it cannot be made) and what this rank sees."""
    env, trouble, digest, apart, start = None, "", "", "", time.perf_counter()
    played = made = start
    try:
        env = set_up.make_task(config)
        made = time.perf_counter()
        found = probe.probe(env)
        played, digest = time.perf_counter(), found.digests
        apart = probe.complaint(env, found.apart)[0] if found.apart and world.rank == 0 else ""
    except Exception as error:  # a task is a user's own code
        trouble = f"{type(error).__name__}: {error}".splitlines()[0]
    speed = probe.PROBE_STEPS / (played - made) if digest else 0.0
    host = world.hosts[world.rank]
    cores = affinity.cores()
    return env, Rank(world.node, host, cores, blas(), kernels.NAME, shared_free(), trouble, made - start, speed, digest, apart)


def blas() -> str:
    """Return the BLAS library that numpy loaded and its threads, asked of the library itself where it can be."""
    about = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    name = f"{about.get('name', 'BLAS')} {about.get('version', '')}".strip()
    with suppress(OSError):
        for path in {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}:
            if not re.search(r"blas|mkl_rt|blis", Path(path).name):
                continue
            library = ctypes.CDLL(path)
            threads = [getattr(library, ask)() for ask in DECORATED if hasattr(library, ask)]
            if threads:
                return f"{name}: {threads[0]} thread(s) a rank, as the library says"
    return f"{name}: {', '.join(f'{n}={os.environ.get(n)}' for n in THREADS)}; the library itself cannot be asked"


def shared_free() -> int:
    """Return the free bytes of /dev/shm, -1 where there is none."""
    free = free_memory()
    return -1 if free is None else free


def launch(ranks: list[Rank], world: World) -> list[Line]:
    """Return the lines about MPI, ranks and nodes."""
    module, level = binding()
    lines = [
        Line("MPI", f"{' '.join(world.library.split())}".split(", package")[0]),
        Line("mpi4py", f"{importlib.metadata.version('mpi4py')}, module {module}, thread level {level}"),
        Line("ranks", f"{world.size} on {world.nodes} node(s)"),
    ]
    for node in range(world.nodes):
        members = [r for r, rank in enumerate(ranks) if rank.node == node]
        allowed = [ranks[r].cores for r in members]
        union = sorted(set().union(*allowed))
        fewest, most = min(map(len, allowed)), max(map(len, allowed))
        each = str(most) if fewest == most else f"{fewest}-{most}"
        found = f"{ranks[members[0]].host}: ranks {spans(members)}; cores {spans(union)}, {each} for each rank"
        complaints = affinity.complaints([ranks[r].host for r in members], allowed, 0)
        lines.append(Line(f"node {node}", found, "; ".join(c.partition(": ")[2] for c in complaints)))
    return lines


def spans(numbers: list[int]) -> str:
    """Return ascending numbers as ranges: 0-3,6."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def machine(config: Config, ranks: list[Rank]) -> list[Line]:
    """Return the lines about the libraries that do the work, and the learner's device."""
    threads = sorted({rank.blas for rank in ranks})
    many = [text for text in threads if re.search(r"\b(?!1 )\d+ thread\(s\)", text)]
    kernel = sorted({rank.kernel for rank in ranks})
    slow = "slower: install esac_mpi where there is a C compiler"
    return [
        Line("BLAS", "; ".join(threads), "set OMP_NUM_THREADS=1 before numpy is imported" if many else ""),
        Line("kernels", ", ".join(kernel), "" if kernel == ["compiled"] else slow),
        learner(config, ranks[0].cores, sum(rank.node == ranks[0].node for rank in ranks)),
    ]


def learner(config: Config, cores: list[int], ranks: int) -> Line:
    """Return the line about torch, which rank 0 alone imports, and the GPUs that it sees; on its node there are `ranks`."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None:
        return Line("torch", f"not used by {config.algorithm}")
    start = time.perf_counter()
    import torch

    seconds = time.perf_counter() - start
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    wanted, remedy = config.learner.device, ""
    if wanted.startswith("cuda") and int(wanted.partition(":")[2] or 0) >= len(gpus):
        remedy = f"learner.device = {wanted}, but rank 0 sees {len(gpus)} GPU(s): ask the scheduler for one, or use cpu"
    threads = f"learner.threads = {config.learner.threads}"
    found = f"{torch.__version__}, imported in {seconds:.1f} s on rank 0, which sees {', '.join(gpus) or 'no GPU'}; {threads}"
    if learning.learner in learners.EXTRAS:
        try:
            learners.load(learning.learner)
        except learners.NotInstalled as error:
            remedy = "; ".join(filter(None, (remedy, str(error))))
    complaints = affinity.complaints([], [cores], config.learner.threads)
    more = affinity.threads_for_learner(cores, ranks)
    if more > config.learner.threads and (wanted == "cpu" or not gpus):
        found += f"; {more - 1} core(s) have no rank, a new run could use them: --learner.threads {more}"
    return Line("torch", found, remedy or "; ".join(c.partition(": ")[2] for c in complaints), bool(remedy))


def task(config: Config, ranks: list[Rank]) -> list[Line]:
    """Return the lines about the task: whether every rank can play it, how fast, and with the same bits."""
    broken = [r for r, rank in enumerate(ranks) if rank.task]
    if broken:
        return [Line("task", f"{config.task.id} cannot be played on ranks {spans(broken)}", ranks[broken[0]].task, True)]
    speeds = np.array([rank.steps_per_second for rank in ranks])
    rates = " / ".join(f"{rate:,.0f}" for rate in np.quantile(speeds, (0, 0.5, 1)))
    slowest = max(rank.seconds_import for rank in ranks)
    found = f"made in {slowest:.1f} s; {probe.PROBE_STEPS} steps on each rank: min / median / max {rates} steps/s"
    odd = sorted({rank.host for rank in ranks if rank.physics != ranks[0].physics})
    differ = f"other bits on {', '.join(odd)}: use nodes of one kind, or results depend on which evaluates what"
    physics = Line("physics", f"digests on rank 0: {ranks[0].physics}", differ if odd else "")
    again = Line("episodes", "not repeated" if ranks[0].apart else "the same again after others", ranks[0].apart)
    return [Line("task", found), physics, again]


class Counter:
    """Stands in for World where a run makes its shared arrays: counts their bytes, and makes them of untouched memory."""

    def __init__(self, ranks: int) -> None:
        self.bytes, self.ranks = 0, ranks

    def reserve(self, count: int, columns: int) -> None:
        """Count the boards of a `map`."""
        self.shared(boards(count, columns, self.ranks), np.float64)

    def shared(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """Return an array that takes no memory until it is written."""
        array = np.zeros(shape, dtype)
        self.bytes += array.nbytes
        return array

    def share(self, values: np.ndarray) -> np.ndarray:
        """Return the values."""
        self.bytes += values.nbytes
        return values

    def over_blocks(self, work: Any, count: int, columns: int, checksum: bool = False) -> np.ndarray:
        """Do no work."""
        return np.zeros(columns)


def work(config: Config, env: envs.Env | None, ranks: int) -> list[Line]:
    """Return the line about what the ranks have to do."""
    if env is None:
        return []
    layout = Layout((env.observation_size, *config.policy.hidden, env.action_size))
    params = Params(config, layout, env.horizon, epsilon.Philox(config.seed))
    found, better = set_up.spread(params, ranks)
    if better and getattr(getattr(config, config.algorithm), "episodes_on", "") == "root":
        better += f"; in a new run with --{config.algorithm}.episodes_on ranks they play its training episodes"
    return [Line("work", found, better)]


def needed(config: Config, env: envs.Env, ranks: int) -> int:
    """Return the bytes of shared memory that a run holds on a node: its state, noise and results, and 1 MiB for what is small."""
    layout, counter = Layout((env.observation_size, *config.policy.hidden, env.action_size)), Counter(ranks)
    noise = set_up.make_epsilon(config, layout, counter)
    set_up.make_state(Params(config, layout, env.horizon, noise), counter)
    return counter.bytes + 2**20


def memory(config: Config, env: envs.Env | None, ranks: list[Rank]) -> list[Line]:
    """Return the line about the shared memory of the node that has least of it, of those that have several ranks."""
    if env is None:
        return []
    nodes = [rank.node for rank in ranks]
    sharing = [rank for rank in ranks if nodes.count(rank.node) > 1]
    least = min((rank for rank in sharing if rank.shared_free >= 0), key=lambda rank: rank.shared_free, default=None)
    try:
        need = needed(config, env, len(ranks))
    except epsilon.TableTooSmall as error:
        return [Line("memory", "the noise table is too short", str(error), True)]
    if not sharing:
        return [Line("memory", f"the run holds {size(need)} a node; one rank a node needs no /dev/shm for it")]
    if least is None:
        return [Line("memory", f"no /dev/shm; the run shares {size(need)} a node")]
    found = f"/dev/shm has {size(least.shared_free)} free on {least.host}; the run needs {size(need)}"
    small = f"too small on {least.host}: ask for a larger /dev/shm (containers: --shm-size), start one rank a node, "
    small += "or give a new run a smaller network, noise table or population"
    return [Line("memory", found, small if least.shared_free < need else "", least.shared_free < need)]


def replay(config: Config, env: envs.Env | None) -> list[Line]:
    """Return the line about the memory that the replay comes to take, on rank 0; none where there is no replay."""
    if env is None or not capacity.table(config):
        return []
    need, total, free = capacity.needed(config, env), ram.total(), ram.free()
    found = f"comes to take {size(need)} on rank 0's node, which has {size(total)} of memory, {size(free)} free"
    try:
        capacity.refuse_too_large(config, env, total)
    except capacity.ReplayTooLarge as error:
        return [Line("replay", found, str(error), True)]
    return [Line("replay", found, "more than is free now" if need > free else "")]


def scheduler(environ: dict[str, str], seconds_left: float) -> list[Line]:
    """Return the lines about the batch system: what it set, and the time it leaves, inf where it does not say [s]."""
    seen = [f"{name}={value}" for name, value in sorted(environ.items()) if SCHEDULER.fullmatch(name)]
    if seconds_left < math.inf:
        left = Line("time left", f"{seconds_left / 3600:.2f} h", "ask for more time" if seconds_left < 600 else "")
    elif seen:
        left = Line("time left", "not known", "give --max-hours, or the batch system kills the run at its limit")
    else:
        left = Line("time left", "no limit known; --max-hours would set one")
    return [Line("scheduler", " ".join(seen) or "none seen"), left]


def look_at_directory(path: Path, world: World) -> list[Line]:
    """Try the run directory, or the place where it will be made: rank 0 writes there, other ranks look. All ranks call this.

    Returns the lines, on rank 0.
    """
    probe = Probe(path) if world.rank == 0 else None
    where = world.from_root(probe.open() if probe else None)
    try:
        seen = world.gather(look_from_elsewhere(where, world) if where else Seen(None, None))
        return [] if probe is None else [*probe.lines, *visible(seen, world.hosts, probe)]
    finally:
        if probe:
            probe.close()


def look_from_elsewhere(where: tuple[Path, bytes], world: World) -> Seen:
    """Read rank 0's token, once a node, and try its lock, on the last rank."""
    folder, token = where
    read = set_up.sees(folder / "token", token, world.clock) if world.local == 0 else None
    tries = world.rank == world.size - 1 > 0
    return Seen(read, is_locked(folder / "lock") if tries else None)


def is_locked(path: Path) -> bool | None:
    """Return whether another process holds the lock; None if the file cannot be opened."""
    try:
        with open(path, "r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except PermissionError as error:
        return True if error.errno == errno.EACCES and path.exists() else None
    except OSError:
        return None
    return False


def visible(seen: list[Seen], hosts: list[str], probe: "Probe") -> list[Line]:
    """Return the lines about what other ranks saw of the probe directory."""
    if probe.folder is None:
        return []
    readers = sum(found.token is not None for found in seen)
    blind = [r for r, found in enumerate(seen) if found.token is False]
    where = ", ".join(sorted({hosts[r] for r in blind}))
    elsewhere = f"not seen from {where}: choose a --run-dir on a file system that all nodes share" if blind else ""
    token = Line("all nodes", f"token read on {readers - len(blind)} of {readers} node(s)", elsewhere, bool(blind))
    return [token, locks(seen[-1].locked, len(seen) - 1, hosts[-1], probe.no_lock)]


def locks(refused: bool | None, rank: int, host: str, no_lock: str) -> Line:
    """Return the line about locks. refused: whether the last rank was refused what rank 0 holds; no_lock: why that holds none."""
    if no_lock:
        return Line("locks", f"none here: {no_lock}", "start no second run in this directory: nothing would stop it")
    if rank == 0:
        return Line("locks", "taken; whether another process is refused, two ranks can tell")
    if refused is None:
        return Line("locks", f"taken; rank {rank} on {host} cannot open the file", "see the line above")
    remedy = "" if refused else "start no second run of this directory on another node: its lock is not seen there"
    return Line("locks", f"taken; {'refused' if refused else 'given as well'} to rank {rank} on {host}", remedy)


class Probe:
    """A temporary directory of rank 0's, in the run directory or where that will be made; close() removes it."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.place = next(p for p in (self.path, *self.path.parents) if p.exists())
        self.folder: Path | None = None
        self.lines: list[Line] = []
        self.no_lock = ""  # why no lock is held
        self._lock: Any = None

    def open(self) -> tuple[Path, bytes] | None:
        """Try to write; return the probe directory and the token in it, None if nothing can be written."""
        found = f"{self.path}" if self.place == self.path else f"{self.path} (to be made; tried in {self.place})"
        token = os.urandom(8)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=".esac_mpi-check-", dir=self.place))
            self.folder.chmod(0o755)
            (self.folder / "token").write_bytes(token)
            self.lines = [Line("directory", found), *self._space(), *self._names()]
            self._take_lock()
        except OSError as error:
            self.close()
            self.lines = [Line("directory", found, f"{error.strerror}: choose another --run-dir", True)]
            return None
        return self.folder, token

    def _space(self) -> list[Line]:
        """Write, sync and remove a file; return the lines about space and speed."""
        assert self.folder is not None
        free, chunk = shutil.disk_usage(self.folder).free, os.urandom(2**20)
        start = time.perf_counter()
        with open(self.folder / "large", "wb") as file:
            for _ in range(WRITTEN // len(chunk)):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        speed = WRITTEN / (time.perf_counter() - start)
        (self.folder / "large").unlink()
        slow = "slow: a checkpoint with its replay takes long here; is there a faster file system?"
        return [
            Line("free space", size(free), "" if free > GIB else "little: checkpoints and the replay may not fit"),
            Line("writing", f"{speed / 1e6:,.0f} MB/s ({size(WRITTEN)} written and synced)", slow if speed < SLOW else ""),
        ]

    def _names(self) -> list[Line]:
        """Rename a file over another, and give one a second name, as checkpoints do; return the lines."""
        assert self.folder is not None
        old, new = self.folder / "old", self.folder / "new"
        old.write_text("old")
        new.write_text("new")
        os.replace(new, old)
        renamed = Line("rename", "replaces a file") if old.read_text() == "new" else Line("rename", "does not replace", "?", True)
        try:
            os.link(old, new)
        except OSError as error:
            return [renamed, Line("hard link", f"none here: {error.strerror}; renames are used")]
        return [renamed, Line("hard link", "gives a file a second name")]

    def _take_lock(self) -> None:
        """Hold a lock on a file of the probe directory."""
        assert self.folder is not None
        self._lock = open(self.folder / "lock", "w+b")  # noqa: SIM115
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.no_lock = error.strerror or "no reason given"

    def close(self) -> None:
        """Remove the probe directory."""
        if self._lock is not None:
            self._lock.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None


def look_at_exchange(world: World) -> Line:
    """Exchange the results of two members a rank, check them, and time that; all ranks call this."""
    count = 2 * world.size
    table, _ = world.map(lambda i: np.array([i, i * i], float), count, 2)
    right = bool((table == [[i, i * i] for i in range(count)]).all())
    mapped = timed(lambda: world.map(lambda i: np.zeros(2), count, 2))
    gathered = timed(lambda: world.gather(None)) / 2
    answers = world.gather(right)
    wrong = [r for r, answer in enumerate(answers) if not answer]
    found = f"{count} members; medians of {REPEATS}: evaluation of nothing {mapped:.0f} us, allgather {gathered:.0f} us"
    return Line("exchange", found, f"wrong results on ranks {spans(wrong)}: MPI is broken here" if wrong else "", bool(wrong))


def timed(action: Any) -> float:
    """Return the median time of REPEATS calls [us]."""
    seconds = np.zeros(REPEATS)
    for i in range(REPEATS):
        start = time.perf_counter()
        action()
        seconds[i] = time.perf_counter() - start
    return float(np.median(seconds)) * 1e6
