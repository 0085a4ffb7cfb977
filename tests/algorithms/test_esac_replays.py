"""Members' episodes that a SAC phase resimulates: which, the same to the bit, or what is said."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Fragile, Teacher, Track, advance, make
from small_runs import Ending

from esac_mpi.host.stop import Abandoned
from esac_mpi.learners.replay import Replay
from esac_mpi.operators import noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import state
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import ReturnDiffers

OFTEN = {"gradient_interval": 1, "p_sac_annealed": False}
LAGGED = {**OFTEN, "learner_lag": 1}
VIRTUAL = {"phase_timing": "virtual", "workers": 1, "update_cost": 0.0, "sac_min_steps": 1}
TIMINGS = {
    "after": OFTEN,
    "lag 2": {"gradient_interval": 2, "learner_lag": 2, "p_sac_annealed": False},
    "virtual": {**VIRTUAL, "p_sac_annealed": False},
}
FORMS = {
    "winners": {"resimulated": "winners"},
    "sample": {"resimulated": "sample", "resimulated_members": 3, "fitness_episodes": 2}
    | {"action_noise": 0.2},
    "onesided table": {"resimulated": "winners", "sampling": "onesided", "noise": "table"}
    | {"noise_table_size": 100_000},
    "lowrank cap": {"resimulated": "sample", "noise": "lowrank", "noise_rank": 2}
    | {"length_cap": 1.2, "winner_selection": "hard"},
    "all": {"resimulated": "sample", "resimulated_members": 99, "start_states": "pair"}
    | {"sac_copy_noise": False},
}


def prepared(world, env=None, teacher=Teacher, **settings):
    params, start, _ = make(world, **settings)
    learner = teacher(np.full(LAYOUT.d, 0.01, np.float32))
    learner.replay = Replay(5000, 3, 3, 1000)
    return params, start, env or Track(), learner


def arrays(start):
    return {name: array.copy() for name, array in state.arrays(start).items()}


def plain(params, theta, k, i, cap):
    """Play member i's episodes by a plain loop; return its fitness and transitions."""
    # In an environment of their own.
    esac, env, rows, total = params.config.esac, Ending(), [], 0.0
    policy = make_policy(params, Track()).set(theta)
    player = i // 2 if esac.start_states == "pair" else i
    for number in range(esac.fitness_episodes):
        address = k, player, number
        observation = env.reset(noise.integer(0, Purpose.EPISODE, *address))
        random, paid = noise.generator(0, Purpose.ACTION, *address), 0.0
        over, steps = False, 0
        while not over:
            action = policy(observation).copy()
            if esac.action_noise:
                normal = random.standard_normal(3, np.float32)
                action = np.clip(action + np.float32(esac.action_noise) * normal, -1, 1)
            following, reward, terminated, truncated = env.step(action)
            rows.append([*observation, *action, reward, terminated, *following])
            observation, paid, steps = following, paid + reward, steps + 1
            over = terminated or truncated or steps == cap
        total += paid
    return total / esac.fitness_episodes, rows


def chosen_by_hand(esac, k, fitness):
    count = min(esac.resimulated_members, fitness.size)
    if esac.resimulated == "winners":
        return np.argsort(-fitness)[:count].tolist()
    return noise.generator(0, Purpose.REPLAYED, k).permutation(fitness.size)[:count].tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("timing", TIMINGS)
