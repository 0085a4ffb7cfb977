"""A policy taken home: loaded without the training stack, called, and refused where it is none."""

import copy
import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import h5py
import numpy as np
import pytest
from conftest import ROOT, finish
from run_files import publish, young
from saved_policies import LINEAR, NORMALISER, NORMED, THETA, constant, hidden, save

from esac_mpi import Policy, envs
from esac_mpi.config import Config
from esac_mpi.operators import policy
from esac_mpi.operators.policy import Layout
from esac_mpi.play.counters import Best
from esac_mpi.play.rollout import play
from esac_mpi.policies import stage
from esac_mpi.record import Run, Unreadable, files
from esac_mpi.training import active_run

STACK = "mpi4py torch gymnasium mujoco dm_control rich pandas matplotlib".split()


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
    done = finish([sys.executable, "-c", code], PYTHONPATH=hidden(tmp_path / "hidden", *STACK))
    # hidden: relu(1 - 2 + .25) = 0, relu(.5 + 4 - 1) = 3.5; out: tanh(-.25 * 3.5 + .125);
    # bounds -1 and 3
    assert float(done.stdout) == pytest.approx(1 + 2 * np.tanh(-0.75), rel=1e-6)


def test_it_says_what_it_is(tmp_path):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    said = policy.task, policy.kind, policy.generation, policy.episodic_return
    assert said == ("Nowhere-v0", "sac", 7, 12.5)
    assert policy.path == tmp_path / "policy.h5"
    assert repr(policy) == "Policy(Nowhere-v0, return 12.5, sac of generation 7, 2-2-1 relu tanh)"


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))]
)
def test_a_copy_acts_alike_and_is_its_own(tmp_path, again):
    first = Policy.load(save(tmp_path / "policy.h5", **NORMALISER))
    second = again(first)
    assert repr(second) == repr(first)
    observation = np.array([0.5, -1.0])
    np.testing.assert_array_equal(second(observation), first(observation))
    before = first(observation)
    second.set(2 * second.theta)
    assert (second(observation) != before).all()
    np.testing.assert_array_equal(first.refresh()(observation), before)


def test_the_normaliser_comes_along(tmp_path):
    path = tmp_path / "policy.h5"
    plain, normalised = (Policy.load(save(path, **form)) for form in ({}, NORMALISER))
    # (5 - 1) / 2 = 2; (-3 - 0) / 0.001 is clipped to -5
    np.testing.assert_array_equal(normalised(np.array([5.0, -3.0])), plain(np.array([2.0, -5.0])))


def saved(folder, made, env, theta, seen):
    run = Run.begin(folder, Config(), {})
    job = SimpleNamespace(run=run, policy=made, config=Config(), env=env)
    active_run.save_policy(job, Best(1.0, 2, "theta_es", theta, seen))
    run.close()
    return Policy.load(folder)


def test_a_normaliser_of_many_observations_comes_back(tmp_path):
    size = 20_000  # two float32 vectors of them are more than an HDF5 attribute holds
    layout, seen = Layout((size, 1)), np.array([[0.5], [2.0]], np.float32).repeat(size, 1)
    theta = np.zeros(layout.d, np.float32)
    plain = policy.Policy(layout, "relu", "tanh", np.array([-1.0]), np.array([1.0]))
    loaded = saved(tmp_path, plain, SimpleNamespace(discrete=False), theta, seen)
    np.testing.assert_array_equal([loaded.normaliser.mean, loaded.normaliser.std], seen)


def test_no_action_of_a_saved_policy_leaves_the_tasks_own_bounds(tmp_path):
    """Which those in float32 do, as of 0.1; training clips."""
    env, ends = envs.make("own_task:Bounded-float64-v0"), np.repeat([1.0, -1.0], 300)
    space, layers = env._env.action_space, [np.zeros((600, 1)), ends]
    theta = np.concatenate(layers, axis=None).astype(np.float32)
    plain = policy.Policy(Layout((1, 600)), "relu", "clip", env.low, env.high)
    run = saved(tmp_path / "run", plain, env, theta, np.zeros((2, 0)))
    bounds = space.low.ravel(), space.high.ravel()
    made = Policy.create(tmp_path / "made.h5", layers, *bounds, "Nowhere-v0", output="clip")
    for action in (run(np.zeros(1)), made(np.zeros(1))):
        assert space.contains(action.reshape(space.shape))
        np.testing.assert_allclose(action, np.where(ends > 0, env.high, env.low), atol=1e-6)


@pytest.mark.parametrize(
    ("theta", "form", "x", "out", "named"),
    [
        # hidden: sums -0.75 and 3.5 have mean 1.375, deviation 2.125: -1 and 1; times 2, 0.5 plus
        # 3, -1: 1 and -0.5, by relu 0; out: 0.5 + 0.125
        (NORMED, {"layer_norm": 1}, [1.0, 2.0], 0.625, "2-2-1 layer_norm relu tanh)"),
        # hidden: relu(0.5) and relu(-0.25) = 0; out, see test_policy_forms.py
        (LINEAR, {"linear": 2.0}, [0.5, 0.25], 0.125, "tanh)"),
    ],
)
def test_other_forms_come_along(theta, form, x, out, named, tmp_path):
    policy = Policy.load(save(tmp_path / "policy.h5", theta, **form))
    assert policy(np.array(x)) == pytest.approx([1 + 2 * np.tanh(out)], rel=1e-5)  # bounds -1, 3
    assert repr(policy).endswith(named)
    plain, older = (save(tmp_path / name) for name in ("plain.h5", "older.h5"))
    save(plain, layer_norm=0)
    np.testing.assert_array_equal(*(Policy.load(path)(np.ones(2)) for path in (plain, older)))


