"""A GPU as learners use it: whether it is there and free, streams, events and captured graphs.

tools/gpu_check.py runs all of it; docs/results/performance.md has what came out.
"""

import os
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from esac_mpi import config
from esac_mpi.learners import NoDevice, cpu

Work = Callable[[], object]  # operations on a device's tensors
REPEATING = (":4096:8", ":16:8")  # workspaces of cuBLAS with which equal products have equal bits
VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# what libraries and graphs take for themselves, generously: a graph 32 MiB for cuBLAS alone [bytes]
WORKSPACE = 2**30
REMEDY = "ask the scheduler for one of your own, or use cpu"
REMEDIES = {  # by what torch says
    "kernel image": "install a torch that was built for it, or use cpu",
    # at the first product of a process that began without it
    VARIABLE: f"set {VARIABLE}={REPEATING[0]} before Python starts",
}


class Cuda:
    """The current CUDA device, as chunks.py uses it beside the operations; tests have a stand-in.

    Work is launched on the current stream, so that whatever reads a tensor waits for it.
    """

    def __init__(self) -> None:
        # cuBLAS keeps a workspace for each
        self._copies = torch.cuda.Stream()
        self._side = torch.cuda.Stream()

    def host(self, like: Tensor) -> Tensor:
        """Return pinned host memory for copies to a tensor: such a copy needs no core."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def bring(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Copy (to, from the host) on a separate stream; what is launched later waits for it."""
        with torch.cuda.stream(self._copies):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self._copies)

    def launch(self, work: Work) -> None:
        """Begin work after all that was launched before; do not wait for it."""
        work()

    def mark(self) -> Callable[[], bool]:
        """Record an event; return by what to ask whether all that was launched so far has ended."""
        event = torch.cuda.Event()
        event.record()
        return event.query

    def warm_up(self, work: Work) -> None:
        """Do work three times before a capture, so that kernels are loaded.

        On another stream, as a capture's own is (CUDA graphs in torch's notes on CUDA).
        """
        side = self._side
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)

    def capture(self, work: Work) -> Work:
        """Record a graph, once the device has done all before.

        Threads of an MPI may call the driver meanwhile. On a stream of the current device: torch's
        own for captures is of the first device that was captured on. With a cuBLAS workspace in its
        own memory: a graph that goes takes along the one of its stream, which others may hold
        (torch's issue 193402).
        """
        graph = torch.cuda.CUDAGraph()
        forget = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
        forget()
        with torch.cuda.graph(graph, stream=self._side, capture_error_mode="thread_local"):
            work()
        forget()
        return graph.replay


def is_there() -> bool:
    """Tell whether torch has a GPU on this host."""
    return torch.cuda.is_available()


def choose(options: config.Learner) -> torch.device:
    """Return the options' device; a GPU gets a context and repeats its bits. Raises NoDevice."""
    workspace = os.environ.setdefault(VARIABLE, REPEATING[0])  # before the first handle
    auto = options.device == "auto"  # a run on a CPU does not open a GPU that is there
    found = torch.device(
        ("cuda" if torch.cuda.is_available() else "cpu") if auto else options.device
    )
    if found.type == "cuda":
        if workspace not in REPEATING:
            raise NoDevice(
                f"{VARIABLE} = {workspace}: bits would not repeat; "
                f"unset it, or take {' or '.join(REPEATING)}"
            )
        return _take_device(found, options)
    if options.precision == "tf32":
        raise NoDevice("learner.precision = tf32: a CPU has no such products; take fp32, or a GPU")
    return found


def _take_device(found: torch.device, options: config.Learner) -> torch.device:
    """Return the GPU with its number, as the current device of this process."""
    number, count = found.index or 0, torch.cuda.device_count()
    seen = f"learner.device = {options.device}: torch sees {count} GPU(s) on rank 0's host"
    try:
        torch.cuda.init()
        if number < count:
            torch.cuda.set_device(number)
            # makes the context, which is refused where another process has the device to itself
            torch.cuda.synchronize()
            repeat(options)
            probe()
    except (RuntimeError, AssertionError) as error:
        remedy = next((REMEDIES[part] for part in REMEDIES if part in str(error)), REMEDY)
        raise NoDevice(f"{seen}: {first_sentence(error)}; {remedy}") from error
    if number >= count:
        raise NoDevice(f"{seen}; {REMEDY}")
    return torch.device("cuda", number)


def repeat(options: config.Learner) -> None:
    """Let a GPU's bits repeat, or torch refuse what would not; before a process's first product."""
    # as use_deterministic_algorithms, which loads torch's compiler, for seconds
    torch.set_deterministic_debug_mode("error")
    # a debugging aid, in every captured update
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"


def probe() -> None:
    """Multiply two small matrices on the current device. Raises RuntimeError without kernels."""
    square = torch.ones(8, 8, device="cuda")
    if (total := (square @ square).sum().item()) != 8**3:
        raise RuntimeError(f"it says that a product of ones adds up to {total:g}, not {8**3}")


def refuse_too_large(need: int, what: str) -> None:
    """Raise NoDevice if the current device has less than `need` free [bytes] for `what`."""
    free, total = torch.cuda.mem_get_info()
    if (need := need + WORKSPACE) > free:
        raise NoDevice(
            f"{torch.cuda.get_device_name()}: {what} need {need:,} bytes of its memory, "
            f"and {free:,} of {total:,} are free: "
            "lower replay_capacity or batch_size in a new run, "
            "or take a GPU that no other process fills"
        )


def no_room(error: Exception) -> NoDevice:
    """Return the error for a device that had no room for networks and buffers."""
    reason = first_sentence(error, 2)  # the second one has the bytes
    return NoDevice(
        f"no room on the GPU for networks and buffers: {reason}: "
        "lower policy.hidden or the batch size"
    )


def device_name(device: torch.device, kernels: str = "torch") -> str:
    """Return a device's name for the run file, with what its bits depend on.

    Model, how much of it, CUDA, the workspace. kernels: of a CPU.
    """
    if device.type == "cpu":
        return ", ".join([str(device), *([cpu.NAMES[kernels]] if kernels in cpu.NAMES else [])])
    parts = torch.cuda.get_device_properties(device).multi_processor_count
    described = (
        f"{torch.cuda.get_device_name(device)}, {parts} multiprocessors, CUDA {torch.version.cuda}"
    )
    return f"{device.type} ({described}, cuBLAS {os.environ.get(VARIABLE, '')})"


def first_sentence(error: Exception, count: int = 1) -> str:
    """Return the first sentence of what a library said, or as many of its first line."""
    return ". ".join(str(error).strip().partition("\n")[0].split(". ")[:count]).rstrip(".")
