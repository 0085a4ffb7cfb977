"""Learners on a GPU, in this process: whether graphs, repetitions and a CPU agree, what determinism costs, where the time goes.

Never run on a device so far. On a CPU, where tests run it, everything agrees with itself.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from esac_mpi import learners
from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.operators.policy import Layout
from esac_mpi.play.transitions import width
from tools.bench.competitors import ACTION, OBSERVATION

if TYPE_CHECKING:
    from torch import Tensor

KINDS: dict[
    str, tuple[str, dict[str, Any]]
] = {  # what is checked: the learner's name, and its settings
    "SAC": ("sac", {}),
    "SAC, value network, temperature": (
        "sac",
        {"sac.value_network": True, "sac.automatic_temperature": True},
    ),
    "SAC, bf16, layer norm": ("sac", {"learner.precision": "bf16", "policy.layer_norm": True}),
    "SAC, layer norm in the critics": ("sac", {"sac.critic_layer_norm": True}),
    "TD3": ("td3", {"algorithm": "td3"}),
    "TD3, linear path": ("td3", {"algorithm": "td3", "policy.linear": True}),
    "DDPG": ("ddpg", {"algorithm": "ddpg"}),
    "ERL": ("erl", {"algorithm": "erl"}),
    "CEM-RL": ("cem", {"algorithm": "cem_rl"}),
}
# Updates that are compared. On a CPU, weights that start 1e-7 of themselves apart move SAC's losses by 2e-7
# of the largest one in 20 updates, and by 4e-3 in 100: Adam turns a gradient's sign into a whole step.
UPDATES = 20
STORED = 5000  # transitions that they draw from
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}  # of a loss, over its largest one: GPU against CPU


@dataclass(frozen=True)
class Finding:
    """What a check came to: passed, or not, or None for a figure alone; and what was found, in words."""

    what: str
    passed: bool | None
    found: str


class Uncaptured:
    """What chunks.py asks of a GPU, done at once on whatever device the tensors are: no streams, no graphs."""

    def host(self, like: "Tensor") -> "Tensor":
        """Return plain memory."""
        import torch

        return torch.empty(like.shape, dtype=like.dtype)

    def bring(self, pairs: Iterable[tuple["Tensor", "Tensor"]]) -> None:
        """Copy, and wait for it."""
        for to, source in pairs:
            to.copy_(source)

    def launch(self, work: Callable[[], object]) -> None:
        """Do it."""
        work()

    def mark(self) -> Callable[[], bool]:
        """Return that all is done."""
        return lambda: True

    def warm_up(self, work: Callable[[], object]) -> None:
        """Do nothing."""

    def capture(self, work: Callable[[], object]) -> Callable[[], object]:
        """Return the work."""
        return work


def gpu_here() -> Iterator[Finding]:
    """Tell GPU, memory, driver and torch of this machine; nothing where torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        return
    about, driver = torch.cuda.get_device_properties(0), learners.load("gpu").driver()
    found = f"{about.name}, {about.total_memory:,} bytes, driver {driver or 'not told'}, torch {torch.__version__}"
    yield Finding(
        "this machine",
        None,
        f"{found}, kernels for {' '.join(torch.cuda.get_arch_list())}; {compute_mode()}",
    )


