"""The TD3 learner alone, a rival. A generation is a number of training steps on rank 0.

Source: Fujimoto et al. 2018. The other ranks share the evaluations; under episodes_on = ranks also
the training episodes.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from esac_mpi.algorithms.declaration import Declaration, Learning, added_by_phases
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import EpisodeLearner, Memory, World
from esac_mpi.config import DDPG, TD3, Config
from esac_mpi.envs import Env
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play import experience, learner_phases
from esac_mpi.play.counters import Standardising
from esac_mpi.play.experience import Crew, Experience, Played
from esac_mpi.play.learner_phases import Steps
from esac_mpi.play.marks import SHARED
from esac_mpi.play.params import THETA_SAC, Params, Row, make_actor
from esac_mpi.play.rollout import Board, note_origin
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


def cut(config: Config, horizon: int) -> tuple[str, int]:
    """Name what cuts rank 0's episodes, if it plays alone, and after how many steps."""
    options = options_of(config)
    alone = options.episodes_on == "root"
    name = f"{config.algorithm}.steps_per_generation" if alone else ""
    return name, options.steps_per_generation


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
    """Make the state before the first generation: SAC's initial mean, so rivals start alike."""
    return State(world.share(params.initial(THETA_SAC)), observation_sums=params.unseen())


def crew(params: Params) -> Crew:
    """Say who plays the training episodes, unless rank 0 plays alone.

    Rank 0's node gets all transitions, 4 (2 o + a + 2) bytes a step; each node's shared memory has
    room for them twice.
    """
    (o, *_, a), episodes = params.layout.sizes, options_of(params.config).episodes_per_generation
    return Crew(episodes, 0, params.horizon, width(o, a))


def board(params: Params) -> Board:
    """Return the shape of the board: training episodes, unless rank 0 plays alone."""
    return Board(0, 0) if options_of(params.config).episodes_on == "root" else crew(params).board


def generation(
    params: Params, state: State, world: World, env: Env, learner: EpisodeLearner | None
) -> tuple[Row, Row]:
    """Make one generation: play on rank 0 or on all, then learn; return metrics and timing."""
    options, laps = options_of(params.config), Laps(world.clock)
    shared = options.episodes_on == "ranks"
    if shared:
        trained = world.from_root(learner.env_steps if learner is not None else 0)
        noise = options.exploration_noise if trained >= options.start_steps else None
        found = play(params, state, world, env, noise)

    def steps(learner: EpisodeLearner, k: int, sums: np.ndarray | None) -> Steps:
        if shared:
            return learner.take(found.episodes(), k, sums)
        return learner.begin(env, k, 0, options.steps_per_generation, True, sums)

    phase, row, timing = learner_phases.one_phase(
        world, learner, state, state.theta, steps, options.observation_normalisation
    )
    laps("learn")
    if shared:
        timing["busy_seconds"] = timing["busy_seconds"] + found.timing["busy_seconds"]
    columns = phase.columns(state.NAME, "episodes", "episodic_return", "critic_loss", "mean_q")
    return {**columns, **row}, {**timing, **laps.seconds}


def play(params: Params, state: State, world: World, env: Env, noise: float | None) -> Experience:
    """Play training episodes on all ranks: the actor with Gaussian noise, or uniform (None)."""
    seed, k, a = params.config.seed, state.generation + 1, params.layout.sizes[-1]
    mean = make_actor(params, state.normaliser(params.config)).set(state.theta)

    def playing(i: int) -> Played:
        random = generator(seed, Purpose.LEARNER, k, block=i)

        def act(observation: np.ndarray) -> np.ndarray:
            if noise is None:
                return random.uniform(-1.0, 1.0, a).astype(np.float32)
            gaussian = random.standard_normal(a, dtype=np.float32)
            return np.clip(mean(observation) + np.float32(noise) * gaussian, -1, 1)

        with note_origin(f"in the training episodes of generation {k}, episode {i}"):
            address = integer(seed, Purpose.LEARNER_EPISODE, k, block=i)
            return experience.play(env, act, [address])

    players = crew(params)
    return experience.gather(world, players, playing, np.ones(players.count))
