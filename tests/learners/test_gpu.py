"""What a GPU can be in the way of, on a machine without one: torch's answers are made up."""

import sys
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from fake_gpu import FakeGpu
from small_learners import learner, sac
from small_runs import OPTIONS

from esac_mpi import learners
from esac_mpi.config import Config, amend, load
from esac_mpi.envs import make
from esac_mpi.host import process_state
from esac_mpi.learners import NoDevice, chunks, gpu
from esac_mpi.learners.chunks import Chunks
from esac_mpi.operators.policy import Layout
from esac_mpi.training import session, set_up
from esac_mpi.training.check import learner as check

FREE = gpu.WORKSPACE + 1000  # bytes
ROOT: Any = SimpleNamespace(rank=0)


def raising(message, kind=RuntimeError):
    return Mock(side_effect=kind(message))


@pytest.fixture
def cuda(monkeypatch):
    """Let torch see two GPUs with FREE of 5,000,000,000 bytes free; keep what is asked of it."""
    tf32 = torch.backends.cuda.matmul.allow_tf32
    asked = SimpleNamespace(device=None, deterministic=None)
    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "init": lambda: None,
        "synchronize": lambda: None,
        "mem_get_info": lambda: (FREE, 5 * 10**9),
        "is_initialized": lambda: False,
        "get_device_name": lambda *_: "GPU",
        "set_device": lambda number: setattr(asked, "device", number),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    set_mode = partial(setattr, asked, "deterministic")
    monkeypatch.setattr(gpu.torch, "set_deterministic_debug_mode", set_mode)
    slow = raising("it loads torch's compiler, for seconds")
    monkeypatch.setattr(gpu.torch, "use_deterministic_algorithms", slow)
    monkeypatch.setattr(gpu, "probe", lambda: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield asked
    torch.backends.cuda.matmul.allow_tf32 = tf32


def settings(device, precision="fp32"):
    return amend(Config(), {"learner.device": device, "learner.precision": precision}).learner


@pytest.mark.parametrize(("named", "number"), [("auto", 0), ("cuda", 0), ("cuda:1", 1)])
def test_the_gpu_that_is_named_is_current_and_repeats_bits(cuda, monkeypatch, named, number):
    assert gpu.choose(settings(named)) == torch.device("cuda", number)
    assert (cuda.device, cuda.deterministic) == (number, "error")
    assert gpu.os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    properties = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    described = "cuda (GPU, 132 multiprocessors, CUDA 12.8, cuBLAS :4096:8)"
    assert gpu.device_name(torch.device("cuda", number)) == described
    assert not torch.backends.cuda.matmul.allow_tf32
    gpu.choose(settings(named, "tf32"))
    assert torch.backends.cuda.matmul.allow_tf32


TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU"
)
BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be"
FOREIGN = "CUDA error: no kernel image is available for execution on the device\nSearch for `cuda"
BEFORE = "Deterministic behavior was enabled ... set CUBLAS_WORKSPACE_CONFIG=:4096:8"


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        ("device_count", lambda: 1, r"cuda:1: torch sees 1 GPU\(s\) .*; ask the scheduler"),
        ("init", raising(TOO_OLD), r"too old \(found version 11040\); ask"),
        ("synchronize", raising(BUSY), r"device\(s\) is/are busy or unavailable; ask"),
        ("probe", raising(FOREIGN), "no kernel image .*; install a torch that was built"),
        ("probe", raising(BEFORE), "set CUBLAS_WORKSPACE_CONFIG=:4096:8 before Python starts"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_one_sentence(cuda, monkeypatch, asked, answer, said):
    monkeypatch.setattr(gpu if asked == "probe" else torch.cuda, asked, answer)
    with pytest.raises(NoDevice, match=said) as error:
        gpu.choose(settings("cuda:1"))
    assert "\n" not in str(error.value)
    assert "Please" not in str(error.value)
    # torch looks whether its first product repeats only if that is asked for before
    assert asked != "probe" or cuda.deterministic == "error"


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
    """Its layers are the same, and where rows lie in memory: bits of products depend on that."""
    network, copies = sac(sizes=(3, 8, 8, 2)).actor, []
    here, values = network.numpy(), network.values

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


def test_a_graph_has_a_stream_and_a_workspace_of_its_own(monkeypatch):
    """torch's own stream is the first device's; its workspace goes with the first graph."""
    done = []

    @contextmanager
    def graph(graph, stream, capture_error_mode):
        done.append((stream, capture_error_mode))
        yield

    clear = partial(done.append, "cleared")
    monkeypatch.setattr(torch.cuda, "Stream", object)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay="replay"))
    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", clear, raising=False)
    device = gpu.Cuda()
    assert device.capture(lambda: done.append("recorded")) == "replay"
    assert done == ["cleared", (device._side, "thread_local"), "recorded", "cleared"]


