"""Hyperparameters: every field declared once, with its default, unit and source.

Defaults are the paper's (P: Suri et al., ESAC, section or appendix) where it states a value, then the public code's (C),
then our own measurement (M). A TOML file and the command line hold only what differs.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any, Literal, get_args, get_origin, get_type_hints

from esac_mpi import reads
from esac_mpi.directory import CONFIG, is_run


class ConfigError(Exception):
    """A configuration that cannot be run; the message says which key, why, and the nearest valid one."""


@dataclass(frozen=True)
class Task:
    """The environment."""

    id: str = "HalfCheetah-v5"
    """Gymnasium id, dm_control/<domain>-<task>-v0, module:EnvId for your own, or the toy of section 4: CyclicMDP-v0 by the
    paper's rules, CyclicMDPRepo-v0 by the public code's (third transition +2, no time limit). P: section 6."""
    horizon: int = 0
    """Truncate episodes after this many steps [steps]; 0 = the task's own time limit."""
    changed: Literal["refuse", "warn"] = "refuse"
    """What a start does where the task (source, wrappers, model, or the rewards of its first steps) is no longer the one that the
    run began with: refuse to go on, or go on with a warning. The best policy then begins anew."""


@dataclass(frozen=True)
class Budget:
    """Whichever is reached first ends the run; 0 = no limit. Naming any of them turns the default off."""

    generations: int = 0
    """Generations [generations]."""
    env_steps: int = 0
    """True environment steps of population, learner and evaluation together [steps]."""
    nominal_steps: int = 1_000_000
    """The papers' count: one horizon per generation, or one per training step without a population [steps]. P: 6.1."""


@dataclass(frozen=True)
class PolicyNetwork:
    """The network of theta_es, of every offspring and of the SAC mean."""

    hidden: tuple[int, ...] = (512, 512)
    """Units of the hidden layers. P: 6.1; C: 256 256."""
    activation: Literal["relu", "tanh"] = "relu"
    """Nonlinearity of the hidden layers. P: 6.1."""
    output: Literal["tanh", "clip"] = "tanh"
    """Squashing of the mean to [-1, 1] before it is scaled to the task's bounds. P: 6.1 tanh; C: clip. algorithm = "ppo" always
    clips, as its actions in training are."""


@dataclass(frozen=True)
class Evolution:
    """What every evolution strategy here shares."""

    population_size: int = 50
    """Offspring per generation, n [members]. P: D.1; C: 10."""
    sigma: float = 0.005
    """Initial mutation rate, sigma(1) [standard deviation of a weight]. P: D.1 (0.01 on dm_control)."""
    lr_es: float = 0.005
    """Learning rate of theta_es, alpha_es. P: D.1 (0.01 on dm_control)."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Step rule of theta_es. P: 6.1 Adam; sgd is Algorithm 1, line 11, as printed."""
    weight_decay: float = 0.0
    """L2 coefficient: the ascent direction becomes gradient - weight_decay * theta. OpenAI-ES: 0.005."""
    sampling: Literal["mirrored", "onesided", "repo"] = "mirrored"
    """mirrored: n/2 pairs (+eps, -eps) sharing a parent (OpenAI-ES); onesided: n eps (P: Algorithm 1);
    repo: n pairs, 2n episodes (C, as intended)."""
    fitness_episodes: int = 1
    """Episodes averaged into a member's fitness [episodes]. P: 1."""
    start_states: Literal["slot", "member"] = "member"
    """Who shares a start state, and the noise on actions: the members of a slot (a mirrored pair), or nobody."""
    noise: Literal["philox", "table", "lowrank"] = "philox"
    """How epsilon is made: every number drawn; a piece of one table per node (OpenAI-ES); a product of two thin matrices for
    each weight matrix (EGGROLL, arXiv:2511.16652)."""
    noise_table_size: int = 2**25
    """Numbers in the table of noise = table; 4 bytes each, once per node [numbers]. OpenAI-ES: 250,000,000."""
    noise_rank: int = 1
    """Rank of the perturbation of a weight matrix under noise = lowrank. EGGROLL: 1."""
    fitness_shaping: Literal["centered_ranks", "standardised", "sign", "sign_ranks"] = "centered_ranks"
    """F_i of the gradient: ranks of the returns in [-0.5, 0.5] (C; OpenAI-ES); (return - mean) / std (OpenAI's blog of ES); the
    sum of the signs of an episode's rewards, or its ranks (OpenAI-ES, return_proc_mode). Winners are the best by return."""
    action_noise: float = 0.0
    """Standard deviation of Gaussian noise on the actions of the population's episodes, clipped to the bounds [half ranges of
    an action]. OpenAI-ES: 0.01; P, C: none. Evaluations have none."""
    length_cap: float = 0.0
    """Truncate the population's episodes at this multiple of their running mean length; 0 = off. OpenAI-ES, section 2.1: 2."""


