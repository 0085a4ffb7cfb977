"""Generations of CEM and CEM-RL, whose update makes the elites again."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np

from esac_mpi.comm.clock.costs import Pieces
from esac_mpi.comm.clock.generations import Generation, Made
from esac_mpi.config import Config, exact, individuals


def generations(config: Config, pieces: Pieces) -> Iterator[Made]:
    """Yield the generations of a distribution of policies, the first trained by gradients."""
    cem: Any = config.own
    n, episodes = cem.population_size, cem.fitness_episodes
    elites, trained = individuals(cem)
    serial = trained > 0 and cem.critic == "serial"
    steps = n * episodes * pieces.length
    climb = round(exact(cem.actor_updates_per_step) * exact(steps)) if trained else 0
    for k in count(1):
        own = pieces.members(n, episodes, k)
        due = trained > 0 and is_taught(cem, (k - 1) * steps)
        # from a parallel critic once it was taught
        learns = due and (serial or is_taught(cem, (k - 2) * steps))
        one = Generation(
            members=own[trained:],
            expected=np.ones(n - trained),
            lesson=lessons(cem, steps, trained) * pieces.updating if due else 0.0,
            trained=own[:trained] + (climb * pieces.training if learns else 0.0),
            after_lesson=due and serial,
            update=elites * pieces.slot,
            blocks=pieces.blocks,
        )
        yield Made(one, steps, steps)


def is_taught(cem: Any, played: float) -> bool:
    """Tell whether the critic has lessons in the next generation, after so many steps."""
    return bool(played >= max(cem.start_steps, cem.batch_size))


def lessons(cem: Any, steps: float, trained: int) -> int:
    """Count the critic's updates after so many steps: as many for each actor, or for the mean."""
    updates = round(exact(cem.critic_updates_per_step) * exact(steps))
    return updates // trained * trained if cem.critic == "serial" else updates
