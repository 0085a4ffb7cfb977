"""Small runs of CEM and CEM-RL: their command lines, and one in this process, in an environment that counts its steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from small_erl import PENDULUM, Ending

from esac_mpi import set_up, state
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import load
from esac_mpi.params import Params, make_layout

LEARNER = ["--cem_rl.start_steps", 100, "--cem_rl.batch_size", 16, "--cem_rl.replay_capacity", 1000]
RATES = ["--cem_rl.critic_updates_per_step", 0.3, "--cem_rl.actor_updates_per_step", 0.2]  # enough of them, and quick


def options(name):
    return [f"--{name}.population_size", 6, *(LEARNER + RATES if name == "cem_rl" else [])]


def arguments(name, *more):
    return ["--algorithm", name, *PENDULUM, *options(name), *more]


@dataclass
class Made:
    """What a run is made of, without its files."""

    params: Params
    state: Any
    world: Any
    env: Any
    learner: Any

    def generation(self) -> dict[str, Any]:
        """Make a generation; return its row."""
        algorithm = ALGORITHMS[self.params.config.algorithm]
        return algorithm.generation(self.params, self.state, self.world, self.env, self.learner)[0]

    def saved(self) -> dict[str, np.ndarray]:
        """Return what a checkpoint has now: the state's arrays, the learner's, the replay's rows and the first one's number."""
        kept = {f"state.{name}": array.copy() for name, array in state.arrays(self.state).items()}
        if self.learner is None:
            return kept
        replay = self.learner.stored_replay
        first = max(0, replay.added - replay.capacity)
        rows = {f"replay.{name}": rows.copy() for name, rows in replay.rows(first, replay.added).items()}
        learned = {f"learner.{name}": array for name, array in self.learner.arrays().items()}
        return {**kept, **learned, **rows, "first": np.array(first)}

    def load(self, saved) -> None:
        """Go on from what was saved."""
        if self.learner is not None:
            self.learner.replay.restore(int(saved["first"]), part(saved, "replay"))
            self.learner.load(part(saved, "learner"))
        state.load(self.state, part(saved, "state"))


def part(saved, name: str) -> dict[str, np.ndarray]:
    """Return what was saved of one of its parts."""
    return {key.removeprefix(f"{name}."): array for key, array in saved.items() if key.startswith(f"{name}.")}


def made(world, name: str, *more, env=None) -> Made:
    """Return a run before its first generation; more: of its command line."""
    config, env = load(list(map(str, arguments(name, *more))))[0], env or Ending()
    layout = make_layout(config, env)
    epsilon = set_up.make_epsilon(config, layout, world)
    params = Params(config, layout, env.horizon, epsilon, set_up.make_operators(config, layout))
    initial = set_up.make_state(params, world)
    return Made(params, initial, world, env, set_up.make_learner(params, env, initial, world))


def assert_same(one, other) -> None:
    """Compare what two runs saved; it must be equal to the bit."""
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