@dataclass(frozen=True)
class ES(Evolution):
    """algorithm = "es": lines 5-11 of Algorithm 1 alone (OpenAI-ES, Salimans et al. 2017)."""

    observation_normalisation: bool = False
    """Standardise observations by running statistics of the population's, clipped to +-5. OpenAI-ES: on; off here, so that
    es is half of ESAC, whose SAC copies see plain observations."""


@dataclass(frozen=True)
class ESAC(Evolution):
    """algorithm = "esac": Algorithm 1."""

    reading: Literal["recommended", "paper", "repo"] = "recommended"
    """Sets every switch below to one reading of the paper (READINGS in config.py); single fields override it."""
    winner_fraction: float = 0.4
    """Fraction of the members that win, e; only those with a finite return do. P: D.1."""
    sac_copies: int = 1
    """Slots whose parent is the SAC policy [slots]. C: 4 of 10 (Swimmer 1); M: 1."""
    sac_copy_noise: bool = True
    """Whether a SAC copy is perturbed like any other member (P: line 7). false: its slot's members are theta_sac itself, and
    leave the ES gradient, to which they say nothing. M: a perturbed copy scores far below theta_sac (110 to 400 at sigma 0.1
    where it reaches 9357, InvertedDoublePendulum)."""
    adopt_sac: bool = False
    """Put theta_es := theta_sac in place of the ES step where the SAC copies' mean return exceeds that of the members around
    theta_es. Another way than winner_pull to carry SAC's skill over; ours."""
    winner_selection: Literal["soft", "hard", "uniform"] = "soft"
    """soft: the best members win, and the children made of them are perturbed like any other (P: sections 1 and 5.1.1).
    hard: children are shielded from mutation, as ERL's elites are (Khadka and Tumer 2018), and leave the ES gradient.
    uniform: as soft, but that many members win by chance: what selection is worth."""
    winner_pull: float = 0.1
    """b in theta_es <- (1-b) theta_es + b mean(W), after the ES step: what carries SAC's skill over.
    0 in the paper's reading. M."""
    crossover: Literal["row", "element", "off"] = "row"
    """What hindsight crossover exchanges: rows of weight matrices (C, intended), elements (P: 5.1.2), nothing (C, in effect)."""
    gradient_members: Literal["all", "centre"] = "all"
    """Whose noise enters the ES gradient: all members (P: Algorithm 1), or those whose parent is theta_es."""
    gradient: Literal["noise", "displacement", "displacement_clipped"] = "noise"
    """What F_i weighs in the ES gradient: eps_i (P: line 11); or (theta_i - theta_es) / sigma, which differs where the parent is
    not theta_es, and then leads to or from that parent; or the same, its norm clipped to sqrt(d) for these members. Ours."""
    sac_phases: bool = True
    """Whether SAC ever learns (P: lines 12-23). false: the gate stays shut, AMT's too under amt_trigger = phase; theta_sac stays
    what it was drawn as, so that sac_copies = 0 goes with it."""
    gradient_interval: int = 5
    """Generations between chances of a SAC phase, g [generations]. C (P gives none)."""
    gate: Literal["uniform", "normal"] = "uniform"
    """Distribution of mu in `mu < p_sac`: normal as printed (P: line 12), uniform so that p_sac is a probability (C)."""
    learner_lag: int = 0
    """Generations for which a SAC phase runs beside the evaluation before its result enters [generations]; at most
    gradient_interval. P: 0, all ranks wait for it."""
    p_sac_initial: float = 1.0
    """p_sac at generation 0. C."""
    p_sac_final: float = 0.1
    """p_sac after annealing. C."""
    p_sac_annealed: bool = True
    """Whether p_sac falls from p_sac_initial to p_sac_final (P: 5.1.1), or stays p_sac_initial."""
    p_sac_decay: float = 1200.0
    """Time constant of the exponential annealing [generations]. C: 1.2e6 nominal steps at horizon 1000."""
    amt_clip: float = 1e-4
    """Clip of one mutation-tuning step, zeta. P: useful from 1e-6 to 1e-2; C: 1e-4. 0 turns AMT off."""
    amt_trigger: Literal["phase", "interval"] = "phase"
    """When sigma is tuned: after each SAC phase (P: line 24), or every amt_interval generations (C)."""
    amt_interval: int = 20
    """Generations between tunings under amt_trigger = interval [generations]. C."""
    amt_input: Literal["raw", "rank"] = "raw"
    """What Eq. 6 compares: raw returns (P), or centred ranks, which makes it a constant (C)."""
    amt_scope: Literal["noise", "gradient"] = "noise"
    """What the tuned sigma acts on: the noise and the gradient (P), or the gradient alone (C: workers keep sigma(1))."""
    sac_episodes: int = 5
    """Least number of episodes of a SAC phase [episodes]. P: D.1, per task."""
    sac_min_steps: int = 1000
    """Least number of environment steps of a SAC phase [steps]; 0 in the paper's reading. M."""
    offspring_transitions: bool = False
    """Whether the transitions of the population's episodes enter the replay, in member order, at the end of their generation
    (ERL). P: no, 5.1.2 has a dedicated replay. They travel with the returns: n x fitness_episodes x horizon x (2 o + a + 2)
    x 4 bytes a generation to rank 0's node, and twice that of each node's shared memory. Not with learner_lag."""


