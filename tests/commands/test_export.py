"""esac-mpi export: each form of a policy acts as the policy does; the check finds where not."""

import numpy as np
import pytest
from saved_policies import NORMALISER, save

from esac_mpi import Policy
from esac_mpi.operators.policy import Layout
from esac_mpi.policies import formats


@pytest.fixture
def exported(call):
    def path(policy, form, out):
        call("export", policy, "--format", form, "--out", out)
        return out

    return path


OBSERVATION = np.array([1.0, 2.0], np.float32)
ACTION = 1 + 2 * np.tanh(-0.75)
# W2: twice that of THETA, as units count half, and the path
#                        W1 [2, 2]             b1 [2]      W2                              b2
UNUSED_PATH = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 1.0, -0.5, 0.0, 0.0, 0.125], np.float32)
# which NORMALISER makes OBSERVATION: (3 - 1) / 2 = 1, 0.002 / 0.001 = 2
NORMALISED = np.array([3.0, 0.002], np.float32)


@pytest.mark.parametrize("normaliser", [{}, NORMALISER])
def test_npz(tmp_path, normaliser, call):
    policy = save(tmp_path / "p.h5", **normaliser)
    said = call("export", policy, "--format", "npz", "--out", tmp_path / "p.npz").out
    assert said.startswith(f"{tmp_path / 'p.npz'}\nlargest difference ")
    p = np.load(tmp_path / "p.npz")
    x = np.clip((NORMALISED - p["mean"]) / p["std"], -5, 5) if normaliser else OBSERVATION
    y = np.tanh(p["W1"] @ np.maximum(p["W0"] @ x + p["b0"], 0) + p["b1"])
    action = (p["high"] + p["low"]) / 2 + (p["high"] - p["low"]) / 2 * y
    assert action == pytest.approx(ACTION, rel=1e-5)
    assert (p["activation"], p["output"], p["task"]) == ("relu", "tanh", "Nowhere-v0")


@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_a_full_disk_is_one_sentence(tmp_path, form, call):
    pytest.importorskip("torch" if form == "torchscript" else "numpy")
    out = tmp_path / "p.out"
    out.symlink_to("/dev/full")
    said = call("export", save(tmp_path / "p.h5"), "--format", form, "--out", out, code=74).err
    assert said == "what was being written: No space left on device; choose another --out\n"


def test_links_in_a_circle_are_no_run(tmp_path, call):
    (tmp_path / "circle").symlink_to("circle")
    said = call("export", tmp_path / "circle", "--format", "csv", code=2).err
    assert said == f"{tmp_path / 'circle'}: not a run directory of esac_mpi\n"


@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_exported_actions_stay_in_the_bounds(tmp_path, form):
    pytest.importorskip("torch" if form == "torchscript" else "numpy")
    low, high = np.float32(-0.7), np.float32(0.1)
    assert (high + low) / 2 + (high - low) / 2 > high
    theta = np.array([0.0, 0.0, 9.0, -9.0], np.float32)  # the same actions, whatever is observed
    policy = Policy.load(save(tmp_path / "p.h5", theta, (1, 2), bounds=(low, high), output="clip"))
    act = getattr(formats, form)(policy, tmp_path / "out")
    assert act(np.zeros((1, 1), np.float32)).tolist() == [[high, low]]


@pytest.mark.parametrize("normaliser", [{}, NORMALISER])
def test_torchscript(tmp_path, normaliser, exported):
    torch = pytest.importorskip("torch")
    policy = save(tmp_path / "p.h5", **normaliser)
    read = torch.jit.load(exported(policy, "torchscript", tmp_path / "p.pt"))
    x = torch.from_numpy(NORMALISED if normaliser else OBSERVATION)
    assert read(x).numpy() == pytest.approx([ACTION], rel=1e-5)
    assert read(x.repeat(3, 1)).shape == (3, 1)


FORMS = [  # activation, output, layer_norm, linear
    ("tanh", "clip", 0, 0.0), ("relu", "clip", 0, 3.0), ("tanh", "tanh", 0, 0.0),
    ("tanh", "tanh", 1, 0.7),
]  # fmt: skip


