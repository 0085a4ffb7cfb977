"""One of our algorithms in the race: a training by `esac_mpi.train`, on every rank of its launcher."""

from typing import Any

import numpy as np

import esac_mpi
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.play.params import make_policy
from tools.bench.race.running import Act, Plan, Teller


def run(plan: Plan, teller: Teller) -> None:
    """Train until the race is over; rank 0 is looked at after generations, while the others wait."""
    module, seen = ALGORITHMS[plan.settings["algorithm"]], dict[str, Any]()
    make = module.generation

    def generation(params: Any, state: Any, world: Any, env: Any, learner: Any = None) -> Any:
        if not seen and world.rank == 0:
            teller.begin()
        seen.update(params=params, state=state, env=env)
        return make(params, state, world, env, learner)

    def over(row: dict[str, Any]) -> bool:
        state = seen["state"]
        acts = (
            {name: acting(theta, **seen) for name, theta in state.policies.items()}
            if teller.due
            else {}
        )
        return bool(acts) and teller.look(acts, state.counters.env_steps)

    setattr(module, "generation", generation)  # noqa: B010 - mypy: a module's function
    try:
        given = {**plan.settings, "seed": plan.seed}
        esac_mpi.train(None, given, run_dir=f"{plan.folder}/run", callback=over, quiet=True)
    finally:
        setattr(module, "generation", make)  # noqa: B010


def acting(theta: np.ndarray, params: Any, state: Any, env: Any) -> Act:
    """Return how a policy of the state acts when it is evaluated."""
    declared = ALGORITHMS[params.config.algorithm].DECLARES
    policy = make_policy(params, env, state.normaliser, declared.output).set(theta)
    return lambda observations: np.stack([policy(row).copy() for row in observations])
