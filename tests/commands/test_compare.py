"""esac-mpi summary --compare: where two runs part, in bits and in settings."""

import numpy as np
from growing_runs import make, tool

from esac_mpi.config import Config
from esac_mpi.record import Run, publish, read


def alter(path, generation, name, value, member=None):
    """Publish metrics.h5 with one number changed."""
    arrays, attributes = read(path / "metrics.h5")
    arrays[name][(generation - 1, *([] if member is None else [member]))] = value
    publish(path / "metrics.h5", arrays, attributes)


def test_compare_equal_runs(tmp_path):
    make(tmp_path / "a", ranks=1, cpu="one", versions="numpy 2.4.6, torch 2.13.0").close()
    make(
        tmp_path / "b", generations=43, ranks=3, cpu="two", versions="numpy 2.5.0, torch 2.13.0"
    ).close()
    alter(
        tmp_path / "b", 3, "metrics/evaluation_sac", np.copysign(np.nan, -1), 0
    )  # a nan of other bits
    done = tool("summary", tmp_path / "a", tmp_path / "b", "--compare")
    assert (done.returncode, done.stderr) == (0, "")
    assert "equal for the 40 generations both have, in 12 datasets" in done.stdout  # nan equals nan
    assert "configuration:\n  equal\n" in done.stdout
    machine = done.stdout.partition("machine and versions:\n")[2].partition("\n\n")[0].splitlines()
    assert machine == ["  ranks: 1 -> 3", "  cpu: one -> two", "  numpy: 2.4.6 -> 2.5.0"]
    assert "the states" not in done.stdout  # their checkpoints are of different generations


def test_compare_finds_where_bits_part(tmp_path):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    value = read(tmp_path / "a/metrics.h5")[0]["metrics/fitness"][16, 3]
    alter(
        tmp_path / "b", 17, "metrics/fitness", np.nextafter(value, 2000), 3
    )  # the least change there is
    alter(tmp_path / "b", 30, "metrics/sigma", -0.0)
    done = tool("summary", tmp_path / "a", tmp_path / "b", "--compare")
    assert done.returncode == 1
    said = done.stdout.partition("bits of metrics/:\n")[2].splitlines()
    assert said == [
        "  equal before generation 17; 10 of 12 datasets are equal throughout",
        f"  generation 17  metrics/fitness  [3]: {value} -> {np.nextafter(value, 2000)}"
        " (1 of 10 differ)",
        "  generation 30  metrics/sigma  0.005 -> -0.0",
        "  the states (State, Learner, replay) of generation 40 are equal",
    ]


def test_compare_states(tmp_path):
    make(tmp_path / "a").close()
    make(tmp_path / "b").close()
    arrays, attributes = read(tmp_path / "b/metrics.h5")
    publish(tmp_path / "b/metrics.h5", arrays, {**attributes, "state_sha256": "0" * 64})
    done = tool("summary", tmp_path / "a", tmp_path / "b", "--compare")
    assert done.returncode == 1
    assert "equal for the 40 generations both have" in done.stdout
    assert "generation 40 differ\n" in done.stdout


def test_compare_runs_of_other_settings(tmp_path):
    make(tmp_path / "a", generations=7).close()
    make(tmp_path / "b", "es", seed=1, generations=7).close()
    done = tool("summary", tmp_path / "a", tmp_path / "b", "--compare")
    assert done.returncode == 1
    assert "  algorithm: 'esac' -> 'es'\n  seed: 0 -> 1\n" in done.stdout
    assert "apart from the first generation" in done.stdout
    assert "only in A: metrics/evaluation_sac\n" in done.stdout
    Run.begin(tmp_path / "young", Config(), {}).close()
    done = tool("summary", tmp_path / "a", tmp_path / "young", "--compare")
    assert done.returncode == 2
    assert "no generation is published in both" in done.stdout
