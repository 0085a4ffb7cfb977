"""esac-mpi render: starts that are tilted, balance that is got back, pictures and films."""

import os
from types import SimpleNamespace

import gymnasium
import mujoco
import numpy as np
import own_envs
import pytest
from commands import tool
from conftest import ROOT
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.spaces import Box, Dict
from saved_policies import constant

from esac_mpi import Policy, envs
from esac_mpi.analysis.messages import Unusable
from esac_mpi.commands import render
from esac_mpi.play.rollout import play
from esac_mpi.policies import posture, recovery, stage

BALL = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"


def trial(lean, height) -> recovery.Trial:
    """Return a trial that ends upright: what is given, then 0 degrees at full height."""
    rest = recovery.WINDOW + 1 - len(lean)
    return recovery.Trial(np.array([*lean, *[0.0] * rest]), np.array([*height, *[1.0] * rest]))


def test_when_balance_is_back():
    assert trial([30, 25, 19, 10], [1.0, 1.0, 1.0, 1.0]).back == 2
    # a lean to the other side, then a low body
    assert trial([30, 10, -20, 10], [1.0, 1.0, 1.0, 0.79]).back == 4
    assert trial([10], [1.0]).back == 0
    at_the_end = np.r_[np.zeros(100), 25.0]
    for lean in (np.full(101, 25.0), at_the_end, np.zeros(51)):  # the last one: terminated
        assert recovery.Trial(lean, np.ones(lean.size)).back is None


def test_kinds_and_verdict():
    feet, fell = trial([30, 25], [0.9, 0.6]), trial([30, 90, 30], [0.9, 0.49, 0.7])
    lost = recovery.Trial(np.full(101, 90.0), np.full(101, 0.1))
    assert [t.stood for t in (feet, fell, lost)] == [True, False, False]
    assert recovery.summary_line([feet, fell, feet, lost], 30.0, 0.025) == (
        "30 degrees: balance back in 3 of 4 trials (75%), after 2 steps (0.05 s) in the median; "
        "without a fall in 2 of 2 forward and 0 of 2 backward"
    )


# where the height is in qpos
VERTICAL = {"Hopper-v5": 1, "Walker2d-v5": 1, "Humanoid-v5": 2, "dm_control/walker-walk-v0": 0}


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
    mujoco.mj_forward(model, simulated)
    assert simulated.contact.dist[: simulated.ncon].min() == pytest.approx(-0.002, abs=1e-4)
    if task in ("Hopper-v5", "Walker2d-v5"):  # their second number is the root's angle
        assert observation[1] == pytest.approx(np.radians(degrees), rel=1e-5)
    again = observation.copy()
    env.reset(2)
    np.testing.assert_array_equal(body.tilt(degrees, np.random.default_rng(0)), again)
    assert (body.tilt(degrees, np.random.default_rng(1)) != again).any()


@pytest.mark.parametrize("task", ["Hopper-v5", "dm_control/cheetah-run-v0"])
def test_the_simulator_shown_is_the_one_that_is_stepped(task):
    env = envs.make(task)
    env.reset(3)
    for _ in range(5):
        observation, *_ = env.step(env.high)
    position = stage.simulator(env)[1].qpos[1:]
    np.testing.assert_array_equal(observation[: len(position)], position.astype(np.float32))


def hopping(folder, *actions):
    path = constant(folder / "p.h5", "Hopper-v5", actions)
    return envs.make("Hopper-v5"), Policy.load(path), path


def test_a_watched_episode_is_the_episode(tmp_path):
    env, policy, _ = hopping(tmp_path, 0.1, 0.2, -0.1)
    seen = []
    watched = play(stage.Watched(env, lambda *now: seen.append(now)), policy, 4)
    assert watched == play(env, policy, 4)
    assert seen[0] == (0, 0.0)
    assert seen[-1] == (watched.episodic_length, watched.episodic_return)


