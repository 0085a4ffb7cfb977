"""A policy taken home: loaded without the training stack, evaluated, exported, shown."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from commands import command
from conftest import ROOT, environment, run

from esac_mpi import Policy, envs, job, policy
from esac_mpi.config import Config
from esac_mpi.counters import Best
from esac_mpi.noise import Purpose, integer
from esac_mpi.policies import formats, posture, ranks, recovery, stage
from esac_mpi.policy import Layout
from esac_mpi.record import Run, Unreadable
from esac_mpi.record.files import publish
from esac_mpi.rollout import play

evaluate, export, render = command("evaluate"), command("export"), command("render")

#                  W1 [2, 2]             b1 [2]      W2 [1, 2]  b2
THETA = np.array([1.0, -1.0, 0.5, 2.0, 0.25, -1.0, 0.5, -0.25, 0.125], np.float32)
NORMALISER = {"normaliser_mean": np.array([1.0, 0.0], np.float32), "normaliser_std": np.array([2.0, 0.001], np.float32)}
STACK = ("mpi4py", "torch", "gymnasium", "mujoco", "dm_control", "tyro", "rich", "pandas", "matplotlib")


def save(path: Path, theta=THETA, sizes=(2, 2, 1), task="Nowhere-v0", bounds=(-1.0, 3.0), **about) -> Path:
    """Write a policy file as a run does."""
    low, high = (np.full(sizes[-1], bound, np.float32) for bound in bounds)
    made = {"policy": "sac", "generation": 7, "episodic_return": 12.5, "versions": "numpy 2"}
    known = {"sizes": np.array(sizes), "task": task, "low": low, "high": high, "activation": "relu", "output": "tanh"}
    publish(path, {"theta": theta}, {**made, **known, **about})
    return path


def constant(path: Path, task: str, actions, low=-1.0, high=1.0) -> Path:
    """Write a policy that takes the same action, in [-1, 1], whatever it observes."""
    size = envs.make(task).observation_size
    theta = np.concatenate([np.zeros(size * len(actions)), actions]).astype(np.float32)
    return save(path, theta, (size, len(actions)), task, (low, high), output="clip")


def tool(name, *arguments, code=0, **variables):
    """Run a tool as a user does."""
    line = [sys.executable, ROOT / "tools" / f"{name}.py", *arguments]
    done = subprocess.run(
        [*map(str, line)], env=environment() | variables, capture_output=True, text=True, timeout=200, check=False
    )
    assert code is None or done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def hidden(folder: Path, *modules: str) -> str:
    """Return a PYTHONPATH on which these modules cannot be imported."""
    for name in modules:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')")
    return f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"


# Loading


def test_three_lines_need_numpy_and_h5py_alone(tmp_path):
    path = save(tmp_path / "policy.h5")
    code = f"""
