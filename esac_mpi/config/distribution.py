"""Tables of distributions of policies: cross-entropy methods, and AES-RL, which moves at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    COUNT,
    AutoFloat,
    AutoInt,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    at_least,
    at_most,
)
from esac_mpi.config.exact import exact
from esac_mpi.config.off_policy import Replaying
from esac_mpi.config.table import (
    HIDDEN,
    NOT_ZERO,
    OnlyWith,
    OnlyWithOne,
    Problem,
    Reads,
    Selecting,
    Whole,
    below,
)

RANGED = ("linear", "sigmoid")
SIGNED = (*RANGED, "absolute", "relative")
WITH_SIGN = OnlyWithOne(mean_rule=("linear", "absolute", "relative"), sigmoid_signless=False)
BY_RETURN = ("full_move", *SIGNED)
BY_RANK = OnlyWith(mean_rule="rank_oldest")
SUCCESS = OnlyWith(mean_rule=BY_RETURN, variance_rule="success")
FIXED = OnlyWith(mean_rule=BY_RETURN, variance_rule="fixed")
WELFORD = OnlyWith(mean_rule=BY_RETURN, variance_rule=("adaptive", "fixed"))
# of damping: at 0 it is damp_limit from the first, at 1 damp for ever
DAMPED = OnlyWith(damp_tau=NOT_ZERO)
LIMITED = OnlyWith(damp_tau=below(1))
# of cem_rl, where no gradient trains anybody
OF_GRADIENTS = (
    "lr_actor", "lr_critic", "gamma", "tau", "policy_noise", "noise_clip", "critic", "start_steps",
    "critic_updates_per_step", "actor_updates_per_step", "batch_size",
)  # fmt: skip


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
    noise_clip: Annotated[NonNegativeFloat, OnlyWith(policy_noise=NOT_ZERO)] = 0.5
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
    damp: Annotated[NonNegativeFloat, DAMPED] = 1e-3
    """What is added to the variance, epsilon of A's Eq. (2), before the first generation. C."""
    damp_limit: Annotated[NonNegativeFloat, LIMITED] = 1e-5
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

    READS = Reads(
        ("learner",),
        without=("policy.output",),
        only_if={f"cem_rl.{name}": ("trained_fraction", NOT_ZERO) for name in OF_GRADIENTS},
    )

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
    """Transitions kept, once on every node [transitions]. C, A."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield also why gradients would train nobody."""
        yield from super().problems(table, config)
        if self.trained_fraction and not individuals(self)[1]:
            n = self.population_size
            yield "trained_fraction", f"none of {n} individuals; 0, or at least {1 / n:.2g}"


def individuals(table: CEM) -> tuple[int, int]:
    """Count the elites, and the individuals that gradients train."""
    n = table.population_size
    trained = getattr(table, "trained_fraction", 0.0)
    return max(1, round(exact(table.elite_fraction) * n)), round(exact(trained) * n)


