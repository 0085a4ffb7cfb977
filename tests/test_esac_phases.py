"""The SAC phases of ESAC: when they run, when their result enters, what they raise, and that they begin again."""

import numpy as np
import pytest
from esac_by_hand import LAYOUT, Teacher, advance, make


def test_phases_run_every_g_generations_and_tune_sigma_by_equation_6(world):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__amt_clip=0.01)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    sigma, multiplier = 0.3, 1.0
    for k in range(1, 8):
        row = advance(world, params, state, env, learner=learner)
        assert row["sigma"] == sigma
        if k % 3 == 0:
            returns = row["fitness"]
            gap = returns.max() - returns.mean()
            step = min(0.05 / (10 * sigma) * (gap - 0.5 if gap >= 1 else gap * gap / 2), 0.01)
            sigma, multiplier = sigma + step, multiplier * (1 + step / sigma)
            assert step > 0
        assert state.sigma == pytest.approx(sigma, rel=1e-12)
        assert state.tuning_multiplier == pytest.approx(multiplier, rel=1e-12)
        assert (state.theta_sac == 0.5).all() == (k >= 3)
    assert learner.phases == [3, 6]
    assert state.tuning_multiplier == pytest.approx(state.sigma / 0.3)
    assert (state.counters.gradient_updates, state.counters.env_steps_learner) == (14, 2 * params.config.esac.sac_min_steps)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_result_of_a_phase_enters_lag_generations_later(world, lag):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=lag, esac__amt_clip=0.01)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    for k in range(1, 9):
        row = advance(world, params, state, env, learner=learner)
        assert row["sac_phase"] == (k % 3 == 0)
        assert (state.theta_sac == 0.5).all() == (k >= 3 + lag)
        assert state.phase_begun == (k // 3 * 3 if k >= 3 and k - k // 3 * 3 < lag else 0)
        assert getattr(learner, "held", False) == bool(state.phase_begun)
        assert np.isfinite(row["sac_episodes"])
        assert row["sac_episodes"] == (params.config.esac.sac_episodes if k >= 3 + lag and (k - lag) % 3 == 0 else 0)
        assert state.counters.learner_phases == max(k - lag, 0) // 3
        assert (state.sigma > 0.3) == (k >= 3)  # AMT is part of the plan: it does not wait


def test_what_a_phase_raises_is_raised_where_its_result_was_due(world):
    class Failing(Teacher):
        def begin(self, env, k, episodes, steps, cut=False, sums=None):
            yield
            raise FloatingPointError("the learner diverged")

    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=2)
    learner = Failing(state.theta_sac.copy())
    advance(world, params, state, env, 4, learner)
    world.background.advance()  # as where other ranks evaluate
    assert world.background.done
    with pytest.raises(FloatingPointError, match="diverged") as error:
        advance(world, params, state, env, 1, learner)
    assert "in the SAC phase of generation 3" in error.value.__notes__


def test_a_phase_in_flight_is_begun_again_after_a_restart(world):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=2)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    advance(world, params, state, env, 4, learner)
    assert (state.phase_begun, learner.phases) == (3, [])
    world.end_background()  # as in a new process
    again = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    advance(world, params, state, env, 1, again)
    assert (again.phases, again.held, state.phase_begun) == ([3], False, 0)


def test_no_phase_runs_where_p_sac_is_zero(world):
    params, state, env = make(world, esac__gradient_interval=1, esac__p_sac_initial=0.0, esac__p_sac_final=0.0)
    advance(world, params, state, env, 5)
    assert state.counters.learner_phases == 0
    assert state.sigma == 0.3