@dataclass(frozen=True)
class SAC:
    """The Soft Actor-Critic learner (Haarnoja et al. 2018), inside ESAC and as algorithm = "sac"."""

    lr_sac: float = 3e-4
    """Adam's learning rate of actor, critics and temperature, alpha. P: D.1."""
    gamma: float = 0.99
    """Discount. P: D.1."""
    tau: float = 0.005
    """Polyak coefficient of the targets. C."""
    temperature: float = 0.2
    """Entropy temperature, lambda in Eq. 1; fixed in the paper's comparison (6.1). C: 0.2. Initial value if automatic."""
    automatic_temperature: bool = False
    """Tune the temperature towards an entropy of -action_size (Haarnoja et al. 2018b)."""
    value_network: bool = False
    """The form with V, target V and two Q (P: line 19; Haarnoja et al. 2018a) in place of two Q with targets."""
    batch_size: int = 256
    """Transitions per update. C."""
    replay_capacity: int = 1_000_000
    """Transitions kept [transitions]. C."""
    start_steps: int = 10_000
    """First training steps, taken with uniform random actions [steps]. C."""
    updates_per_step: float = 1.0
    """Gradient updates per training step. P: D.1."""
    interleaved: bool = False
    """Update after every step (C) in place of collecting the phase first (P: lines 13-23)."""
    steps_per_generation: int = 1000
    """Training steps of a generation of algorithm = "sac" [steps]; an episode in progress is cut and bootstrapped."""


@dataclass(frozen=True)
class TD3:
    """algorithm = "td3" (F: Fujimoto et al. 2018, and the authors' later code)."""

    lr_td3: float = 3e-4
    """Adam's learning rate of actor and critics. F: the later code; the paper has 1e-3, with batches of 100."""
    gamma: float = 0.99
    """Discount. F."""
    tau: float = 0.005
    """Polyak coefficient of the targets. F."""
    policy_delay: int = 2
    """Updates of the critics per update of actor and targets, d [updates]. F."""
    policy_noise: float = 0.2
    """Noise on the target's action [standard deviation; actions are in [-1, 1]]. F: 0.2 of the action's bound."""
    noise_clip: float = 0.5
    """Bound of that noise, c [of the action's bound]. F."""
    exploration_noise: float = 0.1
    """Gaussian noise of the actions that are played [standard deviation; actions are in [-1, 1]]. F."""
    batch_size: int = 256
    """Transitions per update. F: the later code; the paper has 100."""
    replay_capacity: int = 1_000_000
    """Transitions kept [transitions]. F."""
    start_steps: int = 25_000
    """First training steps, taken with uniform random actions and without updates [steps]. F: the later code; the paper has
    10,000 for HalfCheetah and Ant, else 1,000."""
    updates_per_step: float = 1.0
    """Gradient updates per training step. F."""
    interleaved: bool = True
    """Update after every step (F), in place of collecting the generation first."""
    steps_per_generation: int = 1000
    """Training steps of a generation [steps]; an episode in progress is cut and bootstrapped."""
    episodes_on: Literal["root", "ranks"] = "root"
    """Who plays: rank 0, a step at a time between its updates; or all ranks, whole episodes by the actor as it was at the
    generation's start, after which rank 0 makes their updates (steps_per_generation and interleaved then say nothing)."""
    episodes_per_generation: int = 8
    """Episodes of a generation under episodes_on = ranks [episodes]; not the number of ranks, on which no result depends."""


@dataclass(frozen=True)
class DDPG:
    """algorithm = "ddpg" (L: Lillicrap et al. 2016)."""

    lr_actor: float = 1e-4
    """Adam's learning rate of the actor. L."""
    lr_critic: float = 1e-3
    """Adam's learning rate of the critic. L."""
    critic_weight_decay: float = 1e-2
    """L2 coefficient of the critic: its gradient gains this times its parameters. L."""
    gamma: float = 0.99
    """Discount. L."""
    tau: float = 0.001
    """Polyak coefficient of the targets. L."""
    exploration_noise: float = 0.1
    """Gaussian noise of the actions that are played [standard deviation; actions are in [-1, 1]]. Fujimoto et al. 2018; L has
    an Ornstein-Uhlenbeck process of 0.2."""
    batch_size: int = 64
    """Transitions per update. L."""
    replay_capacity: int = 1_000_000
    """Transitions kept [transitions]. L."""
    start_steps: int = 25_000
    """First training steps, taken with uniform random actions and without updates [steps]. Code of Fujimoto et al. 2018;
    L: 0."""
    updates_per_step: float = 1.0
    """Gradient updates per training step. L."""
    interleaved: bool = True
    """Update after every step (L), in place of collecting the generation first."""
    steps_per_generation: int = 1000
    """Training steps of a generation [steps]; an episode in progress is cut and bootstrapped."""
    episodes_on: Literal["root", "ranks"] = "root"
    """Who plays: rank 0, a step at a time between its updates; or all ranks, whole episodes by the actor as it was at the
    generation's start, after which rank 0 makes their updates (steps_per_generation and interleaved then say nothing)."""
    episodes_per_generation: int = 8
    """Episodes of a generation under episodes_on = ranks [episodes]; not the number of ranks, on which no result depends."""