import sys
import esac_mpi
assert not sys.modules.keys() & {{"numpy", "h5py"}}, "importing the package alone must stay cheap"
from esac_mpi import Policy; policy = Policy.load({str(path)!r}); print(policy([1.0, 2.0])[0])
loaded = {{name.split(".")[0] for name in sys.modules}}
assert not loaded & {{*{STACK!r}, "scipy"}}, loaded
"""
    blocked = environment() | {"PYTHONPATH": hidden(tmp_path / "hidden", *STACK)}
    done = subprocess.run([sys.executable, "-c", code], env=blocked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # hidden: relu(1 - 2 + .25) = 0, relu(.5 + 4 - 1) = 3.5; out: tanh(-.25 * 3.5 + .125); bounds -1 and 3
    assert float(done.stdout) == pytest.approx(1 + 2 * np.tanh(-0.75), rel=1e-6)


def test_it_says_what_it_is(tmp_path):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    assert (policy.task, policy.kind, policy.generation, policy.episodic_return) == ("Nowhere-v0", "sac", 7, 12.5)
    assert policy.path == tmp_path / "policy.h5"
    assert repr(policy) == "Policy(Nowhere-v0, return 12.5, sac of generation 7, 2-2-1 relu tanh)"


def test_a_run_directory_will_do(tmp_path):
    save(tmp_path / "policy.h5")
    np.testing.assert_array_equal(Policy.load(str(tmp_path)).theta, THETA)


def test_what_a_run_saved_is_what_it_reports(tmp_path):
    settings = ["--algorithm", "es", "--task.id", "CyclicMDP-v0", "--task.horizon", 40, "--policy.hidden", 8, "--es.sigma", 0.3]
    run(
        0,
        *settings,
        "--es.population_size",
        10,
        "--budget.generations",
        6,
        "--evaluation.every",
        3,
        "--run-dir",
        tmp_path / "run",
    )
    policy, status = Policy.load(tmp_path / "run"), json.loads((tmp_path / "run/status.json").read_text())
    assert policy.episodic_return == status["best_return"]
    assert play(envs.make("CyclicMDP-v0", 40), policy, 0).episodic_return == policy.episodic_return  # every start is the same


def test_the_normaliser_comes_along(tmp_path):
    plain, normalised = Policy.load(save(tmp_path / "a.h5")), Policy.load(save(tmp_path / "b.h5", **NORMALISER))
    np.testing.assert_array_equal(normalised(np.array([5.0, -3.0])), plain(np.array([2.0, -5.0])))


def test_a_normaliser_of_many_observations_is_written_and_comes_back(tmp_path):
    size = 20_000  # two float32 vectors of them are more than an HDF5 attribute holds
    layout, seen = Layout((size, 1)), np.array([[0.5], [2.0]], np.float32).repeat(size, 1)
    theta = np.zeros(layout.d, np.float32)
    plain = policy.Policy(layout, "relu", "tanh", np.array([-1.0]), np.array([1.0]))
    run = Run.begin(tmp_path, Config(), {})
    job.save_policy(SimpleNamespace(run=run, policy=plain, config=Config()), Best(1.0, 2, "theta_es", theta, seen))
    run.close()
    loaded = Policy.load(tmp_path)
    np.testing.assert_array_equal([loaded.normaliser.mean, loaded.normaliser.std], seen)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_observations_get_the_bits_that_each_gets_alone(tmp_path, dtype):
    policy = Policy.load(save(tmp_path / "policy.h5", **NORMALISER))
    observations = np.random.default_rng(0).standard_normal((5, 2)).astype(dtype)
    actions = policy(observations)
    assert actions.shape == (5, 1)
    assert actions.dtype == np.float32
    np.testing.assert_array_equal(actions, [policy(row) for row in observations])
    assert policy(observations[:0]).shape == (0, 1)


@pytest.mark.parametrize(
    "wrong", [np.zeros(3), np.zeros((2, 3)), np.zeros((1, 1, 2)), np.float64(1.0), [1, 2], np.zeros((2, 2), int)]
)
def test_a_wrong_observation_is_refused(tmp_path, wrong):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    with pytest.raises(ValueError, match=r"must be float32 or float64 \[2\], or \[m, 2\] for many; got (float|int)64 \["):
        policy(wrong)


def foreign(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["theta"] = THETA


WRONG = {
    "truncated": lambda path: path.write_bytes(save(path).read_bytes()[:-100]),
    "not a file of esac_mpi": foreign,
    "No such file": lambda path: None,
    "not a policy: it has no .*theta": lambda path: publish(path, {"metrics/sigma": np.zeros(3)}, {"generation": 3}),
    r"theta must be float32 \[9\], got float32 \[8\]": lambda path: save(path, THETA[:-1]),
    r"low must be \[1\], got \[3\]": lambda path: save(path, low=np.zeros(3)),
    "output must be tanh or clip, got softmax": lambda path: save(path, output="softmax"),
    "activation must be relu or tanh, got gelu": lambda path: save(path, activation="gelu"),
    r"normaliser_mean must be \[2\], got \[3\]": lambda path: save(path, **{name: np.ones(3, np.float32) for name in NORMALISER}),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_a_policy_is_refused_in_a_sentence(tmp_path, message):
    path = tmp_path / "policy.h5"
    WRONG[message](path)
    with pytest.raises(Unreadable, match=message) as caught:
        Policy.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_policy_is_refused(tmp_path):
    with pytest.raises(Unreadable, match=r"no policy\.h5 in it"):
        Policy.load(tmp_path)


# Evaluating


@pytest.fixture
def evaluated(capsys):
    """Evaluate in this process; return the JSON object."""

    def made(*arguments) -> dict:
        assert evaluate.main([*map(str, arguments), "--json"], ranks.Alone()) == 0
        return json.loads(capsys.readouterr().out)

    return made


def test_statistics():
    found = evaluate.statistics(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 100.0]))
    # the middle half is 3, 4, 5, 6; deviations from the mean 16 are -15 .. -9 and 84
    assert (found["mean"], found["median"], found["iqm"], found["worst"], found["best"]) == (16.0, 4.5, 4.5, 1.0, 100.0)
    assert found["std"] == pytest.approx(np.sqrt((15**2 + 14**2 + 13**2 + 12**2 + 11**2 + 10**2 + 9**2 + 84**2) / 7))
    # the mean of eight draws: without the 100, seldom below 2.5; 3 or more of it, (300 + 5 * 4) / 8 = 40, in 7 % of the cases
    low, high = found["interval"]
    assert 2.0 < low < 4.5
    assert 35.0 < high < 65.0
    assert found["iqm_interval"][0] < 4.5 < found["iqm_interval"][1]


def test_two_values_have_themselves_as_interval():
    assert evaluate.statistics(np.array([0.0, 1.0]))["interval"] == [0.0, 1.0]  # a quarter of the draws each


def test_one_episode_has_no_interval_and_an_unstable_one_no_mean():
    one = evaluate.statistics(np.array([3.0]))
    assert (one["mean"], one["interval"], one["std"], one["iqm_interval"]) == (3.0, None, None, None)
    assert set(evaluate.statistics(np.array([1.0, np.nan])).values()) == {None}


def test_returns_of_a_task_that_is_worked_out_by_hand(tmp_path, evaluated):
    always = constant(tmp_path / "a.h5", "CyclicMDP-v0", [0.0, 1.0, 0.0])  # clockwise: +1 a step, 2000 steps
    never = constant(tmp_path / "b.h5", "CyclicMDP-v0", [1.0, 0.0, 0.0])  # -1, and the episode ends
    found = evaluated(always, "--episodes", 3)
    assert (found["returns"], found["lengths"], found["std"]) == ([2000.0] * 3, [2000] * 3, 0.0)
    assert evaluated(always, "--episodes", 1, "--horizon", 40)["mean"] == 40.0
    assert evaluated(never, "--episodes", 2)["lengths"] == [1, 1]


@pytest.fixture
def own(monkeypatch, tmp_path):
    """Make the tests' own environments known, whose starts and ends are random."""
    monkeypatch.setenv("COUNT_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    return constant(tmp_path / "walk.h5", "own_envs:Counting-v0", [0.1, -0.3], -2.0, 2.0)


def test_the_numbers_do_not_depend_on_the_ranks_nor_on_mpi(tmp_path, own):
    options = [own, "--episodes", 7, "--seed", 5, "--json"]
    one = json.loads(tool("evaluate", *options, PYTHONPATH=hidden(tmp_path / "hidden", "mpi4py", "torch")).stdout)
    mpirun = Path(sys.executable).parent / "mpirun"
    line = [mpirun if mpirun.exists() else "mpirun", "-n", 3, sys.executable, ROOT / "tools/evaluate.py", *options]
    done = subprocess.run([*map(str, line)], env=environment(), capture_output=True, text=True, timeout=200, check=True)
    three = json.loads(done.stdout)  # one object: the other ranks are silent
    assert (one.pop("ranks"), three.pop("ranks")) == (1, 3)
    assert one == three
    env, policy = envs.make("own_envs:Counting-v0"), Policy.load(own)
    played = [play(env, policy, integer(5, Purpose.EVALUATION, 0, block=i)) for i in range(7)]
    assert one["returns"] == [episode.episodic_return for episode in played]
    assert len(set(one["lengths"])) > 1


def test_a_task_of_the_current_directory_is_found_as_in_training(tmp_path, own, monkeypatch):
    (tmp_path / "arm.py").write_text((ROOT / "tests/own_envs.py").read_text().replace("own_envs:", "arm:"))
    policy = save(tmp_path / "arm.h5", np.zeros(8, np.float32), (3, 2), "arm:Breaking-v0", (-2.0, 2.0))
    monkeypatch.chdir(tmp_path)
    assert "episodes, seed 0" in tool("evaluate", policy, "--episodes", 2, PYTHONPATH=str(ROOT)).stdout
    assert "arm:Breaking-v0 has no picture" in tool("render", policy, code=2, PYTHONPATH=str(ROOT)).stderr
    monkeypatch.chdir(ROOT)
    lost = tool("evaluate", policy, code=2, PYTHONPATH=str(ROOT)).stderr
    assert f"arm:Breaking-v0 cannot be made: No module named 'arm' in the current directory ({ROOT}) or on PYTHONPATH" in lost


def test_unstable_episodes_are_counted(tmp_path, own, evaluated, capsys):
    path = constant(tmp_path / "policy.h5", "own_envs:Breaking-v0", [0.1, -0.3], -2.0, 2.0)
    found = evaluated(path, "--episodes", 60)
    assert found["unstable"] == found["returns"].count(None) > 0
    assert found["mean"] is None
    evaluate.main([str(path), "--episodes", "60"], ranks.Alone())
    assert f"unstable in {found['unstable']} of 60 episodes: no mean of all can be given" in capsys.readouterr().out


def test_a_misfit_is_named(tmp_path, own, capsys):
    for task, message in {
        "CyclicMDP-v0": "CyclicMDP-v0 has 3 observations and 3 actions, this policy of own_envs:Counting-v0 3 and 2",
        "Hoper-v5": "Did you mean 'Hopper-v5'?",
    }.items():
        assert evaluate.main([str(own), "--task", task], ranks.Alone()) == 2
        assert message in capsys.readouterr().err
    for low, high in ((-3.0, 2.0), (-2.0, 3.0)):
        wide = constant(tmp_path / "wide.h5", "own_envs:Counting-v0", [0.0, 0.0], low, high)
        assert evaluate.main([str(wide)], ranks.Alone()) == 2
        assert "actions of own_envs:Counting-v0 are in [-2. -2.] to [2. 2.]" in capsys.readouterr().err
    assert evaluate.main([str(ROOT / "README.md")], ranks.Alone()) == 65
    assert "not a file of esac_mpi" in capsys.readouterr().err


# Exporting


def exported(policy: Path, form: str, out: Path) -> Path:
    assert export.main([str(policy), "--format", form, "--out", str(out)]) == 0
    return out


OBSERVATION, ACTION = np.array([1.0, 2.0], np.float32), 1 + 2 * np.tanh(-0.75)  # as worked out above
NORMALISED = np.array([3.0, 0.002], np.float32)  # which NORMALISER makes of it: (3 - 1) / 2 = 1, 0.002 / 0.001 = 2


@pytest.mark.parametrize("normaliser", [{}, NORMALISER])
def test_npz(tmp_path, normaliser, capsys):
    p = np.load(exported(save(tmp_path / "p.h5", **normaliser), "npz", tmp_path / "p.npz"))
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'p.npz'}\nlargest difference ")
    x = np.clip((NORMALISED - p["mean"]) / p["std"], -5, 5) if normaliser else OBSERVATION
    y = np.tanh(p["W1"] @ np.maximum(p["W0"] @ x + p["b0"], 0) + p["b1"])
    assert (p["high"] + p["low"]) / 2 + (p["high"] - p["low"]) / 2 * y == pytest.approx(ACTION, rel=1e-5)
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
    read = torch.jit.load(exported(save(tmp_path / "p.h5", **normaliser), "torchscript", tmp_path / "p.pt"))
    x = torch.from_numpy(NORMALISED if normaliser else OBSERVATION)
    assert read(x).numpy() == pytest.approx([ACTION], rel=1e-5)
    assert read(x.repeat(3, 1)).shape == (3, 1)


