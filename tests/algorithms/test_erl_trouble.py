"""ERL and its forms in trouble.

Generations given up or killed anywhere, episodes that break, what is counted and told.
"""

import re

import numpy as np
import pytest
from small_erl import arguments, made
from small_runs import Ending, assert_same
from whole_runs import assert_same_run, killed_at

from esac_mpi.algorithms import erl_births, erl_play
from esac_mpi.algorithms.erl_state import NOBODY
from esac_mpi.host.stop import Abandoned, GivenUp
from esac_mpi.learners import erl as learner
from esac_mpi.operators.selection import Kind
from esac_mpi.play import experience
from esac_mpi.play.rollout import NoFiniteReturn
from esac_mpi.record import read

pytestmark = pytest.mark.slow

PARTS = {  # where a generation is given up: a function, and which call of it
    "an episode": (experience, "explore", 4),
    "the learner's episode": (erl_play, "learners_episode", 1),
    "a crossover": (erl_births, "crossed", 1),
    "a mutation": (erl_births, "mutated", 2),
    "an update": (learner.Update, "learn_actor", 3),
}


def giving_up(where, name, call):
    """Return that function of `where`, left at its `call`-th call.

    As a second signal makes one leave it.
    """
    honest, calls = getattr(where, name), []

    def function(*arguments):
        calls.append(name)
        result = honest(*arguments)
        if len(calls) == call:
            raise GivenUp
        return result

    return function


@pytest.mark.parametrize("name", ["erl", "pderl"])
def test_a_generation_given_up_anywhere_leaves_nothing_and_is_made_again(name, world, monkeypatch):
    """Given up in each part in turn, saved, and gone on with in another process.

    The replay loses what memories still have.
    """
    more = ["--erl.replay_capacity", 60, "--erl.fitness_episodes", 2]
    more += [] if name == "erl" else ["--erl.memory_size", 20]
    straight = made(world, name, *more)
    for _ in range(len(PARTS) + 1):
        straight.generation()
    expected, lost = straight.saved(), []
    small = made(world, name, *more)
    small.generation()
    for place, (where, function, call) in PARTS.items():
        before = small.saved()
        with monkeypatch.context() as patch:
            patch.setattr(where, function, giving_up(where, function, call))
            with pytest.raises(Abandoned):
                small.generation()
        after = small.saved()
        assert_same(before, after)
        world.end_background()  # as in a new process
        small = made(world, name, *more)
        small.load(after)
        small.generation()
        lost.append(len(after.get("state.memories.lost", ())))
        assert small.state.generation == 1 + len(lost), place
    assert_same(small.saved(), expected)
    np.testing.assert_array_equal(small.state.memories, straight.state.memories)
    assert any(lost) == (name == "pderl")


@pytest.mark.parametrize("breaking", [0, 3])
def test_every_step_is_counted_and_transitions_have_the_replays_numbers(breaking, world):
    """Where an episode breaks, its last step is counted and not learned from.

    Updates are due from start_steps on.
    """
    env = Ending()
    env.breaking = breaking
    small = made(
        world,
        "pderl",
        "--erl.fitness_episodes",
        2,
        "--erl.updates_per_step",
        0.5,
        "--erl.start_steps",
        100,
        env=env,
    )
    counters, lengths = (
        small.state.counters,
        sum(int(small.generation()["length"].sum()) for _ in range(3)),
    )
    assert counters.env_steps_population == lengths
    assert (
        counters.env_steps_population + counters.env_steps_learner
        == counters.nominal_steps
        == env.steps
    )
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
    small = made(
        world, "perl", "--erl.exploration_clip", clip, "--erl.ou_scale", 20, env=(env := Taking())
    )
    for _ in range(3):
        small.generation()
    taken, kept = np.array(env.taken), small.learner.replay.rows(0, len(env.taken))["action"]
    np.testing.assert_allclose(1 + kept, taken, rtol=0, atol=1e-6)
    assert (np.abs(kept).max() > 2) == (not clip)
    held = small.state.ages[small.state.ages >= 0]
    np.testing.assert_array_equal(small.state.memories[small.state.ages >= 0][:, 3:], kept[held])


