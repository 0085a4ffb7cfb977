"""Policies of weights from elsewhere: written, read, begun from; as stable-baselines3 acts."""

import numpy as np
import pytest
from conftest import ROOT
from saved_policies import NORMALISER, THETA, save

from esac_mpi import Policy, train

LAYERS = [THETA[:4].reshape(2, 2), THETA[4:6], THETA[6:8].reshape(1, 2), THETA[8:]]
BOUNDS = {"low": np.array([-1.0]), "high": np.array([3.0])}


@pytest.mark.parametrize("standard", [{}, NORMALISER])
def test_a_policy_of_layers_acts_as_one_that_a_run_has_saved(tmp_path, standard):
    normaliser = tuple(standard.values()) or None
    form = {"task": "Nowhere-v0", **BOUNDS, "normaliser": normaliser, "task_kwargs": {"g": [9.8]}}
    made = Policy.create(tmp_path / "made.h5", LAYERS, **form)
    read = Policy.load(tmp_path / "made.h5")
    saved = Policy.load(save(tmp_path / "saved.h5", **standard))
    for observation in np.random.default_rng(0).standard_normal((5, 2)):
        actions = [policy(observation) for policy in (saved, made, read)]
        np.testing.assert_array_equal(actions, actions[:1] * 3)
    assert (read.task, read.kind, repr(read)) == ("Nowhere-v0", "imported", repr(made))
    assert read.task_kwargs == made.task_kwargs == {"g": [9.8]}
    assert np.isnan(read.episodic_return)


def test_the_home_directory_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    Policy.create("~/made.h5", LAYERS, **BOUNDS, task="Nowhere-v0")
    assert Policy.load("~/made.h5").path == tmp_path / "made.h5"


@pytest.mark.parametrize(
    ("layers", "changed", "message"),
    [
        (LAYERS[1:], {}, r"got \[2\] \[1, 2\] \[1\]$"),
        (LAYERS[:3], {}, r"got \[2, 2\] \[2\] \[1, 2\]$"),
        ([*LAYERS[:2], LAYERS[2].T, LAYERS[3]], {}, r"got .* \[2, 1\] \[1\]$"),
        ([], {}, "weight .* and bias .* of each"),
        ([np.float32(1)], {}, "weight .* and bias .* of each"),
        ([np.full((2, 2), np.nan), *LAYERS[1:]], {}, "layers must be finite"),
        (LAYERS, {"low": -np.ones(2)}, r"low must be finite numbers \[1\], got \[2\]"),
        (LAYERS, {"high": np.array([np.inf])}, "high must be finite"),
        (LAYERS, {"low": BOUNDS["high"]}, "low must be below high"),
        (LAYERS, {"normaliser": (np.zeros(2), np.zeros(1))}, r"normaliser must be .* \[2\]"),
        (LAYERS, {"normaliser": (np.zeros(2), np.zeros(2))}, "above 0"),
        (LAYERS, {"normaliser": (np.zeros(2),)}, "expected 2, got 1"),
        (LAYERS, {"task": None}, "task must be the id of a task, got None"),
        (LAYERS, {"task_kwargs": {"g": np.ones(2)}}, "task_kwargs must be a table"),
        (LAYERS, {"activation": "elu"}, "activation must be tanh or relu"),
        (LAYERS, {"output": "linear"}, "output must be tanh or clip"),
    ],
)
def test_what_does_not_fit_together_is_refused_and_not_written(tmp_path, layers, changed, message):
    with pytest.raises(ValueError, match=message):
        Policy.create(tmp_path / "made.h5", layers, **{"task": "Nowhere-v0", **BOUNDS, **changed})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["policy.h5", "checkpoint.h5"])
def test_a_file_of_a_run_stays(tmp_path, name):
    for file in ("run.lock", name):
        (tmp_path / file).write_text("kept")
    with pytest.raises(ValueError, match=f"{name}: a file of a run, which stays"):
        Policy.create(tmp_path / name, LAYERS, **BOUNDS, task="Nowhere-v0")
    assert (tmp_path / name).read_text() == "kept"


@pytest.mark.parametrize("library", ["SAC", "TD3", "PPO"])
def test_another_librarys_policy_acts_here_as_there(tmp_path, monkeypatch, library):
    sb3 = pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    shape = {"net_arch": [8, 8]}
    model = getattr(sb3, library)("MlpPolicy", "Hopper-v5", device="cpu", policy_kwargs=shape)
    model.save("hopper.zip")
    page = (ROOT / "docs/how-to/warm-start.md").read_text(encoding="utf-8")
    code = page.partition("```python\n# imported.py\n")[2].partition("```")[0]
    if library == "TD3":
        code = code.replace("SAC", library).replace("*actor.latent_pi.parameters(), ", "")
    if library == "PPO":
        code = code.replace("SAC", library).replace(".actor", ".policy")
        code = code.replace("latent_pi", "mlp_extractor.policy_net").replace(".mu.", ".action_net.")
        code = code.replace('"Hopper-v5")', '"Hopper-v5", activation="tanh", output="clip")')
    exec(code, {})
    policy = Policy.load("hopper.h5")
    observations = np.random.default_rng(0).normal(size=(20, 11)).astype(np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    np.testing.assert_allclose(policy(observations), expected, atol=1e-6)


NARROW = "standard deviations of observations below 0.1 (1 of them), here 0.1"


@pytest.mark.parametrize(
    ("standard", "left"), [(None, []), ((np.zeros(3), [0.1, 0.05, 1.0]), [NARROW])]
)
def test_a_run_begins_from_it(tmp_path, standard, left):
    layers = [np.full((2, 3), 0.5), np.zeros(2), np.ones((1, 2)), np.zeros(1)]
    where = tmp_path / "made.h5"
    Policy.create(where, layers, [-2.0], [2.0], "Pendulum-v1", normaliser=standard)
    settings = {
        "algorithm": "es", "task.id": "Pendulum-v1", "task.horizon": 5, "policy.hidden": [2],
        "policy.linear": False, "es.observation_normalisation": standard is not None,
        "es.population_size": 4, "es.lr_es": 1e-9, "budget.generations": 1,
    }  # fmt: skip
    run = train(None, settings, run_dir=tmp_path / "run", start_from=where, quiet=True)
    assert "imported" in run.start["policy"]
    assert [text for text in run.start["not_taken"] if "deviations" in text] == left
    theta = np.concatenate([np.ravel(layer) for layer in layers])
    np.testing.assert_allclose(Policy.load(run.path).theta, theta, atol=1e-6)
