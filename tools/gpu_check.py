"""Check and measure the learner on a GPU, in one call.

    python -m tools.gpu_check [--part NAME ...]

bits         graphs = operations = again, to the bit; a CPU's losses within tolerances
trouble      cuda:99 and a full GPU are refused
peers        updates/s of SAC in four sizes: ours, stable-baselines3's, a CleanRL-style loop's
promises     whole runs: stop + resume = straight, 1 rank = 2 = 16, from the CPU to the GPU

Six minutes at most: each part has a process of its own, which is ended when its time is over. Needs
one NVIDIA GPU and `pip install -c constraints.txt -e '.[mpich,bench]'` with a CUDA build of torch.
Exits with 1 if a check failed, 75 if a part was cut, 2 where torch sees no GPU. --device cpu shows
that it works; its figures mean nothing.
"""

import os

from tools import ONE_THREAD, parser, processes

os.environ.update(ONE_THREAD)

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from esac_mpi import learners
from esac_mpi.config import Config, amend
from esac_mpi.host import affinity, cooperative
from esac_mpi.operators.policy import Layout
from esac_mpi.play.transitions import width
from esac_mpi.record import Run
from tools.bench import learner as peer
from tools.bench.measurement import compare_rates, turns
from tools.bench.program import launch, run_for

FAILED, CUT, NO_GPU = 1, 75, 2  # exit codes
RANKS = min(16, len(affinity.cores()))
LONGEST = 60.0  # that one run may take: a rank or a driver that hangs must not take the rest [s]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # the learner's name, and its settings
    "SAC": ("sac", {}),
    "SAC, value network, temperature": (
        "sac", {"sac.value_network": True, "sac.automatic_temperature": True},
    ),
    "SAC, bf16, layer norm": ("sac", {"learner.precision": "bf16", "policy.layer_norm": True}),
    "SAC, layer norm in the critics": ("sac", {"sac.critic_layer_norm": True}),
    "TD3": ("td3", {"algorithm": "td3"}),
    "TD3, linear path": ("td3", {"algorithm": "td3", "policy.linear": True}),
    "DDPG": ("ddpg", {"algorithm": "ddpg"}),
    "ERL": ("erl", {"algorithm": "erl"}),
    "CEM-RL": ("cem", {"algorithm": "cem_rl"}),
}  # fmt: skip
# Updates that are compared. On a CPU, weights that start 1e-7 of themselves apart move SAC's losses
# by 2e-7 of the largest one in 20 updates, and by 4e-3 in 100: Adam makes a sign a whole step.
UPDATES = 20
STORED = 5000  # transitions that they draw from
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}  # of a loss, over its largest one: GPU against CPU
SIZES = [peer.Size((n, n), batch) for n, batch in ((256, 256), (512, 256), (32, 128), (512, 1024))]
TASK = (
    "--task.id", "Pendulum-v1", "--task.horizon", 50,
    "--policy.hidden", 64, 64, "--evaluation.every", 5,
    "--evaluation.episodes", 2,
    "--algorithm", "esac", "--esac.preset", "corrected",
    "--esac.population_size", 20, "--esac.gradient_interval", 2,
    "--esac.sac_min_steps", 1500, "--esac.sac_episodes", 2,
    "--esac.learner_lag", 2, "--sac.start_steps", 100, "--sac.batch_size", 64,
)  # fmt: skip


# What a check came to: what; passed, or not, or None for a figure alone; what was found, in words.
Finding = tuple[str, bool | None, str]


def at_once() -> Any:
    """Do what chunks.py asks of a GPU, done at once: no streams, no graphs."""
    return SimpleNamespace(
        host=lambda like: like.new_empty(like.shape, device="cpu"),
        launch=lambda work: work(), capture=lambda work: work,
        bring=lambda pairs: [to.copy_(source) for to, source in pairs],
        mark=lambda: lambda: True, warm_up=lambda work: None,
    )  # fmt: skip


