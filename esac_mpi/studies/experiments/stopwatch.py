"""Measure environment steps and updates on one core; write configs/experiments/speeds.toml.

A step is one of whole episodes with an untrained policy, resets included. An update is made from
random transitions of HalfCheetah's sizes, sampling included. An imitation is a step of a distilled
child, with its share of the filter. The fastest of three rounds counts, since other work on the
machine only adds. Cost: one minute.
Command: esac-mpi experiment speeds [--machine "2 shared x86 cores"]
"""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.analysis.messages import note
from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.host.invocation import look_here
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play import epsilon
from esac_mpi.play.params import Params, make_layout
from esac_mpi.play.rollout import play
from esac_mpi.studies.experiments.design import ours
from esac_mpi.studies.experiments.estimates import SPEEDS
from esac_mpi.training.forecast import operators, phases

NETWORKS = {"small": ((32, 32), 128), "large": ((512, 512), 256)}  # hidden layers, batch
OF_ERL = {"large": ((128, 128), 128)}  # in their place: the paper's
ACTOR = {"policy.activation": "tanh", "policy.layer_norm": True}  # of ERL
ALGORITHM = {"cem": "cem_rl", "individuals": "cem_rl", "imitation": "pderl"}  # else of that name
ROUNDS, SECONDS = 3, 0.3


class Idle:
    """A task of HalfCheetah's sizes that costs nothing: its steps are no part of an update."""

    id = "Idle-v0"
    observation_size = 17
    action_size = 6
    horizon = 10**9
    unstable = False
    not_finite = ""
    low = -np.ones(action_size, np.float32)
    high = np.ones(action_size, np.float32)
    _observation = np.zeros(observation_size, np.float32)

    def reset(self, seed: int) -> np.ndarray:
        """Return zeros, float32 [observation]."""
        return self._observation

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Go on for ever."""
        return self._observation, 0.0, False, False


def fastest(work: Callable[[], int]) -> float:
    """Measure the processor time of one of what `work` counts, in the fastest of ROUNDS [s]."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        done = 0
        while time.process_time() - start < SECONDS:
            done += work()
        rounds.append((time.process_time() - start) / done)
    return min(rounds)


def step(env: envs.Env, hidden: tuple[int, ...]) -> float:
    """Measure a step, policy included [s]."""
    layout = Layout((env.observation_size, *hidden, env.action_size))
    policy = Policy(layout, "relu", "tanh", env.low, env.high).set(layout.initial(0, 0))
    seeds = count()
    return fastest(lambda: play(env, policy, next(seeds)).episodic_length)


def update(name: str, hidden: tuple[int, ...], batch: int) -> float:
    """Measure an update of a learner, an individual or a child [s].

    PPO's has its share of the rollout, and the batch of its defaults; others have 50 a step.
    """
    algorithm = ALGORITHM.get(name, name)
    fields: dict[str, Any] = {
        "algorithm": algorithm,
        "policy.hidden": hidden,
        "learner.device": "cpu",
        "learner.threads": 1,
    }
    if name == "ppo":
        fields["ppo.steps_per_generation"] = 512
        fields["policy.linear"] = False
    elif name == "imitation":
        fields["erl.crossover"] = "distillation"
        fields["erl.distillation_batch"] = batch
    else:
        fields[f"{algorithm}.batch_size"] = batch
    if name in ("sac", "td3", "ddpg", "erl"):
        fields[f"{name}.start_steps"] = 0
        fields[f"{name}.updates_per_step"] = 50.0
    if name in ("erl", "imitation"):
        fields |= ACTOR
    config = updated(Config(), fields)
    env = Idle()
    layout = make_layout(config, env)
    if piece := {"individuals": "training", "imitation": "imitating"}.get(name):
        return min(operators.seconds(config, layout)[piece] for _ in range(ROUNDS))
    ready = phases.prepare(Params(config, layout, env.horizon, epsilon.Philox(config.seed)), env)
    assert ready is not None
    numbers = count()
    return fastest(lambda: cooperative.run(ready[1](next(numbers))).gradient_updates)


def updates(name: str) -> dict[str, str]:
    """Measure an update with each size of networks [ms]."""
    networks = {**NETWORKS, **(OF_ERL if name in ("erl", "imitation") else {})}
    return {size: f"{1e3 * update(name, *network):.3g}" for size, network in networks.items()}


def inline(table: dict[str, str]) -> str:
    """Format an inline table of TOML."""
    return f"{{ {', '.join(f'{key} = {value}' for key, value in table.items())} }}"


def measure(tasks: Iterable[str], names: Iterable[str], machine: str) -> Iterable[str]:
    """Yield the file's lines, each as it is known."""
    yield (
        "# Speeds that estimates of core-hours are made from; measure your own machine's: "
        "esac-mpi experiment speeds"
    )
    yield f"machine = {json.dumps(machine, ensure_ascii=False)}"
    yield f'date = "{datetime.now(UTC):%Y-%m-%d}"'
    yield 'command = "esac-mpi experiment speeds"'
    yield ""
    yield (
        "# microseconds of an environment step with its policy of 2x32 and 2x512 units; "
        "the task's time limit [steps]"
    )
    yield "[step]"
    for id in tasks:
        env = envs.make(id)
        speeds = {size: f"{1e6 * step(env, hidden):.3g}" for size, (hidden, _) in NETWORKS.items()}
        yield f'"{id}" = {inline({"horizon": str(env.horizon), **speeds})}'
    yield ""
    yield (
        "# milliseconds of a gradient update, 2x32 units with batches of 128, 2x512 with 256 "
        "(erl: 2x128 with 128); PPO's of 64,"
    )
    yield "# with their rollout"
    yield "[update]"
    for name in names:
        yield f"{name} = {inline(updates(name))}"
    yield ""
    yield "# milliseconds of a step of a distilled child, 2x32 and 2x128 units, batches of 128"
    yield "[imitation]"
    yield from (f"{size} = {seconds}" for size, seconds in updates("imitation").items())


def installed() -> list[str]:
    """List what makes updates, of the learners whose libraries are there; name the others."""
    found = []
    for name in learners.LEARNERS:
        try:
            learners.load(name)
            found.append(name)
        except learners.NotInstalled as error:
            note(f"left out: {error}")
    if "cem" in found:
        found.append("individuals")
    return found


def write(tasks: Iterable[str], machine: str, path: Path = SPEEDS) -> Path:
    """Measure and write the file; return its path. Raises Unusable."""
    look_here()
    file = ours(path)
    lines = []
    for line in measure(tasks, installed(), machine):
        lines.append(line)
        if " = " in line and not line.startswith(("#", "machine", "date", "command")):
            note(line)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
