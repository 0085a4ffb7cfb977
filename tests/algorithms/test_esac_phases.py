"""The SAC phases of ESAC: when they run, when their result enters, what they raise."""

from types import SimpleNamespace

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Teacher, Track, advance, make

from esac_mpi.algorithms import esac_timing
from esac_mpi.config import Config, amend
from esac_mpi.learners.replay import Replay

THIRD = {"gradient_interval": 3, "p_sac_final": 1.0, "amt_clip": 0.01}
VIRTUAL = {"phase_timing": "virtual", "p_sac_annealed": False, "amt_clip": 0.01}


def teacher():
    return Teacher(np.full(LAYOUT.d, 0.5, np.float32))


def test_phases_run_every_g_generations_and_tune_sigma(world):
    params, state, env = make(world, **THIRD)
    learner, sigma, multiplier = teacher(), 0.3, 1.0
    for k in range(1, 8):
        row = advance(world, params, state, env, learner=learner)
        assert row["sigma"] == sigma
        if k % 3 == 0:
            gap = row["fitness"].max() - row["fitness"].mean()
            step = min(0.05 / (10 * sigma) * (gap - 0.5 if gap >= 1 else gap * gap / 2), 0.01)
            sigma, multiplier = sigma + step, multiplier * (1 + step / sigma)
            assert step > 0
        assert state.sigma == pytest.approx(sigma, rel=1e-12)
        assert state.tuning_multiplier == pytest.approx(multiplier, rel=1e-12)
        assert (state.theta_sac == 0.5).all() == (k >= 3)
    assert learner.phases == [3, 6]
    assert state.tuning_multiplier == pytest.approx(state.sigma / 0.3)
    assert state.counters.gradient_updates == 14
    assert state.counters.env_steps_learner == 2 * params.config.esac.sac_min_steps


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_result_of_a_phase_enters_lag_generations_later(world, lag):
    params, state, env = make(world, **THIRD, learner_lag=lag)
    learner, episodes = teacher(), params.config.esac.sac_episodes
    for k in range(1, 9):
        row = advance(world, params, state, env, learner=learner)
        assert row["sac_phase"] == (k % 3 == 0)
        assert (state.theta_sac == 0.5).all() == (k >= 3 + lag)
        assert state.flight.phase_begun == (k // 3 * 3 if k >= 3 and k % 3 < lag else 0)
        assert getattr(learner, "held", False) == bool(state.flight.phase_begun)
        assert row["sac_episodes"] == (episodes if k >= 3 + lag and (k - lag) % 3 == 0 else 0)
        assert state.counters.learner_phases == max(k - lag, 0) // 3
        assert (state.sigma > 0.3) == (k >= 3)  # AMT is part of the plan: it does not wait


def test_what_a_phase_raises_is_raised_where_its_result_was_due(world):
    class Failing(Teacher):
        def begin(self, env, k, episodes, steps, cut=False, sums=None, every=0):
            yield
            raise FloatingPointError("the learner diverged")

    params, state, env = make(world, **THIRD, learner_lag=2)
    learner = Failing(state.theta_sac.copy())
    advance(world, params, state, env, 4, learner)
    world.background.advance()  # as where other ranks evaluate
    assert world.background.done
    with pytest.raises(FloatingPointError, match="diverged") as error:
        advance(world, params, state, env, 1, learner)
    assert "in the SAC phase of generation 3" in error.value.__notes__


class Timed(Track):
    """Track whose episodes last `lengths` in turn [steps]."""

    # Given as the evaluation of ten members takes them, one by one.

    def __init__(self, lengths=(10,)):
        self.lengths = lengths

    def reset(self, seed):
        observation = super().reset(seed)
        self.left, *others = self.lengths
        self.lengths = [*others, self.left]
        return observation


def begun(world, generations, lengths=(10,), **settings):
    """Return in which generations phases begin, and the virtual steps left after each."""
    params, state, _ = make(world, **{**VIRTUAL, **settings})
    learner, env, began, left = teacher(), Timed(lengths), [], []
    learner.replay = Replay(1000, 3, 3, 200)
    for k in range(1, generations + 1):
        phases, flying, sigma = state.counters.learner_phases, state.flight.phase_begun, state.sigma
        row = advance(world, params, state, env, learner=learner)
        ended = state.counters.learner_phases - phases
        assert ended == (bool(flying) and state.flight.phase_begun != flying)
        assert (row["sac_episodes"] == 0) or ended
        # AMT is part of the plan: it does not wait
        assert (state.sigma > sigma) == row["sac_phase"]
        assert (state.theta_sac == 0.5).all() == (state.counters.learner_phases > 0)
        if row["sac_phase"]:
            began.append(k)
            assert state.flight.phase_begun == k
        left.append(state.flight.phase_left)
    assert learner.phases == began[: len(learner.phases)]
    world.end_background()
    return began, left


FILLS = {"phase_timing": "continuous"}
TWICE = {"workers": 4, "resimulated": "sample", "fitness_episodes": 2, "sac_min_steps": 10}


@pytest.mark.parametrize(
    ("settings", "expected", "left"),
    [
        # a generation: 100 steps of 4 workers, 25; a phase: 20 steps and 20 updates of 2, 60
        ({"workers": 4}, [1, 4, 7, 10], [60, 35, 10, 60, 35, 10, 60]),
        # after three times 20 it has just ended
        ({"workers": 5}, [1, 4, 7, 10], [60, 40, 20, 60, 40, 20, 60]),
        ({"workers": 6}, [1, 5, 9], [60, 43 + 1 / 3, 26 + 2 / 3, 10, 60]),
        # a generation lasts as long as its longest member, 10
        ({"workers": 99}, [1, 7], [60, 50, 40, 30, 20, 10, 60]),
        ({"workers": 1}, [*range(1, 11)], [60, 60, 60]),  # the learner waits
        ({"workers": 4, "update_cost": 0.0}, [*range(1, 11)], [20, 20]),
        # 30 more, played again
        (
            {"workers": 4, "resimulated": "winners", "resimulated_members": 3},
            *([1, 5, 9], [90, 65, 40, 15, 90]),
        ),
        (TWICE, [1, 3, 5, 7, 9], [70, 20, 70]),
        # trials, 2 x 5 x 10 steps more in the generation after a phase: 50
        ({"workers": 4, "transfer": "tested"}, [1, 4, 6, 8, 10], [60, 35, 10, 60, 10, 60, 10]),
        # as long as 0.9 of the generation before: 30 steps; 60 of one with trials
        ({**FILLS, "workers": 1}, [*range(1, 11)], [90, 90, 90]),
        ({**FILLS, "workers": 1, "transfer": "tested"}, [*range(1, 11)], [90, 90, 180, 180]),
        # 30 steps are played again, and as many are left of 90 / 3
        (
            {**FILLS, "workers": 1, "resimulated": "winners", "resimulated_members": 3},
            *([*range(1, 11)], [90, 90]),
        ),
        # not shorter than sac_min_steps
        ({**FILLS, "workers": 2}, [1, 3, 5, 7, 9], [60, 10, 60, 10]),
    ],
)
def test_a_phase_enters_when_its_virtual_time_has_passed(world, settings, expected, left):
    found, rest = begun(world, 10, **{"sac_min_steps": 20, "update_cost": 2.0} | settings)
    assert found == expected
    assert rest[: len(left)] == pytest.approx(left, rel=1e-12)


def test_a_generation_lasts_its_longest_member_or_its_sum(world):
    # of 4 workers: longest 9, sum 18; 3, 30; 10, 28
    lengths = (1, 1, 1, 1, 9, 1, 1, 1, 1, 1) + (3,) * 10 + (2, 10, 2, 2, 2, 2, 2, 2, 2, 2)
    found, left = begun(world, 7, lengths, workers=4, sac_min_steps=9, update_cost=1.0)
    # a generation lasts max(9, 4.5), max(3, 7.5), max(10, 7) and again; a phase 18
    assert left[:6] == [18, 10.5, 0.5, 18, 10.5, 0.5]
    assert found == [1, 4, 7]


@pytest.mark.parametrize("workers", [1, 3, 9, 10, 19])
@pytest.mark.parametrize("cost", [0.0, 0.6, 1.0, 26.0])
def test_no_continuous_phase_is_longer_than_its_room(workers, cost):
    """To the step: a replay that holds a state refuses one more."""
    settings = {**FILLS, "workers": workers, "update_cost": cost, "sac_min_steps": 1}
    settings["transfer"] = "off"
    for members, horizon in ((16, 100), (28, 1600), (36, 1000)):
        named = {f"esac.{name}": value for name, value in settings.items()}
        config = amend(Config(), {**named, "esac.population_size": members})
        found = SimpleNamespace(length=np.full(members, horizon), trial_steps=0)
        lasted = esac_timing.evaluation_time(config.esac, found)
        most = esac_timing.most_steps(config, horizon)
        assert esac_timing.own_steps(config, lasted, 0) == most
        assert most == int(0.9 * max(horizon, members * horizon / workers) / (1 + cost))


def test_a_phase_of_longer_episodes_goes_on_within_its_room(world):
    settings = {"workers": 1, "sac_min_steps": 20, "update_cost": 2.0}
    params, state, env = make(world, **{**VIRTUAL, **FILLS, **settings})
    learner = teacher()
    advance(world, params, state, env, learner=learner)
    assert state.flight.phase_steps == 30
    world.end_background()  # as in a new process
    state.flight.phase_steps = 999
    advance(world, params, state, env, learner=learner)
    assert state.counters.env_steps_learner == esac_timing.most_steps(params.config, 10)


def test_the_gate_keeps_the_learner_waiting_on_the_virtual_clock(world):
    params, state, env = make(world, **VIRTUAL, p_sac_initial=0.0)
    for _ in range(3):
        assert advance(world, params, state, env)["sac_phase"] == 0
    assert (state.flight.phase_begun, state.flight.phase_left) == (0, 0.0)
    assert (state.counters.learner_phases, state.sigma) == (0, 0.3)
