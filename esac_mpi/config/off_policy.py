"""Tables of the learners with a replay: SAC, TD3, DDPG."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from esac_mpi.config.table import OnlyWith, Reads, Table


def replay_too_small(table: str, batch_size: int, replay_capacity: int) -> Iterator[str]:
    """Yield a message where an update would take more transitions than the replay holds."""
    if batch_size > replay_capacity:
        yield f"{table}.batch_size = {batch_size}: must be at most {table}.replay_capacity"


@dataclass(frozen=True)
class SAC(Table):
    """The Soft Actor-Critic learner (Haarnoja et al. 2018), inside ESAC and as algorithm = "sac"."""

    READS = Reads(
        ("learner",), also=("esac.reading",)
    )  # one of ESAC's halves: a reading sets fields of it

    lr_sac: PositiveFloat = 1e-3
    """Adam's learning rate of actor, critics and temperature, alpha. P: D.1, 3e-4."""
    gamma: Fraction = 0.99
    """Discount. P: D.1."""
    tau: Fraction = 0.005
    """Polyak coefficient of the targets. C."""
    temperature: NonNegativeFloat = 0.05
    """Entropy temperature, lambda in Eq. 1; fixed in the paper's comparison (6.1). C: 0.2. Initial value if automatic."""
    automatic_temperature: bool = True
    """Tune the temperature towards an entropy of -action_size (Haarnoja et al. 2018b). P, C: off."""
    value_network: bool = False
    """The form with V, target V and two Q (P: line 19; Haarnoja et al. 2018a) in place of two Q with targets."""
    critic_layer_norm: bool = False
    """Normalise the sums of the hidden layers of the critics, and of a value network, as
    policy.layer_norm does the policy's (Ball et al. 2023, arXiv:2302.02948). P, C: off."""
    batch_size: PositiveInt = 256
    """Transitions per update. C."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept [transitions]. C."""
    start_steps: NonNegativeInt = 1000
    """First training steps, taken with uniform random actions [steps]. C: 10,000."""
    updates_per_step: NonNegativeFloat = 1.0
    """Gradient updates per training step. P: D.1."""
    interleaved: bool = False
    """Update after every step (C) in place of collecting the phase first (P: lines 13-23)."""
    steps_per_generation: PositiveInt = 1000
    """Training steps of a generation of algorithm = "sac" [steps]; an episode in progress is cut and bootstrapped: of longer ones
    it never plays the rest."""
    observation_normalisation: bool = True
    """Standardise observations by running statistics of the training steps before the generation, clipped to +-5 standard
    deviations; the replay has them as they were. As OpenAI-ES; P, C: off. Within ESAC: esac.observation_normalisation."""

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that the table breaks."""
        yield from replay_too_small(table, self.batch_size, self.replay_capacity)
        if self.automatic_temperature and not self.temperature:
            yield f"{table}.temperature = 0.0: must be positive where it is tuned ({table}.automatic_temperature)"


@dataclass(frozen=True)
class TD3(Table):
    """algorithm = "td3" (F: Fujimoto et al. 2018, and the authors' later code)."""

    READS = Reads(("learner",))

    lr_td3: PositiveFloat = 3e-4
    """Adam's learning rate of actor and critics. F: the later code; the paper has 1e-3, with batches of 100."""
    gamma: Fraction = 0.99
    """Discount. F."""
    tau: Fraction = 0.005
    """Polyak coefficient of the targets. F."""
    policy_delay: PositiveInt = 2
    """Updates of the critics per update of actor and targets, d [updates]. F."""
    policy_noise: NonNegativeFloat = 0.2
    """Noise on the target's action [standard deviation; actions are in [-1, 1]]. F: 0.2 of the action's bound."""
    noise_clip: NonNegativeFloat = 0.5
    """Bound of that noise, c [of the action's bound]. F."""
    critic_layer_norm: bool = False
    """Normalise the sums of the critics' hidden layers, as sac.critic_layer_norm. F: off."""
    exploration_noise: NonNegativeFloat = 0.1
    """Gaussian noise of the actions that are played [standard deviation; actions are in [-1, 1]]. F."""
    batch_size: PositiveInt = 256
    """Transitions per update. F: the later code; the paper has 100."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept [transitions]. F."""
    start_steps: NonNegativeInt = 25_000
    """First training steps, taken with uniform random actions and without updates [steps]; under episodes_on = ranks all episodes
    of a generation that begins before their end are. F: the later code; the paper has 10,000 for HalfCheetah and Ant, else
    1,000."""
    updates_per_step: NonNegativeFloat = 1.0
    """Gradient updates per training step. F."""
    interleaved: Annotated[bool, OnlyWith(episodes_on="root")] = True
    """Update after every step (F), in place of collecting the generation first."""
    steps_per_generation: Annotated[PositiveInt, OnlyWith(episodes_on="root")] = 1000
    """Training steps of a generation [steps]; an episode in progress is cut and bootstrapped: of longer ones it never plays the
    rest."""
    episodes_on: Literal["root", "ranks"] = "root"
    """Who plays: rank 0, a step at a time between its updates; or all ranks, whole episodes by the actor as it was at the
    generation's start, after which rank 0 makes their updates (steps_per_generation and interleaved then say nothing)."""
    episodes_per_generation: Annotated[PositiveInt, OnlyWith(episodes_on="ranks")] = 8
    """Episodes of a generation under episodes_on = ranks [episodes]; not the number of ranks, on which no result depends."""
    observation_normalisation: bool = False
    """Standardise observations by running statistics of the training steps before the generation, clipped to +-5 standard
    deviations; the replay has them as they were. As OpenAI-ES; F: off."""

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that the table breaks."""
        yield from replay_too_small(table, self.batch_size, self.replay_capacity)


@dataclass(frozen=True)
class DDPG(Table):
    """algorithm = "ddpg" (L: Lillicrap et al. 2016)."""

    READS = Reads(("learner",))

    lr_actor: PositiveFloat = 1e-4
    """Adam's learning rate of the actor. L."""
    lr_critic: PositiveFloat = 1e-3
    """Adam's learning rate of the critic. L."""
    critic_weight_decay: NonNegativeFloat = 1e-2
    """L2 coefficient of the critic: its gradient gains this times its parameters. L."""
    critic_layer_norm: bool = False
    """Normalise the sums of the critic's hidden layers, as sac.critic_layer_norm. L: off."""
    gamma: Fraction = 0.99
    """Discount. L."""
    tau: Fraction = 0.001
    """Polyak coefficient of the targets. L."""
    exploration_noise: NonNegativeFloat = 0.1
    """Gaussian noise of the actions that are played [standard deviation; actions are in [-1, 1]]. Fujimoto et al. 2018; L has
    an Ornstein-Uhlenbeck process of 0.2."""
    batch_size: PositiveInt = 64
    """Transitions per update. L."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept [transitions]. L."""
    start_steps: NonNegativeInt = 25_000
    """First training steps, taken with uniform random actions and without updates [steps]; under episodes_on = ranks all episodes
    of a generation that begins before their end are. Code of Fujimoto et al. 2018; L: 0."""
    updates_per_step: NonNegativeFloat = 1.0
    """Gradient updates per training step. L."""
    interleaved: Annotated[bool, OnlyWith(episodes_on="root")] = True
    """Update after every step (L), in place of collecting the generation first."""
    steps_per_generation: Annotated[PositiveInt, OnlyWith(episodes_on="root")] = 1000
    """Training steps of a generation [steps]; an episode in progress is cut and bootstrapped: of longer ones it never plays the
    rest."""
    episodes_on: Literal["root", "ranks"] = "root"
    """Who plays: rank 0, a step at a time between its updates; or all ranks, whole episodes by the actor as it was at the
    generation's start, after which rank 0 makes their updates (steps_per_generation and interleaved then say nothing)."""
    episodes_per_generation: Annotated[PositiveInt, OnlyWith(episodes_on="ranks")] = 8
    """Episodes of a generation under episodes_on = ranks [episodes]; not the number of ranks, on which no result depends."""
    observation_normalisation: bool = False
    """Standardise observations by running statistics of the training steps before the generation, clipped to +-5 standard
    deviations; the replay has them as they were. As OpenAI-ES; L: off."""

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that the table breaks."""
        yield from replay_too_small(table, self.batch_size, self.replay_capacity)
