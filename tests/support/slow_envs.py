"""An environment, `slow_envs:Slow-v0`, as slow as the file named by SLOW says, while that exists.

So a test decides when a run may end, and the run is the same, bit for bit, as one never slow.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import gymnasium
from own_envs import Walk


class Slow(Walk):
    """Walk, with a pause before every episode."""

    def reset(self, *, seed=None, options=None):
        with suppress(FileNotFoundError):
            time.sleep(float(Path(os.environ.get("SLOW", "none")).read_text()))
        return super().reset(seed=seed, options=options)


gymnasium.register("Slow-v0", entry_point="slow_envs:Slow", max_episode_steps=30)
