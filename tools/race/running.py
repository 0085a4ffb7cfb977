"""How a competitor's own process, `python -m tools.race.peers PLAN.json`, tells of itself.

Its clock counts from the start of its process and stands still while it is evaluated, for everyone
alike. Evaluations are of the deterministic policy, in our environment of the task, from the same
start states each time and for everyone; a mean that reaches the goal is held against as many other
episodes, which no other look has, so that neither many looks nor two policies are many chances. The
next look is due when the clock has gone on by a twentieth, and by a second at least.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.operators.noise import Purpose, integer

LEAST, PART = 1.0, 0.05  # from a look to the next: seconds at least, share of the clock
Act = Callable[[np.ndarray], np.ndarray]  # observations [n, o] -> actions [n, a] within bounds


@dataclass(frozen=True)
class Plan:
    """A competitor on a task, from a seed, and what is the same for everyone there."""

    competitor: str
    program: str  # the function of peers.py that runs it
    library: str  # the module that has it; "" = ours
    task: str
    goal: float
    seed: int
    limit: float  # [s]
    episodes: int  # of an evaluation
    cores: int
    settings: dict[str, Any]
    versions: str
    made_with: str = ""  # what its row is known by, beside seed and machine
    folder: str = ""  # for what it writes
    started: float = 0.0  # when its process was, on the monotonic clock [s]

    @property
    def algorithm(self) -> str:
        """Its name in its library."""
        return self.competitor.partition(",")[0].split()[-1]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.task}, {self.competitor}, seed {self.seed}"

    @property
    def looks(self) -> Path:
        """The file that it tells of itself in: a JSON object a line."""
        return Path(self.folder) / "looks.jsonl"


@dataclass(frozen=True)
class Look:
    """A competitor looked at."""

    seconds: float  # of its clock
    env_steps: int  # its true ones; those of the race's evaluations are not among them
    policy: str  # the better one, where it has several
    mean: float  # return over the episodes of every look
    again: float | None  # over as many others, of this look alone; None: `mean` missed the goal
    evaluating: float  # time so far of which its clock knows nothing [s]

    def reached(self, goal: float) -> bool:
        """Return whether the goal is reached."""
        return self.again is not None and min(self.mean, self.again) >= goal


class Teller:
    """Looks at a competitor from within its process, and writes down what it sees."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan, self._clock = plan, clock
        self._evaluating, self._next, self._looks = 0.0, LEAST, 0
        self._envs: list[envs.Env] = []

    @property
    def seconds(self) -> float:
        """Its time since the start of the process, without evaluations [s]."""
        return self._clock() - self.plan.started - self._evaluating

    def begin(self) -> None:
        """Tell that training begins: what came before is start-up."""
        self._tell({"start_up": self.seconds})

    @property
    def due(self) -> bool:
        """Whether it is time to look, or over."""
        return self.seconds >= min(self._next, self.plan.limit)

    def look(self, policies: Mapping[str, Act], env_steps: int) -> bool:
        """Look at it; return whether its run is over: the goal or the limit is reached."""
        start, seconds = self._clock(), self.seconds
        if seconds >= self.plan.limit:
            return True
        means = {name: self._mean(act, 0) for name, act in policies.items()}
        order = sorted(means, key=lambda name: -means[name])
        self._looks += 1
        best, again = order[0], None
        for name in order:
            if means[name] >= self.plan.goal:
                best, again = name, self._mean(policies[name], self._looks * self.plan.episodes)
                if again >= self.plan.goal:
                    break
        self._evaluating += self._clock() - start
        seen = Look(seconds, env_steps, best, means[best], again, self._evaluating)
        self._tell(asdict(seen))
        self._next = seconds + max(LEAST, PART * seconds)
        return seen.reached(self.plan.goal)

    def _mean(self, act: Act, first: int) -> float:
        """Return the mean over an evaluation's episodes from the `first`; -inf if one has none."""
        count = self.plan.episodes
        if not self._envs:
            self._envs = [envs.make(self.plan.task) for _ in range(count)]
        seeds = [integer(0, Purpose.EVALUATION, 0, block=first + i) for i in range(count)]
        found = returns(self._envs, act, seeds)
        return float(found.mean()) if np.isfinite(found).all() else -np.inf

    def _tell(self, entry: dict[str, Any]) -> None:
        with self.plan.looks.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def returns(places: list[envs.Env], act: Act, seeds: list[int]) -> np.ndarray:
    """Play an episode in each, side by side; return their returns [n], nan if unstable."""
    totals, going = np.zeros(len(places)), list(range(len(places)))
    observations = [env.reset(seed) for env, seed in zip(places, seeds, strict=True)]
    while going:
        actions = act(np.stack([observations[i] for i in going]))
        for i, action in zip(tuple(going), actions, strict=True):
            env = places[i]
            try:
                taken = np.clip(np.asarray(action, np.float32), env.low, env.high)
                observations[i], reward, terminated, truncated = env.step(taken)
            except envs.UnstablePhysics:
                reward, truncated = np.nan, True
            totals[i] += np.nan if env.unstable else reward
            if terminated or truncated:
                going.remove(i)
    return totals
