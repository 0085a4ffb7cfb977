"""ERL, PERL, DERL and PDERL: a genetic population and a gradient learner that share experience.

Sources: Khadka and Tumer 2018, Evolution-Guided Policy Gradient in Reinforcement Learning (ERL);
Bodnar, Day and Lio 2020, Proximal Distilled Evolutionary Reinforcement Learning, whose distillation
crossover (its Algorithm 1) and proximal mutation are the switches `erl.crossover` and
`erl.mutation`; the four names are their settings. All transitions of all members enter the
learner's replay; every `sync_interval` generations the learner's actor takes a member's place.

Where this differs from the papers, or their public code (`erl.preset = "reference-code"`):
- The population, the learner's own episode, children and mutations are spread over the ranks. The
  learner's updates run beside the making of the children: neither reads what the other writes, and
  children see the critic as it was before these updates, as in the public code, where they are made
  first.
- A generation's children are made of its members as they were evaluated, in one step. The public
  code writes them one after the other into the population that it draws parents from.
- An elite's copy has the elite's fitness as a parent, and no member is distilled with itself. The
  learner's actor replaces the worst of those that were kept: neither an elite's copy nor a child
  (`erl.injection`).
- Memories have observations and actions, which are all that the operators read, and the age of
  each, by which some are newest.
- A proximal mutation of a child looks at the memory that the child has.
- Layer normalisation is torch's (policy.layer_norm). All actors and the critic begin with a last
  layer of a tenth; in the code the learner's do, and members with a whole one
  (`erl.initial_last_layer`).

Where its operators are:
- elites, tournaments, couples, births: erl_births.decide(), with operators/selection.py
- crossover and mutation, n-point and Gaussian: operators/genetics.py; distilled and proximal:
  learners/offspring.py
- the injection of the learner's actor: here, in generation(); its slot: erl_births.injection_slot()
- the members' memories: erl_births.write_memory(), with operators/memories.py
"""

from dataclasses import replace

import numpy as np

from esac_mpi.algorithms import erl_births, erl_play
from esac_mpi.algorithms.declaration import Declaration, Learning, added_by_phases
from esac_mpi.algorithms.erl_births import Plan
from esac_mpi.algorithms.erl_play import Played, board
from esac_mpi.algorithms.erl_state import NOBODY, Now, State, distils, has_memories, init
from esac_mpi.algorithms.laps import Laps
from esac_mpi.comm.contracts import EpisodeLearner, World
from esac_mpi.config import Config
from esac_mpi.envs import Env
from esac_mpi.operators import selection
from esac_mpi.play import learner_phases
from esac_mpi.play.params import Params, Row

__all__ = ["DECLARES", "State", "board", "generation", "init"]


def reserve(config: Config, horizon: int) -> int:
    """Count the transitions that a generation adds at most."""
    return (config.erl.population_size * config.erl.fitness_episodes + 1) * horizon


DECLARES = Declaration(
    learning=Learning(
        learner=lambda config: "erl" if config.erl.learner == "ddpg" else config.erl.learner,
        actor=lambda state: state.theta,
        reserve=reserve,
        added=lambda config, horizon: added_by_phases(config, reserve(config, horizon)),
    ),
    discrete=False,
    work="episodes",
    policies={"champion": "the champion of the population", "learner": "the learner's actor"},
    apart=True,
    operators=lambda config: "offspring" if has_memories(config.erl) else "",
    output="tanh",
    offspring=lambda config: config.erl.population_size,
)


def generation(
    params: Params, state: State, world: World, env: Env, learner: EpisodeLearner | None
) -> tuple[Row, Row]:
    """Make one generation; return its metrics and its timing."""
    erl, k = params.config.erl, state.generation + 1
    now = Now(params, state, world, env, learner, k)
    laps = Laps(world.clock)
    played = erl_play.play(now)  # every member, and the learner's actor with noise
    laps("evaluate")
    if has_memories(erl):
        erl_play.remember(now, played)
    if distils(erl):
        if learner is not None:
            state.critic[:] = learner.critic_vector()
        world.broadcast_shared(state.critic)
    # elites, tournaments, couples, whom to mutate
    decided = erl_births.decide(params, state, k, played.fitness) if world.leads else None
    plan: Plan = world.from_root(decided)

    learner_phases.begin(
        world, learner, k, lambda pupil: pupil.take(played.episodes.episodes(), k), beside=True
    )
    laps("plan")
    vectors, busy, lasted = erl_births.make_offspring(now, plan.births)  # crossover and mutation
    laps("offspring")
    phase, learning_busy, spent = learner_phases.finish(world)
    laps("learn")

    row = describe(state, played, plan)
    champion = state.population[selection.order(played.fitness)[0]].copy()
    # its updates are made for all; its steps are those of its own episode
    own = replace(phase, env_steps=played.learner.episodic_length)
    learner_phases.enter(own, world, state.counters, state.theta, learner)
    count(now, played, plan)
    # the learner's actor takes a member's place, where one is due
    erl_births.replace_population(now, plan, vectors, champion)
    state.noise, state.injected = played.noise, plan.inject
    state.generation = k
    laps("update")
    timing = {**played.episodes.timing, **lasted, **laps.seconds, **spent}
    timing["busy_seconds"] = played.episodes.timing["busy_seconds"] + busy + learning_busy
    row["learner_episodic_return"] = played.learner.episodic_return
    return {**row, **phase.columns("learner", "critic_loss", "mean_q")}, timing


def count(now: Now, played: Played, plan: Plan) -> None:
    """Count a generation's steps and updates; nominally, as the public code's frames."""
    state, counters = now.state, now.state.counters
    counters.env_steps_population += played.steps
    counters.member_updates += erl_births.imitation_updates(now, plan.births)
    counters.nominal_steps += played.steps + played.learner.episodic_length
    state.transitions += int(played.episodes.counts.sum())


def describe(state: State, played: Played, plan: Plan) -> Row:
    """Describe the evaluated population and its births in a row's columns."""
    births = plan.births
    fate = selection.fate(plan.selection, state.injected) if state.injected != NOBODY else NOBODY
    return {
        "fitness": played.returns,
        "length": played.length,
        "slot_kind": births.kind,
        "first_parent": births.first,
        "second_parent": births.second,
        "mutated": births.mutated.astype(np.int64),
        "injected": plan.inject,
        "learner_fate": int(fate),
    }
