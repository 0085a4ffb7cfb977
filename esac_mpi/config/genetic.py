"""Table of the ERL family: actors that evolve by a genetic algorithm, and a learner that shares their experience."""

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
from esac_mpi.config.off_policy import replay_too_small
from esac_mpi.config.table import OnlyWith, OnlyWithOne, Reads, Selecting, Whole

FORMS = {
    "erl": ("n_point", "gaussian"),
    "perl": ("n_point", "proximal"),
    "derl": ("distillation", "gaussian"),
    "pderl": ("distillation", "proximal"),
}  # algorithm -> its crossover and its mutation
TOURNAMENT = 3  # members of a tournament
IDLE = {  # what a phase that takes over the episodes of others does not read of a learner's table
    "td3": (
        "steps_per_generation",
        "episodes_on",
        "episodes_per_generation",
        "interleaved",
        "exploration_noise",
    ),
    "sac": ("steps_per_generation", "interleaved", "start_steps"),
}


def elites(population_size: int, fraction: float) -> int:
    """Return how many members are elites."""
    return max(1, math.floor(exact(fraction) * population_size))


def imitations(states: int, batch: int) -> int:
    """Count an epoch's steps in which a child imitates its parents in so many states; a batch has all where they are fewer."""
    return max(states // batch, min(states, 1))


@dataclass(frozen=True)
class ERL(Selecting):
    """algorithm = "erl", "perl", "derl" or "pderl" (P: Bodnar et al. 2020, Proximal Distilled Evolutionary Reinforcement
    Learning; K: Khadka and Tumer 2018, whose ERL is the first of them; C: the public code of both)."""

    READS = Reads(
        ("learner", "td3", "sac"),
        without=(
            "policy.output",
            *(
                f"{table}.{name}"
                for table, names in IDLE.items()
                for name in (*names, "observation_normalisation")
            ),
        ),
        tables_if={"td3": "learner", "sac": "learner"},
    )

    reading: Literal["recommended", "repo"] = "recommended"
    """Sets every switch below to one reading (config/readings.py); single fields override it. repo: as the public code does
    where it differs from the paper and published numbers depend on it."""
    crossover: Literal["n_point", "distillation"] = "n_point"
    """What makes a child of two parents: their weights' rows exchanged (K), or both imitated where the critic says that they are
    the better one (P). The algorithm's name says which: n_point for erl and perl, distillation for derl and pderl."""
    mutation: Literal["gaussian", "proximal"] = "gaussian"
    """What mutation adds: noise on some weights (K), or noise on all, divided by what the actions owe to each (P). The
    algorithm's name says which: gaussian for erl and derl, proximal for perl and pderl."""
    population_size: PositiveInt = 10
    """Actors that evolve, k [members]. P: Table 3."""
    initial_last_layer: PositiveFloat = 0.1
    """What the initial weights of the members' last layers are multiplied by (C: 1), small ones for small actions. Those of the
    learner's actor and critic always are by 0.1 (C)."""
    fitness_episodes: PositiveInt = 1
    """Episodes averaged into a member's fitness, xi [episodes]. P: Table 4, 1 on HalfCheetah, 3 on Hopper, 5 on Walker2d."""
    elite_fraction: Fraction = 0.1
    """Fraction of the members that survive unchanged, psi; at least one does. P: Table 4, 0.1 on HalfCheetah and Swimmer, else
    0.2."""
    sync_interval: PositiveInt = 10
    """Generations between two injections of the learner's actor into the population, omega [generations]. P: Table 4, 10 on
    HalfCheetah and Swimmer, else 1."""
    injection: Literal["kept", "worst", "worst_or_next"] = "kept"
    """Whose place it takes: that of the worst member that was kept, which is neither an elite's copy nor a child; of the worst by
    fitness, whoever has its slot now (C: ERL's); or of the next slot where that is the best elite's copy (C: PDERL's)."""
    mutation_probability: Fraction = 0.9
    """Chance of a member to be mutated, unless it is the copy of an elite. P: Table 3."""
    mutation_magnitude: Annotated[PositiveFloat, OnlyWith(mutation="proximal")] = 0.1
    """Standard deviation of proximal mutation, sigma, before it is divided by a weight's sensitivity. P: Table 4, 0.01 on Ant."""
    mutation_batch: Annotated[PositiveInt, OnlyWith(mutation="proximal")] = 256
    """States of a member's memory over which sensitivities are summed, N_M; all where it has fewer [states]. P: Table 3. A sum:
    with another number mutation_magnitude means something else."""
    sensitivity_floor: Annotated[PositiveFloat, OnlyWith(mutation="proximal")] = 0.01
    """Least sensitivity of a weight; one of 0 counts as 1. C."""
    mutated_fraction: Annotated[Fraction, OnlyWith(mutation="gaussian")] = 0.1
    """Gaussian mutation draws up to this share of a weight matrix. C."""
    mutation_strength: Annotated[PositiveFloat, OnlyWith(mutation="gaussian")] = 0.1
    """Standard deviation of its noise, in units of the weight. C."""
    super_strength: Annotated[PositiveFloat, OnlyWith(mutation="gaussian")] = 10.0
    """Standard deviation of a super mutation, in units of the weight. C."""
    super_probability: Annotated[Fraction, OnlyWith(mutation="gaussian")] = 0.05
    """Share of super mutations. C."""
    reset_probability: Annotated[Fraction, OnlyWith(mutation="gaussian")] = 0.05
    """Share of weights that are drawn anew, from a standard normal distribution. C."""
    memory_size: Annotated[
        PositiveInt, OnlyWithOne(crossover="distillation", mutation="proximal")
    ] = 8000
    """Transitions that a member or the learner keeps of its own and its ancestors', kappa [transitions]. P: Table 3. erl, whose
    operators look at none, has no memories."""
    memory_order: Annotated[Literal["age", "shuffled"], OnlyWith(crossover="distillation")] = "age"
    """Order of a child's memory, of which the newest stay: by age, or shuffled once (C)."""
    distillation_epochs: Annotated[PositiveInt, OnlyWith(crossover="distillation")] = 12
    """Epochs in which a child learns to imitate its parents [epochs]. P: Table 3."""
    distillation_batch: Annotated[PositiveInt, OnlyWith(crossover="distillation")] = 128
    """States of a step of that, N_C, all where the memory has fewer; an epoch has as many steps as this goes into it [states]. P:
    Table 3."""
    lr_distillation: Annotated[PositiveFloat, OnlyWith(crossover="distillation")] = 1e-3
    """Adam's learning rate of that. P: Table 3."""
    distillation_start: Annotated[
        Literal["random", "worse"], OnlyWith(crossover="distillation")
    ] = "random"
    """Which parent's weights a child begins with: one drawn at random (P), or that of lower fitness (C)."""
    parent_selection: Annotated[
        Literal["greedy", "distance", "mixed"], OnlyWith(crossover="distillation")
    ] = "greedy"
    """Which pairs of parents come first: those of the highest summed fitness, those whose actions differ most in the states of
    their memories (P), or a convex combination of both scores, each scaled to [0, 1]."""
    greedy_weight: Annotated[
        Fraction, OnlyWith(crossover="distillation", parent_selection="mixed")
    ] = 0.5
    """Weight of fitness in the combination; the rest is that of distance."""
    parent_actions: Annotated[
        Literal["recomputed", "stored"],
        OnlyWith(crossover="distillation", parent_selection=("distance", "mixed")),
    ] = "recomputed"
    """Which actions of a memory's owner the distance compares: what it would do now (P), or what was done then, perhaps by an
    ancestor (C)."""
    elite_fitness: Annotated[Literal["carried", "stale"], OnlyWith(crossover="distillation")] = (
        "carried"
    )
    """What an elite's copy counts as a parent: the elite's fitness, or that of the member whose slot it took (C)."""
    learner: Literal["ddpg", "td3", "sac"] = "ddpg"
    """Who learns from all transitions: DDPG with the paper's networks, of the fields below; or TD3 or SAC with the policy's, of
    their own tables."""
    exploration_clip: bool = True
    """Whether actions of the learner's own episodes are clipped to the bounds after noise is added (PDERL's public code), or the
    task takes them, and the critic learns from them, wherever noise has them (ERL's). A task may insist on its bounds."""
    ou_theta: PositiveFloat = 0.15
    """Pull towards 0 of the Ornstein-Uhlenbeck noise of the learner's episodes, a step. C."""
    ou_sigma: NonNegativeFloat = 0.2
    """Its standard deviation, a step. C."""
    ou_scale: NonNegativeFloat = 0.3
    """What it is multiplied by [half ranges of an action]. C. It goes on from episode to episode."""
    time_limits: Literal["truncation", "termination"] = "truncation"
    """Whether the learner's critic bootstraps where a time limit ends an episode, or takes it for an end (C)."""
    lr_actor: Annotated[PositiveFloat, OnlyWith(learner="ddpg")] = 5e-5
    """Adam's learning rate of the learner's actor. P: Table 3."""
    lr_critic: Annotated[PositiveFloat, OnlyWith(learner="ddpg")] = 5e-4
    """Adam's learning rate of its critic. P: Table 3."""
    critic_hidden: Annotated[tuple[PositiveInt, ...], OnlyWith(learner="ddpg")] = (200, 300)
    """Units of the critic: of observation and of action apart, and of both together [units, units]. C."""
    gamma: Annotated[Fraction, OnlyWith(learner="ddpg")] = 0.99
    """Discount. P: Table 3."""
    tau: Annotated[Fraction, OnlyWith(learner="ddpg")] = 0.001
    """Polyak coefficient of the targets. P: Table 3."""
    gradient_clip: Annotated[PositiveFloat, OnlyWith(learner="ddpg")] = 10.0
    """Largest norm of a gradient of actor or critic. C."""
    batch_size: Annotated[PositiveInt, OnlyWith(learner="ddpg")] = 128
    """Transitions per update. P: Table 3."""
    replay_capacity: Annotated[PositiveInt, OnlyWith(learner="ddpg")] = 1_000_000
    """Transitions kept [transitions]. P: Table 3."""
    start_steps: Annotated[NonNegativeInt, OnlyWith(learner="ddpg")] = 0
    """First training steps without updates [steps]. C: 0."""
    updates_per_step: Annotated[NonNegativeFloat, OnlyWith(learner="ddpg")] = 1.0
    """Gradient updates per step of the population and of the learner. C."""

    def problems(self, table: str) -> Iterator[str]:
        """Yield a message for every rule that the table breaks."""
        yield from replay_too_small(table, self.batch_size, self.replay_capacity)
        if len(self.critic_hidden) != 2:
            yield f"{table}.critic_hidden = {list(self.critic_hidden)}: must be two numbers, of first and second layers"
        if self.super_probability + self.reset_probability > 1:
            yield f"{table}.super_probability and reset_probability add up to more than 1"

    def problems_when_run(self, config: Whole) -> Iterator[str]:
        """Yield a message for a form that is not the algorithm's, for a population too small, and for memories too small."""
        have = self.crossover, self.mutation
        if have != FORMS[config.algorithm]:
            name = next((name for name, form in FORMS.items() if form == have), "")
            yield f"erl.crossover = {have[0]} and erl.mutation = {have[1]} are algorithm = {name}, not {config.algorithm}"
        stay = 2 * elites(self.population_size, self.elite_fraction)
        if self.population_size < max(TOURNAMENT, stay + 1):
            yield (
                f"erl.population_size = {self.population_size}: too few for tournaments of {TOURNAMENT}, and for "
                f"{stay // 2} elite(s), their copies and a child (elite_fraction = {self.elite_fraction}); "
                + (
                    "lower elite_fraction: less than half can be elites"
                    if stay > 2
                    else f"{TOURNAMENT} or more"
                )
            )
        if self.crossover == "distillation" and self.memory_size // 2 < self.distillation_batch:
            yield (
                f"erl.memory_size = {self.memory_size}: half of it, which a parent gives to a child, must have "
                f"distillation_batch = {self.distillation_batch} transitions"
            )
        if self.mutation == "proximal" and self.memory_size < self.mutation_batch:
            yield f"erl.memory_size = {self.memory_size}: must be at least mutation_batch = {self.mutation_batch}"
