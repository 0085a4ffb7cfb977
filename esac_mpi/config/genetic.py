"""Table of the ERL family: actors that evolve, and a learner that shares their experience."""

import math
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
from esac_mpi.config.exact import exact
from esac_mpi.config.off_policy import UPDATED, Replaying
from esac_mpi.config.table import NOT_ZERO, OnlyWith, OnlyWithOne, Problem, Reads, Selecting, Whole

FORMS = {  # algorithm -> its crossover and its mutation
    "erl": ("n_point", "gaussian"),
    "perl": ("n_point", "proximal"),
    "derl": ("distillation", "gaussian"),
    "pderl": ("distillation", "proximal"),
}
TOURNAMENT = 3  # members of a tournament
GAUSSIAN = OnlyWith(mutation="gaussian", mutation_probability=NOT_ZERO)
CHANGING = OnlyWith(**GAUSSIAN.others, mutated_fraction=NOT_ZERO)
SUPER = OnlyWith(**CHANGING.others, super_probability=NOT_ZERO)
PROXIMAL = OnlyWith(mutation="proximal", mutation_probability=NOT_ZERO)
DISTILLED = OnlyWith(crossover="distillation")
WITH_MEMORY = OnlyWithOne(crossover="distillation", mutation="proximal")
OWN = OnlyWith(learner="ddpg")
IDLE = (  # what a phase that takes over the episodes of others does not read of a learner's table
    "policy.output",
    "td3.steps_per_generation",
    "td3.episodes_on",
    "td3.episodes_per_generation",
    "td3.interleaved",
    "td3.exploration_noise",
    "td3.observation_normalisation",
    "sac.steps_per_generation",
    "sac.interleaved",
    "sac.start_steps",
    "sac.observation_normalisation",
)


def elites(population_size: int, fraction: float) -> int:
    """Count the members that are elites."""
    return max(1, math.floor(exact(fraction) * population_size))