@dataclass(frozen=True)
class PPO:
    """algorithm = "ppo": stable-baselines3's, by the extra `baselines` (B: its defaults; S: Schulman et al. 2017).

    It plays a step at a time, for which a GPU is slower: learner.device = "cpu"."""

    lr_ppo: float = 3e-4
    """Adam's learning rate of actor and critic, constant. B, S."""
    gamma: float = 0.99
    """Discount. B, S."""
    gae_lambda: float = 0.95
    """Weight of longer returns in the advantages (generalized advantage estimation). B, S."""
    clip_range: float = 0.2
    """Change of an action's probability ratio beyond which nothing is gained, epsilon. B, S."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy in the loss. B, S (continuous actions)."""
    value_coefficient: float = 0.5
    """Weight of the critic's squared error in the loss. B."""
    max_grad_norm: float = 0.5
    """Norm to which the gradient of a minibatch is cut. B."""
    steps_per_generation: int = 2048
    """Training steps of a generation, which are one rollout [steps]; the episode in progress carries on in the next. B, S."""
    batch_size: int = 64
    """Steps of a minibatch; the last of an epoch has what is left. B, S."""
    epochs: int = 10
    """Passes over a rollout [epochs]. B, S."""
    initial_std: float = 1.0
    """Standard deviation of continuous actions at first, which is learned [actions are in [-1, 1]]. B."""
    action: Literal["categorical", "gaussian_argmax"] = "categorical"
    """How a choice is drawn in discrete tasks: by probabilities (B), or as the largest of Gaussian numbers around the outputs, as
    the ESAC authors' notebooks do."""
    argmax_std: float = 0.5
    """Standard deviation under action = gaussian_argmax, not learned. The ESAC authors' notebooks."""


@dataclass(frozen=True)
class Learner:
    """Where the gradient learner runs."""

    threads: int = 1
    """Torch threads of rank 0. Yours to set, never derived: bits depend on it."""
    device: str = "auto"
    """auto (cuda where there is one), cpu, cuda, cuda:1, ..."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Matrix products of the updates: bf16 multiplies in bfloat16 and keeps weights, gradients, Adam and losses in float32
    (Micikevicius et al. 2018, arXiv:1710.03740; bfloat16 needs no loss scaling: Kalamkar et al. 2019, arXiv:1905.12322).
    Worth it only where the device has units for it."""


@dataclass(frozen=True)
class Evaluation:
    """Noise-free episodes of theta_es and of the SAC mean, apart."""

    every: int = 10
    """Generations between evaluations [generations]."""
    episodes: int = 10
    """Episodes per policy and evaluation [episodes]. P: 6.1."""


@dataclass(frozen=True)
class Checkpoint:
    """When the complete state is saved; always at a stop and at the end."""

    every_generations: int = 20
    """Generations between checkpoints [generations]; 0 = by time only."""
    every_minutes: float = 10.0
    """Longest time between checkpoints [min]; 0 = by generations only."""


@dataclass(frozen=True)
class Stop:
    """How a run ends before its budget does, and what counts as hanging."""

    grace_seconds: float = 5.0
    """A generation that is unfinished this long after SIGTERM is given up, and made again at the next start [s]. SLURM kills
    30 s after it (KillWait), PBS 10 s (kill_delay)."""
    starts: int = 10
    """So many starts in a row without progress make the run a failed one, which no job script starts again; 0 = no limit."""
    member_minutes: float = 30.0
    """A rank that is busy for longer with one member, evaluation episode or gradient update hangs, and ends the job [min];
    0 = no limit."""
    silent_minutes: float = 30.0
    """Rank 0 ends the job after it has waited so long for the others, or for 20 median generations if that is longer [min];
    0 = no limit."""


@dataclass(frozen=True)
class Display:
    """What the person sees."""

    style: Literal["auto", "live", "plain"] = "auto"
    """live: a small table that updates; plain: a line now and then; auto: live where the output is a terminal."""
    every_seconds: float = 5.0
    """Time between the first plain lines [s]; it grows to 2 % of the time since the start, at most 5 minutes. 0 = a line for
    each generation."""


