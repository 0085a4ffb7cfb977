"""The TD3 learner alone, a rival. A generation is a number of training steps on rank 0.

Source: Fujimoto et al. 2018. The other ranks share the evaluations; under episodes_on = ranks also the training episodes.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, Learning, added_by_phases
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import EpisodeLearner, Memory, World
from esac_mpi.config import DDPG, TD3, Config
from esac_mpi.envs import Env
from esac_mpi.play import learner_phases
from esac_mpi.play.counters import Standardising
from esac_mpi.play.learner_phases import Steps
from esac_mpi.play.marks import SHARED
from esac_mpi.play.params import THETA_SAC, Params, Row, make_actor
from esac_mpi.play.rollout import Board, Collected, collect, collection_board
from esac_mpi.play.transitions import width


def options_of(config: Config) -> TD3 | DDPG:
    """Look up the table of the algorithm that runs: DDPG's module is this one."""
    return config.ddpg if config.algorithm == "ddpg" else config.td3


def reserve(config: Config, horizon: int) -> int:
    """Count the transitions that a generation adds at most; horizon: of an episode [steps]."""
    options = options_of(config)
    if options.episodes_on == "root":
        return options.steps_per_generation
    return options.episodes_per_generation * horizon


def cut(config: Config) -> str:
    """Name the setting after whose steps rank 0 cuts its episode, if it plays alone."""
    alone = options_of(config).episodes_on == "root"
    return f"{config.algorithm}.steps_per_generation" if alone else ""


def declaration(name: str, discrete: bool) -> Declaration:
    """Declare the algorithm `name`, td3 or ddpg."""
    return Declaration(
        learning=Learning(
            learner=lambda config: name,
            actor=lambda state: state.theta,
            reserve=reserve,
            added=lambda config, horizon: added_by_phases(config, reserve(config, horizon)),
            cut=cut,
        ),
        discrete=discrete,
        work="episodes",
        policies={name: f"the {name.upper()} actor"},
        fitness=f"{name}_episodic_return",
    )


DECLARES = declaration("td3", discrete=False)


@dataclass
class State(Standardising):
    """All that changes, beside the learner on rank 0."""

    NAME: ClassVar[str] = "td3"  # of its policy and its columns

    theta: np.ndarray = field(metadata=SHARED)  # float32 [d] the actor

    @property
    def policies(self) -> dict[str, np.ndarray]:
        """The policies to evaluate, by name."""
        return {self.NAME: self.theta}


def init(params: Params, world: Memory) -> State:
    """Make the state before the first generation: SAC's initial mean, so that rivals start alike."""
    return State(world.share(params.initial(THETA_SAC)), observation_sums=params.unseen())


def board(params: Params) -> Board:
    """Shape what the ranks put together of a generation: its training episodes, unless rank 0 plays alone."""
    options, sizes = options_of(params.config), params.layout.sizes
    if options.episodes_on == "root":
        return Board(0, 0)
    return collection_board(
        options.episodes_per_generation, params.horizon, width(sizes[0], sizes[-1])
    )


def generation(
    params: Params, state: State, world: World, env: Env, learner: EpisodeLearner | None
) -> tuple[Row, Row]:
    """Make one generation: play and learn on rank 0, or play on all ranks and then learn; return its metrics and its timing."""
    options, laps = options_of(params.config), Laps(world.clock)
    played: Collected = []
    playing = np.zeros(1)
    shared = options.episodes_on == "ranks"
    if shared:
        trained = world.from_root(learner.env_steps if learner is not None else 0)
        played, playing = play(params, state, world, env, state.generation + 1, trained)

    def steps(learner: EpisodeLearner, k: int, sums: np.ndarray | None) -> Steps:
        if shared:
            return learner.take(played, k, sums)
        return learner.begin(env, k, 0, options.steps_per_generation, True, sums)

    standardises = options.observation_normalisation
    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta, steps, standardises
    )
    laps("learn")
    timing["busy_seconds"] = timing["busy_seconds"] + playing
    columns = phase.columns(state.NAME, "episodes", "episodic_return", "critic_loss", "mean_q")
    return {**columns, **row}, {**timing, **laps.seconds}


def play(
    params: Params, state: State, world: World, env: Env, k: int, trained: int
) -> tuple[Collected, np.ndarray]:
    """Play a generation's training episodes on all ranks; see `rollout.collect`. trained: the learner's steps so far.

    Rank 0's node gets all transitions, 4 (2 o + a + 2) bytes a step; each node's shared memory has room for them twice.
    """
    options = options_of(params.config)
    mean = make_actor(params, state.normaliser).set(state.theta)
    noise = options.exploration_noise if trained >= options.start_steps else None
    return collect(world, env, mean, options.episodes_per_generation, params.config.seed, k, noise)