def imitations(states: int, batch: int) -> int:
    """Count an epoch's steps of imitation; one, of so many draws, where states are fewer."""
    return max(states // batch, min(states, 1))


@dataclass(frozen=True)
class ERL(Replaying, Selecting):
    """Evolutionary RL: a genetic population and a gradient learner share experience. For
    erl, perl, derl and pderl. P: Bodnar et al. 2020, PDERL. K: Khadka and Tumer 2018, ERL. C: the
    public code of both."""

    READS = Reads(
        ("learner", "td3", "sac"),
        without=IDLE,
        only_if={name: ("learner", name) for name in ("td3", "sac")},
    )

    preset: Literal["default", "reference-code"] = "default"
    """Sets fields below (config/presets.py); single fields override it. reference-code: as the
    public code does where it differs from the paper and published numbers depend on it."""
    crossover: Literal["n_point", "distillation"] = "n_point"
    """What makes a child: exchange of two parents' rows of weights (K), or imitation of both where
    the critic prefers them (P; derl and pderl). The algorithm's name says which."""
    mutation: Literal["gaussian", "proximal"] = "gaussian"
    """What mutation adds: noise on some weights (K), or on all, divided by what the actions owe to
    each (P). The algorithm's name says which: proximal for perl and pderl."""
    population_size: PositiveInt = 10
    """Actors that evolve, k [members]. P: Table 3."""
    initial_last_layer: PositiveFloat = 0.1
    """Factor of the initial weights of the members' last layers (C: 1); the learner's: 0.1 (C)."""
    fitness_episodes: PositiveInt = 1
    """Episodes averaged into a member's fitness, xi [episodes]. P: Table 4, 1 to 5."""
    elite_fraction: Fraction = 0.1
    """Fraction of members that survive unchanged, psi; at least one. P: Table 4, 0.1 or 0.2."""
    sync_interval: PositiveInt = 10
    """Generations between injections of the learner's actor, omega. P: Table 4, 10 or 1."""
    injection: Literal["kept", "worst", "worst_or_next"] = "kept"
    """Whose place it takes: the worst kept member's, no elite's copy and no child; the worst's by
    fitness (C: ERL's); or the next slot's where that is the best elite's copy (C: PDERL's)."""
    mutation_probability: Fraction = 0.9
    """Chance of a member to be mutated, unless it is the copy of an elite. P: Table 3."""
    mutation_magnitude: Annotated[PositiveFloat, PROXIMAL] = 0.1
    """Standard deviation of proximal mutation, divided by sensitivities later. P: Table 4."""
    mutation_batch: Annotated[PositiveInt, PROXIMAL] = 256
    """States of a member's memory over which sensitivities are summed, N_M [states]; the sum scales
    mutation_magnitude. P: Table 3."""
    sensitivity_floor: Annotated[PositiveFloat, PROXIMAL] = 0.01
    """Least sensitivity of a weight; one of 0 counts as 1. C."""
    mutated_fraction: Annotated[Fraction, GAUSSIAN] = 0.1
    """Gaussian mutation draws up to this share of a weight matrix. C."""
    mutation_strength: Annotated[PositiveFloat, CHANGING] = 0.1
    """Standard deviation of its noise, in units of the weight. C."""
    super_strength: Annotated[PositiveFloat, SUPER] = 10.0
    """Standard deviation of a super mutation, in units of the weight. C."""
    super_probability: Annotated[Fraction, CHANGING] = 0.05
    """Share of super mutations. C."""
    reset_probability: Annotated[Fraction, CHANGING] = 0.05
    """Share of weights that are drawn anew, from a standard normal distribution. C."""
    memory_size: Annotated[PositiveInt, WITH_MEMORY] = 8000
    """Own and ancestors' transitions that a member or the learner keeps, kappa. P: Table 3."""
    memory_order: Annotated[Literal["age", "shuffled"], DISTILLED] = "age"
    """Order of a child's memory, of which the newest stay: by age, or shuffled once (C)."""
    distillation_epochs: Annotated[PositiveInt, DISTILLED] = 12
    """Epochs in which a child learns to imitate its parents [epochs]. P: Table 3."""
    distillation_batch: Annotated[PositiveInt, DISTILLED] = 128
    """States of a step of that, N_C, of which an epoch has as many as fit [states]. P: Table 3."""
    lr_distillation: Annotated[PositiveFloat, DISTILLED] = 1e-3
    """Adam's learning rate of that. P: Table 3."""
    distillation_start: Annotated[Literal["random", "worse"], DISTILLED] = "random"
    """Which parent's weights a child begins with: one by chance (P), or the worse one's (C)."""
    parent_selection: Annotated[Literal["greedy", "distance", "mixed"], DISTILLED] = "greedy"
    """Which pairs of parents come first: by summed fitness, by how much their actions differ in
    their memories (P), or by a convex combination of both scores, each scaled to [0, 1]."""
    greedy_weight: Annotated[Fraction, DISTILLED, OnlyWith(parent_selection="mixed")] = 0.5
    """Weight of fitness in the combination; the rest is that of distance."""
    parent_actions: Annotated[
        Literal["recomputed", "stored"], DISTILLED, OnlyWith(parent_selection=("distance", "mixed"))
    ] = "recomputed"
    """Which actions of a memory's owner the distance compares: those of now (P), or of then (C)."""
    elite_fitness: Annotated[Literal["carried", "stale"], DISTILLED] = "carried"
    """What an elite's copy counts as a parent: the elite's fitness, or its slot's (C)."""
    learner: Literal["ddpg", "td3", "sac"] = "ddpg"
    """Who learns from all transitions: DDPG with the paper's networks, of the fields below; or TD3
    or SAC with the policy's, of their own tables."""
    exploration_clip: bool = True
    """Clip actions of the learner's episodes to the bounds after noise is added (C: PDERL's), or
    let task and critic have them beyond (C: ERL's). A task may insist on its bounds."""
    ou_theta: PositiveFloat = 0.15
    """Pull towards 0 of the Ornstein-Uhlenbeck noise of the learner's episodes, a step. C."""
    ou_sigma: NonNegativeFloat = 0.2
    """Its standard deviation, a step. C."""
    ou_scale: NonNegativeFloat = 0.3
    """What it is multiplied by [half ranges of an action]; it goes on between episodes. C."""
    time_limits: Literal["truncation", "termination"] = "truncation"
    """Whether the critic bootstraps where a time limit ends an episode, or not (C)."""
    lr_actor: Annotated[PositiveFloat, OWN, UPDATED] = 5e-5
    """Adam's learning rate of the learner's actor. P: Table 3."""
    lr_critic: Annotated[PositiveFloat, OWN, UPDATED] = 5e-4
    """Adam's learning rate of its critic. P: Table 3."""
    critic_hidden: Annotated[tuple[PositiveInt, ...], OWN] = (200, 300)
    """Units of the critic: of observation and of action apart, and of both [units, units]. C."""
    gamma: Annotated[Fraction, OWN, UPDATED] = 0.99
    """Discount. P: Table 3."""
    tau: Annotated[Fraction, OWN, UPDATED] = 0.001
    """Polyak coefficient of the targets. P: Table 3."""
    gradient_clip: Annotated[PositiveFloat, OWN, UPDATED] = 10.0
    """Largest norm of a gradient of actor or critic. C."""
    batch_size: Annotated[PositiveInt, OWN, UPDATED] = 128
    """Transitions per update. P: Table 3."""
    replay_capacity: Annotated[PositiveInt, OWN] = 1_000_000
    """Transitions kept [transitions]. P: Table 3."""
    start_steps: Annotated[NonNegativeInt, OWN, UPDATED] = 0
    """First training steps without updates [steps]. C: 0."""
    updates_per_step: Annotated[NonNegativeFloat, OWN] = 1.0
    """Gradient updates per step of the population and of the learner. C."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield the rules that the table breaks."""
        yield from super().problems(table, config)
        if len(self.critic_hidden) != 2:
            yield "critic_hidden", "must be two numbers, of first and second layers"
        if self.super_probability + self.reset_probability > 1:
            other = f"reset_probability = {self.reset_probability}"
            yield "super_probability", f"with {other} more than 1; lower one of them"
        have = self.crossover, self.mutation
        if have != FORMS[config.algorithm]:
            name = next((name for name, form in FORMS.items() if form == have), "")
            yield "crossover mutation", f"of algorithm = {name}, not {config.algorithm}"
        stay = 2 * elites(self.population_size, self.elite_fraction)
        if self.population_size < max(TOURNAMENT, stay + 1):
            few = f"too few for tournaments of {TOURNAMENT}, and for {stay // 2} elite(s), their"
            remedy = f"{TOURNAMENT} or more"
            if stay > 2:
                remedy = "lower elite_fraction: less than half can be elites"
            share = f"elite_fraction = {self.elite_fraction}"
            yield "population_size", f"{few} copies and a child ({share}); {remedy}"
        if self.crossover == "distillation" and self.memory_size // 2 < self.distillation_batch:
            needed = f"distillation_batch = {self.distillation_batch} transitions"
            yield "memory_size", f"half of it, which a parent gives to a child, must have {needed}"
        if self.mutation == "proximal" and self.memory_size < self.mutation_batch:
            yield "memory_size", f"must be at least mutation_batch = {self.mutation_batch}"