@dataclass(frozen=True)
class Config:
    """ESAC, its two halves and its rivals on MPI. With no argument: the paper's main job, ESAC on HalfCheetah-v5."""

    algorithm: Literal["esac", "es", "sac", "td3", "ddpg", "ppo"] = "esac"
    """Which algorithm runs; its table below has the same name."""
    seed: int = 0
    """Every random number of the run is addressed by this and what it is for."""
    run_dir: str = ""
    """Run directory; default runs/<task>-<algorithm>-seed<seed>, so that a requeued job finds itself."""
    max_hours: float = 0.0
    """Stop early enough to be saved after this time, or what SLURM or PBS leaves to the job if that is less [h]; 0 = no time."""
    task: Task = field(default_factory=Task)
    budget: Budget = field(default_factory=Budget)
    policy: PolicyNetwork = field(default_factory=PolicyNetwork)
    esac: ESAC = field(default_factory=ESAC)
    es: ES = field(default_factory=ES)
    sac: SAC = field(default_factory=SAC)
    td3: TD3 = field(default_factory=TD3)
    ddpg: DDPG = field(default_factory=DDPG)
    ppo: PPO = field(default_factory=PPO)
    learner: Learner = field(default_factory=Learner)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    stop: Stop = field(default_factory=Stop)
    display: Display = field(default_factory=Display)


# What `esac.reading` sets. "paper" departs from the defaults only where the paper says something else in words or in
# Algorithm 1; "repo" makes the public code's choices and keeps its dead operators dead, but not its crashes.
READINGS: dict[str, dict[str, Any]] = {
    "recommended": {},
    "paper": {
        "esac.sampling": "onesided",  # line 6
        "esac.winner_pull": 0.0,  # lines 11 and 27 have none
        "esac.crossover": "element",  # 5.1.2
        "esac.gate": "normal",  # line 12
        "esac.sac_min_steps": 0,  # D.1 counts episodes
        "sac.value_network": True,  # line 19
    },
    "repo": {
        "esac.sampling": "repo",  # n pairs
        "esac.population_size": 10,
        "esac.sac_copies": 4,
        "esac.winner_pull": 0.0,
        "esac.crossover": "off",  # works on copies, result discarded
        "esac.amt_trigger": "interval",
        "esac.amt_input": "rank",
        "esac.amt_scope": "gradient",
        "esac.sac_min_steps": 0,
        "sac.interleaved": True,
        "policy.hidden": (256, 256),
        "policy.output": "clip",
    },
}

# may differ between a run and its continuation
FREE = {"run_dir", "max_hours", "task.changed", "budget", "checkpoint", "stop", "display"}
WARN = {"learner.device"}  # may differ, with a warning
# no part of a run: a directory is moved, a job has its own limit, and a change is let be once
UNSAVED = ("run_dir", "max_hours", "task.changed")


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every field."""
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            yield from flatten(value, f"{prefix}{f.name}.")
        else:
            yield prefix + f.name, value


NAMES = tuple(name for name, _ in flatten(Config()))


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Return {name: (old, new)} of the fields that decide a run's results; what neither run reads decides nothing."""
    pairs = zip(flatten(old), flatten(new), strict=True)
    found = {name: (a, b) for (name, a), (_, b) in pairs if a != b and not {name, name.split(".")[0]} & FREE}
    idle = reads.unread(old, found).keys() & reads.unread(new, found).keys()
    return {name: pair for name, pair in found.items() if name not in idle}


def updated(config: Config, values: dict[str, Any]) -> Config:
    """Return `config` with the dotted names of `values` replaced."""
    for name, value in values.items():
        *section, key = name.split(".")
        if section:
            part = replace(getattr(config, section[0]), **{key: value})
            config = replace(config, **{section[0]: part})
        else:
            config = replace(config, **{key: value})
    return config


def from_table(table: dict[str, Any], source: str) -> dict[str, Any]:
    """Check a parsed TOML table against the fields; return {dotted name: value}.

    Raises ConfigError naming `source`, the key and the nearest valid key, or the expected type.
    """
    values: dict[str, Any] = {}
    for key, entry in table.items():
        for name, value in ({f"{key}.{k}": v for k, v in entry.items()} if isinstance(entry, dict) else {key: entry}).items():
            values[name] = _coerce(_known(name, source), value, source)
    return values


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a configuration file; return {dotted name: value}. Raises ConfigError."""
    try:
        return from_table(tomllib.loads(Path(path).read_text(encoding="utf-8")), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits and lists in lists in lists
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def to_toml(config: Config) -> str:
    """Return the resolved configuration as TOML; `read_toml` of it gives the same fields, but for those of UNSAVED."""
    tables = asdict(config)
    lines = [f"{k} = {_toml_value(v)}" for k, v in tables.items() if not isinstance(v, dict) and k not in UNSAVED]
    for name, table in tables.items():
        if isinstance(table, dict):
            part = {key: value for key, value in table.items() if f"{name}.{key}" not in UNSAVED}
            lines += ["", f"[{name}]"] + [f"{key} = {_toml_value(value)}" for key, value in part.items()]
    return "\n".join(lines) + "\n"


def as_words(value: Any) -> list[str]:
    """Return a field's value as words of a command line."""
    return [reads.shown(entry) for entry in (value if isinstance(value, list | tuple) else [value])]


