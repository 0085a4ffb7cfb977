"""Small runs of population algorithms: command lines, and one made generation by generation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from conftest import ROUTINE
from esac_by_hand import Track
from words import words

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, load
from esac_mpi.play import state
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training import set_up

PENDULUM = ["--task.id", "Pendulum-v1", "--task.horizon", 30, *ROUTINE]
ERL = words("--erl.population_size 6 --erl.sync_interval 2 --erl.critic_hidden 8 8")
ERL += words("--erl.batch_size 16 --erl.replay_capacity 400")
PROXIMAL = words("--erl.mutation_batch 16")
DISTILLED = words("--erl.distillation_batch 8 --erl.distillation_epochs 2")
LESSONS = words("--cem_rl.start_steps 100 --cem_rl.batch_size 16 --cem_rl.replay_capacity 1000")
# enough of them, and quick
LESSONS += words("--cem_rl.critic_updates_per_step 0.3 --cem_rl.actor_updates_per_step 0.2")
OPTIONS = {
    "cem": words("--cem.population_size 6"),
    "cem_rl": [*words("--cem_rl.population_size 6"), *LESSONS],
    "erl": ERL,
    "perl": [*ERL, *words("--erl.memory_size 80"), *PROXIMAL],
    "derl": [*ERL, *words("--erl.memory_size 80"), *DISTILLED],
    "pderl": [*ERL, *words("--erl.memory_size 80"), *DISTILLED, *PROXIMAL],
}


class Ending(Track):
    """Track that ends or is truncated after 2 to 10 steps by its seed; some break."""

    steps = broken = 0  # ever
    breaking = 0  # one episode in so many breaks; 0 = none

    def reset(self, seed):
        observation = super().reset(seed)
        self.left, self.ends = 2 + seed % 9, seed % 2
        self.breaks = self.left - 2 if self.breaking and not seed // 18 % self.breaking else -1
        return observation

    def step(self, action):
        observation, reward, _, over = super().step(action)
        breaks = self.left == self.breaks
        self.broken += breaks
        return (
            observation,
            np.nan if breaks else reward,
            bool(over and self.ends),
            bool(over and not self.ends),
        )


@dataclass
class Made:
    """What a run is made of, without its files."""

    params: Params
    state: Any
    world: Any
    env: Any
    learner: Any

    def generation(self) -> dict[str, Any]:
        algorithm = ALGORITHMS[self.params.config.algorithm]
        return algorithm.generation(self.params, self.state, self.world, self.env, self.learner)[0]

    def saved(self) -> dict[str, np.ndarray]:
        """Return what a checkpoint has now: state, learner, the replay's rows and their start."""
        replay = self.learner.stored_replay if self.learner is not None else None
        kept = {
            f"state.{name}": array.copy()
            for name, array in state.arrays(self.state, replay=replay).items()
        }
        if replay is None:
            return kept
        first = max(0, replay.added - replay.capacity)
        rows = {
            f"replay.{name}": rows.copy() for name, rows in replay.rows(first, replay.added).items()
        }
        learned = {f"learner.{name}": array for name, array in self.learner.arrays().items()}
        return {**kept, **learned, **rows, "first": np.array(first)}

    def load(self, saved) -> None:
        replay = self.learner.replay if self.learner is not None else None
        if replay is not None:
            replay.restore(int(saved["first"]), part(saved, "replay"))
            self.learner.load(part(saved, "learner"))
        state.load(self.state, part(saved, "state"), replay=replay)


def part(saved, name: str) -> dict[str, np.ndarray]:
    return {
        key.removeprefix(f"{name}."): array
        for key, array in saved.items()
        if key.startswith(f"{name}.")
    }


def arguments(name: str, *more) -> list:
    return ["--algorithm", name, *PENDULUM, *OPTIONS[name], *more]


def made(world, name: str, *more, env=None) -> Made:
    """Return a small run before its first generation; more: of its command line."""
    return begun(world, arguments(name, *more), env)


def begun(world, line, env=None, own_env=None) -> Made:
    """Return a run of a command line, or of settings, before its first generation."""
    config = line if isinstance(line, Config) else load(list(map(str, line)))[0]
    env = env or Ending()
    layout = make_layout(config, env)
    made = set_up.make_epsilon(config, layout, world), set_up.make_operators(config, layout)
    params = Params(config, layout, env.horizon, *made, own_env)
    initial = set_up.make_state(params, world)
    return Made(params, initial, world, env, set_up.make_learner(params, env, initial, world))


def shared_bytes(world) -> list[int]:
    """Return a list that gets the bytes of every array that the ranks of the node come to share."""
    sizes, honest = [], world._node.shared

    def shared(shape, dtype=np.float32):
        array = honest(shape, dtype)
        sizes.append(array.nbytes)
        return array

    world._node.shared = world.shared = shared
    return sizes


def raising(honest, call: int, error):
    """Return a function that does what `honest` does, and raises `error` after that call of it."""
    calls = []

    def function(*arguments):
        result = honest(*arguments)
        calls.append(result)
        if len(calls) == call:
            raise error
        return result

    return function
