"""What an experiment will cost in core-hours, from measured speeds (configs/experiments/speeds.toml).

A run of G generations, episodes taken to be as long as the task allows (H steps), takes about

The terms that an algorithm has are read off the fields of its table: population_size, gradient_interval, steps_per_generation,
sync_interval.

    population   G * members * fitness_episodes * H            steps of environment and policy
    learner      with gradient_interval     E[phases] * max(sac_episodes * H, sac_min_steps), E[phases] = the sum of
                                            P(mu < p_sac(k)), k = g, 2g .. G
                 with steps_per_generation  G of these, or G * episodes_per_generation * H where all ranks play
                 with sync_interval         G * H, played by any rank
    updates      updates_per_step for each of these after start_steps (with esac and sac from the first on), with
                 sync_interval for those of the population too;
                 ppo    G * epochs * ceil(steps_per_generation / batch_size)
                 cem_rl critic_updates_per_step for each step of the population but the first start_steps
                 aes_rl one for each such step
    trained      cem_rl actor_updates_per_step for as many, of each individual that is trained
                 aes_rl actor_updates_window * H of rl_share of the individuals after start_steps
    imitations   with distilled children: G * E[children] * distillation_epochs * (memory_size / distillation_batch), E[children]
                 = the slots that neither elites nor tournaments keep, less those that elites' copies take
    evaluation   (G / every + 1) * policies * episodes * H     steps
                 aes_rl mean_episodes * H of each individual more at most

    core-seconds = (population + learner + evaluation) * step + updates * update + imitations * imitation
                   + trained * update of an individual

where `step` [us] is the task's, `update` [ms] the learner's, and `imitation` [ms] a step of a child, each measured with a network
that is small (2x32, batch 128), or large (2x512, batch 256; for `erl` and children 2x128, batch 128), which is taken from 128
units on. A mutation is left out: it takes a hundredth of a child. G is what the limits allow, whichever comes first; env_steps is
divided by the steps of a mean generation. None of it is a bound: phases are drawn by chance, one of sac_min_steps ends with
an episode, so up to H later, and where episodes end early, or individuals stay by importance mixing, other runs cost less, but
one that env_steps limit has more generations, with their updates. A run that wall time ends costs that time; one that its clock
on R ranks ends costs (shared + alone) / (shared / R + alone) times as much. On r ranks a job lasts
(population + evaluation + trained) / r + learner, since all wait for the learner, and reserves r times that; with sync_interval
the learner's episodes count as the population's, and beside its updates the other r - 1 ranks make the children: the slower of
both is waited for. Where nobody waits for a generation (aes_rl), a job lasts what all is together over r, but no less
than the critic's updates, nor than what its workers have each.
"""

import math
import statistics
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.algorithms import ALGORITHMS, esac_phase
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import CEM, CEMRL, Config, Evolution, individuals, members, updated
from esac_mpi.config.genetic import TOURNAMENT, elites
from esac_mpi.host.invocation import called
from esac_mpi.operators.evolution import p_sac
from esac_mpi.studies.experiments.design import FOLDER
from esac_mpi.studies.experiments.plan import Planned

SPEEDS = FOLDER / "speeds.toml"
AT_ONCE = {"sac"}  # learners that update before they have start_steps, too
SOME = {
    "budget.generations": 1000,
    "budget.env_steps": 0,
    "budget.nominal_steps": 0,
}  # of which a clock counts the parts
LARGE = 128  # units of a layer from which a network counts as large


@dataclass(frozen=True)
class Speeds:
    """How long things take on one core."""

    about: str  # machine, date and command
    horizon: dict[str, int]  # of a task [steps]
    step: dict[str, dict[str, float]]  # task: size: [us]
    update: dict[str, dict[str, float]]  # learner: size: [ms]
    imitation: dict[str, float] = field(default_factory=dict)  # size: [ms]


@dataclass(frozen=True)
class Work:
    """What a run is expected to do, with episodes of full length."""

    population: float  # [steps]
    learner: float  # [steps]
    updates: float
    evaluation: float  # [steps]
    imitations: float = 0.0  # steps of distilled children
    trained: float = 0.0  # updates of individuals