def load(
    argv: list[str], say: Callable[[str], None] = lambda text: None, warn: Callable[[str], None] = lambda text: None
) -> tuple[Config, bool]:
    """Resolve defaults, reading, configuration file and command line, in this order; return (config, fresh).

    The config.toml of a run directory means this directory, wherever it is now. `say` hears what es takes from [esac], `warn`
    what the file sets in vain. Raises ConfigError for a bad file, key or combination, and for a field of the command line that
    the run would not read; SystemExit (0 for --help, 2 for a bad value) from tyro.
    """
    argv = list(argv)
    fresh = "--fresh" in argv
    argv = [token for token in argv if token != "--fresh"]
    file: dict[str, Any] = {}
    source = ""
    position = next((i for i, t in enumerate(argv) if t.endswith(".toml") and not _is_value(argv, i)), None)
    if position is not None:
        source = argv.pop(position)
        file = _read_file(Path(source))
    names = _command_line_names(argv)
    parsed = dict(flatten(_parse(argv, updated(Config(), file))))
    named = {name: parsed[name] for name in names}
    config = resolved(file, named)
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    _refuse_unread(config, named)
    taken = _from_esac(file, named)
    if told := _told_of_es(taken, source):
        say(told)
    if idle := _set_in_vain(config, file, taken):
        warn(f"{source}: this run does not read {', '.join(idle)}")
    return config, fresh


def _read_file(path: Path) -> dict[str, Any]:
    """Return what a file sets; a run's own config.toml means the directory that it is in."""
    values = read_toml(path)
    if path.name == CONFIG and is_run(path.parent):
        values = {name: value for name, value in values.items() if name not in UNSAVED} | {"run_dir": str(path.parent)}
    return values


def resolved(file: dict[str, Any], named: dict[str, Any]) -> Config:
    """Return the configuration that a file and a command line make, both {dotted name: value}, unchecked."""
    given = _spoken(file) | named
    base = updated(Config(), {"budget.nominal_steps": 0} if any(name.startswith("budget.") for name in given) else {})
    return updated(base, {**_preset(given), **_from_esac(file, named), **given})


