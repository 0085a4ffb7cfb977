"""SAC's update in torch and in C against plain torch.nn and numpy; when a run has which."""

import math
import os
import sys
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import finish
from gradients import FORMS, Line, distance, flat, same
from plain_sac import Plain, assert_updates_are_autograds, saturated
from small_learners import fill, learn, perturbed, run_phase
from small_learners import sac as learner
from whole_runs import assert_same_run
from words import words

from esac_mpi.config import Config, amend
from esac_mpi.learners import NoDevice, cpu, prepare, resolve_auto
from esac_mpi.learners.compiled import CompiledUpdate
from esac_mpi.operators import _kernels
from esac_mpi.record import Run
from esac_mpi.training.check import learner as check


@pytest.mark.parametrize(("hidden", "layer_norm", "of_critics", "linear"), FORMS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("value", [False, True])
def test_updates_are_those_of_autograd_and_torchs_adam(
    value, automatic, activation, hidden, layer_norm, of_critics, linear
):
    form = {"sac__value_network": value, "sac__automatic_temperature": automatic}
    form |= {"policy__layer_norm": layer_norm, "sac__critic_layer_norm": of_critics}
    form |= {"policy__linear": linear, "policy__activation": activation}
    sac = saturated(perturbed(learner((3, *hidden, 2), sac__batch_size=64, **form)))
    outside: list[torch.Tensor] = []

    def count_outside():
        outside.append((sac.update._raw[-1] != sac.update._log_std[-1]).double().mean(0))

    assert_updates_are_autograds(sac, count_outside)
    shares = torch.stack(outside)  # of log std, on either side of both bounds
    assert ((shares > 0.1) & (shares < 0.9)).all()
    assert (float(sac.temperature) != pytest.approx(0.2, rel=1e-6)) == automatic


def test_where_both_critics_agree_each_has_half_the_gradient():
    """As torch.amin's backward has it: with equal twins, the actor's gradient is either's."""
    sac = perturbed(learner((3, 8, 8, 2), sac__lr_sac=0.0))
    for tensor in sac.critic.tensors:
        tensor[1] = tensor[0]
    plain = Plain(sac)
    learn(sac)
    plain.learn(sac.update.rows, sac.update.noise)
    assert distance(sac.actor.gradient, flat(plain.networks["actor"], "grad")) < 1e-5


@pytest.mark.parametrize("kernels", ["torch", *(["compiled"] if cpu.KIND else [])])
@pytest.mark.parametrize("sign", [1, -1])
def test_log_prob_holds_where_tanh_saturates(sign, kernels):
    """Of u = 30 sign + 0.5: log N - log(1 - tanh(u)^2), the latter 2 log 2 - 2 |u| in doubles."""
    sac = learner((1, 8, 8, 1), sac__batch_size=1, learner__kernels=kernels)
    sac.actor.values.zero_()
    sac.actor.values[-2:] = torch.tensor([30.0 * sign, 0.0])  # biases of mean and log std
    fill(sac)
    sac.update.noise[:] = 0.5
    sac.update.learn_critic()
    sac.update.learn_actor()
    log_prob = -0.125 - math.log(2 * math.pi) / 2 - 2 * math.log(2) + 2 * abs(sign * 30.0 + 0.5)
    assert sac.update.means(1)["entropy"] == pytest.approx(-log_prob, rel=1e-6)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("kernels", ["torch", *(["compiled"] if cpu.KIND else [])])
def test_an_action_is_drawn_as_from_torchs_distribution(kernels, linear):
    sac = perturbed(learner((3, 8, 8, 2), learner__kernels=kernels, policy__linear=linear))
    observation = np.array([0.5, -1.0, 0.2], np.float32)
    ends = np.ones(2, np.float32)
    env = SimpleNamespace(low=-ends, high=ends, action_size=2)
    drawn = sac._explorer(env, np.random.default_rng(7))(observation)
    noise = torch.from_numpy(np.random.default_rng(7).standard_normal(2, dtype=np.float32))
    action, _ = Plain(sac).policy(torch.from_numpy(observation[None]).double(), noise)
    assert np.abs(drawn - action[0].detach().numpy()).max() < 1e-6


def test_the_standard_deviation_begins_as_without_a_linear_path():
    of_path, without = (
        learner((3, 8, 8, 2), policy__linear=linear).actor.layers[-1].weight.mT
        for linear in (True, False)
    )
    assert torch.equal(of_path[2:, :8], without[2:])
    assert not of_path[2:, 8:].any()


KINDS = [kind for kind in ("avx512", "avx2") if cpu.KIND in ("avx512", kind)]
compiled = pytest.mark.skipif(not cpu.KIND, reason="no compiled updates here")
SIZES = [  # hidden layers, batch
    ((8, 8), 64),
    ((16,), 37),
    ((40, 33, 50), 64),
    ((96, 64), 150),
    ((8, 1), 64),
    ((3, 5, 7, 9, 11, 13, 15), 5),
]
PATH = {"policy__linear": True, "policy__linear_gain": 3.0}
IN_C: list[dict] = [{}, {"sac__automatic_temperature": True}, PATH]


def in_c(sizes=(3, 8, 8, 2), kind=cpu.KIND, threads=1, **form):
    sac = learner(sizes, learner__kernels="compiled", **form)
    assert isinstance(sac.update, CompiledUpdate)
    sac.update = CompiledUpdate(sac.update.parts, sac.options, threads, kind)
    return sac


@compiled
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", IN_C)
@pytest.mark.parametrize(("hidden", "batch"), SIZES)
def test_updates_in_c_are_those_of_autograd_and_torchs_adam(hidden, batch, form, kind):
    sac = in_c((3, *hidden, 2), kind, sac__batch_size=batch, **form)
    assert_updates_are_autograds(saturated(perturbed(sac)))


@compiled
@pytest.mark.parametrize(
    "sizes", [(3, 8, 8, 2), (17, 64, 64, 6), (5, 40, 33, 50, 1), (30, 100, 17)]
)
@pytest.mark.parametrize("path", [{}, PATH])
def test_bits_do_not_depend_on_vectors_and_threads(sizes, path):
    """With 2 threads products have panels for each, with 5 some have none."""
    form = {"sac__batch_size": 37, "sac__automatic_temperature": True, **path}
    one, *others = (
        perturbed(in_c(sizes, kind, threads, **form))
        for threads, kind in [(1, KINDS[0]), *product((1, 2, 5), KINDS)]
    )
    for step in range(3):
        losses = learn(one, step)
        assert all(learn(other, step) == losses for other in others)
    assert all(same(one.arrays(), other.arrays()) for other in others)


@pytest.mark.parametrize("make", [learner, pytest.param(partial(in_c, threads=2), marks=compiled)])
@pytest.mark.parametrize("chosen", [False, True])
def test_moments_of_a_closed_unit_come_to_zero_and_no_others(make, chosen):
    """Subnormal ones would stay, and take a core some hundred times as long."""
    sac = perturbed(make((3, 8, 8, 2)))
    sac.actor.layers[0].bias[..., 0] = -1e6
    moments = [part for adam in sac.adam.values() for part in (adam.moment1, adam.moment2)]
    for part in moments:
        part.fill_(1e-39)
    torch.set_flush_denormal(chosen)
    try:
        learn(sac)
        assert bool(np.float32(1e-39) == 0) == chosen
    finally:
        torch.set_flush_denormal(False)
    size = torch.cat(moments).abs()
    assert ((size == 0) | (size >= torch.finfo(size.dtype).tiny)).all()
    of_actor = sac.adam["actor"].moment1
    assert (of_actor == 0).sum() >= 4  # the unit's three weights and its bias
    assert (of_actor != 0).any()


@compiled
def test_threads_end_with_their_update_and_are_not_a_forks():
    before = set(os.listdir("/proc/self/task"))
    sac = in_c(threads=3)
    own = set(os.listdir("/proc/self/task")) - before
    assert len(own) == 2
    child = os.fork()
    if not child:
        del sac.update  # which would wait for threads that are not there
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    del sac.update
    assert not own & set(os.listdir("/proc/self/task"))


@compiled
def test_numbers_that_are_not_finite_stay_so():
    sac = in_c()
    fill(sac)
    sac.update.rows[3, sac.replay.columns.reward] = np.nan
    sac.update.learn_critic()
    sac.update.learn_actor()
    assert not torch.isfinite(sac.critic.values).all()
    assert not torch.isfinite(sac.target.values).all()


@compiled
@pytest.mark.parametrize("path", [{}, PATH])
def test_phases_are_those_of_torch_but_for_rounding(path):
    by_torch, in_vectors = (
        learner((1, 8, 8, 1), learner__kernels=kernels, sac__interleaved=True, **path)
        for kernels in ("torch", "compiled")
    )
    sums = np.array([[10.0], [3.0], [9.0]])
    phases = [run_phase(sac, Line(), 1, 1, 100, sums=sums) for sac in (by_torch, in_vectors)]
    assert phases[0].gradient_updates == phases[1].gradient_updates > 50
    assert in_vectors.theta == pytest.approx(by_torch.theta, rel=1e-3, abs=1e-4)


def settings(**values) -> Config:
    config = amend(Config(), {"policy.hidden": (8, 8), "learner.kernels": "auto"})
    return amend(config, {name.replace("__", "."): value for name, value in values.items()})


def kernels(learner="sac", **values):
    return resolve_auto(settings(**values), learner).learner.kernels


@pytest.mark.parametrize(
    ("learner", "form", "said"),
    [
        ("sac", {"policy__layer_norm": True}, "policy.layer_norm = false"),
        ("sac", {"policy__activation": "tanh"}, "policy.activation = relu"),
        ("sac", {"policy__hidden": ()}, "policy.hidden of 1 to 7 layers"),
        ("sac", {"sac__value_network": True}, "sac.value_network = false"),
        ("sac", {"learner__precision": "bf16"}, "learner.precision = fp32"),
        ("td3", {"algorithm": "td3"}, "algorithm = td3 has none"),
    ],
)
def test_auto_is_the_compiled_update_where_the_settings_allow_it(learner, form, said, monkeypatch):
    monkeypatch.setattr(cpu, "is_amd", lambda: False)
    assert kernels() == ("compiled" if cpu.KIND else "torch")
    assert kernels(learner, **form) == "torch"
    with pytest.raises(NoDevice, match=f"learner.kernels = compiled: .*{said}"):
        prepare(settings(learner__kernels="compiled", **form), learner)
    for named in ("torch", "mkl", "compiled"):
        assert kernels(learner__kernels=named) == named


def test_auto_leads_mkl_to_its_fast_path_on_amd(monkeypatch):
    monkeypatch.setattr(cpu, "is_amd", lambda: True)
    assert kernels(policy__activation="tanh") == "torch"  # this test has imported it
    monkeypatch.delitem(sys.modules, "torch")
    expected = "mkl" if cpu.mkl_library() else "torch"
    assert kernels(policy__activation="tanh") == expected


def test_a_cpu_of_amd_says_so(tmp_path):
    for vendor, amd in [("AuthenticAMD", True), ("GenuineIntel", False)]:
        (tmp_path / vendor).write_text(f"vendor_id\t: {vendor}\n")
        assert cpu.is_amd(tmp_path / vendor) == amd
    assert not cpu.is_amd(tmp_path / "none")


MKL = """
import ctypes
from esac_mpi.learners import NoDevice, make
from esac_mpi.config import Config, amend
from esac_mpi.operators.policy import Layout
def start(kernels):
    named = {"policy.hidden": (8, 8), "learner.kernels": kernels, "learner.device": "cpu"}
    layout = Layout((3, 8, 8, 1))
    return make("sac", amend(Config(), named), layout, layout.initial(0, 0))
"""


@pytest.mark.slow
@pytest.mark.skipif(not cpu.mkl_library(), reason="the library that answers for MKL is not built")
def test_mkl_is_answered_for_before_torch_is_imported():
    def said(line: str) -> str:
        done = finish([sys.executable, "-c", MKL + line], code=None)
        return done.stdout + done.stderr

    asked = "print(start('mkl').device_name, ctypes.CDLL(None).mkl_serv_intel_cpu_true())"
    text = said(f"{asked}; start('compiled'); start('torch')")
    assert text.startswith("cpu, MKL's fast path 1\n")
    assert "NoDevice" in text
    assert "NoDevice: learner.kernels = mkl" in said("import torch; start('mkl')")


ESAC = words("""--task.id InvertedPendulum-v5 --task.horizon 20 --policy.hidden 8 8
--esac.population-size 4 --esac.phase-timing interval --esac.gradient-interval 1
--esac.sigma_rule grow --sac.batch-size 16 --sac.start-steps 20 --policy.linear true
--evaluation.episodes 1 --evaluation.every 2""")


@compiled
def test_a_run_keeps_the_kernels_of_its_first_start(tmp_path, alone, together):
    """auto is in config.toml by name, and on other ranks a restart with it has the same bits."""
    auto, named = ([*ESAC, "--learner.kernels", kernels] for kernels in ("auto", "compiled"))
    alone("--run-dir", tmp_path / "a", *auto, "--budget.generations", 6)
    together(3, "--run-dir", tmp_path / "b", *named, "--budget.generations", 3)
    more = "--budget.generations", 6, "--learner.threads", 2  # which make the same bits
    together(2, "--run-dir", tmp_path / "b", *auto, *more)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    for name in ("a", "b"):
        found = Run.open(tmp_path / name)
        assert found.config.learner.kernels == "compiled"
        assert found.provenance["device"] == "cpu, compiled kernels"


SMALL = {"policy.hidden": (8, 8), "learner.device": "cpu", "learner.kernels": "torch"}
CORE = amend(Config(), {**SMALL, "sac.batch_size": 16, "sac.lr_sac": 1e-3})


def test_the_library_for_mkl_is_known_through_a_link(tmp_path, monkeypatch):
    """Homes of clusters are often links, and a process's map has the files themselves."""
    (tmp_path / "link").symlink_to(_kernels.__file__)
    monkeypatch.setattr(cpu, "mkl_library", lambda: tmp_path / "link")
    assert cpu.answers_for_mkl()
    monkeypatch.setattr(cpu, "mkl_library", lambda: tmp_path)
    assert not cpu.answers_for_mkl()


def test_the_check_tells_the_cores_speed_and_bfloat16s(monkeypatch, tmp_path):
    """Updates/s; bf16 where the CPU has units for it and it is faster."""
    seconds = {"fp32": 1 / 100, "bf16": 1 / 250}  # an update
    monkeypatch.setattr(check, "update_seconds", lambda c, env: seconds[c.learner.precision])
    monkeypatch.setattr(check, "SECONDS", 0.001)
    for name in check.SLOWER:
        monkeypatch.delenv(name, raising=False)
    for flags, option in [("avx2 amx_bf16", True), ("avx2", False)]:
        (tmp_path / "cpuinfo").write_text(f"flags : {flags}\n")
        (line,) = check.core(CORE, Line(), 0.01, tmp_path / "cpuinfo")
        assert "GFLOP/s" in line.found
        assert "; 100 updates/s (torch, fp32)" in line.found
        assert ("--learner.precision bf16: 250" in line.found) == option
        assert not line.remedy
    monkeypatch.setenv("MKL_CBWR", "AVX")
    (line,) = check.core(CORE, Line(), 0.01)
    assert line.remedy.startswith("unset MKL_CBWR=AVX for all ranks")
    assert not check.core(amend(CORE, {"algorithm": "es"}), Line(), 0.0)


def test_the_check_measures_updates_of_the_task_that_it_is_given(monkeypatch):
    monkeypatch.setattr(check, "SECONDS", 0.001)
    env = Line()
    assert check.update_seconds(CORE, env) > 0
    assert env.actions