@dataclass(frozen=True)
class AESRL(Critics, Selecting):
    """Asynchronous ES-RL: CEM-RL without waiting for a generation (Lee et al. 2020). P: the
    paper. C: its public code."""

    READS = Reads(("learner",), without=("policy.output",))

    workers: AutoInt = 5
    """Virtual workers, on which results depend, each with one individual at a time [workers]. P, C:
    5. auto: the ranks of the run's first start but one, at least 1; it is kept with the run."""
    update_cost: AutoFloat = 100.0
    """What an individual's update lasts on the clock of results [environment steps]. Ours. auto:
    measured at the run's first start, to two digits; it is kept with the run."""
    critic_cost: Annotated[AutoFloat, OnlyWith(update_cost=NOT_ZERO)] = 1.8
    """What an update of the critics lasts there [updates of an individual]. Ours. auto: so, too."""
    order: Literal["virtual", "arrival"] = "virtual"
    """Order of results. virtual: by the clock of `workers` and `update_cost`, the same on any
    ranks. arrival: as they come in (P, C), recorded in metrics.h5, where `replay` finds it."""
    replay: Annotated[str, OnlyWith(order="arrival")] = ""
    """Run directory of a finished run with order = arrival, which is made again to the bit.
    Settings as there; no larger budget."""
    arrivals_per_generation: PositiveInt = 10
    """Individuals of a row of metrics [individuals]; unless set, `workers` if more. Ours."""
    mean_rule: Literal["full_move", "linear", "sigmoid", "absolute", "relative", "rank_oldest"] = (
        "relative"
    )
    """How the mean moves: all the way to a better individual (P: Eq. 5), by a fixed range (Eqs. 6
    to 8), a baseline (Eqs. 9, 10); or as CEM's (Eqs. 1, 2; C: ACEM-RL)."""
    variance_rule: Annotated[
        Literal["adaptive", "fixed", "success"], OnlyWith(mean_rule=BY_RETURN)
    ] = "adaptive"
    """How the variance moves: by Welford's formula (P: Eq. 11) with n of the mean's own ratio (Eq.
    12) or a fixed n; or by Rechenberg's rule of one success in five, of the (1+1)-ES."""
    fitness_range: Annotated[PositiveFloat, OnlyWith(mean_rule=RANGED)] = 2000.0
    """Range r of linear and sigmoid [return]. C: HalfCheetah; others: configs/aes_rl/."""
    relative_baseline: Annotated[PositiveFloat, OnlyWith(mean_rule="relative")] = 2000.0
    """Baseline f_b of relative, below the mean's return [return]. C: as fitness_range."""
    absolute_baseline: Annotated[NonNegativeFloat, OnlyWith(mean_rule="absolute")] = 2000.0
    """How far below 0 the baseline of absolute is, -f_b [return]. C: as fitness_range."""
    p_positive: Annotated[Fraction, OnlyWith(mean_rule=SIGNED)] = 1.0
    """Factor of the move for an individual above the mean, or the baseline. P: Eq. 7; C: none."""
    p_negative: Annotated[Fraction, OnlyWith(mean_rule=SIGNED), WITH_SIGN] = 0.0
    """Factor for one below, from which the mean moves away; by sigmoid to it. P: Eq. 7; C: 0."""
    sigmoid_signless: Annotated[bool, OnlyWith(mean_rule="sigmoid")] = False
    """Let the sigmoid know no such factors (C): worse individuals draw the mean, too."""
    variance_init: Annotated[PositiveFloat, at_least(1e-18)] = 1e-3
    """Variance of every weight at the start. C: 1e-3, called sigma there."""
    variance_floor: Annotated[NonNegativeFloat, OnlyWith(mean_rule=BY_RETURN)] = 1e-5
    """Least variance after a change. C."""
    variance_n: Annotated[PositiveFloat, FIXED] = 10.0
    """n of fixed [individuals]. C: 10."""
    variance_least_p: Annotated[Fraction, WELFORD] = 1e-3
    """A smaller move of the mean leaves the variance as it is. C; P: 0."""
    ring_size: Annotated[PositiveInt, BY_RANK] = 10
    """Newest arrivals that are ranked, once there are so many [individuals]. C: 10."""
    elite_fraction: Annotated[Fraction, BY_RANK] = 0.5
    """Share of them, rounded, to which the distribution moves, 1 / ring_size of the way. C."""
    elite_weights: Annotated[Literal["log", "equal"], BY_RANK] = "log"
    """Weights of these, as `cem_rl.elite_weights`. C."""
    damp: Annotated[NonNegativeFloat, BY_RANK, DAMPED] = 1e-3
    """What is added to the variance before the first move. C."""
    damp_limit: Annotated[NonNegativeFloat, BY_RANK, LIMITED] = 1e-5
    """What it goes to, a step before every move. C."""
    damp_tau: Annotated[Fraction, BY_RANK] = 0.95
    """Share of it that ring_size such steps leave. C: 0.95, but 0.9 in effect."""
    cov_extra_div: Annotated[bool, BY_RANK] = True
    """Divide the elites' weighted variance by their number once more (C), or not (P)."""
    success_window: Annotated[PositiveInt, SUCCESS] = 10
    """Arrivals over which successes are counted [individuals]. C."""
    success_threshold: Annotated[Fraction, SUCCESS] = 0.2
    """Share of successes above which the variance grows. C."""
    success_factor: Annotated[PositiveFloat, at_most(1), SUCCESS] = 0.99
    """What it is multiplied by where it shrinks; it grows by the inverse. C."""
    success_frozen: Annotated[bool, SUCCESS] = False
    """Whether the window stays what its first arrivals made it (C), or slides."""
    rl_gain: NonNegativeFloat = 50.0
    """Gain K_rl of the controller of how many individuals are trained. P: Eq. 3; C: 50."""
    rl_share: Annotated[Fraction, OnlyWith(rl_gain=NOT_ZERO)] = 0.5
    """Share of the individuals that it aims at, p_desired. C: 0.5; Swimmer 0.1."""
    mean_episodes: Annotated[NonNegativeInt, COUNT] = 5
    """Episodes of the mean that an individual's worker plays, for its return [episodes];
    rank_oldest reads none. They are not of nominal_steps. C: 5."""
    mean_reused: Annotated[bool, OnlyWith(mean_rule=BY_RETURN)] = True
    """Play these only until the return of the mean is known, and again once it has moved (ours), or
    with every individual (C)."""
    start_steps: NonNegativeInt = 10_000
    """Steps of individuals before any is trained and, but in C, the distribution moves [steps]."""
    actor_updates_window: PositiveInt = 10
    """Last individuals whose steps a trained one makes as many updates as [individuals]. C: 10."""
    critic_chunk: PositiveInt = 1000
    """Updates after which the critic is seen by others [updates]; at most one a step. C: 1000."""
    batch_size: PositiveInt = 256
    """Transitions per update. C."""
    replay_capacity: PositiveInt = 200_000
    """Transitions kept, once on every node [transitions]. C."""

    @property
    def follows(self) -> str | None:
        """The run whose order of results is followed; "" = it is recorded, None = it is virtual."""
        return self.replay if self.order == "arrival" else None

    @property
    def of_critic(self) -> float:
        """What an update of the critics lasts on the virtual clock [environment steps]."""
        return self.critic_cost * self.update_cost

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield rules that do not go together, and one that does not search."""
        yield from super().problems(table, config)
        rule, variance = f"mean_rule = {self.mean_rule}", f"variance_rule = {self.variance_rule}"
        if self.mean_rule == "full_move" and self.variance_rule != "success":
            why = f"with {variance} every success narrows the search, and nothing widens it"
            yield "mean_rule", f"{why}; variance_rule = success"
        if self.variance_rule == "success" and self.mean_rule != "full_move":
            yield "variance_rule", f"goes with mean_rule = full_move, not {self.mean_rule}"
        if self.mean_rule != "rank_oldest" and not self.mean_episodes:
            why = f"{rule} compares with the mean's return"
            yield "mean_episodes", f"{why}; 1 or more, or mean_rule = rank_oldest"
        if self.mean_rule in ("absolute", "relative") and not self.rl_share:
            why = f"with {rule} nothing would search"
            yield "rl_share", f"{why}; linear, sigmoid or full_move"