def _preset(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the reading sets, of ESAC and of its halves."""
    algorithm = given.get("algorithm", Config.algorithm)
    return READINGS[given.get("esac.reading", ESAC.reading)] if reads.reads(algorithm, "esac.reading") else {}


def _spoken(file: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says: in a resolved one of another algorithm, fields of es at their defaults are but filled in."""
    if not _whole(file) or file.get("algorithm", Config.algorithm) == "es":
        return file
    default = dict(flatten(Config()))
    return {name: value for name, value in file.items() if not name.startswith("es.") or value != default[name]}


def _whole(file: dict[str, Any]) -> bool:
    """Return whether a file is a resolved one, which has the tables of all algorithms."""
    return all(f"es.{f.name}" in file for f in fields(Evolution))


def _from_esac(file: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return what es, as one of ESAC's halves, takes from [esac] and its reading where [es] is silent, {dotted name: value}."""
    given = _spoken(file) | named
    if given.get("algorithm", Config.algorithm) != "es":
        return {}
    esac = _preset(given) | _spoken(file)
    shared = [f.name for f in fields(Evolution) if f"esac.{f.name}" in esac and f"es.{f.name}" not in given]
    return {f"es.{name}": esac[f"esac.{name}"] for name in shared}


def _refuse_unread(config: Config, named: Iterable[str]) -> None:
    """Raise ConfigError where the command line sets what this run does not read."""
    told = []
    for name, why in reads.unread(config, named).items():
        own = f"{config.algorithm}.{name.rpartition('.')[2]}"
        told.append(f"--{name}: {why}" + (f"; did you mean --{own}?" if own in NAMES and own != name else ""))
    if told:
        raise ConfigError(f"command line: {'; '.join(told)}")


def _told_of_es(taken: dict[str, Any], source: str) -> str:
    """Return what there is to say about what es takes from [esac]; empty where that is its defaults."""
    default = dict(flatten(Config()))
    told = ", ".join(f"{name[3:]} = {reads.shown(value)}" for name, value in taken.items() if value != default[name])
    return f"es, which is half of ESAC, takes from [esac]{source and ' of '}{source}: {told}" if told else ""


def _set_in_vain(config: Config, file: dict[str, Any], taken: dict[str, Any]) -> list[str]:
    """Return the fields that a file sets away from their defaults and this run does not read; of a run's own it was told once."""
    if _whole(file) and file.get("algorithm") == config.algorithm:
        return []
    default = dict(flatten(Config()))
    names = [name for name, value in file.items() if value != default[name] and name.replace("esac.", "es.", 1) not in taken]
    return [*reads.unread(config, names)]


OFF_POLICY = ("sac", "td3", "ddpg")  # tables of the learners with a replay
LEARNERS = (*OFF_POLICY, "ppo")  # tables of the gradient learners
OFF_POLICY_POSITIVE = ("batch_size", "replay_capacity", "steps_per_generation")
PPO_POSITIVE = ("lr_ppo", "clip_range", "max_grad_norm", "steps_per_generation", "epochs", "initial_std", "argmax_std")
EVERY_POSITIVE = ("population_size", "sigma", "lr_es", "fitness_episodes", "noise_table_size", "noise_rank")  # of es and esac


def check(config: Config) -> None:
    """Raise ConfigError unless every field, and every combination of fields, can be run."""
    positive = {
        "policy.hidden", "learner.threads", "evaluation.every", "evaluation.episodes", "sac.lr_sac", "td3.lr_td3",
        "ddpg.lr_actor", "ddpg.lr_critic", "td3.policy_delay", "td3.episodes_per_generation",
        "ddpg.episodes_per_generation",
        *(f"{t}.{k}" for t in OFF_POLICY for k in OFF_POLICY_POSITIVE), *(f"ppo.{k}" for k in PPO_POSITIVE),
        *(f"{t}.{k}" for t in ("esac", "es") for k in EVERY_POSITIVE),
        "esac.gradient_interval", "esac.p_sac_decay", "esac.amt_interval",
    }  # fmt: skip
    for name, value in flatten(config):
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, bool) or not isinstance(v, int | float):
                continue
            if not (v > 0 if name in positive else v >= 0) or v == float("inf"):
                raise ConfigError(f"{name} = {v}: must be {'positive' if name in positive else 'at least 0'} and finite")
            if v >= 2**63 and isinstance(v, int):
                raise ConfigError(f"{name} = {v}: must be below 2**63")
    fractions = ("esac.winner_fraction", "esac.winner_pull", "esac.p_sac_initial", "esac.p_sac_final")
    discounts = (*(f"{table}.{key}" for table in OFF_POLICY for key in ("gamma", "tau")), "ppo.gamma", "ppo.gae_lambda")
    for name in (*fractions, *discounts):
        if (value := dict(flatten(config))[name]) > 1:
            raise ConfigError(f"{name} = {value}: must be at most 1")
    for table in OFF_POLICY:
        options = getattr(config, table)
        if options.batch_size > options.replay_capacity:
            raise ConfigError(f"{table}.batch_size = {options.batch_size}: must be at most {table}.replay_capacity")
    if not 1 < config.ppo.batch_size <= config.ppo.steps_per_generation:
        raise ConfigError(f"ppo.batch_size = {config.ppo.batch_size}: must be from 2 to ppo.steps_per_generation")
    if config.ppo.steps_per_generation % config.ppo.batch_size == 1:
        raise ConfigError(
            f"ppo.batch_size = {config.ppo.batch_size}: leaves a minibatch of one step of {config.ppo.steps_per_generation}, "
            "whose advantage cannot be standardised"
        )
    if config.algorithm == "ppo" and config.learner.precision != "fp32":
        raise ConfigError("learner.precision = bf16: not with algorithm = ppo, whose updates are stable-baselines3's, in float32")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", config.learner.device):
        raise ConfigError(f"learner.device = {config.learner.device!r}: expected auto, cpu, cuda or cuda:<number>")
    if not config.esac.sac_episodes and not config.esac.sac_min_steps:
        raise ConfigError("esac.sac_episodes and esac.sac_min_steps are both 0: a SAC phase would have no steps")
    if config.esac.offspring_transitions and config.esac.learner_lag:
        raise ConfigError(
            f"esac.offspring_transitions: not with esac.learner_lag = {config.esac.learner_lag}: a phase in flight would sample "
            "what has come in by then, and its bits would depend on timing"
        )
    if config.esac.learner_lag > config.esac.gradient_interval:
        raise ConfigError(
            f"esac.learner_lag = {config.esac.learner_lag}: must be at most esac.gradient_interval "
            f"({config.esac.gradient_interval}), so that one phase is in flight at a time"
        )
    if config.sac.automatic_temperature and not config.sac.temperature:
        raise ConfigError("sac.temperature = 0.0: must be positive where it is tuned (sac.automatic_temperature)")
    if not any(asdict(config.budget).values()):
        raise ConfigError("budget: no limit is set; the run would never end. Set budget.generations, env_steps or nominal_steps")
    if not any(asdict(config.checkpoint).values()):
        raise ConfigError(
            "checkpoint.every_generations and checkpoint.every_minutes are both 0: a run that is killed would lose all"
        )
    if config.algorithm in ("esac", "es"):
        _check_population(config.algorithm, getattr(config, config.algorithm))


def slots(evolution: Evolution) -> int:
    """Return the number of slots: mirrored, a slot is a pair of members; else one member."""
    return evolution.population_size // 2 if evolution.sampling == "mirrored" else evolution.population_size


def members(evolution: Evolution) -> int:
    """Return the number of members, which is the number of fitness values of a generation."""
    return slots(evolution) * (1 if evolution.sampling == "onesided" else 2)


def winners(esac: ESAC) -> int:
    """Return |W| = round(e n) [members]."""
    return round(esac.winner_fraction * esac.population_size)


def child_slots(esac: ESAC) -> int:
    """Return the number of slots whose parent is a crossover child."""
    if esac.crossover == "off":
        return 0
    return winners(esac) // 2 if esac.sampling == "mirrored" else winners(esac)


def _check_population(table: str, evolution: Evolution) -> None:
    n = evolution.population_size
    if 0 < evolution.length_cap < 1 or evolution.length_cap > 1000:
        raise ConfigError(f"{table}.length_cap = {evolution.length_cap}: must be 0 (off), or from 1 to 1000 times the mean")
    if evolution.noise_rank > 1000:
        raise ConfigError(f"{table}.noise_rank = {evolution.noise_rank}: must be at most 1000")
    if evolution.sampling == "mirrored" and n % 2:
        raise ConfigError(f"{table}.population_size = {n}: must be even under mirrored sampling; {n + 1} or sampling = onesided")
    if evolution.sampling == "onesided" and n == 1 and evolution.fitness_shaping != "sign":
        raise ConfigError(
            f"{table}.population_size = 1: no ES gradient under sampling = onesided and fitness_shaping = "
            f"{evolution.fitness_shaping}, which compares members; 2 or more, or fitness_shaping = sign"
        )
    if isinstance(evolution, ESAC):
        children, copies, have = child_slots(evolution), evolution.sac_copies, slots(evolution)
        if children + copies > have:
            raise ConfigError(
                f"esac: {children} crossover children + {copies} SAC copies > {have} slots; "
                "lower esac.winner_fraction or esac.sac_copies, or raise esac.population_size"
            )
        unperturbed = children * (evolution.winner_selection == "hard") + copies * (not evolution.sac_copy_noise)
        if unperturbed == have and evolution.gradient == "noise":
            raise ConfigError("esac.winner_selection = hard, esac.sac_copy_noise = false: no slot is perturbed, no ES gradient")
        if evolution.gradient_members == "centre" and children + copies == have:
            raise ConfigError("esac.gradient_members = centre: no slot has theta_es as its parent")


def _known(name: str, source: str) -> str:
    if name in NAMES:
        return name
    nearest = difflib.get_close_matches(name, NAMES, 1, 0.0)[0]
    raise ConfigError(f"{source}: unknown key '{name}'; did you mean '{nearest}'?")


@cache
def _hint(name: str) -> Any:
    owner: Any = Config
    *sections, key = name.split(".")
    for section in sections:
        owner = get_type_hints(owner)[section]
    return get_type_hints(owner)[key]


def _coerce(name: str, value: Any, source: str) -> Any:
    hint = _hint(name)
    if get_origin(hint) is Literal:
        if value in get_args(hint):
            return value
        wanted = " | ".join(repr(choice) for choice in get_args(hint))
    elif isinstance(hint, GenericAlias):  # tuple[int, ...]
        if isinstance(value, list) and all(type(v) is int for v in value):
            return tuple(value)
        wanted = "a list of integers"
    else:
        if type(value) is hint or (hint is float and type(value) is int):
            return float(repr(value)) if hint is float else value  # an integer beyond any float: inf, which `check` refuses
        wanted = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}[hint]
    raise ConfigError(f"{source}: {name} = {value!r}: expected {wanted}")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    return repr(value)


