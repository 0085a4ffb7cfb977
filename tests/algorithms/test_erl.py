"""ERL and its forms: the three promises, what a generation does, what a run counts and says."""

import re

import numpy as np
import pytest
from small_runs import Ending, made, raising
from test_populations import BIRTHS
from words import words

from esac_mpi.algorithms import erl_births
from esac_mpi.algorithms.erl_state import NOBODY
from esac_mpi.config import ERL
from esac_mpi.operators.selection import Kind, Selection, births_n_point

PUBLIC = words("--erl.preset reference-code --erl.sync_interval 1")


@pytest.mark.parametrize("breaking", [0, 3])
def test_steps_are_counted_and_transitions_numbered(breaking, world):
    """Where an episode breaks, its last step is counted and not learned from."""
    env = Ending()
    env.breaking = breaking
    line = "--erl.fitness_episodes 2 --erl.updates_per_step 0.5 --erl.start_steps 100"
    small = made(world, "pderl", *words(line), env=env)
    counters = small.state.counters
    lengths = sum(int(small.generation()["length"].sum()) for _ in range(3))
    assert counters.env_steps_population == lengths
    steps = counters.env_steps_population + counters.env_steps_learner
    assert steps == counters.nominal_steps == env.steps
    assert counters.env_steps_learner >= 3
    assert counters.gradient_updates == round(0.5 * env.steps) - 50
    assert counters.unstable_episodes == env.broken
    assert (env.broken > 3) == bool(breaking)
    assert small.state.transitions == small.learner.replay.added == env.steps - env.broken
    replayed = small.learner.replay.rows(0, env.steps - env.broken)
    held = small.state.ages >= 0
    rows = np.hstack([replayed["observation"], replayed["action"]])[small.state.ages[held]]
    np.testing.assert_array_equal(small.state.memories[held], rows)


class Taking(Ending):
    """Ending with bounds of 0 and 2, which keeps the actions that it takes."""

    low, high = np.zeros(3, np.float32), np.full(3, 2, np.float32)

    def step(self, action):
        self.taken = [*getattr(self, "taken", []), action.copy()]
        return super().step(action)


@pytest.mark.parametrize("clip", [True, False])
def test_the_critic_learns_from_the_actions_that_the_task_took(clip, world):
    env, more = Taking(), words("--erl.ou_scale 20 --erl.exploration_clip", clip)
    small = made(world, "perl", *more, env=env)
    for _ in range(3):
        small.generation()
    taken, kept = np.array(env.taken), small.learner.replay.rows(0, len(env.taken))["action"]
    np.testing.assert_allclose(1 + kept, taken, rtol=0, atol=1e-6)
    assert (np.abs(kept).max() > 2) == (not clip)
    held = small.state.ages >= 0
    actions = kept[small.state.ages[held]]
    np.testing.assert_array_equal(small.state.memories[held][:, 3:], actions)


PLACES = [  # of BIRTHS
    r"in generation 1, member 3 \(seed 0\)",
    r"in generation 1, the learner's episode \(seed 0\)",
    *[r"in generation 1, the next member of slot [0-5] \(seed 0\)"] * 2,
    r"in the ERL phase of generation 1",
]


@pytest.mark.parametrize(("part", "place"), [*zip(BIRTHS, PLACES, strict=True)])
def test_an_error_says_where_it_came_from(part, place, world, monkeypatch):
    where, function, call = part
    small, error = made(world, "pderl"), RuntimeError("no licence")
    monkeypatch.setattr(where, function, raising(getattr(where, function), call, error))
    with pytest.raises(RuntimeError, match="no licence"):
        small.generation()
    assert any(re.fullmatch(place, note) for note in error.__notes__)
    world.end_background()


def test_the_learners_actor_is_in_its_slot_with_its_memory(world):
    small = made(world, "pderl")
    state = small.state
    for k in range(1, 5):
        slot = small.generation()["injected"]
        assert slot == state.injected
        if k % 2:
            assert slot == NOBODY
            continue
        theta = small.learner.theta
        for array in (state.population[slot], state.theta):
            np.testing.assert_array_equal(array, theta)
        for array in (state.memories, state.ages):
            np.testing.assert_array_equal(array[slot], array[-1])
        others = np.delete(state.population, slot, axis=0)
        assert not (others == theta).all(axis=1).any()


@pytest.mark.parametrize(("injection", "slot"), [("kept", 5), ("worst", 3), ("worst_or_next", 4)])
@pytest.mark.parametrize("worst_kept", [1.0, np.nan])
def test_the_slot_for_the_learners_actor_by_hand(injection, slot, worst_kept):
    """Slots 1, 2 and 5 are kept; 3 has the elite's copy, 0 and 4 children."""
    selected = Selection(*map(np.array, ([1], [2, 5], [3], [0, 4])))
    births = births_n_point(selected, 6, 1.0, np.random.default_rng(0))
    fitness = np.array([0.0, 9.0, 5.0, -np.inf, -3.0, worst_kept])
    assert erl_births.injection_slot(ERL(injection=injection), selected, births, fitness) == slot


@pytest.mark.parametrize("name", ["erl", "pderl"])
def test_in_the_public_codes_ways_it_takes_the_worst_slot(name, world):
    """In PDERL's the next one where that has the best elite's copy, of which there is one."""
    small, met = made(world, name, *PUBLIC), set()
    for _ in range(24):
        row = small.generation()
        worst, kind = int(row["fitness"].argmin()), row["slot_kind"]
        spared = name == "pderl" and kind[worst] == Kind.COPY
        assert row["injected"] == (worst + spared) % 6
        np.testing.assert_array_equal(small.state.population[row["injected"]], small.learner.theta)
        met.add(int(kind[worst]))
    assert met >= {Kind.COPY, Kind.CHILD}


def test_children_imitate_what_there_is_below_a_batch(world):
    """Two epochs of a step in all that both parents have: each its one episode of some steps."""
    more = words("--erl.distillation_batch 40 --erl.mutation_probability 0")
    small = made(world, "derl", *more, env=Ending())
    row = small.generation()
    children = row["slot_kind"] == Kind.CHILD
    assert children.any()
    assert small.state.counters.member_updates == 2 * children.sum()
    parents = row["first_parent"][children], row["second_parent"][children]
    assert (row["length"][parents[0]] + row["length"][parents[1]] < 40).all()