def test_trials_start_forward_and_backward_and_repeat_themselves(tmp_path, call):
    env, policy, path = hopping(tmp_path, 0.0, 0.0, 0.0)
    found = recovery.run_trials(env, policy, 4, 15.0, 0)
    assert [t.lean[0] for t in found] == pytest.approx([15.0, -15.0, 15.0, -15.0])
    assert {t.back for t in found} == {None}  # the task ends there at 0.2 rad
    again = recovery.run_trials(env, policy, 2, -15.0, 0)[1]  # forward first, too
    np.testing.assert_array_equal(again.lean, found[1].lean)
    assert found[3].height[0] != found[1].height[0]  # other joints
    fell = "without a fall in 0 of 1 forward and 0 of 1 backward"
    expected = f"15 degrees: balance back in 0 of 2 trials (0%); {fell}\n"
    assert call("render", path, "--trials=2", "--degrees=15").out == expected


def test_what_mujoco_stands_up_again_has_not_recovered(tmp_path):
    env, policy, _ = hopping(tmp_path, 0.0, 0.0, 0.0)
    (found,) = recovery.run_trials(env, policy, 1, np.nan, 0)  # MuJoCo resets such a state
    assert len(found.lean) == recovery.WINDOW
    assert (found.back, found.stood) == (None, False)


@pytest.mark.parametrize(
    ("task", "said"), [("CyclicMDP-v0", "not a MuJoCo task"), ("Reacher-v5", "nothing to tilt")]
)
def test_what_cannot_be_tilted_is_said(tmp_path, call, task, said):
    path = constant(tmp_path / "p.h5", task, [0.0] * envs.make(task).action_size)
    assert said in call("render", path, "--trials=2", code=2).err


def test_a_task_whose_observation_is_another_is_not_tilted(monkeypatch):
    env = envs.make("Hopper-v5")
    monkeypatch.setattr(stage.library(env), "_get_obs", lambda: np.zeros(11))
    reset = env.reset
    monkeypatch.setattr(env, "reset", lambda seed: reset(seed) + 1)  # as a wrapper might
    with pytest.raises(Unusable, match="of a state that was set is not known"):
        posture.Body(env)


def test_an_own_task_with_the_suites_physics_is_tilted_by_its_get_obs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/example")
    env = envs.make("backwards:Backwards-v0")
    with pytest.raises(Unusable, match=r"give it a method _get_obs\(\)"):
        posture.Body(env)
    own = stage.library(env)
    seen = lambda: SimpleNamespace(observation=own.task.get_observation(own.physics))  # noqa: E731
    monkeypatch.setattr(own, "_get_obs", lambda: own.flat(seen()), raising=False)
    observation = posture.Body(env).tilt(30, np.random.default_rng(0), noise=0)
    assert np.degrees(observation[1]) == pytest.approx(30)  # z and pitch come first


def test_an_own_task_that_observes_a_dict_is_tilted():
    model = mujoco.MjModel.from_xml_string(BALL)
    space = Dict(turned=Box(-1, 1, (1, 2)), height=Box(-9, 9, (1,)))
    task = SimpleNamespace(model=model, data=mujoco.MjData(model), observation_space=space)
    height, turned = task.data.qpos[2:3], task.data.qpos[3:6:2]
    task._get_obs = lambda: {"turned": np.float32([turned]), "height": np.float32(height)}
    env = SimpleNamespace(id="Ball-v0", _env=task, reset=lambda seed: np.float32([1, 0, 0]))
    leaning = posture.Body(env).tilt(60, np.random.default_rng(0))
    assert leaning == pytest.approx([np.cos(np.pi / 6), 0.5, 0])
    del task._get_obs
    with pytest.raises(Unusable, match=r"give it a method _get_obs\(\)"):
        posture.Body(env)


def test_without_opengl_the_packages_are_named(tmp_path, monkeypatch, call):
    monkeypatch.setattr(stage, "PROBE", "raise SystemExit(1)")
    path = constant(tmp_path / "p.h5", "InvertedPendulum-v5", [0.0], -3.0, 3.0)
    assert "apt-get install libosmesa6" in call("render", path, "--seconds=0.1", code=2).err