@dataclass(frozen=True)
class Cost:
    """What a run takes [s of one core]: what ranks share, what all wait for, and what the others do meanwhile."""

    shared: float
    alone: float
    beside: float = 0.0
    workers: int = 0  # without a barrier: how many share what is shared, at most; 0 = ranks wait for one another

    @property
    def whole(self) -> float:
        """All of it [s of one core]."""
        return self.shared + self.alone + self.beside

    def lasts(self, ranks: int) -> float:
        """Return how long it lasts on so many ranks [s]."""
        if self.workers:
            return max(self.whole / ranks, self.alone, self.shared / self.workers)
        return self.shared / ranks + (
            max(self.alone, self.beside / (ranks - 1)) if ranks > 1 else self.alone + self.beside
        )


def speeds(path: Path = SPEEDS) -> Speeds:
    """Read the measured speeds. Raises Unusable."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(
            f"{path}: {error.strerror}; {called('experiment')} speeds measures and writes it"
        ) from error
    tasks: dict[str, Any] = table["step"]
    about = f"{table['machine']}, {table['date']}, {table['command']}"
    return Speeds(
        about,
        {name: t["horizon"] for name, t in tasks.items()},
        tasks,
        table["update"],
        table.get("imitation", {}),
    )


def work(config: Config, task_horizon: int) -> Work:
    """Return what a run is expected to do, for a task's own time limit [steps]."""
    horizon = min(task_horizon, config.task.horizon or task_horizon)
    count = generations(config, horizon)
    episodes = config.evaluation.episodes * policies(config)
    learner, updates = learning(config, horizon, count)
    evaluation = (count // config.evaluation.every + 1) * episodes * horizon + count * mean_steps(
        config, horizon
    )
    made = count * imitations(config), training(config, horizon, count)
    return Work(count * population_steps(config, horizon), learner, updates, evaluation, *made)


def table_of(config: Config) -> Any:
    """Return the table of the algorithm, whose fields say what a generation is made of."""
    return config.own


def learner_of(config: Config) -> str:
    """Return the table of the gradient learner, "" without one."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    return learning.learner(config) if learning else ""


def takes_over(config: Config) -> bool:
    """Return whether the learner learns from the population's episodes, and its own ones are played by any rank."""
    return hasattr(table_of(config), "sync_interval")


def policies(config: Config) -> int:
    """Return how many policies an evaluation plays."""
    return len(ALGORITHMS[config.algorithm].DECLARES.policies)


def has_population(config: Config) -> bool:
    """Return whether the algorithm evaluates a population."""
    return hasattr(table_of(config), "population_size") or without_barrier(config)


def without_barrier(config: Config) -> bool:
    """Return whether its individuals arrive one by one, each with episodes of the mean."""
    return hasattr(table_of(config), "arrivals_per_generation")


def mean_steps(config: Config, horizon: int) -> int:
    """Return the steps of the mean, by which its return is known anew, in a generation."""
    table = table_of(config)
    return (
        table.arrivals_per_generation * table.mean_episodes * horizon
        if without_barrier(config)
        else 0
    )


def population_steps(config: Config, horizon: int) -> int:
    """Return the steps of a generation's members."""
    if not has_population(config):
        return 0
    table = table_of(config)
    if without_barrier(config):
        return table.arrivals_per_generation * horizon
    count = members(table) if isinstance(table, Evolution) else table.population_size
    return count * getattr(table, "fitness_episodes", 1) * horizon


def training_steps(config: Config, horizon: int) -> int:
    """Return the steps of a generation that the learner plays, which has no interval. Raises Unusable."""
    options = table_of(config)
    if takes_over(config):
        return horizon
    if not hasattr(options, "steps_per_generation"):
        raise Unusable(f"what a generation of {config.algorithm} costs is not known")
    parallel = getattr(options, "episodes_on", "root") == "ranks"
    return options.episodes_per_generation * horizon if parallel else options.steps_per_generation


