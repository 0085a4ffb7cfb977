"""Table of AES-RL: a distribution of actors that moves with every arrival, of which a shared critic trains some."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    AutoFloat,
    AutoInt,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    at_most,
)
from esac_mpi.config.off_policy import replay_too_small
from esac_mpi.config.table import OnlyWith, OnlyWithOne, Reads, Selecting, Whole

RANGED = ("linear", "sigmoid")
SIGNED = (*RANGED, "absolute", "relative")
WITH_SIGN = ("linear", "absolute", "relative")  # sigmoid may be without
BY_RETURN = ("full_move", *SIGNED)


@dataclass(frozen=True)
class AESRL(Selecting):
    """algorithm = "aes_rl" (P: Lee et al. 2020, An Efficient Asynchronous Method for Integrating Evolutionary and Gradient-based
    Policy Search; C: its public code)."""

    READS = Reads(("learner",), without=("policy.output",))

    workers: AutoInt = 5
    """Virtual workers, each with one individual at a time [workers]; the critic's is one more. P, C: 5. Results depend on it, and
    not on the ranks: one rank more than this has all of them at work, on equal cores. auto: the ranks of the run's first start
    but one, at least 1; it is kept with the run."""
    update_cost: AutoFloat = 100.0
    """What an update of an individual lasts on the clock by which results are told [environment steps]. Ours, measured on
    HalfCheetah, with 400 and 300 units; the nearer to the truth, the less is waited for. auto: measured at the run's first start,
    to two digits; it is kept with the run."""
    critic_cost: AutoFloat = 1.8
    """What an update of the critics lasts there [updates of an individual]. Ours, measured as that. auto: as `update_cost`."""
    order: Literal["virtual", "arrival"] = "virtual"
    """In which order results are told. virtual: by the clock of `workers` and `update_cost`, the same on any ranks. arrival: as
    they come in, so that nobody waits (P, C); the order is in metrics.h5, where `replay` finds it."""
    replay: Annotated[str, OnlyWith(order="arrival")] = ""
    """Run directory of a finished run with order = arrival, which is made again to the bit, on any ranks: results are told in its
    order. Settings as there; no larger budget."""
    arrivals_per_generation: PositiveInt = 10
    """Individuals of a row of metrics [individuals]. Ours: as many as CEM-RL's generation; where it is not set, `workers` if
    these are more. With workers = auto a smaller number is raised to them."""
    mean_rule: Literal["full_move", "linear", "sigmoid", "absolute", "relative", "rank_oldest"] = (
        "relative"
    )
    """How far the mean moves to an individual: all the way to a better one, (1+1)-ES (P: Eq. 5); by the difference of returns
    over a fixed range, linear or sigmoid (Eqs. 6 to 8); by an absolute or a relative baseline (Eqs. 9, 10). rank_oldest: mean
    and variance move as CEM's (P: Eqs. 1, 2) to the best of the newest, of which the oldest gives way (C: ACEM-RL)."""
    variance_rule: Annotated[
        Literal["adaptive", "fixed", "success"], OnlyWith(mean_rule=BY_RETURN)
    ] = "adaptive"
    """How the variance moves: by Welford's formula (P: Eq. 11) with n of the mean's own ratio (Eq. 12), or with a fixed n; or by
    Rechenberg's rule of one success in five, of the (1+1)-ES."""
    fitness_range: Annotated[PositiveFloat, OnlyWith(mean_rule=RANGED)] = 2000.0
    """Range r of linear and sigmoid [return]. C: HalfCheetah; Hopper 600, Walker2d 800, Ant and Humanoid 960, Swimmer 48."""
    relative_baseline: Annotated[PositiveFloat, OnlyWith(mean_rule="relative")] = 2000.0
    """Baseline f_b of relative, below the mean's return [return]. C: as fitness_range."""
    absolute_baseline: Annotated[NonNegativeFloat, OnlyWith(mean_rule="absolute")] = 2000.0
    """How far below 0 the baseline of absolute is, -f_b [return]. C: as fitness_range."""
    p_positive: Annotated[Fraction, OnlyWith(mean_rule=SIGNED)] = 1.0
    """Factor of the move to a better individual. P: Eq. 7; C: none."""
    p_negative: Annotated[
        Fraction,
        OnlyWith(mean_rule=SIGNED),
        OnlyWithOne(mean_rule=WITH_SIGN, sigmoid_signless=False),
    ] = 0.0
    """Factor of the move for a worse one, away from it. P: Eq. 7; C: 0."""
    sigmoid_signless: Annotated[bool, OnlyWith(mean_rule="sigmoid")] = False
    """Whether the sigmoid knows no such factors (C), so that a worse individual draws the mean by up to a half."""
    variance_init: PositiveFloat = 1e-3
    """Variance of every weight at the start. C: 1e-3, called sigma there."""
    variance_floor: Annotated[NonNegativeFloat, OnlyWith(mean_rule=BY_RETURN)] = 1e-5
    """Least variance after a change. C."""
    variance_n: Annotated[PositiveFloat, OnlyWith(mean_rule=BY_RETURN, variance_rule="fixed")] = (
        10.0
    )
    """n of fixed [individuals]. P, C: 10."""
    variance_least_p: Annotated[
        Fraction, OnlyWith(mean_rule=BY_RETURN, variance_rule=("adaptive", "fixed"))
    ] = 1e-3
    """A smaller move of the mean leaves the variance as it is. C; P: 0."""
    ring_size: Annotated[PositiveInt, OnlyWith(mean_rule="rank_oldest")] = 10
    """Newest arrivals among which ranks are; nothing moves before there are so many [individuals]. C: 10."""
    elite_fraction: Annotated[Fraction, OnlyWith(mean_rule="rank_oldest")] = 0.5
    """Share of them, rounded, to which the distribution moves, by 1 / ring_size of the way; at least one is. C: half."""
    elite_weights: Annotated[Literal["log", "equal"], OnlyWith(mean_rule="rank_oldest")] = "log"
    """Weights of these, as `cem_rl.elite_weights`. C."""
    damp: Annotated[NonNegativeFloat, OnlyWith(mean_rule="rank_oldest")] = 1e-3
    """What is added to the variance before the first move. C."""
    damp_limit: Annotated[NonNegativeFloat, OnlyWith(mean_rule="rank_oldest")] = 1e-5
    """What it goes to, a step before every move. C."""
    damp_tau: Annotated[Fraction, OnlyWith(mean_rule="rank_oldest")] = 0.95
    """Share of it that ring_size such steps leave. C: 0.95 as an option that it does not read, 0.9 in effect."""
    cov_extra_div: Annotated[bool, OnlyWith(mean_rule="rank_oldest")] = True
    """Whether the elites' weighted variance is divided by their number once more (C), or not (P)."""
    success_window: Annotated[
        PositiveInt, OnlyWith(mean_rule=BY_RETURN, variance_rule="success")
    ] = 10
    """Arrivals over which successes are counted [individuals]. C."""
    success_threshold: Annotated[
        Fraction, OnlyWith(mean_rule=BY_RETURN, variance_rule="success")
    ] = 0.2
    """Share of successes above which the variance grows. C."""
    success_factor: Annotated[
        PositiveFloat, at_most(1), OnlyWith(mean_rule=BY_RETURN, variance_rule="success")
    ] = 0.99
    """What it is multiplied by where it shrinks; it grows by the inverse. C."""
    success_frozen: Annotated[bool, OnlyWith(mean_rule=BY_RETURN, variance_rule="success")] = False
    """Whether the window stays what its first arrivals made it (C), or slides."""
    rl_gain: NonNegativeFloat = 50.0
    """Gain K_rl of the controller of how many individuals are trained. P: Eq. 3; C: 50."""
    rl_share: Fraction = 0.5
    """Share of the individuals that it aims at, p_desired. C: 0.5; Swimmer 0.1."""
    mean_episodes: NonNegativeInt = 5
    """Episodes of the mean that an individual's worker plays, so that its return is known [episodes]; not of nominal_steps. None
    (0) will do with rank_oldest, which does not read that return. C: 5."""
    mean_reused: Annotated[bool, OnlyWith(mean_rule=BY_RETURN)] = True
    """Whether these are played only until the return of the mean is known, and again once it has moved: while p = 0 it stays the
    same policy. C: with every individual. Ours."""
    start_steps: NonNegativeInt = 10_000
    """Steps of individuals before any is trained, and before the distribution moves [steps]. C, where it does move."""
    lr_actor: PositiveFloat = 1e-3
    """Adam's learning rate of an individual's actor, whose Adam begins anew. C."""
    lr_critic: PositiveFloat = 1e-3
    """Adam's learning rate of the critics. C."""
    actor_updates_window: PositiveInt = 10
    """A trained individual makes as many updates as the last individuals had steps, so many of them [individuals]. C: 10."""
    critic_chunk: PositiveInt = 1000
    """Updates after which the critic is seen by others [updates]; at most one for each step of individuals. C: 1000."""
    gamma: Fraction = 0.99
    """Discount. C."""
    tau: Fraction = 0.005
    """Polyak coefficient of the critics' targets, which follow at every update. C."""
    policy_noise: NonNegativeFloat = 0.2
    """Noise on the target's action [standard deviation; actions are in [-1, 1]]. C."""
    noise_clip: NonNegativeFloat = 0.5
    """Bound of that noise [of the action's bound]. C."""
    critic_layer_norm: bool = False
    """Normalise the sums of the critics' hidden layers, as sac.critic_layer_norm. C: off."""
    batch_size: PositiveInt = 256
    """Transitions per update. C."""
    replay_capacity: PositiveInt = 200_000
    """Transitions kept, once on every node [transitions]. C."""

    @property
    def follows(self) -> str | None:
        """The run directory by whose record the order of results goes; "" = it is recorded, None = it is virtual."""
        return self.replay if self.order == "arrival" else None

    @property
    def of_critic(self) -> float:
        """What an update of the critics lasts on the virtual clock [environment steps]."""
        return self.critic_cost * self.update_cost

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that the table breaks."""
        yield from replay_too_small(table, self.batch_size, self.replay_capacity)

    def problems_when_run(self, config: Whole) -> Iterator[str]:
        """Yield a message for rules that do not go together, and for one that does not search."""
        if self.mean_rule == "full_move" and self.variance_rule != "success":
            told = f"with variance_rule = {self.variance_rule} every success narrows the search, and nothing widens it"
            yield f"aes_rl.mean_rule = full_move: {told}; variance_rule = success"
        if self.variance_rule == "success" and self.mean_rule != "full_move":
            yield f"aes_rl.variance_rule = success: goes with mean_rule = full_move, not {self.mean_rule}"
        if self.mean_rule != "rank_oldest" and not self.mean_episodes:
            told = f"mean_rule = {self.mean_rule} compares with the mean's return"
            yield f"aes_rl.mean_episodes = 0: {told}; 1 or more, or mean_rule = rank_oldest"
        if self.mean_rule in ("absolute", "relative") and not self.rl_share:
            yield f"aes_rl.rl_share = 0: with mean_rule = {self.mean_rule} nothing would search; linear, sigmoid or full_move"
