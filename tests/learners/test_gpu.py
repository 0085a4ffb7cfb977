"""What a GPU can be in the way of, on a machine without one: torch's answers are made up."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu import FakeGpu
from small_erl import options
from small_learners import learner
from small_sac import learner as sac

from esac_mpi import learners
from esac_mpi.config import Config, load, updated
from esac_mpi.envs import make
from esac_mpi.learners import NoDevice, chunks, gpu
from esac_mpi.learners.chunks import Chunks
from esac_mpi.operators.policy import Layout
from esac_mpi.training import set_up
from esac_mpi.training.check import learner as check

OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). "
    "Please update your GPU driver by downloading"
)
FREE = gpu.WORKSPACE + 1000  # bytes
ROOT: Any = SimpleNamespace(rank=0)
FOREIGN = (
    "CUDA error: no kernel image is available for execution on the device\n"
    "Search for `cudaErrorNoKernelImageForDevice'"
)
BUSY = (
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
    "CUDA kernel errors might be asynchronously reported"
)


@pytest.fixture
def cuda(monkeypatch):
    """Let torch see two GPUs; keep what is asked of it.

    1 GiB and 1,000 of 5,000,000,000 bytes are free.
    """
    asked = SimpleNamespace(
        device=None, deterministic=None, tf32=torch.backends.cuda.matmul.allow_tf32
    )
    answers = {
        "is_available": lambda: True, "device_count": lambda: 2,
        "init": lambda: None, "synchronize": lambda: None,
        "mem_get_info": lambda: (FREE, 5 * 10**9),
        "is_initialized": lambda: False,
        "get_device_name": lambda *_: "GPU",
        "set_device": lambda number: setattr(asked, "device", number),
    }  # fmt: skip
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    monkeypatch.setattr(
        gpu.torch,
        "set_deterministic_debug_mode",
        lambda mode: setattr(asked, "deterministic", mode),
    )
    monkeypatch.setattr(
        gpu.torch, "use_deterministic_algorithms", raising("it loads torch's compiler, for seconds")
    )
    monkeypatch.setattr(gpu, "probe", lambda: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield asked
    torch.backends.cuda.matmul.allow_tf32 = asked.tf32


def settings(device, precision="fp32"):
    return updated(Config(), {"learner.device": device, "learner.precision": precision}).learner


def raising(message):
    def answer(*_, **__):
        raise RuntimeError(message)

    return answer


@pytest.mark.parametrize(("named", "number"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_the_gpu_that_is_named_becomes_the_current_one_and_repeats_its_bits(
    cuda, monkeypatch, named, number
):
    assert gpu.choose(settings(named)) == torch.device("cuda", number)
    assert (cuda.device, cuda.deterministic) == (number, "error")
    assert gpu.os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(multi_processor_count=132)
    )
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert (
        gpu.named(torch.device("cuda", number))
        == "cuda (GPU, 132 multiprocessors, CUDA 12.8, cuBLAS :4096:8)"
    )
    assert not torch.backends.cuda.matmul.allow_tf32
    gpu.choose(settings(named, "tf32"))
    assert torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize(
    ("asked", "answer", "told"),
    [
        (
            "device_count",
            lambda: 1,
            r"cuda:1: torch sees 1 GPU\(s\) on rank 0's host; ask the scheduler",
        ),
        ("init", raising(OLD), r"too old \(found version 11040\); ask"),
        ("synchronize", raising(BUSY), r"device\(s\) is/are busy or unavailable; ask"),
        (
            "probe",
            raising(FOREIGN),
            r"no kernel image is available for execution on the device; "
            r"install a torch that was built",
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_told_in_one_sentence(cuda, monkeypatch, asked, answer, told):
    monkeypatch.setattr(gpu if asked == "probe" else torch.cuda, asked, answer)
    with pytest.raises(NoDevice, match=told) as error:
        gpu.choose(settings("cuda:1"))
    assert "\n" not in str(error.value)
    assert "Please" not in str(error.value)


def test_a_product_is_made_on_the_device_before_it_is_taken(monkeypatch):
    ones, made = torch.ones, []
    monkeypatch.setattr(
        gpu.torch, "ones", lambda *shape, device: made.append(device) or ones(*shape)
    )
    gpu.probe()
    assert made == ["cuda"]
    monkeypatch.setattr(gpu.torch, "ones", lambda *shape, device: torch.full(shape, 1.5))
    with pytest.raises(RuntimeError, match="a product of ones adds up to 1152, not 512"):
        gpu.probe()


def test_an_actor_is_brought_from_the_device_by_one_copy():
    """The layers of it are the same, and where their rows lie in memory.

    On that the bits of products depend.
    """
    network, copies = sac(sizes=(3, 8, 8, 2)).actor, []
    here = network.numpy()
    values = network.values

    class There:
        device = torch.device("cuda")

        def cpu(self):
            copies.append(values.clone())
            return copies[0]

    network.values = There()
    brought = network.numpy()
    assert len(copies) == 1
    for one, other in zip(here, brought, strict=True):
        for array, copied in ((one.weight, other.weight), (one.bias, other.bias)):
            assert array.strides == copied.strides
            assert np.array_equal(array, copied)
            assert not np.shares_memory(array, copied)


def test_a_process_that_has_made_products_before_is_told_what_to_set(cuda, monkeypatch):
    def probe():
        assert (
            cuda.deterministic == "error"
        )  # torch looks whether its first product repeats only if that is asked for
        raise RuntimeError(
            "Deterministic behavior was enabled ... "
            "set an environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8"
        )

    monkeypatch.setattr(gpu, "probe", probe)
    with pytest.raises(
        NoDevice,
        match=r"has made products on a GPU before .*: set CUBLAS_WORKSPACE_CONFIG=:4096:8 before",
    ):
        gpu.choose(settings("cuda"))


def test_a_graph_has_a_stream_of_its_device_and_a_workspace_of_its_own(monkeypatch):
    """torch's own stream for captures is the first device's.

    Its workspace goes with the first graph that does.
    """
    done = []

    @contextmanager
    def graph(graph, stream, capture_error_mode):
        done.append((stream, capture_error_mode))
        yield

    monkeypatch.setattr(torch.cuda, "Stream", lambda: object())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay="replay"))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: done.append("cleared"), raising=False
    )
    device = gpu.Cuda()
    assert device.capture(lambda: done.append("recorded")) == "replay"
    assert done == ["cleared", (device._side, "thread_local"), "recorded", "cleared"]


@pytest.mark.parametrize(("workspace", "fits"), [(":16:8", True), (":4096:2", False)])
def test_a_workspace_with_which_bits_would_not_repeat_is_refused_on_a_gpu_alone(
    cuda, monkeypatch, workspace, fits
):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", workspace)
    assert gpu.choose(settings("cpu")) == torch.device("cpu")
    if fits:
        assert gpu.choose(settings("cuda")) == torch.device("cuda", 0)
        return
    with pytest.raises(
        NoDevice,
        match=r"CUBLAS_WORKSPACE_CONFIG = :4096:2: bits would not repeat; "
        r"unset it, or take :4096:8 or",
    ):
        gpu.choose(settings("cuda"))


def test_a_training_in_anothers_process_leaves_torch_as_it_was(monkeypatch):
    """Deterministic algorithms, what fills new memory, products in TF32, the workspace.

    Whether or not torch was there before.
    """
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = gpu.settings()
    for loaded in (True, False):
        with monkeypatch.context() as patch:
            if not loaded:
                patch.setattr(learners, "load", raising("torch would be loaded"))
                patch.setattr(
                    learners, "sys", SimpleNamespace(modules={gpu.__name__: gpu})
                )  # once it has been, meanwhile
            with learners.put_back():
                gpu.restore(gpu.Settings(2, not before.fills, not before.tf32, None))
                assert torch.are_deterministic_algorithms_enabled()
                gpu.os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
                assert gpu.settings() != before
        assert gpu.settings() == before
        assert "CUBLAS_WORKSPACE_CONFIG" not in gpu.os.environ


def test_products_named_in_torchs_newer_way_are_left_alone():
    matmul = torch.backends.cuda.matmul
    was = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        before = gpu.settings()
        assert before.tf32 is None
        gpu.restore(before)
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = was


def test_where_torch_has_no_cuda_that_is_what_is_told():
    with pytest.raises(
        NoDevice, match=r"learner.device = cuda: torch sees 0 GPU\(s\) on rank 0's host: "
    ):
        gpu.choose(settings("cuda"))
    with pytest.raises(NoDevice, match=r"learner\.precision = tf32: a CPU has no such products"):
        gpu.choose(settings("cpu", "tf32"))


def test_too_little_memory_is_told_in_bytes_before_any_is_taken(cuda):
    gpu.refuse_too_large(1000, "x")
    told = (
        rf"GPU: x need {FREE + 1:,} bytes of its memory, "
        rf"and {FREE:,} of 5,000,000,000 are free: lower replay_capacity or"
    )
    with pytest.raises(NoDevice, match=told):
        gpu.refuse_too_large(1001, "x")
    made = sac()
    made.device, needed = (
        torch.device("cuda"),
        Chunks.bytes(made) + sum(tensor.nbytes for tensor in made.kept()) + 2**30,
    )
    with pytest.raises(
        NoDevice,
        match=rf"SAC's replay of 500 transitions and what updates draw need {needed:,} bytes",
    ):
        made.ready()


def test_memory_that_ends_while_networks_are_made_is_told_too(monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1 GiB"
        )

    monkeypatch.setattr("esac_mpi.learners.sac.SAC.network", full)
    with pytest.raises(
        NoDevice,
        match=r"networks and buffers: CUDA out of memory\. Tried to allocate 2\.00 GiB: lower",
    ):
        sac()


def test_what_other_ranks_learn_with_never_asks_for_a_gpu(monkeypatch):
    for name in (
        "is_available",
        "device_count",
        "init",
        "set_device",
        "mem_get_info",
        "current_device",
    ):
        monkeypatch.setattr(torch.cuda, name, raising("asked"))
    layout = Layout((3, 8, 8, 1))
    pderl = load(
        list(map(str, ["--algorithm", "pderl", *options("pderl"), "--policy.hidden", 8, 8]))
    )[0]
    theta, states, random = (
        layout.initial(0, 1),
        np.ones((20, 3), np.float32),
        np.random.default_rng(0),
    )
    operators = set_up.make_operators(pderl, layout)
    critic = np.zeros(operators.critic_size, np.float32)
    assert operators.distilled((theta, theta), theta, states, critic, random).shape == (layout.d,)
    assert operators.proximal(theta, states, random).shape == (layout.d,)
    cem = updated(Config(), {"algorithm": "cem_rl", "policy.hidden": (8, 8)})
    operators = set_up.make_operators(cem, layout)
    critic = np.zeros(operators.critic_size, np.float32)
    assert operators.trained(theta, critic, states, 2, random).shape == (layout.d,)


def test_the_check_tells_model_memory_driver_and_updates_a_second(cuda, monkeypatch, tmp_path):
    version = tmp_path / "version"
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Release\nGCC version: 12.2.0\n"
    )
    assert gpu.driver(version) == "570.86.15"
    assert gpu.driver(tmp_path / "none") == ""
    monkeypatch.setattr(chunks, "CHUNK", 7)
    made, now = learner("td3"), iter(range(100))
    made.chunks = Chunks(made, FakeGpu())
    assert (
        chunks.updates_per_second(made, 3, lambda: next(now)) == 4 * 7
    )  # one look at the clock after each four chunks
    monkeypatch.setattr(learners, "make", lambda *_, **__: made)
    monkeypatch.setattr(chunks, "updates_per_second", lambda *_: 4321.4)
    config, env = (
        updated(Config(), {"algorithm": "td3", "learner.device": "cuda"}),
        make("CyclicMDP-v0"),
    )
    (line,) = check.gpu(config, env, ROOT)
    assert line.found.startswith(
        "GPU, 5,000,000,000 bytes of memory, 1,073,742,824 free beside this learner; driver "
    )
    assert line.found.endswith("; 4,321 updates/s, fp32")

    monkeypatch.setattr(
        chunks,
        "updates_per_second",
        raising("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has\nmore"),
    )
    (line,) = check.gpu(config, env, ROOT)
    assert (line.fatal, line.remedy) == (True, "CUDA out of memory. Tried to allocate 1.00 GiB")
    assert line.found.endswith("; its updates fail")

    def refused(*_, **__):
        raise NoDevice("too small")

    monkeypatch.setattr(learners, "make", refused)
    (line,) = check.gpu(config, env, ROOT)
    assert (line.fatal, line.remedy) == (True, "too small")
    assert check.gpu(updated(config, {"learner.device": "cpu"}), env, ROOT) == []


@pytest.mark.parametrize(
    ("name", "fields", "rows"),
    [
        (
            "aes_rl",
            {"workers": 2, "update_cost": 10.0, "critic_chunk": 10},
            300 + 2 * (4 * 2 * 40 + 8 * 40),
        ),
        ("cem_rl", {}, 300),
        ("td3", {"steps_per_generation": 7}, 300 + 7),
    ],
)
def test_the_check_asks_for_the_room_that_a_run_takes_on_the_device(
    cuda, monkeypatch, name, fields, rows
):
    """Beside the capacity: what comes in during AES-RL's tasks, what a phase overwrites."""
    asked, honest = [], learners.make
    monkeypatch.setattr(chunks, "updates_per_second", lambda *_: 1.0)

    def make_on_a_cpu(learner, config, *start):
        asked.append(honest(learner, updated(config, {"learner.device": "cpu"}), *start))
        return asked[0]

    monkeypatch.setattr(learners, "make", make_on_a_cpu)
    chosen = {
        "algorithm": name,
        "learner.device": "cuda",
        "task.id": "CyclicMDP-v0",
        "task.horizon": 40,
        "policy.hidden": (8,),
    }
    chosen |= {
        f"{name}.replay_capacity": 300,
        f"{name}.batch_size": 16,
        "budget.nominal_steps": 0,
        "budget.env_steps": 10**6,
    }
    config = updated(
        Config(), {**chosen, **{f"{name}.{field}": value for field, value in fields.items()}}
    )
    check.gpu(config, make("CyclicMDP-v0", 40), ROOT)
    assert len(asked[0].replay.ring) == rows
