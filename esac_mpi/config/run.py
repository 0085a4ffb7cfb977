"""Tables of the run itself, whatever algorithm runs."""

import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from esac_mpi.config.bounds import (
    AUTO,
    COUNT,
    NAMED,
    PLAIN_TABLE,
    AutoSizes,
    Bound,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
)
from esac_mpi.config.table import HIDDEN, OnlyWith, Problem, Table, Whole


@dataclass(frozen=True)
class Task(Table):
    """The environment."""

    id: Annotated[str, NAMED] = "HalfCheetah-v5"
    """Gymnasium id, dm_control/<domain>-<task>-v0, module:EnvId for your own, or the toy of section
    4: CyclicMDP-v0 by the paper's rules, CyclicMDPRepo-v0 by the public code's. P: section 6."""
    horizon: NonNegativeInt = 0
    """Truncate episodes after this many steps [steps]; 0 = the task's own limit. Longer ones by
    task.kwargs: max_episode_steps of gymnasium.make, time_limit [s] of the suite."""
    kwargs: Annotated[dict[str, Any], PLAIN_TABLE] = field(default_factory=dict, hash=False)
    """Keyword arguments of gymnasium.make, or of the suite's function: [task.kwargs] in a file;
    here a JSON object, or each by its name (--task.kwargs.NAME VALUE). Part of what the task is."""
    changed: Literal["refuse", "warn"] = "refuse"
    """What a start does where the task (source, wrappers, model, first rewards) is no longer the
    one that the run began with: refuse to go on, or warn, and begin the best policy anew."""


@dataclass(frozen=True)
class Budget(Table):
    """The first that is reached ends the run; 0 = no limit. Naming any turns the default off."""

    generations: NonNegativeInt = 0
    """Generations [generations]."""
    env_steps: NonNegativeInt = 0
    """True steps: population, learner, resimulated episodes, evaluation [steps]."""
    nominal_steps: NonNegativeInt = 1_000_000
    """The papers' count: a horizon a generation of esac and es, else steps [steps]. P: 6.3."""
    minutes: Annotated[NonNegativeFloat, COUNT] = 0.0
    """Time that the run has trained, over all its starts, without their set-up [min]; it ends,
    complete, with the generation in which this is over. Not max_hours: a job's time."""

    @property
    def limits(self) -> tuple[float, ...]:
        """Generations, environment steps and nominal steps that end the run; inf for no limit."""
        limits = self.generations, self.env_steps, self.nominal_steps
        return tuple(limit or math.inf for limit in limits)

    def spent(
        self, generations: float, env_steps: float, nominal_steps: float, seconds: float = 0.0
    ) -> float:
        """Measure how much of it so much is; 1 or more is the end. seconds: of training."""
        done = generations, env_steps, nominal_steps, seconds
        limits = *self.limits, 60 * self.minutes or math.inf
        return max(part / limit for part, limit in zip(done, limits, strict=True))

    def left(
        self, generations: int, env_steps: int, nominal_steps: int, seconds: float = 0.0
    ) -> "Budget":
        """What is left of each limit after so much: 1 at least, of minutes 0.01."""
        done = (generations, 1), (env_steps, 1), (nominal_steps, 1), (seconds / 60, 0.01)
        left = {
            name: limit and max(limit - spent, least)
            for (name, limit), (spent, least) in zip(asdict(self).items(), done, strict=True)
        }
        return Budget(**left)

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield that nothing ends the run."""
        if not any(asdict(self).values()):
            remedy = f"Set {table}.generations, env_steps or minutes, say"
            yield "", f"no limit is set; the run would never end. {remedy}"


NARROW, WIDE = (64, 64), (256, 256)  # hidden layers, for few observations and for many
GAINS = Bound(lambda gain: 1e-3 <= gain <= 1000, f"must be from 0.001 to 1000, or {AUTO}")
GAIN = 4.0  # of the linear path, as tuned with up to 17 observations


def automatic_gain(observations: int) -> float:
    """Return a linear path's gain, to two digits: GAIN up to 17 observations, less for more.

    The output of W x for noise on W, and standardised observations x, grows as their square root.
    """
    return float(f"{max(1.0, GAIN * min(1.0, math.sqrt(17 / observations))):.2g}")


@dataclass(frozen=True)
class PolicyNetwork(Table):
    """The network of theta_es, of every offspring and of the SAC mean."""

    hidden: AutoSizes = AUTO
    """Units of hidden layers, critics' too (but erl.critic_hidden); [] = none. auto: 64 64, or 256
    256 for more than 64 observations (M: docs/results/choices.md). P: 6.1, 512 512; C: 256 256."""
    activation: Annotated[Literal["relu", "tanh"], HIDDEN] = "relu"
    """Nonlinearity of the hidden layers. P: 6.1."""
    layer_norm: Annotated[bool, HIDDEN] = False
    """Normalise the sums of every hidden layer of the policy (torch.nn.LayerNorm; Ba et al. 2016,
    arXiv:1607.06450). P, C: off; the ERL family: on. Not with algorithm = "ppo"."""
    linear: bool = True
    """A matrix W from the observation straight to the output, beside the hidden layers (structured
    control nets; Srouji et al. 2018, arXiv:1802.08311). P, C: off. Not with algorithm = "ppo"."""
    linear_gain: Annotated[float | Literal["auto"], GAINS, OnlyWith(linear=True), HIDDEN] = "auto"
    """g in output = network(x) / g + g W x: W has rates g times as large as the other weights.
    auto: 4, and less for more than 17 observations, so that noise on W moves actions no further.
    Ours (docs/explain/esac.md)."""
    output: Literal["tanh", "clip"] = "tanh"
    """Squashing of the mean to [-1, 1] before it is scaled to the task's bounds. P: 6.1 tanh; C:
    clip, as algorithm = "ppo" always does, and no scaling."""

    def path_gain(self, observations: int) -> float:
        """Return the gain of the linear path; 0 where there is none."""
        if not (self.linear and self.hidden):
            return 0.0
        return automatic_gain(observations) if self.linear_gain == "auto" else self.linear_gain


DEVICE = Bound(
    lambda name: bool(re.fullmatch(r"auto|cpu|cuda(:\d+)?", name)),
    "expected auto, cpu, cuda or cuda:<number>",
)


@dataclass(frozen=True)
class Learner(Table):
    """Where the gradient learner runs."""

    threads: PositiveInt = 1
    """Threads of rank 0's learner, with a core each. Yours to set, never derived: bits depend on
    torch's number, not on that of compiled kernels, where it may change when a run goes on."""
    device: Annotated[str, DEVICE] = "auto"
    """auto (the faster of CPU and GPU at the run's first start), cpu, cuda, cuda:1, ..."""
    kernels: Literal["auto", "torch", "mkl", "compiled"] = "auto"
    """What makes the updates on a CPU: SAC's in C, its own actions, too (compiled), torch with
    MKL's fast path on AMD (mkl), torch. auto: the first that is possible; the run keeps it
    (docs/results/performance.md)."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Matrix products of the learner's updates: tf32 rounds to 10 bits (a GPU's alone); bf16
    multiplies in bfloat16. All else is in float32, also what ranks teach individuals and children
    (Micikevicius et al. 2018; Kalamkar et al. 2019)."""


