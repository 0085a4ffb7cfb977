"""Measure how long an environment step and a learner's update take on this machine, and write configs/experiments/speeds.toml.

A step is one of whole episodes with an untrained policy, resets included; an update is made from random transitions of
HalfCheetah's sizes, sampling included; an imitation is a step of a distilled child, with its share of the filter. Processor time
of one core; the fastest of three rounds, since other work on the machine only adds. Cost: one minute.
Command: esac-mpi experiment speeds [--machine "2 shared x86 cores"]
"""

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.analysis.messages import note
from esac_mpi.config import Config, updated
from esac_mpi.host import cooperative
from esac_mpi.host.invocation import look_here
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play.rollout import play
from esac_mpi.studies.experiments import update_rates
from esac_mpi.studies.experiments.design import ours
from esac_mpi.studies.experiments.estimates import SPEEDS

NETWORKS = {"small": ((32, 32), 128), "large": ((512, 512), 256)}  # hidden layers, batch
OF_ERL = {"large": ((128, 128), 128)}  # in their place: the paper's
ACTOR = {"policy.activation": "tanh", "policy.layer_norm": True}  # of ERL
STATES = 2048  # of a child
ROUNDS, SECONDS = 3, 0.3


def fastest(turn: Callable[[], tuple[int, float]]) -> float:
    """Return the least seconds that one of what a turn counts took."""
    return min(seconds / count for count, seconds in (turn() for _ in range(ROUNDS)))


def step(env: envs.Env, hidden: tuple[int, ...]) -> float:
    """Return the seconds of a step, policy included."""
    layout = Layout((env.observation_size, *hidden, env.action_size))
    policy = Policy(layout, "relu", "tanh", env.low, env.high).set(layout.initial(0, 0))
    seeds = iter(range(10**9))

    def turn() -> tuple[int, float]:
        start, steps = time.process_time(), 0
        while time.process_time() - start < SECONDS:
            steps += play(env, policy, next(seeds)).episodic_length
        return steps, time.process_time() - start

    return fastest(turn)


def update(name: str, hidden: tuple[int, ...], batch: int) -> float:
    """Return the seconds of an update; PPO's with its share of the rollout, and with the batch of its defaults."""
    changes = ACTOR if name == "erl" else {}
    own = {"ppo": rollouts, "cem": lessons, "individuals": climbs}
    learn = (
        own[name](hidden, batch)
        if name in own
        else update_rates.ours(name, hidden, batch, "cpu", 1, SECONDS, changes)
    )

    def turn() -> tuple[int, float]:
        start = time.process_time()
        made, _ = learn()
        return made, time.process_time() - start

    return fastest(turn)


def networks(name: str) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return the networks that something is measured with, and their batches, by size."""
    return {**NETWORKS, **(OF_ERL if name in ("erl", "imitation") else {})}


def imitation(hidden: tuple[int, ...], batch: int) -> float:
    """Return the seconds of a step of a distilled child."""
    config = updated(
        Config(),
        {"algorithm": "pderl", "policy.hidden": hidden, "erl.distillation_batch": batch, **ACTOR},
    )
    layout = Layout((update_rates.OBSERVATION, *hidden, update_rates.ACTION), layer_norm=True)
    operators, random = (
        learners.load("operators").GeneticOperators(config, layout),
        np.random.default_rng(0),
    )
    first, second = layout.initial(0, 0), layout.initial(0, 1)
    states = random.standard_normal((STATES, update_rates.OBSERVATION), dtype=np.float32)
    critic = random.uniform(-0.1, 0.1, operators.critic_size).astype(np.float32)

    def turn() -> tuple[int, float]:
        start, steps = time.process_time(), 0
        while time.process_time() - start < SECONDS:
            operators.distilled((first, second), first, states, critic, random)
            steps += config.erl.distillation_epochs * (STATES // batch)
        return steps, time.process_time() - start

    return fastest(turn)


def rollouts(hidden: tuple[int, ...], batch: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of PPO: rollouts of 512 steps that cost no simulation, and the updates from them."""
    config = updated(
        Config(),
        {"policy.hidden": hidden, "ppo.steps_per_generation": 512, "learner.device": "cpu"},
    )
    layout = Layout((update_rates.OBSERVATION, *hidden, update_rates.ACTION))
    learner, env = learners.make("ppo", config, layout, layout.initial(0, 0)), update_rates.Idle()
    phases = iter(range(10**9))

    def learn(count: int) -> int:
        return learner.phase(env, next(phases), 0, 512, True).gradient_updates

    return update_rates.chunks(learn, 1, SECONDS)