def make_learner(kind: str, device: str, captured: bool, hidden: tuple[int, ...]) -> Any:
    """Return a learner of HalfCheetah's sizes with random transitions; captured: as on a GPU."""
    from esac_mpi.learners.chunks import Chunks

    name, changes = KINDS[kind]
    own = {"policy.hidden": hidden, "sac.lr_sac": 1e-3, "learner.device": device}
    config = amend(Config(), {**changes, **own})
    sizes = peer.OBSERVATION, *hidden, peer.ACTION
    layout = Layout(sizes, config.policy.layer_norm, config.policy.path_gain(sizes[0]))
    room = np.zeros((STORED, width(peer.OBSERVATION, peer.ACTION)), np.float32)
    learner = learners.make(name, config, layout, layout.initial(0, 0), rows=room)
    if not captured:
        learner.chunks = Chunks(learner, at_once())
    random, shape = np.random.default_rng(0), (STORED, learner.replay.width)
    rows = random.uniform(-1, 1, shape).astype(np.float32)
    rows[:, learner.replay.columns.terminated] = np.arange(STORED) % 50 == 0
    learner.replay.add_rows(rows)
    learner.update.start()
    return learner


def losses(learner: Any) -> np.ndarray:
    """Make updates, one a chunk; return what each added to the sums [updates, statistics]."""
    from esac_mpi.learners import training

    random, sums = training.streams(0, 1), [learner.update.sums.cpu().numpy().copy()]
    for _ in range(UPDATES):
        cooperative.run(learner.chunks.make(1, random))
        sums.append(learner.update.sums.cpu().numpy().copy())
    return np.diff(sums, axis=0)


def make_chunks(learner: Any) -> bytes:
    """Make updates in several chunks, the last not whole; return all bits of the learner."""
    from esac_mpi.learners import chunks, training

    cooperative.run(learner.chunks.make(5 * chunks.CHUNK + 7, training.streams(0, 2)))
    return b"".join(array.tobytes() for array in learner.arrays().values())


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of statistics, each over its own largest value."""
    return float((np.abs(one - other).max(0) / np.maximum(np.abs(other).max(0), 1e-12)).max())


def check_bits(device: str, hidden: tuple[int, ...] = (256, 256)) -> Iterator[Finding]:
    """Check that graphs = operations = again, to the bit, and a CPU's losses are close."""
    for kind, (_, changes) in KINDS.items():
        learners.clear()  # of the kind before
        ways = (device != "cpu", device != "cpu", False)
        captured, again, plain = (make_learner(kind, device, way, hidden) for way in ways)
        found = losses(captured)
        apart = difference(found, losses(make_learner(kind, "cpu", False, hidden)))
        limit = TOLERANCE[changes.get("learner.precision", "fp32")]
        losses(again)
        losses(plain)
        state = make_chunks(captured)
        yield (f"{kind}: graphs = operations", state == make_chunks(plain), "to the bit")
        yield (f"{kind}: run = run", state == make_chunks(again), "to the bit")
        told = f"losses of {UPDATES} updates {apart:.1e} of the largest apart, allowed {limit:g}"
        yield (f"{kind}: GPU and CPU", apart <= limit, told)


def check_trouble(device: str) -> Iterator[Finding]:
    """Check that a GPU that is not there, or full, ends a run before anything is made."""
    yield is_refused("cuda:99", "learner.device = cuda:99", "cuda:99")
    if device != "cpu":
        import torch

        free = torch.cuda.mem_get_info()[0] - 2**30
        kept = torch.empty(max(free, 0), dtype=torch.uint8, device=device)
        huge = "--policy.hidden", 8192, 8192, "--sac.batch_size", 8192
        yield is_refused("a full GPU", "no room on the GPU", device, *huge)
        del kept