@pytest.mark.parametrize(
    ("asked", "found"),
    [("", "osmesa"), ("glfw", "osmesa"), ("osmesa", "osmesa"), ("egl", "disabled")],
)
def test_only_egl_or_osmesa_asked_for_is_the_one_tried(monkeypatch, asked, found):
    monkeypatch.setattr(stage, "PROBE", "import os; assert os.environ['MUJOCO_GL'] == 'osmesa'")
    monkeypatch.setenv("MUJOCO_GL", asked)
    stage.choose_gl()
    assert os.environ["MUJOCO_GL"] == found


def test_a_task_without_pictures_says_so(tmp_path, monkeypatch, call):
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    path = constant(tmp_path / "c.h5", "CyclicMDP-v0", [0.0, 0.0, 0.0])
    assert call("render", path, code=2).err.startswith("CyclicMDP-v0 has no picture: there is ")


def test_a_start_that_is_not_finite_has_no_picture(tmp_path, monkeypatch, call):
    pytest.importorskip("PIL.Image")
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    path = constant(tmp_path / "p.h5", "own_envs:Blinded-v0", [0.0, 0.0], -2.0, 2.0)
    monkeypatch.setattr(own_envs.Blinded, "observe", lambda env: np.full(3, np.nan, np.float32))
    said = call("render", path, code=2).err
    assert said == "own_envs:Blinded-v0: no start of seed 0: observation[0] is nan\n"
    path = hopping(tmp_path, 0.0, 0.0, 0.0)[-1]
    monkeypatch.setattr(HopperEnv, "_get_obs", lambda env: np.full(11, np.nan))
    said = call("render", path, "--trials=2", code=2).err
    assert said == "Hopper-v5: no start to tilt: observation[0] is nan\n"


def test_files_that_cannot_be_written_are_refused_before_anything_is_drawn(
    tmp_path, monkeypatch, call
):
    monkeypatch.setattr(stage, "choose_gl", lambda: None)
    path = constant(tmp_path / "c.h5", "CyclicMDP-v0", [0.0, 0.0, 0.0])
    for out, video in ((path / "x.png", tmp_path / "x.gif"), (tmp_path / "x.png", path / "x.gif")):
        said = call("render", path, "--out", out, "--video", video, code=2).err
        assert said == f"{path}: File exists; choose another --out\n"
    assert [*tmp_path.iterdir()] == [path]


def test_what_a_task_calls_a_model_or_a_picture_may_be_none():
    """Model, data and physics may be no MuJoCo's; render() may return None, metadata no rate."""
    metadata = {"render_modes": ["rgb_array"], "render_fps": None}
    task = SimpleNamespace(model={}, data=[], physics=0, metadata=metadata, render=lambda: None)
    env = SimpleNamespace(id="Own-v0", _env=task)
    assert stage.simulator(env) is None
    for task.dt in (None, 0.0, "0.1 s", lambda last: 1.0):
        assert stage.seconds_per_step(env) == 1 / 50
    for rate in ("30", [30], -30, np.inf, np.nan, 0):
        task.metadata = {**metadata, "render_fps": rate}
        assert stage.seconds_per_step(env) == 1 / 50
    task.dt, task.control_timestep = lambda: 0.1, None
    assert stage.seconds_per_step(env) == 0.1
    task.control_timestep = 0.2
    assert stage.seconds_per_step(env) == 0.2
    task.metadata = {"render_modes": None}
    with pytest.raises(Unusable, match="Own-v0 has no picture"):
        stage.Camera(env)
    task.metadata = metadata
    for task.render in (lambda: None, lambda: np.zeros((0, 3, 3), np.uint8)):
        with pytest.raises(Unusable, match=r"Own-v0: its render\(\) gave no picture"):
            stage.Camera(env).picture()
    task.render = lambda: gymnasium.Env().render()
    with pytest.raises(Unusable, match=r"its render\(\) fails: NotImplementedError \(.*, line"):
        stage.Camera(env).picture()
    task.render = lambda: np.zeros((2, 3, 3), np.uint8)
    assert stage.Camera(env).picture().shape == (2, 3, 3)


