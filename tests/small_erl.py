"""Small runs of ERL's four forms: their command lines, and one in this process, in an environment that counts its steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from conftest import ROUTINE
from esac_by_hand import Track

from esac_mpi import set_up, state
from esac_mpi.algorithms import erl
from esac_mpi.config import load
from esac_mpi.config.genetic import FORMS
from esac_mpi.params import Params, make_layout

PENDULUM = ["--task.id", "Pendulum-v1", "--task.horizon", 30, *ROUTINE]
GENETIC = ["--erl.population_size", 6, "--erl.sync_interval", 2, "--erl.memory_size", 80]
OWN = ["--erl.batch_size", 16, "--erl.replay_capacity", 400, "--erl.critic_hidden", 8, 8]
OF_FORM = {
    "n_point": [],
    "distillation": ["--erl.distillation_batch", 8, "--erl.distillation_epochs", 2],
    "gaussian": [],
    "proximal": ["--erl.mutation_batch", 16],
}


def options(name):
    crossover, mutation = FORMS[name]
    return [*GENETIC, *OWN, *OF_FORM[crossover], *OF_FORM[mutation]]


def arguments(name, *more):
    return ["--algorithm", name, *PENDULUM, *options(name), *more]


class Ending(Track):
    """Track whose episodes last 2 to 10 steps, as the seed has it, and end or are truncated; some break in their second step."""

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
        return observation, np.nan if breaks else reward, bool(over and self.ends), bool(over and not self.ends)


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
        return erl.generation(self.params, self.state, self.world, self.env, self.learner)[0]

    def saved(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], tuple[int, dict[str, np.ndarray]]]:
        """Return what a checkpoint has now: the state's arrays, the learner's, the replay's first number and its rows."""
        replay = self.learner.stored_replay
        first = max(0, replay.added - replay.capacity)
        rows = {name: rows.copy() for name, rows in replay.rows(first, replay.added).items()}
        kept = {name: array.copy() for name, array in state.arrays(self.state, replay=replay).items()}
        return kept, self.learner.arrays(), (first, rows)

    def load(self, saved) -> None:
        """Go on from what was saved."""
        kept, learned, replayed = saved
        self.learner.replay.restore(*replayed)
        self.learner.load(learned)
        state.load(self.state, kept, replay=self.learner.replay)


def made(world, name: str, *more, env=None) -> Made:
    """Return a run of a form before its first generation; more: of its command line."""
    config, env = load(list(map(str, arguments(name, *more))))[0], env or Ending()
    layout = make_layout(config, env)
    epsilon = set_up.make_epsilon(config, layout, world)
    params = Params(config, layout, env.horizon, epsilon, set_up.make_operators(config, layout))
    initial = set_up.make_state(params, world)
    return Made(params, initial, world, env, set_up.make_learner(params, env, initial, world))


def assert_same(one, other) -> None:
    """Compare what two runs saved; it must be equal to the bit."""
    for mine, theirs in zip((*one[:2], one[2][1]), (*other[:2], other[2][1]), strict=True):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    assert one[2][0] == other[2][0]