def lessons(hidden: tuple[int, ...], batch: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of the lessons of CEM-RL's critic."""
    config, layout = distribution(hidden, batch)
    learner, phases = learners.make("cem", config, layout, layout.initial(0, 0)), iter(range(10**9))
    for observation, action, reward, next_observation in update_rates.transitions():
        learner.replay.add(observation, action, reward, next_observation, False)

    def learn(count: int) -> int:
        return cooperative.run(learner.teach([learner.theta], count, next(phases))).gradient_updates

    return update_rates.chunks(learn, 1, SECONDS)


def climbs(hidden: tuple[int, ...], batch: int) -> Callable[[], tuple[int, float]]:
    """Return a turn of an individual's training."""
    config, layout = distribution(hidden, batch)
    operators, random = (
        learners.make_operators("individuals", config, layout),
        np.random.default_rng(0),
    )
    states = np.stack([observation for observation, *_ in update_rates.transitions()])
    theta, critic = (
        layout.initial(0, 0),
        random.standard_normal(operators.critic_size, dtype=np.float32),
    )

    def climb(count: int) -> int:
        operators.trained(theta, critic, states, count, random)
        return count

    return update_rates.chunks(climb, 1, SECONDS)


def distribution(hidden: tuple[int, ...], batch: int) -> tuple[Config, Layout]:
    """Return settings and layout of CEM-RL."""
    fields = {
        "algorithm": "cem_rl",
        "policy.hidden": hidden,
        "cem_rl.batch_size": batch,
        "learner.device": "cpu",
    }
    return updated(Config(), fields), Layout(
        (update_rates.OBSERVATION, *hidden, update_rates.ACTION)
    )


def speeds_text(tasks: Iterable[str], learners: Iterable[str], machine: str) -> str:
    """Return the file's text."""
    lines = [
        "# Speeds that estimates of core-hours are made from; measure your own machine's: esac-mpi experiment speeds",
        f"machine = {json.dumps(machine, ensure_ascii=False)}",
        f'date = "{datetime.now(UTC):%Y-%m-%d}"', 'command = "esac-mpi experiment speeds"',
        "", "# microseconds of an environment step with its policy of 2x32 and 2x512 units; the task's time limit [steps]",
        "[step]",
    ]  # fmt: skip
    for id in tasks:
        env = envs.make(id)
        speeds = ", ".join(
            f"{size} = {1e6 * step(env, hidden):.3g}" for size, (hidden, _) in NETWORKS.items()
        )
        lines.append(f'"{id}" = {{ horizon = {env.horizon}, {speeds} }}')
        note(lines[-1])
    lines += [
        "",
        "# milliseconds of a gradient update, 2x32 units with batches of 128, 2x512 with 256 (erl: 2x128 with 128); PPO's of 64,",
        "# with their rollout",
        "[update]",
    ]
    for name in learners:
        measured = {
            size: update(name, hidden, batch) for size, (hidden, batch) in networks(name).items()
        }
        lines.append(
            f"{name} = {{ {', '.join(f'{size} = {1e3 * seconds:.3g}' for size, seconds in measured.items())} }}"
        )
        note(lines[-1])
    lines += [
        "",
        "# milliseconds of a step of a distilled child, 2x32 and 2x128 units, batches of 128",
        "[imitation]",
    ]
    for size, (hidden, batch) in networks("imitation").items():
        lines.append(f"{size} = {1e3 * imitation(hidden, batch):.3g}")
        note(lines[-1])
    return "\n".join(lines) + "\n"


def installed() -> list[str]:
    """Return what makes updates, of the learners whose libraries are there; name the others."""
    found = []
    for name in learners.LEARNERS:
        try:
            learners.load(name)
            found.append(name)
        except learners.NotInstalled as error:
            note(f"left out: {error}")
    return found + ["individuals"] * ("cem" in found)


def write(tasks: Iterable[str], machine: str, path: Path = SPEEDS) -> Path:
    """Measure and write the file; return its path. Raises Unusable."""
    look_here()
    ours(path).write_text(speeds_text(tasks, installed(), machine), encoding="utf-8")
    return path
