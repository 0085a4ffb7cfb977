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
        assert running.left(replace(one, ranks=ranks), running.Spent(tmp_path)) is None
    with pytest.raises(
        Unusable, match=r"was made on 4 rank\(s\), and is planned on 2: did a job script's LAUNCH"
    ):
        running.left(replace(one, ranks=2), running.Spent(tmp_path))


def test_machines_that_share_a_folder_keep_each_others_times(tmp_path):
    runs = [replace(a_run(tmp_path, Config(), name=name), seconds=9.0) for name in ("a", "b", "c")]
    here, there = running.Spent(tmp_path), running.Spent(tmp_path)
    here.note(runs[0], 1.0)
    there.note(runs[1], 2.0)
    files = Namespace(columns={}, generation=0)
    assert [spent.of(run, files) for spent in (here, there) for run in runs] == [1.0, 2.0, 0.0] * 2


@pytest.mark.parametrize(
    ("ranks", "number"), [(0, signal.SIGTERM), (1, signal.SIGTERM), (2, signal.SIGUSR1)]
)
def test_a_launcher_is_told_by_the_signal_that_all_of_them_pass_on(tmp_path, ranks, number):
    heard = []
    one = replace(a_run(tmp_path, Config()), ranks=ranks)
    going = running.Going(one, Namespace(send_signal=heard.append), 1.0, 0.0, None)
    going.tell()
    assert (heard, going.interrupted) == ([number], True)
    going.end = 0.0  # its time is over
    going.watch()
    assert (heard, going.over) == ([number] * 2, True)
