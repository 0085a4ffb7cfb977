"""The TD3 learner alone, a rival. A generation is a number of training steps on rank 0.

Source: Fujimoto et al. 2018. The other ranks share the evaluations; under episodes_on = ranks also the training episodes.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from esac_mpi.algorithms.declaration import (
    Declaration,
    Learning,
    added_by_phases,
    at_root,
    every_generation,
    never,
    nobody,
    none,
    nowhere,
)
from esac_mpi.comm.contracts import Memory, World
from esac_mpi.config import Config
from esac_mpi.envs import Env
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Best, Counters
from esac_mpi.play.learner_phases import Phase, Steps
from esac_mpi.play.params import THETA_SAC, Params, Row, make_actor
from esac_mpi.play.rollout import Board, collect, collection_board
from esac_mpi.play.transitions import width
from esac_mpi.play.warm_start_fields import OBSERVATIONS


def reserve(config: Config, horizon: int) -> int:
    """Return how many transitions a generation of TD3 or DDPG adds at most; horizon: of an episode [steps]."""
    options = getattr(config, config.algorithm)
    return (
        options.steps_per_generation
        if options.episodes_on == "root"
        else options.episodes_per_generation * horizon
    )


def added(config: Config, horizon: int) -> float:
    """Return how many transitions a run of TD3 or DDPG adds at most."""
    return added_by_phases(config, reserve(config, horizon))


DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "td3",
        actor=lambda state: state.theta,
        ranks=at_root,
        reserve=reserve,
        added=added,
        own_env=nowhere,
        beside=never,
        cut=lambda config: "td3.steps_per_generation" * (config.td3.episodes_on == "root"),
        interval=every_generation,
    ),
    discrete=False,
    evolution=None,
    work="episodes",
    policies={"td3": "the TD3 actor"},
    apart=False,
    fitness="td3_episodic_return",
    operators=none,
    output=None,
    head_scale=1.0,
    offspring=nobody,
)


@dataclass
class State:
    """All that changes, beside the learner on rank 0."""

    NAME: ClassVar[str] = "td3"  # of the learner, its table and its policy

    theta: np.ndarray = field(metadata={"shared": True})  # float32 [d] the actor
    observation_sums: np.ndarray = field(  # float64 [3, observation]: count, sum, sum of squares
        metadata={"later": True, "part": OBSERVATIONS}
    )
    generation: int = 0
    counters: Counters = field(default_factory=Counters)
    best: Best = field(default_factory=Best)

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {self.NAME: self.theta}

    @property
    def normaliser(self) -> Normaliser | None:
        """The running standardisation of observations, or None where it is off or has seen nothing."""
        return Normaliser.of(self.observation_sums)


def init(params: Params, world: Memory) -> State:
    """Return the state before the first generation: SAC's initial mean, so that rivals start alike."""
    return State(world.share(params.initial(THETA_SAC)), np.zeros((3, params.layout.sizes[0])))


def board(params: Params) -> Board:
    """Return the shape of what the ranks put together of a generation: its training episodes, unless rank 0 plays alone."""
    options, sizes = getattr(params.config, params.config.algorithm), params.layout.sizes
    if options.episodes_on == "root":
        return Board(0, 0)
    return collection_board(
        options.episodes_per_generation, params.horizon, width(sizes[0], sizes[-1])
    )


def generation(
    params: Params, state: State, world: World, env: Env, learner: Any
) -> tuple[Row, Row]:
    """Make one generation: play and learn on rank 0, or play on all ranks and then learn; return its metrics and its timing."""
    options, start = getattr(params.config, state.NAME), world.clock()
    shared = options.episodes_on == "ranks"
    trained = world.from_root(learner.env_steps if world.leads else 0) if shared else 0
    played, playing = (
        play(params, state, world, env, state.generation + 1, trained) if shared else ([], 0.0)
    )

    def steps(k: int, sums: np.ndarray | None) -> Steps:
        if shared:
            return learner.take(played, k, sums)
        return learner.begin(env, k, 0, options.steps_per_generation, True, sums)

    standardises = options.observation_normalisation
    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta, steps, standardises
    )
    timing.update(
        busy_seconds=timing["busy_seconds"] + playing, seconds_learn=world.clock() - start
    )
    return {**metrics(state.NAME, phase), **row}, timing


def play(
    params: Params, state: State, world: World, env: Env, k: int, trained: int
) -> tuple[list[tuple[np.ndarray, float, int]], np.ndarray]:
    """Play a generation's training episodes on all ranks; see `rollout.collect`. trained: the learner's steps so far.

    Rank 0's node gets all transitions, 4 (2 o + a + 2) bytes a step; each node's shared memory has room for them twice.
    """
    options = getattr(params.config, state.NAME)
    mean = make_actor(params, state.normaliser).set(state.theta)
    warm = trained >= options.start_steps
    noise = options.exploration_noise if warm else None
    return collect(world, env, mean, options.episodes_per_generation, params.config.seed, k, noise)


def metrics(name: str, phase: Phase) -> Row:
    """Return a row's columns about the learner; its actor's loss is minus mean_q."""
    return {
        f"{name}_episodes": phase.episodes,
        f"{name}_episodic_return": phase.episodic_return,
        f"{name}_critic_loss": phase.critic_loss,
        f"{name}_mean_q": phase.mean_q,
    }
