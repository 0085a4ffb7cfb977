"""A search in trouble: signals at any moment, decisions that were not told, machines that cannot make a trial."""

import os
import signal

import pytest
from small_studies import made

from esac_mpi.policies.ranks import Alone
from esac_mpi.record import Run
from esac_mpi.search import task, work
from esac_mpi.search.journal import Journal


def states(study):
    return [(trial.number, trial.state) for trial in Journal(study).trials()]


@pytest.mark.parametrize(("moment", "generation"), [((Journal, "values"), None), ((task.Task, "_hours_left"), 1)])
def test_a_signal_before_a_trials_first_generation_does_not_wait_for_its_last(tmp_path, monkeypatch, moment, generation):
    """While its settings are proposed it has not begun; after that it is stopped in its first generation, and goes on."""
    study, honest = made(tmp_path, "trials = 1"), getattr(*moment)

    def signalled(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return honest(*arguments)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(*moment, signalled)
        assert work.search(study.path, Alone()) == 75
    path = study.run_of(0, 100)
    assert (Run.open(path).generation if path.exists() else None) == generation
    assert states(study) == [(0, "running")]
    assert work.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete")]
