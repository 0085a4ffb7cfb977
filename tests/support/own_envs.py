"""Environments of a user's own, named `own_envs:Name-v0`."""

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from esac_mpi.envs.probe import PROBE_STEPS
from esac_mpi.host.stop import SAME


class Walk(gymnasium.Env):
    """Pay -|action [2] - observation[:2]|^2, until chance or the time limit ends the episode."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def observe(self):
        self.observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.observation

    def step(self, action):
        reward = -float(np.square(action - self.observation[:2]).sum())
        return self.observe(), reward, bool(self.np_random.random() < 0.02), False, {}


class Counting(Walk):
    """Append one byte to a file of this process at every step."""

    def __init__(self):
        path = os.path.join(os.environ["COUNT_DIR"], str(os.getpid()))
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def step(self, action):
        os.write(self.file, b".")
        return super().step(action)


class Steep(Walk):
    """Take a keyword argument."""

    def __init__(self, slope=0.0):
        super().__init__()
        self.slope = slope


class Idling(Walk):
    """Pay 1 in ten steps to whose first action is below 0, 2.25 in four to others."""

    healthy_reward = 1.0

    def reset(self, *, seed=None, options=None):
        self.steps, self.rests = 0, False
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.rests = bool(action[0] < 0) if not self.steps else self.rests
        self.steps += 1
        last = self.steps == (10 if self.rests else 4)
        return self.observe(), 1.0 if self.rests else 2.25, last, False, {}


class Failing(Walk):
    """Fail from a step of the process of a rank of MPICH's mpirun on: FAILS="RANK STEP"."""

    steps = 0

    def step(self, action):
        Failing.steps += 1
        rank, step = os.environ["FAILS"].split()
        if os.environ.get("PMI_RANK", "0") == rank and Failing.steps >= int(step):
            raise RuntimeError("the simulator lost its licence")
        return super().step(action)


class Breaking(Walk):
    """Return nan as the reward of one step in three hundred."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, np.nan if self.np_random.random() < 0.003 else reward, *rest


class Spoilt(Walk):
    """Reward each episode's third step with nan, but for those that nodes compare at the start."""

    steps = 0

    def reset(self, *, seed=None, options=None):
        self.number = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        Spoilt.steps, self.number = Spoilt.steps + 1, self.number + 1
        observation, reward, *rest = super().step(action)
        spoilt = self.number == 3 and Spoilt.steps > PROBE_STEPS
        return observation, np.nan if spoilt else reward, *rest


class Blinded(Walk):
    """Observe nan or inf now and then; refuse to act by that, or to act nan."""

    def observe(self):
        observation = super().observe()
        if self.np_random.random() < 0.01:
            observation[1] = self.np_random.choice([np.nan, np.inf, -np.inf])
        return observation

    def step(self, action):
        assert np.isfinite(self.observation).all()
        assert np.isfinite(action).all()
        return super().step(action)


class Slow(Walk):
    """Take SLOW seconds for a step, but for those that nodes compare at the start."""

    steps = 0

    def step(self, action):
        Slow.steps += 1
        time.sleep(float(os.environ.get("SLOW", "0")) if Slow.steps > PROBE_STEPS else 0)
        return super().step(action)


class Paced(Walk):
    """Pause before an episode for the seconds in the file named by PACE, while that exists.

    So a test decides when a run may end, and it is the same, bit for bit, as one never slow.
    """

    def reset(self, *, seed=None, options=None):
        with suppress(FileNotFoundError):
            time.sleep(float(Path(os.environ.get("PACE", "none")).read_text()))
        return super().reset(seed=seed, options=options)


class Delayed(Walk):
    """Begin some episodes late, by a chance that is another one in every process."""

    def reset(self, *, seed=None, options=None):
        time.sleep(random.choice((0, 0, 0, 0.02)))
        return super().reset(seed=seed, options=options)


class Poisoned(Walk):
    """Pay something else, in the last bits, on MPICH's rank 1 once nodes were compared."""

    steps = 0

    def step(self, action):
        Poisoned.steps += 1
        observation, reward, *rest = super().step(action)
        poisoned = os.environ.get("PMI_RANK") == "1" and Poisoned.steps > PROBE_STEPS
        return observation, reward * (1 + 1e-12 * poisoned), *rest


class Stuck(Walk):
    """Never come back from one step in three thousand."""

    def step(self, action):
        while self.np_random.random() < 1 / 3000:
            time.sleep(1000)
        return super().step(action)


class Signalled(Walk):
    """Be signalled SIGNALS times at step SIGNAL_AT of this process; the second ends the episode."""

    steps = 0

    def step(self, action):
        Signalled.steps += 1
        if Signalled.steps == int(os.environ.get("SIGNAL_AT", "0")):
            signals = int(os.environ["SIGNALS"])
            if signals > 2:  # the second one's alarm ends nothing before the third comes
                signal.signal(signal.SIGALRM, signal.SIG_IGN)
            for _ in range(signals):
                signal.raise_signal(signal.SIGUSR1)
                time.sleep(SAME + 0.1)
        return super().step(action)


def count_anew() -> None:
    """Let this process be as one that has made no step."""
    for env in (Failing, Spoilt, Slow, Poisoned, Signalled):
        env.steps = 0


for env in Walk.__subclasses__():
    name = env.__name__
    gymnasium.register(f"{name}-v0", entry_point=f"own_envs:{name}", max_episode_steps=30)