@pytest.mark.parametrize("names", FORMS)
@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_every_activation_and_output(tmp_path, form, names, exported):
    about = dict(zip(("activation", "output", "layer_norm", "linear"), names, strict=True))
    sizes = (3, 5, 4, 2)
    d = Layout(sizes, bool(about["layer_norm"]), about["linear"]).d
    # large enough to be squashed
    theta = np.random.default_rng(1).standard_normal(d).astype(np.float32)
    path = save(tmp_path / "p.h5", theta, sizes, **about)
    exported(path, form, tmp_path / "p.out")  # checked by the tool, whose check is tested below


@pytest.mark.parametrize("linear", [{}, {"theta": UNUSED_PATH, "linear": 2.0}])
def test_onnx(tmp_path, linear, exported):
    onnx = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    policy = save(tmp_path / "p.h5", **NORMALISER, **linear)
    graph = onnx.ReferenceEvaluator(str(exported(policy, "onnx", tmp_path / "p.onnx")))
    (actions,) = graph.run(None, {"observation": np.stack([NORMALISED] * 3)})
    assert actions == pytest.approx(np.full((3, 1), ACTION), rel=1e-5)


def test_the_check_finds_a_difference(tmp_path, monkeypatch, call):
    path = save(tmp_path / "p.h5")  # its half range is 2
    policy = Policy.load(path)
    off = formats.difference(policy, lambda x: Policy.load(path)(x) + 0.02)
    assert off == pytest.approx(0.01, rel=1e-4)
    right = formats.npz

    def wrong(policy, out):
        return lambda x: right(policy, out)(x) + 1e-3

    monkeypatch.setitem(formats.FORMATS, "npz", (wrong, ".npz"))
    (tmp_path / "before.npz").write_text("before")
    for out in ("p.npz", "before.npz"):
        line = "export", path, "--format", "npz", "--out", tmp_path / out
        assert "removed: it acts otherwise, by 5.0e-04 half ranges" in call(*line, code=1).err
    assert {file.name for file in tmp_path.iterdir()} == {"p.h5", "before.npz"}
    assert (tmp_path / "before.npz").read_text() == "before"


def test_the_check_finds_a_difference_of_outputs_that_are_small(tmp_path):
    choices = np.full(8, 2.0**-16, np.float32)  # PPO's last layer in a discrete task
    path = save(tmp_path / "p.h5", choices, (3, 2), bounds=(-1.0, 1.0), output="clip")
    policy = Policy.load(path)
    assert formats.difference(policy, lambda x: np.zeros((len(x), 2))) == 1.0
    assert formats.difference(policy, policy) == 0.0


@pytest.mark.parametrize(
    ("sizes", "bounds"), [((3, 64, 64, 2), (-1.0, 1.0)), ((3, 5, 2), (299.9, 300.1))]
)
def test_what_float32_costs_is_allowed(tmp_path, sizes, bounds, exported):
    """With large weights, and for an action of a narrow range far from 0."""
    theta = 5 * np.random.default_rng(1).standard_normal(Layout(sizes).d).astype(np.float32)
    path = save(tmp_path / "p.h5", theta, sizes, bounds=bounds)
    exported(path, "npz", tmp_path / "p.npz")
    policy = Policy.load(path)
    next_one = formats.difference(policy, lambda x: np.nextafter(policy(x), np.float32(1e3)))
    other = formats.difference(policy, lambda x: policy(1.01 * x))
    assert next_one < formats.allowed(policy) < other
    assert formats.allowed(policy) > formats.TOLERANCE


def test_where_a_policy_is_written_is_made_or_named(tmp_path, call):
    path = save(tmp_path / "p.h5")
    before = path.read_bytes()
    call("export", path, "--format", "npz", "--out", tmp_path / "no/p.npz")
    assert (tmp_path / "no/p.npz").exists()
    for out, said in (
        (path / "p.npz", f"{path}: File exists; choose another --out"),
        (tmp_path, f"{tmp_path}: a directory; name the file in it"),
        (path, f"{path}: the policy itself, which stays; choose another --out"),
        ("o.h5", "--out o.h5: the name of another format; this one's is .npz"),
        ("o.ONNX", "--out o.ONNX: the name of another format; this one's is .npz"),
    ):
        assert call("export", path, "--format=npz", "--out", out, code=2).err == f"{said}\n"
    assert path.read_bytes() == before


def test_a_file_without_a_suffix_gets_its_formats(tmp_path, exported):
    exported(save(tmp_path / "p.h5"), "npz", tmp_path / "model")
    assert (tmp_path / "model.npz").exists()
