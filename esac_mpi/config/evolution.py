"""Tables of ESAC and of evolution strategies, and the sizes of the population that they make."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from esac_mpi.config.bounds import (
    AUTO,
    COUNT,
    FLOAT32,
    NON_NEGATIVE,
    AutoFloat,
    AutoInt,
    Bound,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Standardisation,
    at_most,
)
from esac_mpi.config.exact import exact
from esac_mpi.config.table import (
    NOT_ZERO,
    SURVIVAL,
    OnlyWith,
    OnlyWithOne,
    Problem,
    Reads,
    Selecting,
    Whole,
    above,
)

PHASES = OnlyWith(sac_phases=True)
INTERVAL = OnlyWith(sac_phases=True, phase_timing="interval")
VIRTUAL = OnlyWith(sac_phases=True, phase_timing=("continuous", "virtual"))
ANNEALED = OnlyWith(sac_phases=True, p_sac_annealed=True)
TESTED = OnlyWith(transfer="tested")
WINNERS = OnlyWith(winner_fraction=NOT_ZERO)
AMT = OnlyWith(sigma_rule="grow")
CAP = Bound(
    lambda cap: cap == 0 or 1 <= cap <= 1000, "must be 0 (off), or from 1 to 1000 times the mean"
)
# of what AMT reads where it needs no phases
WITHOUT_PHASES = OnlyWithOne(sac_phases=True, amt_trigger=("interval", "generation"))
# SAC's fields that only its phases read: not what the learner is made of, not a checkpoint's
OF_PHASES = (
    "lr_sac", "gamma", "tau", "batch_size", "start_steps", "updates_per_step", "interleaved",
)  # fmt: skip


@dataclass(frozen=True)
class Evolution(Selecting):
    """What every evolution strategy here shares."""

    population_size: AutoInt = AUTO
    """Offspring per generation, n [members]. auto: the least multiple of twice the workers (of es:
    of the ranks of its first start but one) that is at least 28. P: D.1, 50; C: 10."""
    reward_shift: Annotated[float | Literal["survival"], NON_NEGATIVE] = SURVIVAL
    """What each step takes from the fitness: return - reward_shift * length [reward]. survival: the
    task's bonus for staying alive, or 0 (docs/explain/esac.md). ARS: the bonus; P, C: 0."""
    sigma: Annotated[PositiveFloat, FLOAT32] = 0.02
    """Mutation rate at the start, sigma(1): the noise on members' weights [standard deviation of a
    weight]. P: D.1, 0.005; D.2, 0.01."""
    lr_es: PositiveFloat = 0.01
    """Learning rate of theta_es, alpha_es. P: D.1, 0.005; D.2, 0.01."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Step rule of theta_es. P: 6.1 Adam; sgd is Algorithm 1, line 11, as printed."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 coefficient: the ascent direction becomes gradient - weight_decay * theta. OpenAI-ES:
    0.005 / sigma here, 0.25 at its sigma of 0.02."""
    sampling: Literal["mirrored", "onesided", "repo"] = "mirrored"
    """mirrored: n/2 pairs (+eps, -eps) sharing a parent (OpenAI-ES); onesided: n eps (P: Algorithm
    1); repo: n pairs, 2n episodes (C, as intended)."""
    fitness_episodes: PositiveInt = 1
    """Episodes averaged into a member's fitness [episodes]. P: 1."""
    start_states: Annotated[Literal["pair", "member"], OnlyWith(sampling=("mirrored", "repo"))] = (
        "pair"
    )
    """Who shares a start state, and noise on actions: the members of a pair, so that their
    difference is that of their weights alone (docs/results/choices.md); or nobody (P, C)."""
    noise: Literal["philox", "table", "lowrank"] = "philox"
    """How epsilon is made: every number drawn; a piece of one table per node (OpenAI-ES); a product
    of two thin matrices for each weight matrix (EGGROLL, arXiv:2511.16652)."""
    noise_table_size: Annotated[PositiveInt, OnlyWith(noise="table")] = 2**25
    """Numbers of noise = table; 4 bytes each, once per node [numbers]. OpenAI-ES: 250,000,000."""
    noise_rank: Annotated[PositiveInt, at_most(1000), OnlyWith(noise="lowrank")] = 1
    """Rank of the perturbation of a weight matrix under noise = lowrank. EGGROLL: 1."""
    fitness_shaping: Literal["centered_ranks", "standardised", "sign", "sign_ranks"] = (
        "centered_ranks"
    )
    """F_i of the gradient: ranks of the fitness in [-0.5, 0.5] (C; OpenAI-ES); (fitness - mean) /
    std; the sum of the signs of rewards, each less reward_shift, or its ranks (OpenAI-ES)."""
    action_noise: NonNegativeFloat = 0.0
    """Standard deviation of noise on the actions of the population's episodes [half ranges of an
    action]; evaluations have none. OpenAI-ES: 0.01; P, C: none."""
    observation_normalisation: Standardisation = True
    """Standardise observations by running statistics, clipped to +-5 standard deviations. shrink:
    divide by those above 1 alone. auto: as esac's. OpenAI-ES: on; P, C: off."""
    scaled_noise: Annotated[bool, OnlyWith(observation_normalisation=(False, AUTO))] = True
    """Divide noise on the weights of an observation, and theta_es's steps of them, by
    sqrt(1 + its mean square), where observations are not standardised (docs/explain/esac.md). In
    the first generation those weights have none. P, C: off."""
    length_cap: Annotated[NonNegativeFloat, CAP] = 0.0
    """Truncate members' episodes at this multiple of their mean length; 0 = off. OpenAI-ES: 2."""

    @property
    def scales_noise(self) -> bool:
        """Whether noise on the weights of an observation is scaled."""
        return self.scaled_noise and not self.observation_normalisation

    @property
    def counts_observations(self) -> bool:
        """Whether members' observations are added up."""
        return self.observation_normalisation or self.scaled_noise

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield why a population makes no gradient."""
        n = self.population_size
        if self.sampling == "mirrored" and n % 2:
            remedy = f"{n + 1} or sampling = onesided"
            yield "population_size", f"must be even under mirrored sampling; {remedy}"
        if self.sampling == "onesided" and n == 1 and self.fitness_shaping != "sign":
            under = f"sampling = onesided and fitness_shaping = {self.fitness_shaping}"
            why = f"no ES gradient under {under}, which compares members"
            yield "population_size", f"{why}; 2 or more, or fitness_shaping = sign"

    def centre_problems(self, table: str, rule: str) -> Iterator[Problem]:
        """Yield members whose episodes are not comparable with those of theta_es."""
        for name in ("length_cap", "action_noise"):
            if getattr(self, name):
                why = f"is for members alone, which {table}.sigma_rule = {rule} compares with"
                yield name, f"{why} theta_es; {table}.{name} = 0, or another {table}.sigma_rule"


@dataclass(frozen=True)
class ES(Evolution):
    """OpenAI-ES, the evolution strategy of ESAC, alone (Salimans et al. 2017)."""

    READS = Reads(also=("esac.preset",))  # a preset of ESAC sets fields of it

    sigma_rule: Literal["fixed", "one_fifth"] = "fixed"
    """fixed: sigma stays sigma(1) (OpenAI-ES). one_fifth: as esac.sigma_rule has it, by 5 episodes
    of theta_es itself every 5 generations, which count as the population's steps."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield why a population makes no gradient, or no rule can judge it."""
        yield from super().problems(table, config)
        if self.sigma_rule != "fixed":
            yield from self.centre_problems("es", self.sigma_rule)