@dataclass(frozen=True)
class Evaluation(Table):
    """Noise-free episodes of theta_es and of the SAC mean, apart."""

    every: PositiveInt = 10
    """Generations between evaluations [generations]."""
    episodes: PositiveInt = 10
    """Episodes per policy and evaluation [episodes]; a new best one plays as many again. P: 6.1."""


@dataclass(frozen=True)
class Checkpoint(Table):
    """When the complete state is saved; always at a stop and at the end."""

    every_generations: NonNegativeInt = 20
    """Generations between checkpoints [generations]; 0 = by time only."""
    every_minutes: NonNegativeFloat = 10.0
    """Longest time between checkpoints [min]; 0 = by generations only."""
    unsaved_minutes: NonNegativeFloat = 30.0
    """The run ends, exit code 74, when no checkpoint was written for so long [min]; 0 = never."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield that nothing is saved before the end."""
        if not (self.every_generations or self.every_minutes):
            yield "every_generations every_minutes", "a run that is killed would lose all"


@dataclass(frozen=True)
class Stop(Table):
    """How a run ends before its budget does, and what counts as hanging."""

    grace_seconds: NonNegativeFloat = 5.0
    """A generation unfinished this long after SIGTERM or SIGXCPU is given up, and made again at the
    next start [s]. SLURM kills 30 s after SIGTERM (KillWait), PBS 10 s (kill_delay)."""
    starts: NonNegativeInt = 10
    """So many starts in a row without progress make the run a failed one; 0 = no limit."""
    member_minutes: NonNegativeFloat = 30.0
    """A rank that is busy for longer with one member, episode or update hangs, and ends the job
    [min]; 0 = no limit."""
    silent_minutes: NonNegativeFloat = 30.0
    """Rank 0 ends the job after it has waited so long for the others, or for 20 median generations
    if that is longer [min]; 0 = no limit."""


@dataclass(frozen=True)
class Display(Table):
    """What the person sees."""

    every_seconds: NonNegativeFloat = 5.0
    """Time between the first lines [s]; it grows up to 5 minutes. 0 = a line a generation."""