def test_the_members_own_transitions_are_played_again(world, timing, form):
    params, start, env, learner = prepared(world, Ending(), **TIMINGS[timing], **FORMS[form])
    esac, by_phase = params.config.esac, {}
    for k in range(1, 9):
        vectors = [start.theta_es.copy(), start.theta_sac.copy(), *start.children.copy()]
        parents, sigma = start.parents.tolist(), start.sigma
        row = advance(world, params, start, env, learner=learner)
        by_phase[k] = []
        for i in chosen_by_hand(esac, k, row["fitness"]):
            slot, sign = (i, 1) if esac.sampling == "onesided" else (i // 2, 1 - 2 * (i % 2))
            parent, blocks = parents[slot], noise.blocks(LAYOUT.d)
            still = parent == 1 and not esac.sac_copy_noise
            if esac.winner_selection == "hard":
                still = parent >= 2
            eps = [params.epsilon.block(k, slot, block, part) for block, part in blocks]
            step = np.float32(0.0 if still else sign * sigma) * np.concatenate(eps)
            theta = vectors[parent] + step
            fitness, rows = plain(params, theta, k, i, int(row["length_cap"]))
            assert fitness == row["fitness"][i]
            assert len(rows) == row["length"][i]
            by_phase[k] += rows
    assert len(learner.phases) >= 3
    expected = np.array([row for k in learner.phases for row in by_phase[k]], np.float32)
    got = learner.replay.rows(0, learner.replay.added)
    names = "observation", "action", "reward", "terminated", "next_observation"
    np.testing.assert_array_equal(np.column_stack([got[name] for name in names]), expected)
    assert {0.0, 1.0} == {*got["terminated"].tolist()}
    assert start.counters.env_steps_replayed == len(expected)
    assert start.counters.env_steps_learner == len(learner.phases) * esac.sac_min_steps
    held = 0 if timing == "after" else min(esac.resimulated_members, 10)
    assert start.flight.replayed_theta.shape == (held, LAYOUT.d)


class Paid(Teacher):
    """A teacher whose own episodes have a return, by the generation that their phase begins in."""

    def begin(self, env, k, *arguments):
        phase = yield from super().begin(env, k, *arguments)
        return replace(phase, episodic_return=self.paid.get(k, np.nan))


@pytest.mark.parametrize("timing", TIMINGS)
def test_the_best_are_played_again_that_beat_the_learner(world, timing):
    settings = {**TIMINGS[timing], "resimulated": "better", "resimulated_members": 3}

    def generations(paid):
        params, start, env, learner = prepared(world, teacher=Paid, **settings)
        learner.paid, found = paid, {}
        for k in range(1, 12):
            row = advance(world, params, start, env, learner=learner)
            found[k] = np.sort(row["fitness"])[-3:]
            entered = learner.phases[: start.counters.learner_phases]
            last = next((paid[k] for k in entered[::-1] if k in paid), -np.inf)
            assert start.learner_return == last
        world.end_background()
        return learner, start, found

    learner, start, found = generations({})  # no whole episode in any phase: the winners
    assert learner.replay.added == 10 * 3 * len(learner.phases)
    before, after = learner.phases[:-1], learner.phases[1:]
    assert len(after) >= 3
    better, paid = [1 + i % 2 for i in range(len(after))], {}  # of the three
    for a, b, count in zip(before, after, better, strict=True):
        paid[a] = float(found[b][2 - count : 4 - count].mean())
    del paid[before[2]]  # which had no whole episode: that of the phase before it counts
    better[2] = int((found[after[2]] > paid[before[1]]).sum())
    learner, start, again = generations(paid)
    np.testing.assert_equal(again, found)
    expected = 10 * (3 + sum(better))  # the first phase knows none
    assert learner.replay.added == expected == start.counters.env_steps_replayed


class Rich(Fragile):
    """Pay more than float32 holds: a replay would have inf."""

    broken = 3.5e38


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("resimulated", "finite"),
    [("winners", [0, 1, 2, 3, 4, 5, 8]), ("sample", [2, 7]), ("sample", range(10))],
)
def test_members_whose_return_is_not_finite_are_not_played_again(world, resimulated, finite):
    settings = {**OFTEN, "resimulated": resimulated, "resimulated_members": 4}
    params, start, env, learner = prepared(world, Rich(), **settings)
    env.whole = frozenset(noise.integer(0, Purpose.EPISODE, 1, i) for i in finite)
    row = advance(world, params, start, env, learner=learner)
    assert np.flatnonzero(np.isfinite(row["fitness"])).tolist() == list(finite)
    assert start.counters.unstable_episodes == 10 - len(finite)
    assert learner.replay.added == start.counters.env_steps_replayed == 10 * min(4, len(finite))
    assert np.isfinite(learner.replay.rows(0, learner.replay.added)["reward"]).all()


