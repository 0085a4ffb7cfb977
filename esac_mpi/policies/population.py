"""The population of a run of the ERL family, with memories and critic, of its newest checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS, erl, erl_state
from esac_mpi.analysis.command import opened
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.command_ranks import Alone
from esac_mpi.config import updated
from esac_mpi.play import epsilon, state
from esac_mpi.play.params import Params, make_env, make_layout
from esac_mpi.record import Checkpoint, Refused, RunFiles


@dataclass(frozen=True)
class Population:
    """What the operators of the ERL family work on."""

    params: Params
    # its memories stand where a generation looks for them; its critic is the learner's
    state: erl_state.State
    env: envs.Env

    @property
    def remembers(self) -> bool:
        """Whether members have memories, which distillation and proximal mutation look at."""
        return bool(self.state.ages.size)

    @property
    def distinct(self) -> np.ndarray:
        """The slots of networks that differ, of equal ones the first, int64 [n]."""
        return np.sort(np.unique(self.state.population, axis=0, return_index=True)[1])


def restored(path: Path) -> Population:
    """Return the population of a run's newest sound checkpoint. Raises Unusable, Unreadable."""
    (run,) = opened([path])
    if not ALGORITHMS[run.config.algorithm].DECLARES.offspring(run.config):
        none = f"a run of {run.config.algorithm}, which has no genetic operators"
        raise Unusable(f"{path}: {none}; the ERL family has them")
    try:
        checkpoint = run.newest()
    except Refused as error:
        raise Unusable(str(error)) from error
    if checkpoint is None or not checkpoint.generation:
        raise Unusable(f"{path}: no checkpoint of a generation yet")
    try:
        return reloaded(run, checkpoint)
    except (envs.TaskError, ImportError) as error:
        raise Unusable(str(error)) from error


def reloaded(run: RunFiles, checkpoint: Checkpoint) -> Population:
    """Load a checkpoint as a restart does. Raises envs.TaskError, ImportError, Unreadable."""
    config, world = updated(checkpoint.config, {"learner.device": "cpu"}), Alone()
    env = make_env(config)
    layout = make_layout(config, env)
    operators = learners.load("offspring").GeneticOperators(config, layout)
    params = Params(
        config, layout, env.horizon, epsilon.make(None, config.seed, layout, world), operators
    )
    found, learning = erl.init(params, world), erl.DECLARES.learning
    assert learning is not None
    learner = learners.make(
        learning.learner(config), config, layout, found.theta, learning.reserve(config, env.horizon)
    )
    run.fill(learner.replay, checkpoint)
    learner.load(checkpoint.learner)
    state.load(found, checkpoint.state, replay=learner.replay)
    current = replace(
        found, next_memories=found.memories, next_ages=found.ages, critic=learner.critic_vector()
    )
    return Population(params, current, env)