def compute_mode() -> str:
    """Return whether processes share the GPU, as nvidia-smi tells it."""
    if (program := shutil.which("nvidia-smi")) is None:
        return "no nvidia-smi"
    line = [program, "--query-gpu=compute_mode", "--format=csv,noheader"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return f"compute mode {', '.join(done.stdout.split()) or 'not told'}"


def made(
    kind: str, device: str, captured: bool, hidden: tuple[int, ...] = (256, 256), **fields: Any
) -> Any:
    """Return a learner of HalfCheetah's sizes with a replay of random transitions; captured: as it is on a GPU.

    fields: of its table.
    """
    from esac_mpi.learners.chunks import Chunks

    name, changes = KINDS[kind]
    own = {f"{name}.{field}": value for field, value in fields.items()}
    config = updated(
        Config(), {**changes, **own, "policy.hidden": hidden, "learner.device": device}
    )
    layout = Layout(
        (OBSERVATION, *hidden, ACTION), config.policy.layer_norm, config.policy.path_gain
    )
    room = np.zeros((STORED, width(OBSERVATION, ACTION)), np.float32)
    learner = learners.make(name, config, layout, layout.initial(0, 0), rows=room)
    if not captured:
        learner.chunks = Chunks(learner, Uncaptured())
    rows = (
        np.random.default_rng(0).uniform(-1, 1, (STORED, learner.replay.width)).astype(np.float32)
    )
    rows[:, learner.replay.columns.terminated] = np.arange(STORED) % 50 == 0
    learner.replay.add_rows(rows)
    learner.update.start()
    return learner


def losses(learner: Any, updates: int = UPDATES) -> np.ndarray:
    """Make updates, one a chunk; return what each added to the learner's sums, float64 [updates, statistics]."""
    from esac_mpi.learners import training

    random, sums = training.streams(0, 1), [learner.update.sums.cpu().numpy().copy()]
    for _ in range(updates):
        cooperative.run(learner.chunks.make(1, random))
        sums.append(learner.update.sums.cpu().numpy().copy())
    return np.diff(sums, axis=0)


def state(learner: Any) -> bytes:
    """Return all bits that a learner consists of."""
    return b"".join(array.tobytes() for array in learner.arrays().values())


def many(learner: Any) -> None:
    """Make updates in several chunks, of which the last one is not whole: both halves are taken, again and again."""
    from esac_mpi.learners import chunks, training

    cooperative.run(learner.chunks.make(5 * chunks.CHUNK + 7, training.streams(0, 2)))


def bits(device: str, hidden: tuple[int, ...] = (256, 256)) -> Iterator[Finding]:
    """Check that graphs have the bits of operations, that they have them again, and that a CPU's losses are close."""
    for kind, (_, changes) in KINDS.items():
        learners.clear()  # of the kind before
        graphs = device != "cpu"
        captured, again, plain = (
            made(kind, device, way, hidden) for way in (graphs, graphs, False)
        )
        found = losses(captured)
        apart = difference(found, losses(made(kind, "cpu", False, hidden)))
        limit = TOLERANCE[changes.get("learner.precision", "fp32")]
        for learner in (again, plain):
            losses(learner)
        for learner in (captured, again, plain):
            many(learner)
        yield Finding(f"{kind}: graphs = operations", state(captured) == state(plain), "to the bit")
        yield Finding(f"{kind}: run = run", state(captured) == state(again), "to the bit")
        told = f"losses of {UPDATES} updates at most {apart:.1e} of the largest one apart, allowed {limit:g}"
        yield Finding(f"{kind}: GPU and CPU", apart <= limit, told)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference of two learners' statistics [updates, statistics], each over its own largest value."""
    return float((np.abs(one - other).max(0) / np.maximum(np.abs(other).max(0), 1e-12)).max())


def kernels(device: str, count: int = 20) -> Iterator[Finding]:
    """Account for the time of captured SAC updates, 2x256 and batches of 256, kernel by kernel."""
    from torch.profiler import ProfilerActivity, profile

    from esac_mpi.learners import training

    learner, random = made("SAC", device, device != "cpu"), training.streams(0, 1)
    cooperative.run(learner.chunks.make(count, random))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device != "cpu" else [])]
    with profile(activities=activities) as profiled:
        cooperative.run(learner.chunks.make(count, random))
    by = "self_device_time_total" if device != "cpu" else "self_cpu_time_total"
    table = profiled.key_averages().table(sort_by=by, row_limit=25, max_name_column_width=70)
    yield Finding(f"kernels of {count} updates", None, f"\n{table}")
