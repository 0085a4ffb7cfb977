"""How far a run's computed clock is between two publications."""

import os
from dataclasses import replace

import numpy as np
from toy_experiments import a_run, configured

from esac_mpi.record import Run
from esac_mpi.studies.experiments import clocks, design, running


def test_between_two_publications_a_clock_goes_on_at_its_pace_also_where_that_of_the_machine_is_set(
    tmp_path, monkeypatch
):
    one = replace(a_run(tmp_path, configured(algorithm="sac")), clock=design.Computed(8, 100.0))
    pace = clocks.Pace(one, running.files_of)
    assert not pace.passed(1000.0, 0.0)  # nothing is published
    record = Run.begin(one.run_dir, one.config, {})
    record.append(
        {"generation": 1, "learner_phases": 1},
        {
            "wall_seconds": 80.0,
            "busy_seconds": np.ones(1),
            "seconds_learn": 1.0,
            "seconds_processor": 40.0,
        },
    )
    record.checkpoint(1, {"theta_es": np.ones(3, np.float32)}, {})
    record.close()
    os.utime(
        one.run_dir / "metrics.h5", (1000.0, 1000.0)
    )  # 40 s of the clock in 80: 62 more, 2 of them a margin, take 124
    monkeypatch.setattr(clocks.time, "time", lambda: 1123.0)
    assert not pace.passed(1123.0, since=0.0)
    assert pace.passed(1125.0, since=0.0)
    assert not pace.passed(1125.0, since=1010.0)  # it was not going on before
    for now in (4723.0, -2477.0):  # an hour on, or back
        stepped = clocks.Pace(one, running.files_of)
        stepped._looked = 1100.0
        monkeypatch.setattr(clocks.time, "time", lambda now=now: now)
        assert not stepped.passed(1123.0, since=0.0)
        assert not stepped.passed(1222.0, since=0.0)
        assert stepped.passed(1250.0, since=0.0)
    assert clocks.reached(running.files_of(one), design.Computed(8, 40.0))
    assert not clocks.reached(running.files_of(one), one.clock)