def test_a_free_camera_follows_what_moves(monkeypatch):
    model = mujoco.MjModel.from_xml_string(BALL)
    task, seen = SimpleNamespace(model=model, data=mujoco.MjData(model)), []
    drawn = SimpleNamespace(
        update_scene=lambda data, view: seen.append((view.lookat[0], view.distance)),
        render=lambda: np.zeros((2, 3, 3), np.uint8),
    )
    monkeypatch.setattr(mujoco, "Renderer", lambda *of: drawn)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    camera = stage.Camera(SimpleNamespace(id="Ball-v0", _env=task))
    for task.data.qpos[0] in (0, 9):
        mujoco.mj_forward(model, task.data)
        camera.picture()
    assert np.allclose(seen, [(0, 0.28), (9, 0.28)])


def test_a_camera_takes_any_model_and_the_one_that_a_reset_has_made(monkeypatch):
    """One of sites alone, with a small screen; and its successor."""
    small = '<mujoco><visual><global offwidth="9" offheight="9"/></visual><worldbody>'
    sites = mujoco.MjModel.from_xml_string(f"{small}<body><site/></body></worldbody></mujoco>")
    task, drawn = SimpleNamespace(model=sites, data=mujoco.MjData(sites)), []

    def renderer(model, height, width):
        drawn.append(model)
        assert min(model.vis.global_.offheight, model.vis.global_.offwidth) >= height == width
        seen = lambda data, view: drawn.append(view.distance)  # noqa: E731
        picture = np.zeros((2, 3, 3), np.uint8)
        closed = lambda: drawn.append("closed")  # noqa: E731
        return SimpleNamespace(update_scene=seen, render=lambda: picture, close=closed)

    monkeypatch.setattr(mujoco, "Renderer", renderer)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    camera = stage.Camera(SimpleNamespace(id="Own-v0", _env=task))
    camera.picture()
    task.model = ball = mujoco.MjModel.from_xml_string(BALL)
    task.data = mujoco.MjData(ball)
    camera.picture()
    assert drawn[:2] == [sites, 2 * sites.stat.extent]
    assert drawn[2:4] == ["closed", ball]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--trials 5 --video a.mp4 --frames 3", "--trials does not read --frames, --video"),
        ("--degrees 60", "a start that is not tilted does not read --degrees"),
        ("--trials 5 --degrees nan", "--degrees: nan: must be from -180 to 180 degrees"),
        ("--video a.avi", "a.avi: the name must end in ."),
        ("--out a.pdf", "a.pdf: the name must end in ."),
        ("--frames 0", "--frames: 0: must be at least 1"),
        ("--seconds nan", "--seconds: nan: must be at least 0 and finite"),
    ],
)
def test_options_that_are_wrong_or_not_read_are_refused(words, said, call):
    assert said in call("render", "policy.h5", *words.split(), code=2).err


@pytest.mark.slow
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
        grey = np.asarray(picture.convert("L")).astype(int)
        first, last = (grey[:, i : i + 320] for i in (0, 648))
    assert np.abs(first[:280] - last[:280]).max() > 50  # it has moved, apart from the text
    with image.open(film) as moving:
        assert moving.n_frames == 6  # the start and five steps
        assert moving.info["duration"] == 40


def test_strip_of_a_box2d_task(tmp_path, monkeypatch, call):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(stage, "choose_gl", lambda: None)  # it needs none
    path = constant(tmp_path / "p.h5", "LunarLanderContinuous-v3", [0.0, 0.0])
    call("render", path, "--seconds=1e308", "--frames", 10**30)
    call("render", path, "--seconds=1", "--frames=2")
    with image.open(tmp_path / "strip.png") as picture:
        assert picture.size == (2 * 480 + render.GAP, 320)  # 600 x 400 in the height of a strip
