"""esac-mpi export: each form of a policy acts as the policy does; the check finds where not."""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from commands import command
from saved_policies import NORMALISER, save

from esac_mpi import Policy
from esac_mpi.operators.policy import Layout
from esac_mpi.policies import formats

export = command("export")


def exported(policy: Path, form: str, out: Path) -> Path:
    assert export.main([str(policy), "--format", form, "--out", str(out)]) == 0
    return out


OBSERVATION, ACTION = (
    np.array([1.0, 2.0], np.float32),
    1 + 2 * np.tanh(-0.75),
)  # as worked out above
# W2: twice that of THETA, as units count half, and the path
#                        W1 [2, 2]             b1 [2]      W2                              b2
UNUSED_PATH = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 1.0, -0.5, 0.0, 0.0, 0.125], np.float32)
NORMALISED = np.array(
    [3.0, 0.002], np.float32
)  # which NORMALISER makes of it: (3 - 1) / 2 = 1, 0.002 / 0.001 = 2


@pytest.mark.parametrize("normaliser", [{}, NORMALISER])
def test_npz(tmp_path, normaliser, capsys):
    p = np.load(exported(save(tmp_path / "p.h5", **normaliser), "npz", tmp_path / "p.npz"))
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'p.npz'}\nlargest difference ")
    x = np.clip((NORMALISED - p["mean"]) / p["std"], -5, 5) if normaliser else OBSERVATION
    y = np.tanh(p["W1"] @ np.maximum(p["W0"] @ x + p["b0"], 0) + p["b1"])
    assert (p["high"] + p["low"]) / 2 + (p["high"] - p["low"]) / 2 * y == pytest.approx(
        ACTION, rel=1e-5
    )
    assert (p["activation"], p["output"], p["task"]) == ("relu", "tanh", "Nowhere-v0")


@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_exported_actions_stay_in_the_bounds_where_rounding_would_leave_them(tmp_path, form):
    pytest.importorskip("torch" if form == "torchscript" else "numpy")
    low, high = np.float32(-0.7), np.float32(0.1)
    assert (high + low) / 2 + (high - low) / 2 > high
    theta = np.array([0.0, 0.0, 9.0, -9.0], np.float32)  # the same actions, whatever is observed
    policy = Policy.load(save(tmp_path / "p.h5", theta, (1, 2), bounds=(low, high), output="clip"))
    act = getattr(formats, form)(policy, tmp_path / "out")
    assert act(np.zeros((1, 1), np.float32)).tolist() == [[high, low]]


@pytest.mark.parametrize("normaliser", [{}, NORMALISER])
def test_torchscript(tmp_path, normaliser):
    torch = pytest.importorskip("torch")
    read = torch.jit.load(
        exported(save(tmp_path / "p.h5", **normaliser), "torchscript", tmp_path / "p.pt")
    )
    x = torch.from_numpy(NORMALISED if normaliser else OBSERVATION)
    assert read(x).numpy() == pytest.approx([ACTION], rel=1e-5)
    assert read(x.repeat(3, 1)).shape == (3, 1)


@pytest.mark.parametrize(
    ("activation", "output", "layer_norm", "linear"),
    [
        ("tanh", "clip", False, 0),
        ("relu", "clip", False, 3),
        ("tanh", "tanh", False, 0),
        ("tanh", "tanh", True, 0.7),
    ],
)
@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_every_activation_and_output(tmp_path, form, activation, output, layer_norm, linear):
    random = np.random.default_rng(1)
    theta = random.standard_normal(Layout((3, 5, 4, 2), layer_norm, linear).d).astype(
        np.float32
    )  # large enough to be squashed
    form_of = {
        "activation": activation,
        "output": output,
        "layer_norm": int(layer_norm),
        "linear": float(linear),
    }
    path = save(tmp_path / "p.h5", theta, (3, 5, 4, 2), **form_of)
    exported(path, form, tmp_path / "p.out")  # checked by the tool, whose check is tested below


@pytest.mark.parametrize("linear", [{}, {"theta": UNUSED_PATH, "linear": 2.0}])
def test_onnx(tmp_path, linear):
    onnx = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    policy = save(tmp_path / "p.h5", **NORMALISER, **linear)
    graph = onnx.ReferenceEvaluator(str(exported(policy, "onnx", tmp_path / "p.onnx")))
    (actions,) = graph.run(None, {"observation": np.stack([NORMALISED] * 3)})
    assert actions == pytest.approx(np.full((3, 1), ACTION), rel=1e-5)


def test_the_check_finds_a_difference(tmp_path, monkeypatch, capsys):
    path = save(tmp_path / "p.h5")  # its half range is 2
    assert formats.difference(
        Policy.load(path), lambda x: Policy.load(path)(x) + 0.02
    ) == pytest.approx(0.01, rel=1e-4)
    right = formats.npz
    monkeypatch.setitem(
        formats.FORMATS,
        "npz",
        (lambda policy, out: lambda x: right(policy, out)(x) + 1e-3, ".npz", ""),
    )
    assert export.main([str(path), "--format", "npz"]) == 1
    assert "removed: it acts otherwise, by 5.0e-04 half ranges" in capsys.readouterr().err
    assert not (tmp_path / "p.npz").exists()


def test_the_check_finds_a_difference_of_outputs_that_are_all_small(tmp_path):
    choices = np.full(8, 2.0**-16, np.float32)  # PPO's last layer in a discrete task
    policy = Policy.load(
        save(tmp_path / "p.h5", choices, (3, 2), bounds=(-1.0, 1.0), output="clip")
    )
    assert formats.difference(policy, lambda x: np.zeros((len(x), 2))) == 1.0
    assert formats.difference(policy, policy) == 0.0


def test_a_missing_library_or_folder_is_named(tmp_path, monkeypatch, capsys):
    path = save(tmp_path / "p.h5")
    for name in (
        "onnx",
        "onnx.reference",
    ):  # stand-ins, which are there until they are said to be missing
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["onnx.reference"].ReferenceEvaluator = None
    missing = [("torchscript", "torch"), ("onnx", "onnxscript"), ("onnx", "onnx.reference")]
    for form, module in missing:  # torch is missing all the while: onnx is asked for before it
        monkeypatch.setitem(
            sys.modules, module, None
        )  # which the import statement takes for missing
        assert export.main([str(path), "--format", form]) == 2
        assert capsys.readouterr().err.startswith(f"--format {form} needs {module}: pip install ")
    assert export.main([str(path), "--format", "npz", "--out", str(tmp_path / "no" / "p.npz")]) == 2
    assert "no: not a directory that can be written" in capsys.readouterr().err


def test_a_file_without_a_suffix_gets_its_formats_and_a_directory_is_no_file(tmp_path, capsys):
    path = save(tmp_path / "p.h5")
    assert export.main([str(path), "--format", "npz", "--out", str(tmp_path / "model")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'model.npz'}\n")
    assert (tmp_path / "model.npz").exists()
    assert export.main([str(path), "--format", "torchscript", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: a directory; name the file in it\n"