@pytest.mark.parametrize(
    ("newest", "theta", "form"), [(4, LINEAR, {"linear": 2.0}), (3, NORMED, {"layer_norm": 1})]
)
def test_versions_without_a_form_refuse_its_files(newest, theta, form, tmp_path, monkeypatch):
    plain = save(tmp_path / "plain.h5", layer_norm=0)
    new = save(tmp_path / "new.h5", theta, **form)
    monkeypatch.setattr(files, "NEWEST", newest)  # that they read
    assert Policy.load(plain).layout.d == 9
    with pytest.raises(Unreadable, match=f"schema {newest + 1}.* reads schemas 3 to {newest}"):
        Policy.load(new)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_many_observations_get_the_bits_that_each_gets_alone(tmp_path, dtype):
    policy = Policy.load(save(tmp_path / "policy.h5", **NORMALISER))
    observations = np.random.default_rng(0).standard_normal((5, 2)).astype(dtype)
    actions = policy(observations)
    assert actions.shape == (5, 1)
    assert actions.dtype == np.float32
    np.testing.assert_array_equal(actions, [policy(row) for row in observations])
    assert policy(observations[:0]).shape == (0, 1)


WRONG_SHAPES = [np.zeros(3), np.zeros((2, 3)), np.zeros((1, 1, 2)), np.float64(1.0)]


@pytest.mark.parametrize("wrong", [*WRONG_SHAPES, [1, 2], np.zeros((2, 2), int)])
def test_a_wrong_observation_is_refused(tmp_path, wrong):
    policy = Policy.load(save(tmp_path / "policy.h5"))
    with pytest.raises(ValueError, match=r"must be float32 or float64 \[2\], or \[m, 2\] for many"):
        policy(wrong)


def test_spaces_of_any_shape_are_flattened_as_the_page_says(tmp_path):
    path = constant(tmp_path / "policy.h5", "own_task:Push-v0", [-0.5, 0.0, 0.25, 1.0], -2, 2)
    policy, env = Policy.load(path), gymnasium.make("own_task:Push-v0")
    page = (ROOT / "docs/how-to/export.md").read_text(encoding="utf-8")
    flat = "gymnasium.spaces.flatten(env.observation_space, observation)"
    assert f"`{flat}`" in page
    assert "`gymnasium.spaces.unflatten(env.action_space, action)`" in page
    observation, _ = env.reset(seed=0)
    for unfit, got in ((observation, "dict"), (tuple(observation.values()), "tuple")):
        with pytest.raises(ValueError, match=re.escape(f"got {got}; {flat} ")):
            policy(unfit)
    action = policy(gymnasium.spaces.flatten(env.observation_space, observation))
    action = gymnasium.spaces.unflatten(env.action_space, action)
    np.testing.assert_array_equal(action, [[-1.0, 0.0], [0.5, 2.0]])
    env.step(action)  # which insists on shape and type


def foreign(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["theta"] = THETA


WRONG = {
    "truncated": lambda path: path.write_bytes(save(path).read_bytes()[:-100]),
    "not a file of esac_mpi": foreign,
    "No such file": lambda path: None,
    "not a policy: it has no .*theta": lambda path: publish(
        path, {"metrics/sigma": np.zeros(3)}, {"generation": 3}
    ),
    r"theta must be float32 \[9\], got float32 \[8\]": lambda path: save(path, THETA[:-1]),
    r"low must be float32 \[1\]": lambda path: save(path, low=np.zeros(3)),
    r"theta must be float32 \[13\], got float32 \[9\]": lambda path: save(path, layer_norm=1),
    "output must be tanh or clip, got softmax": lambda path: save(path, output="softmax"),
    "index out of range": lambda path: save(path, sizes=[2]),
    "cannot reshape array of size 3": lambda path: save(
        path, normaliser_mean=np.zeros(3), normaliser_std=np.ones(3)
    ),
    "activation must be tanh or relu, got gelu": lambda path: save(path, activation="gelu"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_not_a_policy_is_refused_in_a_sentence(tmp_path, message):
    path = tmp_path / "policy.h5"
    WRONG[message](path)
    with pytest.raises(Unreadable, match=message) as caught:
        Policy.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["evaluate", "export --format npz", "render"])
def test_where_no_policy_is_there_is_nothing_to_show(tmp_path, monkeypatch, call, command):
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    name, *more = command.split()
    said = call(name, young(tmp_path), *more, code=2).err  # a run without an evaluation
    assert said == f"{tmp_path}: no policy.h5 in it; a run writes one at its first evaluation\n"
    said = call(name, tmp_path / "nowhere", *more, code=2).err
    assert said == f"{tmp_path / 'nowhere'}: No such file or directory\n"
    (tmp_path / "policy.h5").write_bytes(b"no")
    said = call(name, tmp_path, *more, code=65).err
    assert said.startswith(f"{tmp_path / 'policy.h5'}: not a file of esac_mpi")
    assert said.count("\n") == 1


FOLDER = ROOT / "configs/tuned"


def test_each_has_a_line_and_plays_as_that_says():
    lines = re.findall(
        r"^\| \[([a-z0-9-]+)\]\(.*\| ([\d,]+) \[", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(name for name, _ in lines) == sorted(path.stem for path in FOLDER.glob("*.h5"))
    for name, said in lines:
        policy = Policy.load(FOLDER / f"{name}.h5")
        env, known = envs.make(policy.task), pytest.approx(float(said.replace(",", "")), rel=0.2)
        assert any(play(env, policy, seed).episodic_return == known for seed in range(3)), name
