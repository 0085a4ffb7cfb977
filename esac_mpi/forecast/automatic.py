"""What is "auto" in a configuration, resolved at the first start of a run: by its ranks, and by what an update takes on rank 0.

A run that goes on keeps what it was resolved to, on any ranks: a resolved configuration gives the same bits on all.
"""

import time
from pathlib import Path
from typing import Any

from esac_mpi import epsilon, learners, surroundings
from esac_mpi.config import AESRL, Config, automatic, check, on_ranks, updated
from esac_mpi.contracts import World
from esac_mpi.envs import Env, probe
from esac_mpi.forecast import operators, phases
from esac_mpi.noise import Purpose, integer
from esac_mpi.params import Params, make_layout, make_policy
from esac_mpi.rollout import play

PLAYING, UPDATING = 0.5, 1.0  # the task is played, and the learner makes updates, for this time [s]
FIRST = 250  # steps of an episode that are played at most
COSTS = {"update_cost", "critic_cost"}


def found(config: Config, env: Env, world: World, path: Path, fresh: bool) -> tuple[dict[str, Any], str]:
    """Resolve what is "auto", {dotted name: value}, on rank 0, and say so; of a run that goes on, or is made again, as it has it.

    path: the run's directory. Raises ConfigError, Refused, Unreadable, and what a learner is refused with.
    """
    if world.rank or not (names := automatic(config)):
        return {}, ""
    from esac_mpi.record import settings_of  # rank 0 alone reads files

    other = config.own.follows or (None if fresh else path)
    run = settings_of(Path(other)) if other else None
    settled = on_ranks(config, world.size, run)
    whole = updated(config, settled)
    check(whole)
    costs = {name for name in names if name.rpartition(".")[2] in COSTS} - settled.keys()
    if costs:
        settled |= {name: value for name, value in measured(whole, env).items() if name in costs}
    words = " ".join(f"--{name} {value:g}" for name, value in settled.items())
    if run:
        return settled, f"as the run began: {words}"
    why = f"for {world.size} rank(s)" + ", an update measured in steps of the task" * bool(costs)
    return settled, f"chosen {why}: {words}. The run keeps them; name them where other runs must equal it"


def measured(config: Config, env: Env) -> dict[str, float]:
    """Measure what updates cost on this core, to two digits, {dotted name: [steps of the task, or updates of an individual]}."""
    share = config.sac.updates_per_step
    if not (share or isinstance(config.own, AESRL)):
        return {"esac.update_cost": 0.0}  # there are none
    params = Params(config, make_layout(config, env), env.horizon, epsilon.Philox(config.seed))
    probe.played(env)  # which says what is wrong with a task
    with surroundings.kept():
        step = step_seconds(params, env)
        ready = phases.prepared(params, env)
        playing, updating = phases.timed(*ready, UPDATING) if ready else (0.0, 0.0)
    del ready
    learners.clear()
    if isinstance(config.own, AESRL):
        training = operators.seconds(config, params.layout)["training"]
        return {"aes_rl.update_cost": digits(training / step), "aes_rl.critic_cost": digits(updating / training)}
    cost = updating + (playing - step) / share  # a phase's own steps cost one of the task's each
    return {"esac.update_cost": digits(max(cost, 0.0) / step)}


def step_seconds(params: Params, env: Env) -> float:
    """Measure what a step of the task takes with a policy of the run, the start of an episode shared out [s]."""
    policy = make_policy(params, env).set(params.initial(0))
    start, steps, seconds = time.perf_counter(), 0, 0.0
    while seconds < PLAYING:
        seed = integer(params.config.seed, Purpose.EPISODE, 0, 0, steps)
        steps += max(play(env, policy, seed, cap=FIRST).episodic_length, 1)
        seconds = time.perf_counter() - start
    return seconds / steps


def digits(cost: float) -> float:
    """Round to two digits."""
    return float(f"{cost:.2g}")