@dataclass(frozen=True)
class ESAC(Evolution):
    """Evolution-based Soft Actor-Critic: ES and SAC learn together (Suri et al. 2020)."""

    READS = Reads(  # a phase has its own length, and sees observations as the population does
        ("sac", "learner"),
        without=("sac.steps_per_generation", "sac.observation_normalisation"),
        only_if={f"sac.{name}": ("sac_phases", True) for name in OF_PHASES},
    )

    preset: Literal["default", "corrected", "paper", "reference-code"] = "default"
    """Sets the fields below, and some of [policy], [sac] and [learner] (config/presets.py); single
    fields override it. corrected: the paper's algorithm, corrected where it does not work as
    printed. paper: as printed. reference-code: the public code."""
    observation_normalisation: Standardisation = AUTO
    """Standardise observations, of SAC's episodes too, by running statistics, clipped to +-5
    standard deviations; the replay has them as they were. shrink: divide by standard deviations
    above 1 alone. auto: true, or shrink for more than 64 observations
    (M: docs/results/choices.md). OpenAI-ES: on; P, C: off."""
    winner_fraction: Fraction = 0.4
    """Winners, as a fraction of population_size, e; only a finite return wins. P: D.1."""
    sac_copies: Annotated[NonNegativeInt, COUNT] = 1
    """Slots whose parent is the SAC policy [slots]. C: 4 of 10 (Swimmer 1); M: 1."""
    sac_copy_noise: Annotated[bool, OnlyWith(sac_copies=NOT_ZERO)] = True
    """Perturb a SAC copy like any other member (P: line 7). false: its members are theta_sac
    itself, and leave the ES gradient. M: a perturbed copy can score far below theta_sac."""
    transfer: Literal["off", "means", "tested"] = "tested"
    """When theta_es := theta_sac takes the place of the ES step: where SAC's copies have the better
    mean, or theta_sac has won transfer_wins tests beside theta_es. Ours; docs/explain/esac.md."""
    transfer_episodes: Annotated[PositiveInt, TESTED] = 5
    """Episodes of a test, of each of the two, from the same start states [episodes]; after every
    SAC phase, and count as the population's steps."""
    transfer_interval: Annotated[PositiveInt, TESTED] = 1
    """SAC phases from a transfer to the next test [phases]."""
    transfer_wins: Annotated[PositiveInt, TESTED] = 3
    """Tests in a row that theta_sac must win for a transfer; 3 of 50 are won by chance [tests]."""
    transfer_at_once: Annotated[bool, TESTED, OnlyWith(transfer_wins=above(1))] = True
    """Transfer after a single test, too, if theta_sac wins it, its mean there exceeds the return of
    every member but SAC's copies, and it leads by more than theta_es has gained since its start or
    the last transfer. Ours; docs/explain/esac.md."""
    transfer_moments: Annotated[Literal["kept", "reset"], TESTED, OnlyWith(optimiser="adam")] = (
        "kept"
    )
    """What becomes of Adam's moments of theta_es at a transfer. M: reset, its first steps have the
    whole learning rate in every direction, and leave the policy that was transferred."""
    winner_selection: Annotated[Literal["soft", "hard", "uniform"], WINNERS] = "soft"
    """soft: the best win, and their children are perturbed (P: 1, 5.1.1). hard: children are
    shielded, as ERL's elites, and leave the ES gradient. uniform: so many win by chance."""
    winner_pull: Annotated[Fraction, WINNERS] = 0.1
    """b in theta_es <- (1-b) theta_es + b mean(W), after the ES step: what carries SAC's skill
    over. 0 in the preset paper. M."""
    crossover: Annotated[Literal["row", "element", "off"], WINNERS] = "row"
    """What hindsight crossover exchanges: rows of weight matrices (C, intended), elements (P:
    5.1.2), nothing (C, in effect)."""
    gradient_members: Literal["all", "centre"] = "all"
    """Whose noise enters the ES gradient: all members' (P), or that of those around theta_es."""
    gradient: Literal["noise", "displacement", "displacement_clipped"] = "noise"
    """What F_i weighs in the ES gradient: eps_i (P: line 11); (theta_i - theta_es) / sigma, which
    leads to other parents, too; or the same, its norm clipped to sqrt(d) there. Ours."""
    sac_phases: bool = True
    """Whether SAC ever learns (P: lines 12-23). false: the gate stays shut, AMT's too under
    amt_trigger = phase; sac_copies = 0 goes with it, as theta_sac stays what it was drawn as."""
    gradient_interval: Annotated[PositiveInt, INTERVAL] = 5
    """Generations between chances of a SAC phase, g [generations]. C (P gives none)."""
    gate: Annotated[Literal["uniform", "normal"], PHASES] = "uniform"
    """Distribution of mu in `mu < p_sac`: normal as printed (P: line 12), uniform so that p_sac is
    a probability (C)."""
    learner_lag: Annotated[NonNegativeInt, INTERVAL] = 0
    """Generations for which a SAC phase runs beside the evaluation before its result enters
    [generations]; at most gradient_interval. P: 0, all ranks wait for it."""
    p_sac_initial: Annotated[Fraction, PHASES] = 1.0
    """p_sac at generation 0. C."""
    p_sac_final: Annotated[Fraction, ANNEALED] = 0.1
    """p_sac after annealing. C."""
    p_sac_annealed: Annotated[bool, PHASES] = False
    """Whether p_sac falls from p_sac_initial to p_sac_final (P: 5.1.1), or stays. M: false."""
    p_sac_decay: Annotated[PositiveFloat, ANNEALED] = 1200.0
    """Time constant of the annealing [generations]. C: 1.2e6 nominal steps at horizon 1000."""
    sigma_rule: Literal["fixed", "grow", "one_fifth"] = "fixed"
    """How sigma changes. grow: by AMT, upwards alone (P: Eq. 6). one_fifth: after each test of
    transfer, by the share of members better than theta_es (Rechenberg 1973);
    docs/explain/esac.md."""
    amt_clip: Annotated[NonNegativeFloat, AMT, WITHOUT_PHASES] = 1e-4
    """Clip of one mutation-tuning step, zeta; 0 turns AMT off. P: 1e-6 to 1e-2; C: 1e-4."""
    amt_trigger: Annotated[Literal["phase", "interval", "generation"], AMT] = "phase"
    """When AMT steps: in a generation in which a phase begins (P: line 24); every amt_interval
    generations (C); a part in each, as many in sum as in the paper's run (ours;
    docs/explain/esac.md)."""
    amt_interval: Annotated[PositiveInt, OnlyWith(sigma_rule="grow", amt_trigger="interval")] = 20
    """Generations between tunings under amt_trigger = interval [generations]. C."""
    amt_input: Annotated[Literal["raw", "rank"], AMT, WITHOUT_PHASES] = "raw"
    """What Eq. 6 compares: the fitness (P), or centred ranks, which makes it a constant (C)."""
    amt_scope: Annotated[Literal["noise", "gradient"], AMT, OnlyWith(amt_clip=NOT_ZERO)] = "noise"
    """What the tuned sigma acts on: noise and gradient (P), or the gradient alone (C)."""
    sac_episodes: Annotated[NonNegativeInt, INTERVAL] = 5
    """Least number of episodes of a SAC phase [episodes]. P: D.1, per task."""
    sac_min_steps: Annotated[NonNegativeInt, PHASES] = 1000
    """Least number of environment steps of a SAC phase [steps]. phase_timing = virtual: the number;
    continuous: also the steps between two rounds of updates. Under either, an episode in progress
    at the end of a phase is cut. 0 in the preset paper. M."""
    phase_timing: Annotated[Literal["interval", "virtual", "continuous"], PHASES] = "continuous"
    """interval: a phase may begin every gradient_interval generations (P). virtual: one follows
    another, and enters when it ends on a clock of steps and updates. continuous: likewise, and as
    long as nine tenths of the last generation, if that is more. Ours; docs/explain/esac.md."""
    workers: Annotated[AutoInt, VIRTUAL] = AUTO
    """Ranks that evaluate beside the learner's, for phases on the virtual clock [ranks]. auto: the
    ranks of the run's first start but one, at least 1; it is kept with the run."""
    update_cost: Annotated[AutoFloat, VIRTUAL] = AUTO
    """How long a gradient update takes, for phases on the virtual clock [environment steps]. auto:
    measured at the run's first start, to two digits; it is kept with the run."""
    resimulated: Annotated[Literal["none", "winners", "better", "earning", "sample"], PHASES] = (
        "earning"
    )
    """Which members' episodes are resimulated for SAC's replay: none (P: 5.1.1); the best of the
    generation; of these those with a fitness above SAC's own last ones; of these those that earn
    more than a bonus for survival in it; or some by chance. Ours; docs/explain/esac.md."""
    resimulated_members: Annotated[
        PositiveInt, PHASES, OnlyWith(resimulated=("winners", "better", "earning", "sample"))
    ] = 2
    """Members whose episodes a phase resimulates [members], 4 d bytes each."""

    def problems(self, table: str, config: Whole) -> Iterator[Problem]:
        """Yield why a population has no room for its parts, no gradient, or no phase of SAC."""
        yield from super().problems(table, config)
        yield from self.phase_problems()
        have, centre = slots(self), "no slot has theta_es as its parent"
        children, copies = child_slots(self), self.sac_copies
        if children + copies > have:
            remedy = "lower esac.winner_fraction or esac.sac_copies, or raise esac.population_size"
            crowd = f"{children} crossover children + {copies} SAC copies > {have} slots"
            yield "", f"{crowd}; {remedy}"
        if self.winner_fraction and not winners(self):
            n = self.population_size
            yield "winner_fraction", f"no winner among {n} members; 0, or at least {1 / n:.2g}"
        unperturbed = children if self.winner_selection == "hard" else 0
        if not self.sac_copy_noise:
            unperturbed += copies
        if unperturbed == have and self.gradient == "noise":
            yield "winner_selection sac_copy_noise", "no slot is perturbed, no ES gradient"
        crowded = children + copies == have
        if self.gradient_members == "centre" and crowded:
            yield "gradient_members", centre
        if self.transfer == "means" and crowded:
            yield "transfer", f"{centre}, to be compared with SAC's copies"
        if self.transfer == "means" and not copies:
            remedy = "esac.sac_copies = 1 or more, or another esac.transfer"
            yield "transfer", f"no slot is a SAC copy; {remedy}"
        if self.sigma_rule == "one_fifth":
            if self.transfer != "tested":
                needed = "needs the tests of theta_es under esac.transfer = tested"
                yield "sigma_rule", f"{needed}; or esac.sigma_rule = fixed"
            if crowded:
                remedy = "lower esac.winner_fraction, or esac.sigma_rule = fixed"
                yield "sigma_rule", f"{centre}; {remedy}"
            yield from self.centre_problems(table, self.sigma_rule)

    def phase_problems(self) -> Iterator[Problem]:
        """Yield why a phase of SAC, or the test after it, could not be made."""
        if not self.sac_episodes and not self.sac_min_steps:
            yield "sac_episodes sac_min_steps", "a SAC phase would have no steps"
        if not self.sac_min_steps and self.phase_timing != "interval":
            timing = f"esac.phase_timing = {self.phase_timing}"
            yield "sac_min_steps", f"must be positive, no phase has fewer under {timing}"
        if self.transfer == "tested" and self.transfer_episodes < 2:
            yield "transfer_episodes", "must be at least 2, for a difference to have an error"
        if self.transfer == "tested" and not self.sac_phases:
            why = "a test follows a SAC phase, and esac.sac_phases = false"
            yield "transfer", f"{why}; esac.transfer = off"
        if self.learner_lag > self.gradient_interval and self.phase_timing == "interval":
            limit = f"must be at most esac.gradient_interval ({self.gradient_interval})"
            yield "learner_lag", f"{limit}, so that one phase is in flight at a time"


def slots(evolution: Evolution) -> int:
    """Count the slots: mirrored, a slot is a pair of members; else one member."""
    return evolution.population_size // (2 if evolution.sampling == "mirrored" else 1)


def members(evolution: Evolution) -> int:
    """Count the members, which have one fitness value each in a generation."""
    return slots(evolution) * (1 if evolution.sampling == "onesided" else 2)


def winners(esac: ESAC) -> int:
    """Count the winners, |W| = round(e n) [members]."""
    return round(exact(esac.winner_fraction) * esac.population_size)


def child_slots(esac: ESAC) -> int:
    """Count the slots whose parent is a crossover child."""
    if esac.crossover == "off":
        return 0
    return winners(esac) // 2 if esac.sampling == "mirrored" else winners(esac)
