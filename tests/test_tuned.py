"""configs/tuned: the settings that were measured over eight tasks, and a policy of each."""

import re

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi import Policy, envs
from esac_mpi.config import READINGS, Config, differences, read_toml, updated
from esac_mpi.experiments import design

FOLDER = ROOT / "configs/tuned"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def measured(tmp_path) -> dict[str, Config]:
    """Return what ESAC ran with in the measurement, {task: configuration}."""
    found = design.experiment("aggregate")
    runs = [run for run in design.runs(found, "small", tmp_path) if (run.variant, run.seed) == ("ESAC", 0)]
    return {run.config.task.id: run.config for run in runs}


def test_settings_are_those_of_the_measurement_but_for_what_ends_a_run(tmp_path):
    ran = measured(tmp_path)
    for name in NAMES:
        config = updated(Config(), read_toml(FOLDER / f"{name}.toml"))
        there = ran[config.task.id]
        assert differences(there, config) == {}, name
        assert not {*READINGS["paper"], *READINGS["repo"]} & {*read_toml(FOLDER / f"{name}.toml")} - {
            "policy.hidden",
            "esac.population_size",
            "esac.workers",
            "esac.update_cost",
        }


def test_each_has_a_line_in_the_table_and_a_policy_that_plays_as_it_says():
    lines = re.findall(r"^\| \[([a-z-]+)\]\(.*\| ([\d,]+) \[", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name, _ in lines) == NAMES == sorted(path.stem for path in FOLDER.glob("*.h5"))
    for name, said in lines:
        policy = Policy.load(FOLDER / f"{name}.h5")
        assert policy.task == read_toml(FOLDER / f"{name}.toml")["task.id"]
        played = np.median([episode(policy, seed) for seed in range(3)])
        assert played == pytest.approx(float(said.replace(",", "")), rel=0.2), name


def episode(policy: Policy, seed: int) -> float:
    """Return the return of an episode."""
    env = envs.make(policy.task)
    observation, total, ended = env.reset(seed), 0.0, False
    while not ended:
        observation, reward, terminated, truncated = env.step(policy(observation))
        total, ended = total + reward, terminated or truncated
    return total
