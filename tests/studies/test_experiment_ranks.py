"""Runs of an experiment on several ranks, and on several machines that share its folder."""

import signal
from argparse import Namespace
from dataclasses import replace

import pytest
from toy_experiments import a_run, configured, finished

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import Config
from esac_mpi.studies.experiments import running


def test_a_run_made_on_other_ranks_than_planned_is_refused(tmp_path):
    config = configured(algorithm="es")
    one = a_run(tmp_path, config)
    finished(one.run_dir, config, ranks=4)
    for ranks in (0, 4):
        assert running.is_done(replace(one, ranks=ranks))
    with pytest.raises(
        Unusable, match=r"was made on 4 rank\(s\), and is planned on 2: did a job script's LAUNCH"
    ):
        running.is_done(replace(one, ranks=2))


@pytest.mark.parametrize(
    ("ranks", "number"), [(0, signal.SIGTERM), (1, signal.SIGTERM), (2, signal.SIGUSR1)]
)
def test_a_launcher_is_told_by_the_signal_that_all_of_them_pass_on(tmp_path, ranks, number):
    heard = []
    one = replace(a_run(tmp_path, Config()), ranks=ranks)
    going = running.Going(one, Namespace(send_signal=heard.append), 0.0, None)
    going.tell()
    assert (heard, going.interrupted) == ([number], True)
