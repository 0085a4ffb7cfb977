"""Small runs that begin where others stand, and the runs that they begin from."""

import json

import in_process
from conftest import LEARNER
from small_runs import OPTIONS as POPULATIONS
from words import of_table

from esac_mpi.config import table_of
from esac_mpi.config.genetic import FORMS
from esac_mpi.record import read

NETWORK = (
    "--policy.hidden 6 --policy.activation relu --policy.layer_norm false --policy.linear false"
)
TASK = ["--task.id", "CyclicMDP-v0", "--task.horizon", 12, *NETWORK.split()]
ROUTINE = ["--evaluation.every", 2, "--evaluation.episodes", 1, "--checkpoint.every_generations", 2]
COMMON = [*TASK, *ROUTINE]
POPULATION = {"population_size": 6, "sigma": 0.3, "lr_es": 0.05}
OFF_POLICY = {"steps_per_generation": 24, "start_steps": 10, "batch_size": 8, "replay_capacity": 40}
DRAWN = {"population_size": 4}
OPTIONS = {
    "esac": {
        **POPULATION, "preset": "corrected", "gradient_interval": 1, "p_sac_initial": 1.0,
        "sac_min_steps": 24, "sac_episodes": 1,
    },
    "es": {**POPULATION, "observation_normalisation": "false"},
    "sac": {"steps_per_generation": 24, "observation_normalisation": "false"},
    "td3": OFF_POLICY,
    "ddpg": OFF_POLICY,
    "ppo": {"steps_per_generation": 20, "batch_size": 10},
    "cem": DRAWN,
    "cem_rl": {**DRAWN, "start_steps": 10, "batch_size": 8, "replay_capacity": 400},
    "aes_rl": {
        "workers": 2, "start_steps": 20, "batch_size": 8, "critic_chunk": 20,
        "replay_capacity": 400, "arrivals_per_generation": 3, "mean_episodes": 1,
    },
}  # fmt: skip


def options(algorithm, **more):
    table = table_of(algorithm)
    given = {**OPTIONS.get(table, {}), **more}
    words = of_table(table, **given)
    words = [*POPULATIONS[algorithm], *words] if algorithm in FORMS else words
    own = of_table("sac", start_steps=10, batch_size=8, replay_capacity=40)
    sac = {"esac": LEARNER, "sac": own}.get(algorithm, [])
    return [*COMMON, "--algorithm", algorithm, *words, *sac]


def started(path, *words):
    return in_process.started(*words, "--run-dir", path)


def refused(path, *words, code=2):
    return in_process.refused(*words, "--run-dir", path, code=code)


def saved(path, previous=False):
    return read(path / ("checkpoint_prev.h5" if previous else "checkpoint.h5"))


def first(path, *words):
    """Make one generation; return the arrays of the checkpoint before it, and its start."""
    few = ["--checkpoint.every_generations", 9, "--budget.generations", 1]
    assert started(path, *words, *few) == 0
    arrays, attributes = saved(path, previous=True)
    assert attributes["generation"] == 0
    return arrays, json.loads(attributes["start"])


class Sources:
    """Runs of five generations, each made once: `sources(algorithm, name of other options)`."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, algorithm, name="", **more):
        path = self.folder / (name or algorithm)
        if not path.exists():
            assert started(path, *options(algorithm, **more), "--budget.generations", 5) == 0
        return path
