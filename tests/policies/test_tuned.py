"""configs/tuned: a policy of each of twelve tasks, with what it returns."""

import re

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi import Policy, envs

FOLDER = ROOT / "configs/tuned"


def test_each_has_a_line_and_plays_as_that_says():
    lines = re.findall(
        r"^\| \[([a-z0-9-]+)\]\(.*\| ([\d,]+) \[", (FOLDER / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(name for name, _ in lines) == sorted(path.stem for path in FOLDER.glob("*.h5"))
    for name, said in lines:
        policy = Policy.load(FOLDER / f"{name}.h5")
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