@pytest.mark.parametrize(("activation", "output"), [("tanh", "clip"), ("relu", "clip"), ("tanh", "tanh")])
@pytest.mark.parametrize("form", ["npz", "torchscript"])
def test_every_activation_and_output(tmp_path, form, activation, output):
    random = np.random.default_rng(1)
    theta = random.standard_normal(Layout((3, 5, 4, 2)).d).astype(np.float32)  # large enough to be squashed
    path = save(tmp_path / "p.h5", theta, (3, 5, 4, 2), activation=activation, output=output)
    exported(path, form, tmp_path / "p.out")  # checked by the tool, whose check is tested below


def test_sb3(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.SAC.load(exported(save(tmp_path / "p.h5"), "sb3", tmp_path / "p.zip"), device="cpu")
    assert model.predict(OBSERVATION, deterministic=True)[0] == pytest.approx([ACTION], rel=1e-5)
    assert model.predict(OBSERVATION, deterministic=False)[0] == pytest.approx([ACTION], rel=1e-5)
    assert (model.action_space.low, model.action_space.high) == (-1.0, 3.0)


def test_onnx(tmp_path):
    onnx = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    graph = onnx.ReferenceEvaluator(str(exported(save(tmp_path / "p.h5", **NORMALISER), "onnx", tmp_path / "p.onnx")))
    (actions,) = graph.run(None, {"observation": np.stack([NORMALISED] * 3)})
    assert actions == pytest.approx(np.full((3, 1), ACTION), rel=1e-5)


@pytest.mark.parametrize("about", [{"output": "clip"}, NORMALISER])
def test_what_sb3_cannot_do_is_said(tmp_path, about, capsys):
    assert export.main([str(save(tmp_path / "p.h5", **about)), "--format", "sb3"]) == 2
    assert "which stable-baselines3's SAC does not" in capsys.readouterr().err
    assert not (tmp_path / "p.zip").exists()


def test_the_check_finds_a_difference(tmp_path, monkeypatch, capsys):
    path = save(tmp_path / "p.h5")  # its half range is 2
    assert formats.difference(Policy.load(path), lambda x: Policy.load(path)(x) + 0.02) == pytest.approx(0.01, rel=1e-4)
    right = formats.npz
    monkeypatch.setitem(formats.FORMATS, "npz", (lambda policy, out: lambda x: right(policy, out)(x) + 1e-3, ".npz", ""))
    assert export.main([str(path), "--format", "npz"]) == 1
    assert "removed: it acts otherwise, by 5.0e-04 half ranges" in capsys.readouterr().err
    assert not (tmp_path / "p.npz").exists()


def test_the_check_finds_a_difference_of_outputs_that_are_all_small(tmp_path):
    choices = np.full(8, 2.0**-16, np.float32)  # PPO's last layer in a discrete task
    policy = Policy.load(save(tmp_path / "p.h5", choices, (3, 2), bounds=(-1.0, 1.0), output="clip"))
    assert formats.difference(policy, lambda x: np.zeros((len(x), 2))) == 1.0
    assert formats.difference(policy, policy) == 0.0


def test_a_missing_library_or_folder_is_named(tmp_path, monkeypatch, capsys):
    path = save(tmp_path / "p.h5")
    for form, module in (("torchscript", "torch"), ("onnx", "torch"), ("sb3", "stable_baselines3")):
        monkeypatch.setitem(sys.modules, module, None)  # which the import statement takes for missing
        assert export.main([str(path), "--format", form]) == 2
        assert capsys.readouterr().err.startswith(f"--format {form} needs {module}: pip install ")
    assert export.main([str(path), "--format", "npz", "--out", str(tmp_path / "no" / "p.npz")]) == 2
    assert "no: not a directory that can be written" in capsys.readouterr().err


# Showing


def trial(lean, height) -> recovery.Trial:
    """Return a trial that ends upright: what is given, then 0 degrees at full height."""
    rest = recovery.WINDOW + 1 - len(lean)
    return recovery.Trial(np.array([*lean, *[0.0] * rest]), np.array([*height, *[1.0] * rest]))


def test_when_balance_is_back():
    assert trial([30, 25, 19, 10], [1.0, 1.0, 1.0, 1.0]).back == 2
    assert trial([30, 10, -20, 10], [1.0, 1.0, 1.0, 0.79]).back == 4  # lean to the other side, then a low body
    assert trial([10], [1.0]).back == 0
    assert recovery.Trial(np.full(101, 25.0), np.ones(101)).back is None
    assert recovery.Trial(np.r_[np.zeros(100), 25.0], np.ones(101)).back is None  # it leans at the end
    assert recovery.Trial(np.zeros(51), np.ones(51)).back is None  # terminated


def test_kinds_and_verdict():
    feet, fell = trial([30, 25], [0.9, 0.6]), trial([30, 90, 30], [0.9, 0.49, 0.7])
    lost = recovery.Trial(np.full(101, 90.0), np.full(101, 0.1))
    assert [t.kind for t in (feet, fell, lost)] == list(recovery.KINDS)
    assert recovery.verdict([feet, fell, feet, lost], 30.0, 0.025) == (
        "30 degrees: balance back in 3 of 4 trials (75%), after 2 steps (0.05 s) in the median; without a fall in 2 of 2 forward "
        "and 0 of 2 backward"
    )


VERTICAL = {"Hopper-v5": 1, "Walker2d-v5": 1, "Humanoid-v5": 2, "dm_control/walker-walk-v0": 0}  # where the height is in qpos


@pytest.mark.parametrize("task", VERTICAL)
@pytest.mark.parametrize("degrees", [25.0, -25.0])
def test_a_tilted_start_leans_on_the_floor(task, degrees):
    env = envs.make(task)
    body = posture.Body(env)
    env.reset(1)
    observation = body.tilt(degrees, np.random.default_rng(0))
    assert body.posture()[0] == pytest.approx(degrees)
    model, simulated = stage.simulator(env)
    assert not simulated.qvel.any()
    simulated.qpos[VERTICAL[task]] -= 0.002  # that much deeper, it is that deep in the floor
    import mujoco

    mujoco.mj_forward(model, simulated)
    assert simulated.contact.dist[: simulated.ncon].min() == pytest.approx(-0.002, abs=1e-4)
    if task in ("Hopper-v5", "Walker2d-v5"):
        assert observation[1] == pytest.approx(np.radians(degrees), rel=1e-5)  # their second number is the root's angle
    again = observation.copy()
    env.reset(2)
    np.testing.assert_array_equal(body.tilt(degrees, np.random.default_rng(0)), again)
    assert (body.tilt(degrees, np.random.default_rng(1)) != again).any()


def test_the_simulator_shown_is_the_one_that_is_stepped():
    for task, place in {"Hopper-v5": slice(1, None), "dm_control/cheetah-run-v0": slice(1, None)}.items():
        env = envs.make(task)
        env.reset(3)
        for _ in range(5):
            observation, *_ = env.step(env.high)
        position = stage.simulator(env)[1].qpos[place]
        np.testing.assert_array_equal(observation[: len(position)], position.astype(np.float32))


def test_a_watched_episode_is_the_episode(tmp_path):
    env, policy = envs.make("Hopper-v5"), Policy.load(constant(tmp_path / "p.h5", "Hopper-v5", [0.1, 0.2, -0.1]))
    seen = []
    watched = play(stage.Watched(env, lambda *now: seen.append(now)), policy, 4)
    assert watched == play(env, policy, 4)
    assert seen[0] == (0, 0.0)
    assert seen[-1] == (watched.episodic_length, watched.episodic_return)


def test_trials_start_forward_and_backward_and_repeat_themselves(tmp_path):
    env, policy = envs.make("Hopper-v5"), Policy.load(constant(tmp_path / "p.h5", "Hopper-v5", [0.0, 0.0, 0.0]))
    found = recovery.trials(env, policy, 4, 15.0, 0)
    assert [t.lean[0] for t in found] == pytest.approx([15.0, -15.0, 15.0, -15.0])
    assert {t.kind for t in found} == {"did not come back"}  # the task ends there at 0.2 rad
    again = recovery.trials(env, policy, 2, 15.0, 0)[1]
    np.testing.assert_array_equal(again.lean, found[1].lean)
    assert found[3].height[0] != found[1].height[0]  # other joints


def test_what_cannot_be_tilted_is_said(tmp_path, capsys):
    for task, message in {"CyclicMDP-v0": "not a MuJoCo task", "Reacher-v5": "nothing to tilt"}.items():
        size = envs.make(task).action_size
        path = constant(tmp_path / "p.h5", task, [0.0] * size)
        assert render.main([str(path), "--trials", "2"]) == 2
        assert message in capsys.readouterr().err


def test_a_task_whose_observation_is_another_is_not_tilted(monkeypatch):
    env = envs.make("Hopper-v5")
    monkeypatch.setattr(stage.library(env), "_get_obs", lambda: np.zeros(11))
    reset = env.reset
    monkeypatch.setattr(env, "reset", lambda seed: reset(seed) + 1)  # as a wrapper might
    with pytest.raises(stage.NoTilt, match="of a state that was set is not known"):
        posture.Body(env)


def test_the_posture_picture(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = constant(tmp_path / "p.h5", "Hopper-v5", [0.0, 0.0, 0.0])
    assert render.main([str(path), "--trials", "2", "--degrees", "15"]) == 0
    line, *pictures = capsys.readouterr().out.splitlines()
    assert line == "15 degrees: balance back in 0 of 2 trials (0%); without a fall in 0 of 1 forward and 0 of 1 backward"
    assert pictures == [str(tmp_path / "trials.png"), str(tmp_path / "trials.pdf")]
    assert 10_000 < (tmp_path / "trials.png").stat().st_size < 200_000
    assert (tmp_path / "trials.pdf").read_bytes().startswith(b"%PDF")


def test_without_opengl_the_packages_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "nothing")
    assert render.main([str(constant(tmp_path / "p.h5", "InvertedPendulum-v5", [0.0], -3.0, 3.0)), "--seconds", "0.1"]) == 2
    assert "apt-get install libosmesa6" in capsys.readouterr().err


def test_a_task_without_pictures_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    assert render.main([str(constant(tmp_path / "c.h5", "CyclicMDP-v0", [0.0, 0.0, 0.0]))]) == 2
    assert capsys.readouterr().err == "CyclicMDP-v0 has no picture\n"


@pytest.mark.parametrize(
    "wrong", [["--video", "a.avi"], ["--out", "a.pdf"], ["--trials", "2", "--out", "a.jpg"], ["--frames", "0"]]
)
def test_wrong_options_are_named(wrong, capsys):
    with pytest.raises(SystemExit) as end:
        render.main(["policy.h5", *wrong])
    assert end.value.code == 2
    assert f"{wrong[-1]}: the name must end in ." in (error := capsys.readouterr().err) or "--frames must be at least 1" in error


def test_strip_and_film(tmp_path):
    image = pytest.importorskip("PIL.Image")
    path = constant(tmp_path / "p.h5", "InvertedPendulum-v5", [0.0], -3.0, 3.0)  # 0.04 s a step
    film, strip = tmp_path / "film.gif", tmp_path / "strip.png"
    shown = ["--start", "tilted", "--degrees", 5, "--seconds", 0.2, "--frames", 3, "--video", film]
    done = tool("render", path, *shown, code=None)
    if "No offscreen OpenGL" in done.stderr:
        pytest.skip("no offscreen OpenGL on this machine")
    assert done.stdout.split() == [str(strip), str(film)]
    with image.open(strip) as picture:
        assert picture.size == (3 * 320 + 2 * render.GAP, 320)
        first, last = (np.asarray(picture.convert("L"))[:, i : i + 320].astype(int) for i in (0, 648))
    assert np.abs(first[:280] - last[:280]).max() > 50  # it has moved, apart from the text
    with image.open(film) as moving:
        assert moving.n_frames == 6  # the start and five steps
        assert moving.info["duration"] == 40


def test_strip_of_a_box2d_task(tmp_path, monkeypatch):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(stage, "choose_gl", lambda: None)  # it needs none
    path = constant(tmp_path / "p.h5", "LunarLanderContinuous-v3", [0.0, 0.0])
    assert render.main([str(path), "--seconds", "1", "--frames", "2"]) == 0
    with image.open(tmp_path / "strip.png") as picture:
        assert picture.size == (2 * 480 + render.GAP, 320)  # 600 x 400 in the height of a strip


def test_a_file_that_is_no_policy_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    (tmp_path / "policy.h5").write_bytes(b"no")
    name = str(tmp_path)
    codes = evaluate.main([name], ranks.Alone()), export.main([name, "--format", "npz"]), render.main([name])
    assert codes == (65, 65, 65)
    sentence = f"{tmp_path / 'policy.h5'}: not a file of esac_mpi, or its first bytes are damaged (2 bytes)\n"
    assert capsys.readouterr().err == 3 * sentence
