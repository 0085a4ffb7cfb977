"""docs/start/own-robot.md: its robot is trained, evaluated, filmed and exported, at tiny size."""

import importlib.util
import re
import shlex
import shutil
import sys
import tomllib

import numpy as np
import pytest
from commands import tool
from conftest import ROOT, finish
from in_process import started
from words import words

from esac_mpi import Policy, envs
from esac_mpi.config import load
from esac_mpi.envs import identity, probe
from esac_mpi.policies import stage
from esac_mpi.record import Run

EXAMPLE = ROOT / "docs/example"
PAGE = (ROOT / "docs/start/own-robot.md").read_text(encoding="utf-8")
TINY = words("""--budget.generations 2 --policy.hidden 8 --task.horizon 20 --evaluation.every 2
--esac.population_size 4 --esac.sac_min_steps 10 --esac.update_cost 0 --esac.sigma_rule grow
--sac.start_steps 10 --sac.batch_size 8""")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Stand in a copy of the page's directory."""
    left = shutil.ignore_patterns("runs", "__pycache__")
    folder = shutil.copytree(EXAMPLE, tmp_path / "example", ignore=left)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in ("balancer", "backwards"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_from_a_model_to_a_policy_a_film_and_an_onnx_file(here, call):
    assert started("balancer.toml", "--run-dir", "runs/balancer", *TINY) == 0
    found = Run.open("runs/balancer")
    assert (found.generation, found.config.task.kwargs) == (2, {"speed": 0.5})
    policy = Policy.load("runs/balancer")
    assert (policy.task, policy.task_kwargs) == ("balancer:Balancer-v0", {"speed": 0.5})

    said = call("evaluate runs/balancer --episodes 2").out
    assert 'balancer:Balancer-v0 {"speed": 0.5}, 2 episodes' in said

    forms = ["npz", *(["torchscript"] if importlib.util.find_spec("torch") else [])]
    forms += ["onnx"] * all(map(importlib.util.find_spec, ("torch", "onnx", "onnxscript")))
    for form in forms:
        call("export runs/balancer --format", form)
    exported = np.load("runs/balancer/policy.npz")
    assert (exported["low"], exported["high"]) == ([-1.0], [1.0])


def test_its_film_shows_the_robot(here):
    pytest.importorskip("PIL")
    from saved_policies import constant

    still = constant(here / "policy.h5", "balancer:Balancer-v0", [0.0])
    done = tool("render", still, "--seconds", 0.2, "--frames", 2, "--video", "robot.gif", code=None)
    if stage.NO_GL in done.stderr:
        pytest.skip("no offscreen OpenGL")
    assert done.returncode == 0, done.stderr
    from PIL import Image

    film, strip = Image.open("robot.gif"), np.asarray(Image.open("strip.png").convert("RGB"))
    assert film.n_frames == 6  # every other of 11 states
    assert strip.reshape(-1, 3).std(axis=0).min() > 20  # neither black nor plain


@pytest.mark.parametrize("id", ["balancer:Balancer-v0", "backwards:Backwards-v0"])
def test_the_pages_tasks_keep_nothing_and_are_known(here, id):
    env = envs.make(id)
    assert probe.probe(env).apart == ""
    made = identity.identity(env)
    assert id.partition(":")[0] in made["source"]
    assert made["model"] != ""
    assert stage.simulator(env) is not None
    assert stage.seconds_per_step(env) == 0.02


def test_a_task_s_import_of_dm_control_is_as_quiet_as_ours(here):
    code = 'from esac_mpi import envs; envs.make("backwards:Backwards-v0")'
    done = finish(["env", "-u", "DISPLAY", "-u", "MUJOCO_GL", sys.executable, "-c", code])
    assert done.stdout + done.stderr == ""


def test_the_robots_speed_decides_its_reward(here):
    pays = [envs.make("balancer:Balancer-v0", kwargs={"speed": speed}) for speed in (0.0, 0.5)]
    for env in pays:
        env.reset(1)
    slow, fast = (env.step(np.zeros(1, np.float32))[1] for env in pays)
    # it begins at rest: exp(-4 0.5^2) = 0.37 of the other, but for what it drifts
    assert 0 < fast < slow < 1
    assert fast / slow == pytest.approx(np.exp(-1), rel=0.3)


def test_backwards_pays_for_the_way_back(here):
    env = envs.make("backwards:Backwards-v0", kwargs={"speed": 2.0})
    assert env.horizon * stage.seconds_per_step(env) == 5.0
    env.reset(1)
    physics = stage.library(env).physics
    for speed, reward in ((-1.0, 0.5), (-3.0, 1.0), (1.0, 0.0)):
        physics.named.data.sensordata["torso_subtreelinvel"][0] = speed
        assert stage.library(env).task.get_reward(physics) == reward


def test_the_page_has_command_lines_that_are_accepted(here):
    started = r"^mpirun -n 2 python -m esac_mpi (.+?[^\\])$"
    lines = re.findall(started, PAGE, re.MULTILINE | re.DOTALL)
    assert len(lines) == 6
    for line in lines:
        load([word for word in shlex.split(line.replace("\\\n", " ")) if word != "--check"])


def test_the_settings_are_differences_and_the_module_short(here):
    settings = tomllib.loads((here / "balancer.toml").read_text(encoding="utf-8"))
    assert settings["task"] == {"id": "balancer:Balancer-v0", "kwargs": {"speed": 0.5}}
    assert len((here / "balancer.py").read_text(encoding="utf-8").splitlines()) <= 45