def generations(config: Config, horizon: int) -> int:
    """Return the generations that the budget allows, at least 1."""
    budget, population = config.budget, population_steps(config, horizon)
    limits = [budget.generations] if budget.generations else []
    if budget.nominal_steps:
        limits.append(math.ceil(budget.nominal_steps / nominal_steps(config, horizon)))
    if budget.env_steps:
        learner = learning(config, horizon, 1000)[0] / 1000
        evaluation = (
            config.evaluation.episodes * policies(config) * horizon / config.evaluation.every
        )
        limits.append(
            math.ceil(
                budget.env_steps / (population + learner + evaluation + mean_steps(config, horizon))
            )
        )
    return max(1, min(limits))


def nominal_steps(config: Config, horizon: int) -> int:
    """Return what a generation adds to the papers' count: one horizon, all of its training steps, or all of a distribution's."""
    if takes_over(config):
        return population_steps(config, horizon) + training_steps(config, horizon)
    if isinstance(table_of(config), CEM) or without_barrier(config):
        return population_steps(config, horizon)
    return horizon if has_population(config) else training_steps(config, horizon)


def taught(config: Config, horizon: int, count: int) -> int:
    """Return the steps of the population for which CEM-RL or AES-RL makes updates in so many generations."""
    options, population = table_of(config), population_steps(config, horizon)
    before = max(1, math.ceil(max(options.start_steps, options.batch_size) / population))
    return max(0, count - before) * population


def training(config: Config, horizon: int, count: int) -> float:
    """Return the updates of individuals in so many generations."""
    options = table_of(config)
    if without_barrier(config):
        return options.rl_share * options.actor_updates_window * taught(config, horizon, count)
    if not isinstance(options, CEMRL):
        return 0.0
    return individuals(options)[1] * options.actor_updates_per_step * taught(config, horizon, count)