def test_a_workspace_with_which_bits_would_not_repeat_is_refused(cuda, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    assert gpu.choose(settings("cuda")) == torch.device("cuda", 0)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2")
    assert gpu.choose(settings("cpu")) == torch.device("cpu")
    with pytest.raises(NoDevice, match="CUBLAS_WORKSPACE_CONFIG = :4096:2: bits would not repeat"):
        gpu.choose(settings("cuda"))


@pytest.mark.parametrize("loaded", [True, False])
def test_a_training_in_anothers_process_leaves_torch_as_it_was(monkeypatch, loaded):
    """Determinism, what fills new memory, TF32, the workspace; whether or not torch was there."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    # a torch that is new begins with so many, whatever other tests have set
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    before = process_state.torch()
    if not loaded:  # once it has been, meanwhile
        monkeypatch.delitem(sys.modules, "torch")
    with session.put_back():
        monkeypatch.setitem(sys.modules, "torch", torch)
        torch.set_deterministic_debug_mode("error")
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.backends.cuda.matmul.allow_tf32 = True
        gpu.os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        apart = zip(process_state.torch(), before, strict=True)
        assert sum(now != was for now, was in apart) >= 3
    assert process_state.torch() == before
    assert "CUBLAS_WORKSPACE_CONFIG" not in gpu.os.environ


def test_products_named_in_torchs_newer_way_are_left_alone():
    matmul = torch.backends.cuda.matmul
    was = matmul.fp32_precision
    try:
        matmul.fp32_precision = "tf32"
        with session.put_back(), process_state.preserve_state() as changed:
            pass
        assert changed == []
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = was


def test_too_little_memory_is_told_in_bytes_before_any_is_taken(cuda):
    gpu.refuse_too_large(1000, "x")
    with pytest.raises(NoDevice, match=f"x need {FREE + 1:,} bytes .* {FREE:,} of 5,000,000,000"):
        gpu.refuse_too_large(1001, "x")
    made = sac()
    made.device = torch.device("cuda")
    needed = Chunks.bytes(made) + sum(tensor.nbytes for tensor in made.carried()) + 2**30
    with pytest.raises(NoDevice, match=f"SAC's replay of 500 transitions .* need {needed:,} bytes"):
        made.ready()


def test_memory_that_ends_while_networks_are_made_is_told_too(monkeypatch):
    words = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1 GiB"
    full = raising(words, torch.cuda.OutOfMemoryError)
    monkeypatch.setattr("esac_mpi.learners.sac.SAC.network", full)
    with pytest.raises(NoDevice, match=r"networks and buffers: .* allocate 2\.00 GiB: lower"):
        sac()


def test_what_other_ranks_learn_with_never_asks_for_a_gpu(monkeypatch):
    asks = ["is_available", "device_count", "init", "set_device", "mem_get_info", "current_device"]
    for name in asks:
        monkeypatch.setattr(torch.cuda, name, raising("asked"))
    layout, random = Layout((3, 8, 8, 1)), np.random.default_rng(0)
    theta, states = layout.initial(0, 1), np.ones((20, 3), np.float32)
    line = ["--algorithm", "pderl", *OPTIONS["pderl"], "--policy.hidden", 8, 8]
    operators = set_up.make_operators(load([str(word) for word in line])[0], layout)
    critic = np.zeros(operators.critic_size, np.float32)
    assert operators.distilled((theta, theta), theta, states, critic, random).shape == (layout.d,)
    assert operators.proximal(theta, states, random).shape == (layout.d,)
    cem = amend(Config(), {"algorithm": "cem_rl", "policy.hidden": (8, 8)})
    operators = set_up.make_operators(cem, layout)
    critic = np.zeros(operators.critic_size, np.float32)
    assert operators.trained(theta, critic, states, 2, random).shape == (layout.d,)


def test_the_updates_a_second_are_found(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", 7)
    made, now = learner("td3"), iter(range(100))
    made.chunks = Chunks(made, FakeGpu())
    # one look at the clock after each four chunks
    assert chunks.updates_per_second(made, 3, lambda: next(now)) == 4 * 7


def test_the_check_tells_model_memory_and_updates_a_second(cuda, monkeypatch):
    config = amend(Config(), {"algorithm": "td3", "policy.hidden": (8,)})
    config = amend(config, {"learner.device": "cuda"})
    made, env, rate = learner("td3"), make("CyclicMDP-v0"), "updates_per_second"
    made.chunks = Chunks(made, FakeGpu())
    monkeypatch.setattr(learners, "make", lambda *_, **__: made)
    monkeypatch.setattr(chunks, rate, lambda *_: 4321.4)
    (line,) = check.gpu(config, env, ROOT)
    memory = "5,000,000,000 bytes of memory, 1,073,742,824 free beside this learner"
    assert line.found == f"GPU, {memory}; 4,321 updates/s, fp32"

    full = "CUDA out of memory. Tried to allocate 1.00 GiB"
    monkeypatch.setattr(chunks, rate, raising(f"{full}. GPU 0 has\nmore"))
    (line,) = check.gpu(config, env, ROOT)
    assert (line.fatal, line.remedy) == (True, full)
    assert line.found.endswith("; its updates fail")

    monkeypatch.setattr(learners, "make", raising("too small", NoDevice))
    (line,) = check.gpu(config, env, ROOT)
    assert (line.fatal, line.remedy) == (True, "too small")
    assert check.gpu(amend(config, {"learner.device": "cpu"}), env, ROOT) == []


AES = {"workers": 2, "update_cost": 10.0, "critic_chunk": 10}


@pytest.mark.parametrize(
    ("name", "fields", "rows"),
    [
        # beside the capacity: what comes in during AES-RL's tasks, what a phase overwrites
        ("aes_rl", AES, 300 + 2 * (4 * 2 * 40 + 8 * 40)),
        ("cem_rl", {}, 300),
        ("td3", {"steps_per_generation": 7}, 300 + 7),
    ],
)
def test_the_check_asks_for_the_room_that_a_run_takes(cuda, monkeypatch, name, fields, rows):
    asked, honest = [], learners.make
    monkeypatch.setattr(chunks, "updates_per_second", lambda *_: 1.0)

    def make_on_a_cpu(learner, config, *start):
        asked.append(honest(learner, amend(config, {"learner.device": "cpu"}), *start))
        return asked[0]

    monkeypatch.setattr(learners, "make", make_on_a_cpu)
    small = {"replay_capacity": 300, "batch_size": 16, **fields}
    chosen = {"algorithm": name, "learner.device": "cuda", "policy.hidden": (8,)}
    chosen |= {"task.id": "CyclicMDP-v0", "task.horizon": 40}
    chosen |= {"budget.nominal_steps": 0, "budget.env_steps": 10**6}
    chosen |= {f"{name}.{field}": value for field, value in small.items()}
    check.gpu(amend(Config(), chosen), make("CyclicMDP-v0", 40), ROOT)
    assert len(asked[0].replay.ring) == rows
