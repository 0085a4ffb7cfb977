"""Tables of the cross-entropy methods, with gradients and without."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    AutoInt,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from esac_mpi.config.exact import exact
from esac_mpi.config.off_policy import Replaying
from esac_mpi.config.table import HIDDEN, OnlyWith, Problem, Reads, Selecting, Whole


@dataclass(frozen=True)
class Critics(Replaying):
    """The critics that individuals share (C: the public code of CEM-RL, and of AES-RL)."""

    lr_actor: PositiveFloat = 1e-3
    """Adam's learning rate of an individual's actor, whose Adam begins anew. C."""
    lr_critic: PositiveFloat = 1e-3
    """Adam's learning rate of the critics. C."""
    gamma: Fraction = 0.99
    """Discount. C."""
    tau: Fraction = 0.005
    """Polyak coefficient of the critics' targets, which follow at every update. C."""
    policy_noise: NonNegativeFloat = 0.2
    """Noise on the target's action [standard deviation; actions are in [-1, 1]]. C."""
    noise_clip: NonNegativeFloat = 0.5
    """Bound of that noise [of the action's bound]. C."""
    critic_layer_norm: Annotated[bool, HIDDEN] = False
    """Normalise the sums of the critics' hidden layers, as sac.critic_layer_norm. C: off."""


@dataclass(frozen=True)
class CEM(Selecting):
    """Cross-entropy method: CEM-RL without gradients (Pourchot and Sigaud 2019). C: the
    paper's public code. A: Lee et al. 2020, AES-RL, whose Table 3 has it."""

    READS = Reads(without=("policy.output",))

    population_size: AutoInt = 10
    """Individuals drawn in a generation [individuals]. P, C. auto: as es.population_size."""
    elite_fraction: Fraction = 0.5
    """Share of them, rounded, that the next distribution is made of, K_e; at least one is. P, C."""
    elite_weights: Literal["log", "equal"] = "log"
    """Weights of these: log((1 + K_e) / i) for the i-th best, normalised (C; P), or equal."""
    sampling: Annotated[Literal["mirrored", "onesided"], OnlyWith(importance_mixing=False)] = (
        "mirrored"
    )
    """mirrored: a half mirrors the other (C); onesided: all are drawn."""
    importance_mixing: bool = False
    """Keep untrained individuals, with their fitness and without another episode, as far as the
    distribution that has moved could have given them. P: an option; C: of a variant."""
    variance_init: PositiveFloat = 1e-3
    """Variance of every weight at the start. C: 1e-3, called sigma there."""
    damp: NonNegativeFloat = 1e-3
    """What is added to the variance, epsilon of A's Eq. (2), before the first generation. C."""
    damp_limit: NonNegativeFloat = 1e-5
    """What it goes to, a step before every addition. C."""
    damp_tau: Fraction = 0.95
    """Share of it that such a step leaves. C; the public code of A: 0.9."""
    cov_extra_div: bool = True
    """Divide the elites' weighted variance by their number once more (C), or not (P)."""
    fitness_episodes: PositiveInt = 1
    """Episodes averaged into an individual's fitness [episodes]. C: 1."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield why a population makes no distribution."""
        n = self.population_size
        if self.sampling == "mirrored" and n % 2 and not self.importance_mixing:
            remedy = f"{n + 1}, or sampling = onesided"
            yield "population_size", f"must be even under sampling = mirrored; {remedy}"
        if self.importance_mixing and individuals(self)[1] == n:
            why = f"gradients train all {n}, and nobody can stay"
            yield "importance_mixing", f"{why}; lower trained_fraction"


@dataclass(frozen=True)
class CEMRL(Critics, CEM):
    """CEM-RL: CEM, and a critic trains a part of its individuals (Pourchot and Sigaud 2019).
    With critic = parallel a form of P-CEM-RL (A: Lee et al. 2020)."""

    READS = Reads(("learner",), without=("policy.output",))

    trained_fraction: Fraction = 0.5
    """Share of the individuals, rounded, that gradients train. P, C: half."""
    critic: Literal["serial", "parallel"] = "serial"
    """serial: rank 0 teaches the critic for each of these in turn (C). parallel: for the
    distribution's mean, beside a whole generation (A: P-CEM-RL). docs/explain/cem-rl.md."""
    start_steps: NonNegativeInt = 10_000
    """Steps of the population before any gradient [steps]; a batch at least. C."""
    critic_updates_per_step: NonNegativeFloat = 1.0
    """Updates of the critics in a generation, per step of the last one. C."""
    actor_updates_per_step: NonNegativeFloat = 1.0
    """Updates of each trained actor, per step of the last generation. C."""
    batch_size: PositiveInt = 100
    """Transitions per update. C; A: 256."""
    replay_capacity: PositiveInt = 1_000_000
    """Transitions kept, once on every node [transitions]. C; A: 200,000."""


def individuals(table: CEM) -> tuple[int, int]:
    """Count the elites, and the individuals that gradients train."""
    n = table.population_size
    trained = getattr(table, "trained_fraction", 0.0)
    return max(1, round(exact(table.elite_fraction) * n)), round(exact(trained) * n)
