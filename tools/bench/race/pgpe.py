"""EvoTorch's PGPE with ClipUp on its Gym problem in the race, an actor on each core; settings and policies of its own script."""

import logging
from functools import partial
from typing import Any

import numpy as np

from tools.bench.race.places import SUITE, training_env
from tools.bench.race.running import Plan, Teller

OF_SPEED = {"center_learning_rate": 0.75, "radius_init": 15.0}  # times max_speed
OF_PROBLEM = "observation_normalization", "decrease_rewards_by"


def run(plan: Plan, teller: Teller) -> None:
    """Search until the race is over; the centre of the distribution is looked at after generations."""
    import torch
    from evotorch import algorithms
    from evotorch.neuroevolution import GymNE

    torch.manual_seed(
        plan.seed
    )  # of its actors too; a problem's own seed stops them (0.6.1), and start states have none
    if plan.cores > 1:
        import ray

        ray.init(num_cpus=plan.cores, include_dashboard=False, logging_level=logging.ERROR)
    settings = dict(plan.settings)
    own = {name: settings.pop(name) for name in OF_PROBLEM if name in settings}
    env: Any = partial(training_env, plan.task) if plan.task.startswith(SUITE) else plan.task
    problem = GymNE(
        env, settings.pop("network"), num_actors=plan.cores if plan.cores > 1 else None, **own
    )
    speed = settings.pop("max_speed")
    scales = {name: factor * speed for name, factor in OF_SPEED.items()}
    searcher = getattr(algorithms, plan.algorithm)(
        problem, stdev_learning_rate=0.1, stdev_max_change=0.2, optimizer="clipup",
        optimizer_config={"max_speed": speed, "momentum": 0.9}, **scales, **settings,
    )  # fmt: skip
    teller.begin()
    while True:
        searcher.step()
        if teller.due and teller.look(
            {"": acting(problem, searcher)}, problem.status["total_interaction_count"]
        ):
            break


def acting(problem: Any, searcher: Any) -> Any:
    """Return how the centre acts, observations standardised as its actors do."""
    import torch

    policy = problem.to_policy(searcher.status["center"])

    def act(observations: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return policy(torch.as_tensor(observations)).numpy()

    return act