class Moody(Track):
    """Track that pays another reward, in its last bits, once it is told to."""

    moody = False

    def step(self, action):
        observation, reward, terminated, truncated = super().step(action)
        return observation, reward * (1 + 1e-12 * self.moody), terminated, truncated


def in_a_mood(world, monkeypatch, k, **settings):
    """Return a run whose task changes after generation k was evaluated, and its plans."""
    params, start, env, learner = prepared(world, Moody(), **settings, resimulated="winners")
    for _ in range(1, k):
        advance(world, params, start, env, learner=learner)
    honest, plans = world.from_root, []

    def from_root(value):
        env.moody = True
        plans.append(value)
        return honest(value)

    monkeypatch.setattr(world, "from_root", from_root)
    return params, start, env, learner, plans


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("node7", "there node7, here node0: these compute different bits"),
        ("node0", "both on node0: the task does not give an episode twice"),
    ],
)
def test_a_return_that_is_another_one_is_named_with_its_hosts(world, monkeypatch, host, why):
    world.hosts = ["node0"]
    monkeypatch.setattr(world, "host", lambda item: host)
    params, start, env, learner, plans = in_a_mood(world, monkeypatch, 2, **OFTEN)
    before = arrays(start)
    with pytest.raises(ReturnDiffers) as error:
        advance(world, params, start, env, learner=learner)
    said, notes = str(error.value), error.value.__notes__
    assert said.startswith(f"member {plans[0].winners[0]} of generation 2 had the return -")
    was, now = (float(word.strip(",")) for word in said.split() if word.startswith("-"))
    assert 0 < abs(now - was) < 1e-9 * abs(was)
    assert notes[0].startswith(why)
    assert notes[1:] == ["in the SAC phase of generation 2"]
    np.testing.assert_equal(arrays(start), before)
    assert learner.held


@pytest.mark.parametrize("restarts", [False, True])
def test_another_return_is_raised_where_the_result_was_due(world, monkeypatch, restarts):
    world.hosts = ["node0"]
    params, start, env, learner, _ = in_a_mood(world, monkeypatch, 1, **LAGGED)
    advance(world, params, start, env, learner=learner)  # the phase began, played no further
    if restarts:
        world.end_background()
    with pytest.raises(ReturnDiffers) as error:
        advance(world, params, start, env, learner=learner)
    there = "there the host of an earlier start, here node0" if restarts else "both on node0"
    assert error.value.__notes__[0].startswith(there)
    assert (start.generation, start.flight.phase_begun) == (1, 1)
    world.end_background()


def test_another_machine_goes_on_and_compares_nothing(world, monkeypatch):
    params, start, env, learner, _ = in_a_mood(world, monkeypatch, 1, **LAGGED)
    advance(world, params, start, env, learner=learner)
    world.end_background()
    start.compare_no_more()
    assert np.isnan(start.flight.replayed_returns).all()
    assert start.flight.replayed_members.dtype == np.int64
    advance(world, params, start, env, learner=learner)
    assert learner.replay.added == 2 * 10


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_generation_that_is_abandoned_leaves_no_trace(world, monkeypatch, timing):
    settings = {"transfer": "tested", "transfer_episodes": 2, "length_cap": 2.0}
    settings |= {**TIMINGS[timing], "resimulated": "sample"}
    params, start, env, learner = prepared(world, Ending(), **settings)
    *straight, teacher = prepared(world, Ending(), **settings)
    abandoned = 0

    for k in range(1, 9):
        before = arrays(start)
        with monkeypatch.context() as patch:
            # in the phase, or where its result is due
            patch.setattr(world, "at_root", Mock(side_effect=Abandoned))
            try:
                advance(world, params, start, env, learner=learner)
            except Abandoned:
                abandoned += 1
                np.testing.assert_equal(arrays(start), before)
                world.end_background()  # as in a new process
                learner.replay = Replay(5000, 3, 3, 1000)  # which has it as the checkpoint has
        if start.generation < k:
            advance(world, params, start, env, learner=learner)
        assert start.generation == k
    assert abandoned >= 3
    world.end_background()
    advance(world, *straight, 8, teacher)
    np.testing.assert_equal(arrays(start), arrays(straight[1]))
    world.end_background()
