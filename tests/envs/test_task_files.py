"""The task files of configs/esac: accepted, differences alone, the paper's values."""

import pytest
from conftest import ROOT

from esac_mpi.config import PRESETS, Config, check, flatten, read_toml, updated
from esac_mpi.envs import make

CONFIGS = sorted((ROOT / "configs" / "esac").glob("*.toml"))


def test_every_task_of_the_paper_has_its_file():
    assert len(CONFIGS) == 22


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_task_file_is_accepted_and_holds_differences_only(path):
    values = read_toml(path)
    config = updated(Config(), values)
    check(config)
    same = {name for name, value in flatten(Config()) if name in values and values[name] == value}
    assert (
        same <= {"task.id", "es.lr_es"} | PRESETS["reference-code"].keys()
    )  # what a preset sets may be said of a task under every preset
    env = make(config.task.id, config.task.horizon)
    assert env.reset(0).shape == (env.observation_size,)


def test_task_files_hold_the_papers_values():
    configs = {path.stem: updated(Config(), read_toml(path)) for path in CONFIGS}
    dm_control = {
        name for name, config in configs.items() if config.task.id.startswith("dm_control/")
    }
    assert len(dm_control) == 12
    assert {(configs[n].esac.sigma, configs[n].esac.lr_es) for n in dm_control} == {(0.01, 0.01)}
    episodes = {
        name: config.esac.sac_episodes
        for name, config in configs.items()
        if config.algorithm == "esac"
    }
    assert {n for n, count in episodes.items() if count == 10} == {
        "ant",
        "walker2d",
        "hopper",
        "humanoid",
    }
    assert {n for n, count in episodes.items() if count == 1} == {"swimmer"} | dm_control - {
        "cartpole-swingup", "walker-walk", "walker-run",
    }  # fmt: skip
    assert configs["ant"].esac.lr_es == 1e-4
    repo = {**PRESETS["reference-code"], "esac.preset": "reference-code"}
    copies = {
        path.stem: updated(Config(), {**repo, **read_toml(path)}).esac.sac_copies
        for path in CONFIGS
    }
    assert {name for name, count in copies.items() if count != 4} == {"swimmer"}  # public README
