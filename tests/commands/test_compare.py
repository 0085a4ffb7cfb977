"""esac-mpi summary --compare: where two runs part, in bits and in settings."""

import numpy as np
import pytest
from growing_runs import make
from hdf5_files import publish

from esac_mpi.config import Config
from esac_mpi.record import Run, read


@pytest.fixture
def compared(tmp_path, call):
    """Compare the runs a and b, or another two: exit code -> what is said."""

    def said(code, one="a", other="b"):
        return call("summary", tmp_path / one, tmp_path / other, "--compare", code=code).out

    return said


def alter(path, generation, name, value, member=None):
    """Publish metrics.h5 with one number changed."""
    arrays, attributes = read(path / "metrics.h5")
    arrays[name][(generation - 1, *([] if member is None else [member]))] = value
    publish(path / "metrics.h5", arrays, attributes)


def test_compare_equal_runs(tmp_path, compared):
    make(tmp_path / "a", ranks=1, cpu="one", versions="numpy 2.4.6, torch 2.13.0").close()
    about = {"ranks": 3, "cpu": "two", "versions": "numpy 2.5.0, torch 2.13.0"}
    make(tmp_path / "b", generations=43, **about).close()
    # a nan of other bits
    alter(tmp_path / "b", 3, "metrics/evaluation_sac", np.copysign(np.nan, -1), 0)
    said = compared(0)
    assert "equal for the 40 generations both have, in 12 datasets" in said  # nan equals nan
    assert "configuration:\n  equal\n" in said
    machine = said.partition("machine and versions:\n")[2].partition("\n\n")[0].splitlines()
    assert machine == ["  ranks: 1 -> 3", "  cpu: one -> two", "  numpy: 2.4.6 -> 2.5.0"]
    assert "the states" not in said  # their checkpoints are of different generations


def test_compare_finds_where_bits_part(tmp_path, compared):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    value = read(tmp_path / "a/metrics.h5")[0]["metrics/fitness"][16, 3]
    least = np.nextafter(value, 2000)  # the least change there is
    alter(tmp_path / "b", 17, "metrics/fitness", least, 3)
    alter(tmp_path / "b", 30, "metrics/sigma", -0.0)
    assert compared(1).partition("bits of metrics/:\n")[2].splitlines() == [
        "  equal before generation 17; 10 of 12 datasets are equal throughout",
        f"  generation 17  metrics/fitness  [3]: {value} -> {least} (1 of 10 differ)",
        "  generation 30  metrics/sigma  0.005 -> -0.0",
        "  the states (State, Learner, replay) of generation 40 are equal",
    ]


def test_compare_states(tmp_path, compared):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    arrays, attributes = read(tmp_path / "b/metrics.h5")
    publish(tmp_path / "b/metrics.h5", arrays, {**attributes, "state_sha256": "0" * 64})
    said = compared(1)
    assert "equal for the 40 generations both have" in said
    assert "generation 40 differ\n" in said


def test_compare_runs_of_other_settings(tmp_path, compared):
    make(tmp_path / "a", generations=7).close()
    make(tmp_path / "b", "es", seed=1, generations=7).close()
    said = compared(1)
    assert "  algorithm: esac -> es\n  seed: 0 -> 1\n" in said
    assert "apart from the first generation" in said
    assert "only in A: metrics/evaluation_sac\n" in said
    Run.begin(tmp_path / "young", Config(), {}).close()
    assert "no generation is published in both" in compared(2, other="young")
