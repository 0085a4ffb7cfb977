"""Tables of the learners with a replay: SAC, TD3, DDPG."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    AUTO,
    FLOAT32,
    AutoRate,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Standardisation,
)
from esac_mpi.config.table import HIDDEN, NOT_ZERO, OnlyWith, Problem, Reads, Table, Whole

BY_STEPS = OnlyWith(episodes_on="root")
UPDATED = OnlyWith(updates_per_step=NOT_ZERO)


class Replaying(Table):
    """A table with a replay; it declares these fields."""

    batch_size: int
    replay_capacity: int
    start_steps: int

    @property
    def first_update(self) -> int:
        """Training steps before which there is no update [steps]."""
        return self.start_steps

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield where an update would take more transitions than the replay holds."""
        yield from super().problems(table, config)
        if self.batch_size > self.replay_capacity:
            yield "batch_size", f"must be at most {table}.replay_capacity ({self.replay_capacity})"


@dataclass(frozen=True)
class SAC(Replaying):
    """Soft Actor-Critic, alone or in ESAC (Haarnoja et al. 2018)."""

    READS = Reads(("learner",), also=("esac.preset",))  # a preset of ESAC sets fields of it

    lr_sac: Annotated[AutoRate, UPDATED] = AUTO
    """Adam's learning rate of actor, critics and temperature, alpha. auto: 1e-3, or 3e-4 for more
    than 64 observations (M: docs/results/choices.md). P: D.1, 3e-4."""
    gamma: Annotated[Fraction, UPDATED] = 0.99
    """Discount. P: D.1."""
    tau: Annotated[Fraction, UPDATED] = 0.005
    """Polyak coefficient of the targets. C."""
    temperature: NonNegativeFloat = 0.05
    """Entropy temperature, lambda in Eq. 1, or its initial value. P: 6.1, fixed; C: 0.2."""
    automatic_temperature: bool = True
    """Tune it towards an entropy of -action_size (Haarnoja et al. 2018b). P, C: off."""
    value_network: bool = False
    """V, target V and two Q (P: line 19; Haarnoja et al. 2018a) in place of two Q with targets."""
    critic_layer_norm: Annotated[bool, HIDDEN] = False
    """Normalise the sums of the critics' hidden layers, as policy.layer_norm does the policy's
    (Ball et al. 2023, arXiv:2302.02948). P, C: off."""
    batch_size: Annotated[PositiveInt, UPDATED] = 64
    """Transitions per update. C: 256."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept [transitions]. C."""
    start_steps: NonNegativeInt = 1000
    """First training steps, taken with uniform random actions [steps]. C: 10,000 nominal steps, in
    which ESAC has one phase."""
    updates_per_step: NonNegativeFloat = 1.0
    """Gradient updates per training step. P: D.1."""
    interleaved: Annotated[bool, UPDATED] = False
    """Update after every step (C) in place of collecting the phase first (P: lines 13-23)."""
    steps_per_generation: PositiveInt = 1000
    """Training steps of a generation of algorithm = "sac" [steps]; an episode is cut."""
    observation_normalisation: Standardisation = AUTO
    """Standardise observations by running statistics, clipped to +-5 standard deviations. shrink:
    divide by those above 1 alone. auto: true, or shrink for more than 64 (M). P, C: off. Within
    ESAC: esac.observation_normalisation."""

    @property
    def first_update(self) -> int:
        """As it learns from its random steps at once, 0."""
        return 0

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield the rules that the table breaks."""
        yield from super().problems(table, config)
        if self.automatic_temperature and (problem := FLOAT32.problem(self.temperature)):
            yield "temperature", f"{problem} where it is tuned ({table}.automatic_temperature)"


@dataclass(frozen=True)
class Stepwise(Replaying):
    """What TD3 and DDPG share (F: Fujimoto et al. 2018; L: Lillicrap et al. 2016)."""

    gamma: Annotated[Fraction, UPDATED] = 0.99
    """Discount. F, L."""
    critic_layer_norm: Annotated[bool, HIDDEN] = False
    """Normalise the sums of the critics' hidden layers, as sac.critic_layer_norm. F, L: off."""
    exploration_noise: NonNegativeFloat = 0.1
    """Gaussian noise of the actions that are played [standard deviation; actions are in [-1, 1]].
    F; L has an Ornstein-Uhlenbeck process of 0.2."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept [transitions]. F, L."""
    start_steps: NonNegativeInt = 25_000
    """First training steps, with uniform random actions and without updates [steps]; under
    episodes_on = ranks whole generations. F: the later code; the paper 10,000 or 1,000; L: 0."""
    updates_per_step: NonNegativeFloat = 1.0
    """Gradient updates per training step. F, L."""
    interleaved: Annotated[bool, BY_STEPS, UPDATED] = True
    """Update after every step (F, L), in place of collecting the generation first."""
    steps_per_generation: Annotated[PositiveInt, BY_STEPS] = 1000
    """Training steps of a generation [steps]; an episode in progress is cut and bootstrapped."""
    episodes_on: Literal["root", "ranks"] = "root"
    """Who plays: rank 0, a step at a time between its updates; or all ranks, whole episodes by the
    actor as it was at the generation's start, after which rank 0 makes their updates."""
    episodes_per_generation: Annotated[PositiveInt, OnlyWith(episodes_on="ranks")] = 8
    """Episodes of a generation under episodes_on = ranks [episodes], on any number of ranks."""
    observation_normalisation: Standardisation = False
    """Standardise observations, as sac.observation_normalisation. F, L: off."""


@dataclass(frozen=True)
class TD3(Stepwise):
    """Twin Delayed DDPG (Fujimoto et al. 2018). F: the paper, and its authors' later code."""

    READS = Reads(("learner",))

    lr_td3: Annotated[PositiveFloat, UPDATED] = 3e-4
    """Adam's learning rate of actor and critics. F: the later code; the paper has 1e-3."""
    tau: Annotated[Fraction, UPDATED] = 0.005
    """Polyak coefficient of the targets. F."""
    policy_delay: Annotated[PositiveInt, UPDATED] = 2
    """Updates of the critics per update of actor and targets, d [updates]. F."""
    policy_noise: Annotated[NonNegativeFloat, UPDATED] = 0.2
    """Noise on the target's action [standard deviation; actions are in [-1, 1]]. F."""
    noise_clip: Annotated[NonNegativeFloat, OnlyWith(policy_noise=NOT_ZERO), UPDATED] = 0.5
    """Bound of that noise, c [of the action's bound]. F."""
    batch_size: Annotated[PositiveInt, UPDATED] = 256
    """Transitions per update. F: the later code; the paper has 100."""


@dataclass(frozen=True)
class DDPG(Stepwise):
    """Deep Deterministic Policy Gradient (Lillicrap et al. 2016). L: the paper."""

    READS = Reads(("learner",))

    lr_actor: Annotated[PositiveFloat, UPDATED] = 1e-4
    """Adam's learning rate of the actor. L."""
    lr_critic: Annotated[PositiveFloat, UPDATED] = 1e-3
    """Adam's learning rate of the critic. L."""
    critic_weight_decay: Annotated[NonNegativeFloat, UPDATED] = 1e-2
    """L2 coefficient of the critic: its gradient gains this times its parameters. L."""
    tau: Annotated[Fraction, UPDATED] = 0.001
    """Polyak coefficient of the targets. L."""
    batch_size: Annotated[PositiveInt, UPDATED] = 64
    """Transitions per update. L."""
