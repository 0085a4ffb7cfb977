"""The task files of configs/esac: accepted, differences alone, the paper's values."""

import pytest
from conftest import ROOT

from esac_mpi.config import PRESETS, Config, amend, check, flatten, read_toml
from esac_mpi.envs import make

CONFIGS = sorted((ROOT / "configs" / "esac").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_task_file_is_accepted_and_holds_differences_only(path):
    values = read_toml(path)
    config = amend(Config(), values)
    check(config)
    same = {name for name, value in flatten(Config()) if name in values and values[name] == value}
    # what a preset sets may be said of a task under every preset
    assert same <= {"task.id", "es.lr_es"} | PRESETS["reference-code"].keys()
    env = make(config.task.id, config.task.horizon)
    assert env.reset(0).shape == (env.observation_size,)


def test_task_files_hold_the_papers_values():
    configs = {path.stem: amend(Config(), read_toml(path)) for path in CONFIGS}
    suite = {name for name, c in configs.items() if c.task.id.startswith("dm_control/")}
    assert (len(configs), len(suite)) == (22, 12)
    assert {(configs[n].esac.sigma, configs[n].esac.lr_es) for n in suite} == {(0.01, 0.01)}
    esac = {name: c.esac.sac_episodes for name, c in configs.items() if c.algorithm == "esac"}
    ten = {"ant", "walker2d", "hopper", "humanoid"}
    assert {name for name, count in esac.items() if count == 10} == ten
    one = {"swimmer"} | suite - {"cartpole-swingup", "walker-walk", "walker-run"}
    assert {name for name, count in esac.items() if count == 1} == one
    assert configs["ant"].esac.lr_es == 1e-4
    repo = {**PRESETS["reference-code"], "esac.preset": "reference-code"}
    copies = {
        path.stem: amend(Config(), {**repo, **read_toml(path)}).esac.sac_copies for path in CONFIGS
    }
    assert {name for name, count in copies.items() if count != 4} == {"swimmer"}  # public README
