"""Times of runs brought to one core: equal work, equal time, whatever the machine did meanwhile."""

import numpy as np
import pytest
from clocked_runs import FOUR, ROWS, erl_run_of, run_of
from toy_experiments import TOY, planned

from esac_mpi.analysis.clock import Core, Machine, computed, grid
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results.rows import rows

OWN = Core(4.0, 0.01)  # what the work of ROWS took: a step of four members 4 s, 300 updates 3 s
CLOCKED = TOY.replace("seeds = 2", "clock = {ranks = 8, seconds = 9}")


def test_a_core_that_was_twice_as_slow_has_the_same_clock(tmp_path):
    quick, slow = run_of(tmp_path / "a", ROWS), run_of(tmp_path / "b", ROWS, core=2.0, slow=1.5)
    for ranks in (1, 3):
        own = computed(quick, Machine(ranks))
        # messages are no slower
        np.testing.assert_allclose(computed(slow, Machine(ranks)), 2 * own, rtol=1e-3)
        np.testing.assert_allclose(computed(quick, Machine(ranks, core=OWN)), own)
        np.testing.assert_allclose(computed(slow, Machine(ranks, core=OWN)), own)


def test_steps_and_updates_take_what_they_do_on_that_core_and_all_else_as_much_less_or_more(
    tmp_path,
):
    run, core = run_of(tmp_path / "a", ROWS), Core(2.0, 0.03)
    # members 4 s, writing 0.1, update 0.2, own 0.3, evaluation 1: half of it; a phase of 5 s,
    # 3 of them updates: thrice
    np.testing.assert_allclose(
        computed(run, Machine(1, core=core)), [2.8, 5.6, 2 * 2.8 + 2.8 + 15.0]
    )


def test_a_learner_without_a_population_is_brought_by_its_updates_alone(tmp_path):
    rows = [((), False, (5.0, 3.0, updates), (0.5, 0.5)) for updates in (0, 300, 600)]
    run = run_of(tmp_path / "a", [((np.nan,) * 4, *row[1:]) for row in rows])
    run.columns["metrics/env_steps_population"][:] = 0
    # with 0.01 s an update, 3 s of updates are 3 and 6 s; 900 updates 9 s in place of 6:
    # all else 1.5 times as long
    np.testing.assert_allclose(
        np.diff(computed(run, Machine(1, core=Core(7.0, 0.01))), prepend=0),
        [6.6 * 1.5, 3.6 * 1.5 + 3, 3.6 * 1.5 + 6],
    )


def test_a_pause_of_a_thousand_seconds_within_a_phase_counts_for_less_than_two_generations(
    tmp_path,
):
    rows = [(FOUR, True, (5.0, 3.0, 300), (0.5, 0.5))] * 40
    run = run_of(tmp_path / "a", rows)
    before = computed(run, Machine(8, core=OWN))
    for name in ("phase", "learn"):
        run.columns[f"timing/seconds_{name}"][20] += (
            1000.0  # of which the process had a core for none
        )
    run.columns["timing/wall_seconds"][20:] += 1000.0
    more = computed(run, Machine(8, core=OWN)) - before
    assert 0 <= more[-1] < 2 * 10.6  # what it had of the core, and what it makes of the run's pace


def test_work_of_other_kinds_has_no_clock_on_a_core(tmp_path):
    run = erl_run_of(tmp_path / "a", 2)
    with pytest.raises(Unusable, match="pderl has work beside steps and a learner's updates"):
        computed(run, Machine(2, core=OWN))


def test_rows_have_the_clock_of_the_core_on_which_their_runs_are_compared(tmp_path):
    quick, slow = run_of(tmp_path / "a", ROWS), run_of(tmp_path / "b", ROWS, core=2.0)
    found = [
        rows(run, "x", "small", "ESAC", "", True, until=(Machine(8, core=OWN), 9.0))
        for run in (quick, slow)
    ]
    assert (
        [row.clock for row in found[0]]
        == [row.clock for row in found[1]]
        == grid.texts(quick, np.arange(3))
    )
    assert found[0][0].clock


def test_an_experiment_tells_every_run_of_its_core(tmp_path):
    core = "\n[core]\nstep = {cyclic = 20.0}\nupdate = {es = 0}\n"
    assert {run.clock.machine for run in planned(tmp_path / "toy.toml", CLOCKED + core)} == {
        Machine(8, core=Core(20 * 1e-6, 0.0))
    }
    assert {run.clock.machine for run in planned(tmp_path / "toy.toml", CLOCKED)} == {Machine(8)}


@pytest.mark.parametrize(
    ("text", "core", "message"),
    [
        (TOY, "step = {cyclic = 1.0}\nupdate = {es = 0}", "no budget has a clock"),
        (CLOCKED, "step = 3\nupdate = {es = 0}", "core: step = 3: expected dict"),
        (
            CLOCKED,
            "step = {cyclic = 0}\nupdate = {es = 0}",
            "step: cyclic = 0: expected a positive",
        ),
        (
            CLOCKED,
            "step = {cyclic = 1}\nupdate = {es = -1}",
            "update: es = -1: expected a positive",
        ),
        (CLOCKED, "step = {cyclic = 1, b = 1}\nupdate = {es = 0}", "core.step: unknown key 'b'"),
        (CLOCKED, "step = {cyclic = true}\nupdate = {es = 0}", "cyclic = True: expected a number"),
        (CLOCKED, "step = {cyclic = 1}", "core: no cost of 'update'"),
        (CLOCKED, "step = {cyclic = 1}\nupdate = {sac = 1}", "core: no cost of 'es'"),
    ],
)
def test_a_core_that_is_told_wrongly_is_refused(tmp_path, text, core, message):
    with pytest.raises(Unusable, match=message):
        planned(tmp_path / "toy.toml", f"{text}\n[core]\n{core}\n")