def _is_value(argv: list[str], i: int) -> bool:
    """Return whether a token is the value of the option before it."""
    return i > 0 and argv[i - 1].startswith("--") and "=" not in argv[i - 1]


def _command_line_names(argv: list[str]) -> set[str]:
    """Return the dotted names that the command line sets; rewrite true/false of switches as tyro wants them."""
    named, name = set(), ""
    for i, token in enumerate(argv):
        if token.startswith("--") and token != "--help":
            name = _known(token[2:].split("=")[0].replace("-", "_"), "command line")
            named.add(name)
        option, equals, value = token.rpartition("=")
        if value in ("true", "false") and name and _hint(name) is bool:
            argv[i] = option + equals + value.capitalize()
    return named


def _parse(argv: list[str], default: Config) -> Config:
    import tyro  # rank 0 alone parses

    text = (
        f"{Config.__doc__}\n\n"
        "mpirun -n N python -m esac_mpi [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh]\n"
        "RUN/config.toml goes on with the run of that directory. --fresh starts over and moves an old run aside; not in a\n"
        "batch job's later rounds.\n"
        "--check looks at launch, nodes, task and run directory, and runs nothing.\n\n"
        "SIGUSR1 to the launcher or a rank: saved and stopped at the end of the generation, exit code 75; a second one, a\n"
        "second or more later: the generation is given up, saved; a third: the end, unsaved. Ctrl-C is the same without a\n"
        "launcher, but makes launchers kill their ranks: MPICH's mpirun the second one, Open MPI's the first, srun two within\n"
        "a second; the run then goes on from its last checkpoint.\n\n"
        "Sources of the defaults: P the paper, C its public code, M measured here."
    )
    flags = (tyro.conf.FlagConversionOff,)
    return tyro.cli(Config, prog="esac_mpi", description=text, default=default, args=argv, config=flags)