def imitations(config: Config) -> float:
    """Return the steps of a generation's distilled children, whose parents' memories are full, 0 for others."""
    options = table_of(config)
    if getattr(options, "crossover", "") != "distillation":
        return 0.0
    return (
        expected_children(options)
        * options.distillation_epochs
        * (options.memory_size // options.distillation_batch)
    )


def expected_children(options: Any) -> float:
    """Return how many of ERL's slots are expected to take a child: which no tournament's winner, elite or its copy has."""
    k, stay = options.population_size, elites(options.population_size, options.elite_fraction)
    worse = k - np.arange(stay, k)  # as many as the one of each rank, itself counted
    wins = (
        worse**TOURNAMENT - (worse - 1) ** TOURNAMENT
    ) / k**TOURNAMENT  # probability, of one tournament
    return max(0.0, float(((1 - wins) ** (k - stay)).sum()) - stay)


def expected_phases(config: Config, horizon: int, count: int) -> float:
    """Return how many phases of the learner ESAC is expected to have in so many generations of episodes of full length."""
    esac = table_of(config)
    if not esac.sac_phases:
        return 0.0
    if esac.phase_timing == "virtual":  # one after another, by the clock that phases have there
        population = (
            count * max(members(esac) / esac.workers, 1.0) * esac.fitness_episodes * horizon
        )
        again = esac.replayed_members * (esac.replayed != "none") * esac.fitness_episodes * horizon
        return population / (
            esac.sac_min_steps * (1 + esac.update_cost * config.sac.updates_per_step) + again
        )
    k = np.arange(esac.gradient_interval, count + 1, esac.gradient_interval)
    if not esac.p_sac_annealed:
        p = np.full(len(k), esac.p_sac_initial)
    else:
        p = np.array(
            [p_sac(int(g), esac.p_sac_initial, esac.p_sac_final, esac.p_sac_decay) for g in k]
        )
    if esac.gate == "normal":
        p = np.array([statistics.NormalDist().cdf(value) for value in p])
    return float(np.minimum(p, 1).sum())


def learning(config: Config, horizon: int, count: int) -> tuple[float, float]:
    """Return the learner's steps and updates in so many generations."""
    options, learner = table_of(config), learner_of(config)
    if hasattr(options, "gradient_interval"):
        episodes = options.sac_episodes * horizon * (options.phase_timing == "interval")
        steps = expected_phases(config, horizon, count) * max(episodes, options.sac_min_steps)
        return steps, steps * getattr(config, learner).updates_per_step
    if not learner:
        return 0.0, 0.0
    if isinstance(options, CEMRL):
        return 0.0, options.critic_updates_per_step * taught(config, horizon, count) * (
            individuals(options)[1] > 0
        )
    if without_barrier(config):
        return 0.0, float(taught(config, horizon, count))
    steps = float(count * training_steps(config, horizon))
    if hasattr(options, "epochs"):
        return steps, float(
            count * options.epochs * math.ceil(options.steps_per_generation / options.batch_size)
        )
    options = getattr(config, learner)
    learnt = steps + takes_over(config) * count * population_steps(config, horizon)
    before = 0 if learner in AT_ONCE else options.start_steps
    return steps, max(0.0, learnt - before) * options.updates_per_step


def cost(planned: Planned, known: Speeds) -> Cost:
    """Return what a run costs. Raises Unusable where a speed was not measured."""
    if planned.seconds:
        return Cost(0.0, planned.seconds)
    config = updated(planned.config, SOME) if planned.clock else planned.config
    learner, distils = learner_of(config), imitations(config) > 0
    size = "large" if max(config.policy.hidden, default=0) >= LARGE else "small"
    there = {
        config.task.id: config.task.id in known.step,
        learner: not learner or learner in known.update,
    }
    there["imitation"] = not distils or bool(known.imitation)
    trains = isinstance(table_of(config), CEMRL) or without_barrier(config)
    there["individuals"] = not trains or "individuals" in known.update
    if missing := [name for name, measured in there.items() if not measured]:
        raise Unusable(f"no speed of {missing[0]} in {SPEEDS}: {called('experiment')} speeds")
    done, step = (
        work(config, known.horizon[config.task.id]),
        known.step[config.task.id][size] * 1e-6,
    )
    update = known.update[learner][size] * 1e-3 if learner else 0.0
    imitation = known.imitation[size] * 1e-3 if distils else 0.0
    trained = done.trained * known.update["individuals"][size] * 1e-3 if done.trained else 0.0
    shared, played = done.population + done.evaluation, done.learner * (not takes_over(config))
    alone = played * step + done.updates * update
    found = Cost(
        (shared + done.learner - played) * step + trained,
        alone,
        done.imitations * imitation,
        workers(config),
    )
    return clocked(found, planned) if planned.clock else found


def workers(config: Config) -> int:
    """Return how many share what is shared where nobody waits for a generation, 0 elsewhere."""
    return table_of(config).workers if without_barrier(config) else 0


def clocked(whole: Cost, planned: Planned) -> Cost:
    """Return what a run costs here, on one core, that its computed clock ends, given what one to the end of a budget costs."""
    assert planned.clock is not None
    ranks, options = planned.clock.ranks, table_of(planned.config)
    beside = ranks > 1 and hasattr(options, "phase_timing") and esac_phase.beside(options)
    lasts = max(whole.shared / (ranks - 1), whole.alone) if beside else whole.lasts(ranks)
    return Cost(0.0, planned.clock.seconds * whole.whole / lasts)


def ranks_of(planned: Planned, cores: int) -> int:
    """Return the ranks of a run's job: its own number; else `cores` where a population, or the training episodes, are spread."""
    spread = (
        has_population(planned.config)
        or getattr(table_of(planned.config), "episodes_on", "root") == "ranks"
    )
    return planned.ranks or (cores if spread else 1)


def total(runs: Iterable[Planned], cores: int, known: Speeds) -> str:
    """Return the sentence that says what runs cost."""
    each = [(cost(run, known), ranks_of(run, cores)) for run in runs]
    used = sum(c.whole / 3600 for c, _ in each)
    hours = [c.lasts(ranks) / 3600 for c, ranks in each]
    reserved, longest = (
        sum(lasts * ranks for lasts, (_, ranks) in zip(hours, each, strict=True)),
        max(hours),
    )
    most = max(ranks for _, ranks in each)
    said = f"{len(each)} runs, about {figure(used)} core-hours of work"
    jobs = f"as jobs of up to {most} ranks about {figure(reserved)} core-hours reserved, the longest run {figure(longest)} h"
    return f"{said}; {jobs}" if most > 1 else said


def figure(value: float) -> str:
    """Return a number with two digits that count, none below a hundredth."""
    return "0.01" if value < 0.01 else f"{float(f'{value:.2g}'):,.10g}"