def test_a_population_of_which_no_return_is_finite_ends_the_run_and_changes_nothing(world):
    env = Ending()
    small = made(world, "derl", env=env)
    small.generation()
    before, env.breaking = small.saved(), 1
    with pytest.raises(NoFiniteReturn, match="generation 2: the return of no member is finite"):
        small.generation()
    assert_same(small.saved(), before)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("an episode", r"in generation 1, member 3 \(seed 0\)"),
        ("the learner's episode", r"in generation 1, the learner's episode \(seed 0\)"),
        ("a crossover", r"in generation 1, the next member of slot [0-5] \(seed 0\)"),
        ("a mutation", r"in generation 1, the next member of slot [0-5] \(seed 0\)"),
        ("an update", r"in the ERL phase of generation 1"),
    ],
)
def test_an_error_says_where_it_came_from(place, told, world, monkeypatch):
    where, function, call = PARTS[place]
    small, honest, calls = made(world, "pderl"), getattr(where, function), []

    def failing(*arguments):
        calls.append(place)
        if len(calls) == call:
            raise RuntimeError("no licence")
        return honest(*arguments)

    monkeypatch.setattr(where, function, failing)
    with pytest.raises(RuntimeError, match="no licence") as error:
        small.generation()
    assert any(re.fullmatch(told, note) for note in error.value.__notes__)
    world.end_background()


def test_the_learners_actor_is_found_again_in_its_slot_with_its_memory(world):
    small = made(world, "pderl")
    for k in range(1, 5):
        slot = small.generation()["injected"]
        assert slot == small.state.injected
        if k % 2:
            assert slot == NOBODY
            continue
        np.testing.assert_array_equal(small.state.population[slot], small.learner.theta)
        np.testing.assert_array_equal(small.state.theta, small.learner.theta)
        np.testing.assert_array_equal(small.state.memories[slot], small.state.memories[-1])
        np.testing.assert_array_equal(small.state.ages[slot], small.state.ages[-1])
        others = np.delete(small.state.population, slot, axis=0)
        assert not (others == small.learner.theta).all(axis=1).any()


@pytest.mark.parametrize("name", ["erl", "pderl"])
def test_in_the_public_codes_ways_it_takes_the_worst_slot_whoever_is_there_now(name, world):
    """In PDERL's the next one where that has the best elite's copy.

    With these settings there is one such copy.
    """
    small, met = (
        made(world, name, "--erl.preset", "reference-code", "--erl.sync_interval", 1),
        set(),
    )
    for _ in range(24):
        row = small.generation()
        worst, kind = int(row["fitness"].argmin()), row["slot_kind"]
        spared = name == "pderl" and kind[worst] == Kind.COPY
        assert row["injected"] == (worst + spared) % 6
        np.testing.assert_array_equal(small.state.population[row["injected"]], small.learner.theta)
        met.add(int(kind[worst]))
    assert met >= {Kind.COPY, Kind.CHILD}


def test_children_of_parents_who_remember_less_than_a_batch_imitate_what_there_is(world):
    """Two epochs of a step in all that both parents have.

    Each of them has its one episode of some steps.
    """
    small = made(
        world, "derl", "--erl.distillation_batch", 40, "--erl.mutation_probability", 0, env=Ending()
    )
    row = small.generation()
    children = row["slot_kind"] == Kind.CHILD
    assert children.any()
    assert small.state.counters.member_updates == 2 * children.sum()
    parents = row["first_parent"], row["second_parent"]
    assert all(
        row["length"][a] + row["length"][b] < 40
        for a, b in zip(*(p[children] for p in parents), strict=True)
    )


# of one process each, in the generations after the checkpoint that it goes on from,
# one every second generation
POINTS = [
    ("esac_mpi.algorithms.erl_births:crossed", 5),
    ("esac_mpi.algorithms.erl_births:mutated", 14),
    ("esac_mpi.learners.erl:Update.learn_actor", 60),
    ("esac_mpi.operators.memories:copy", 9),
    ("esac_mpi.record.files:_keep", 2),
]


def test_killed_in_any_part_of_a_generation_it_goes_on_on_other_ranks_as_if_nothing_had_been(
    tmp_path, alone, together
):
    fast = (
        "--erl.updates_per_step",
        0.1,
        "--erl.replay_capacity",
        300,
        "--checkpoint.every_generations",
        2,
    )
    line = arguments("pderl", *fast, "--budget.generations", 12)
    alone(*line, "--run-dir", tmp_path / "straight")
    killed_at(POINTS, *line, "--run-dir", tmp_path / "killed")
    kept = read(tmp_path / "killed/checkpoint.h5")
    assert 0 < kept[1]["generation"] < 12
    assert len(kept[0]["state/memories.lost"]) > 0
    assert "state/memories" not in kept[0]
    together(3, *line, "--run-dir", tmp_path / "killed")
    assert_same_run(tmp_path / "straight", tmp_path / "killed")