def is_refused(what: str, why: str, device: str, *options: object) -> Finding:
    """Return whether the program refuses to begin, and says why: exit 2, and nothing made."""
    with tempfile.TemporaryDirectory() as place:
        line = [sys.executable, "-m", "esac_mpi", "--run-dir", f"{place}/run", *TASK]
        code, said = run_for([*line, "--learner.device", device, *options], LONGEST)
        one = code == 2 and why in said and not os.listdir(place) and "Traceback" not in said
    return (f"trouble: {what}", one, f"exit {code}: {said.strip()[-500:]}")


def measure_peers(device: str, seconds: float = 0.7, rounds: int = 2) -> Iterator[Finding]:
    """Measure updates/s beside peers', size by size, taking turns."""
    for each in SIZES:
        learners.clear()
        size = each._replace(device=device, seconds=seconds)
        for figure in compare_rates(str(size), turns(peer.competitors(size), rounds), "updates/s"):
            told = "{median:,.4g} {unit} ({min:,.4g} to {max:,.4g})".format(**figure.plain())
            yield (f"{size}: {figure.name}", None, told)


def state_after(generations: int, place: Path, device: str, ranks: int) -> str:
    """Run, or go on, in a directory; return the hash of the state."""
    options = "--run-dir", place, "--budget.generations", generations, "--learner.device", device
    launch(ranks, ["-m", "esac_mpi"], *TASK, *options, seconds=LONGEST)
    return str(Run.open(place).provenance["state_sha256"])


def check_promises(device: str) -> Iterator[Finding]:
    """Check the bits of ESAC with a lag, whose phases are of several chunks."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        straight = state_after(8, place / "straight", device, 2)
        state_after(5, place / "resumed", device, 3)
        same = state_after(8, place / "resumed", device, 2) == straight
        yield ("runs: stop + resume = straight", same, straight[:12])
        for ranks in dict.fromkeys((RANKS, 1)):
            same = state_after(8, place / f"on {ranks}", device, ranks) == straight
            yield (f"runs: 2 ranks = {ranks}", same, straight[:12])
        if device != "cpu":
            state_after(5, place / "moved", "cpu", 2)
            state_after(8, place / "moved", device, 2)
            warned = "device: was cpu" in (place / "moved/log.txt").read_text()
            yield ("runs: from the CPU to the GPU, with a warning", warned, "")


PARTS: dict[str, tuple[float, Callable[[str], Iterator[Finding]]]] = {  # with its time [s]
    "bits": (70, check_bits), "trouble": (40, check_trouble),
    "peers": (120, measure_peers), "promises": (90, check_promises),
}  # fmt: skip


def run_part(name: str, device: str) -> int:
    """Do a part in this process; print what each of its checks came to. Return an exit code."""
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        print("torch sees no GPU here")
        return NO_GPU
    about = torch.cuda.get_device_properties(0) if device != "cpu" else device
    print(f"------  {name}: torch {torch.__version__}, {about}", flush=True)
    code = 0
    try:
        for what, passed, found in PARTS[name][1](device):
            mark = {True: "ok", False: "FAILED", None: "figure"}[passed]
            print(f"{mark:6}  {what}: {found}", flush=True)
            code |= passed is False
    except Exception as error:  # whatever it is, the next part may still tell something
        print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
        code = FAILED
    return code


def main(argv: list[str]) -> int:
    """Do the parts, several in a process each."""
    line, say = parser(__doc__), partial(print, flush=True)
    line.add_argument("--part", nargs="+", choices=PARTS, default=[*PARTS], help="these alone")
    line.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = line.parse_args(argv)
    if len(options.part) == 1:
        return run_part(options.part[0], options.device)
    codes = []
    for name in options.part:
        own = [sys.executable, "-m", "tools.gpu_check", "--part", name, "--device", options.device]
        codes.append(processes.follow(own, PARTS[name][0], say, processes.environ()))
        if codes[-1] == NO_GPU:
            return NO_GPU
        if codes[-1] not in (0, FAILED):
            say(f"CUT     {name}" if codes[-1] is None else f"FAILED  {name}: exit {codes[-1]}")
    return FAILED if any(codes) else CUT if None in codes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
