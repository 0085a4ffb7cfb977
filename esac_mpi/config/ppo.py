"""The table of PPO."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    FLOAT32,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Standardisation,
)
from esac_mpi.config.table import OnlyIn, OnlyWith, Problem, Reads, Table, Whole


@dataclass(frozen=True)
class PPO(Table):
    """Proximal Policy Optimization of stable-baselines3; needs the extra `baselines`. B: its
    defaults. S: Schulman et al. 2017. As it plays step by step, a GPU slows it down."""

    READS = Reads(("learner",), without=("policy.output",))  # always clips

    lr_ppo: PositiveFloat = 3e-4
    """Adam's learning rate of actor and critic, constant. B, S."""
    gamma: Fraction = 0.99
    """Discount. B, S."""
    gae_lambda: Fraction = 0.95
    """Weight of longer returns in the advantages (generalized advantage estimation). B, S."""
    clip_range: PositiveFloat = 0.2
    """Change of an action's probability ratio beyond which nothing is gained, epsilon. B, S."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy in the loss. B, S (continuous actions)."""
    value_coefficient: NonNegativeFloat = 0.5
    """Weight of the critic's squared error in the loss. B."""
    max_grad_norm: PositiveFloat = 0.5
    """Norm to which the gradient of a minibatch is cut. B."""
    steps_per_generation: PositiveInt = 2048
    """Training steps of a generation, one rollout [steps]; an episode carries on. B, S."""
    batch_size: NonNegativeInt = 64
    """Steps of a minibatch; the last of an epoch has what is left. B, S."""
    epochs: PositiveInt = 10
    """Passes over a rollout [epochs]. B, S."""
    initial_std: Annotated[PositiveFloat, FLOAT32, OnlyIn(discrete=False)] = 1.0
    """First standard deviation of continuous actions, learned [actions in [-1, 1]]. B."""
    observation_normalisation: Standardisation = False
    """Standardise observations, as sac.observation_normalisation does. B: off,
    by a wrapper (VecNormalize), which its zoo has on for MuJoCo; S: off."""
    reward_normalisation: bool = False
    """Divide rewards by the running standard deviation of their discounted sums, and cut them to
    +-10; rows have plain returns. B: off, by a wrapper (VecNormalize), on in its zoo; S: off."""
    action: Annotated[Literal["categorical", "gaussian_argmax"], OnlyIn(discrete=True)] = (
        "categorical"
    )
    """How a choice is drawn in discrete tasks: by probabilities (B), or as the largest of Gaussian
    numbers around the outputs (the ESAC authors' notebooks)."""
    argmax_std: Annotated[PositiveFloat, OnlyWith(action="gaussian_argmax")] = 0.5
    """Standard deviation under gaussian_argmax, not learned. The ESAC authors' notebooks."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield unusable minibatches, and what stable-baselines3 cannot do."""
        size, steps = self.batch_size, self.steps_per_generation
        if not 1 < size <= steps:
            yield "batch_size", f"must be from 2 to {table}.steps_per_generation ({steps})"
        elif steps % size == 1:
            alone = f"leaves a minibatch of one step of {steps}"
            yield "batch_size", f"{alone}, whose advantage cannot be standardised"
        without = f"not with algorithm = {config.algorithm}, whose"
        if config.learner.precision != "fp32":
            yield "learner.precision", f"{without} updates are stable-baselines3's, in float32"
        networks = f"{without} networks are stable-baselines3's, which have no"
        for name, what in ("layer_norm", "layer normalisation"), ("linear", "linear path"):
            if getattr(config.policy, name):
                yield f"policy.{name}", f"{networks} {what}"
