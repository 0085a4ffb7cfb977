"""esac-mpi export --format csv and tensorboard: the history of a run, read back."""

import csv
import signal
import struct
import time
from contextlib import suppress

import numpy as np
import pytest
from commands import command
from growing_runs import begun, make, one_more

from esac_mpi.record import Run

export = command("export")


def test_csv_has_the_columns_of_the_run_by_their_names(tmp_path, capsys):
    make(tmp_path / "a", generations=10).close()
    assert export.main([str(tmp_path / "a"), "--format", "csv"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a/metrics.csv'}\n"
    rows = list(csv.DictReader((tmp_path / "a/metrics.csv").open()))
    run = Run.open(tmp_path / "a")
    assert next(iter(rows[0])) == "metrics/generation"
    assert set(run.columns.scalars) < set(rows[0])
    for name in run.columns.scalars:
        assert [float(row[name]) for row in rows] == run.columns[name].tolist()
    assert rows[9]["metrics/env_steps_population"] == "50000"
    assert [row["metrics/evaluation_sac.mean"] != "" for row in rows] == [False] * 4 + [True] + [
        False
    ] * 4 + [True]
    assert float(rows[4]["metrics/evaluation_sac.mean"]) == pytest.approx(170)  # 30 * 5 + 20
    assert float(rows[9]["metrics/fitness.max"]) == run.members("fitness")[9].max()


@pytest.mark.parametrize(
    ("returns", "shown"),
    [(np.arange(1.0, 11.0), ["5.5", "1.0", "10.0"]), (np.array([np.nan, *range(9)]), ["", "", ""])],
)
def test_an_evaluation_at_the_end_is_in_the_last_row_and_an_unstable_one_in_none(
    tmp_path, returns, shown
):
    run = make(tmp_path / "a", "es", generations=6)
    run.final({"generation": np.array(6), "evaluation_theta_es": returns})
    run.close()
    assert export.main([str(tmp_path / "a"), "--format", "csv"]) == 0
    last = list(csv.DictReader((tmp_path / "a/metrics.csv").open()))[-1]
    assert [last[f"metrics/evaluation_theta_es.{what}"] for what in ("mean", "min", "max")] == shown


def events(path):
    """Read a file of TensorBoard's: [(wall time, step, {tag: number})], without the first."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    content, found = path.read_bytes(), []
    while len(content) > 16 and len(content) >= 16 + (
        length := struct.unpack("<Q", content[:8])[0]
    ):
        found.append(event_pb2.Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    assert found.pop(0).file_version == "brain.Event:2"
    return [
        (event.wall_time, event.step, {v.tag: v.simple_value for v in event.summary.value})
        for event in found
    ]


def test_tensorboard_has_every_finite_number_at_its_step(tmp_path, capsys):
    pytest.importorskip("tensorboardX")
    make(tmp_path / "a", generations=10).close()
    assert export.main([str(tmp_path / "a"), "--format", "tensorboard"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a/events.out.tfevents.esac_mpi'}\n"
    found = events(tmp_path / "a/events.out.tfevents.esac_mpi")
    assert [step for _, step, _ in found] == [
        5100 * g for g in range(1, 11)
    ]  # 5,000 of the population, 100 of the learner
    assert np.diff([seconds for seconds, _, _ in found]) == pytest.approx(60)
    assert found[9][0] == pytest.approx((tmp_path / "a/metrics.h5").stat().st_mtime)
    assert found[4][2]["eval/sac.mean"] == pytest.approx(170)
    assert found[4][2]["eval/mean_reward"] == pytest.approx(170)  # theta_es has 150
    assert "eval/sac.mean" not in found[5][2]
    fitness = Run.open(tmp_path / "a").members("fitness")
    wanted = {
        "rollout/ep_rew_mean": fitness[5:].mean(),  # 50 episodes
        "rollout/ep_len_mean": 510,  # 5,100 steps, 10 episodes
        "time/iterations": 10, "time/time_elapsed": 600, "time/total_timesteps": 51_020,
        "time/fps": 51_020 / 600, "train/n_updates": 1000, "metrics/sigma": 0.005,
    }  # fmt: skip
    assert {tag: found[9][2][tag] for tag in wanted} == pytest.approx(wanted)
    assert (
        export.main(
            [
                str(tmp_path / "a"),
                "--format",
                "tensorboard",
                "--step",
                "generation",
                "--out",
                str(tmp_path / "b"),
            ]
        )
        == 0
    )
    assert [step for _, step, _ in events(tmp_path / "b/a/events.out.tfevents.esac_mpi")] == list(
        range(1, 11)
    )  # a folder a run


@pytest.mark.slow
def test_curves_follow_runs_to_their_ends(tmp_path):
    pytest.importorskip("tensorboardX")
    run = make(tmp_path / "a", "es", generations=4, status="running")
    make(tmp_path / "b", generations=3).close()
    words = [tmp_path / "a", tmp_path / "b", "--format", "tensorboard", "--follow"]
    process = begun("export", *words, "--every", "0.2", "--out", tmp_path / "all")
    file = tmp_path / "all/a/events.out.tfevents.esac_mpi"
    grown(file, 4)
    one_more(run)
    grown(file, 5)
    assert process.poll() is None
    run.final({"generation": np.array(5), "evaluation_theta_es": np.full(10, 7.0)})
    run.status("complete", 5)
    run.close()
    assert process.wait(300) == 0
    found = events(file)
    assert [step for _, step, _ in found] == [
        5100 * g for g in (1, 2, 3, 4, 4, 4)
    ]  # the fifth repeats it
    assert found[5][2].keys() == {f"eval/theta_es.{s}" for s in ("mean", "min", "max")} | {
        "eval/mean_reward"
    }
    assert len(events(tmp_path / "all/b/events.out.tfevents.esac_mpi")) == 3


@pytest.mark.slow
def test_ctrl_c_ends_the_following_and_not_the_run(tmp_path):
    pytest.importorskip("tensorboardX")
    run = make(tmp_path / "a", "es", generations=4, status="running")
    process = begun("export", tmp_path / "a", "--format", "tensorboard", "--follow")
    grown(tmp_path / "a/events.out.tfevents.esac_mpi", 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    run.close()


@pytest.mark.parametrize("out", [False, True])
def test_a_run_that_is_begun_anew_has_curves_of_its_own(tmp_path, monkeypatch, out):
    pytest.importorskip("tensorboardX")
    make(tmp_path / "a", "es", generations=4).close()
    other = make(tmp_path / "b", "es", generations=2, status="running")  # followed on, for this
    looks, folder = [], tmp_path / "all/a" if out else tmp_path / "a"

    def sleep(_):
        looks.append(len(looks))
        if looks == [0]:
            (tmp_path / "a").rename(tmp_path / "a.old-1")
        elif looks == [0, 1]:
            Run.begin(tmp_path / "a", Run.open(tmp_path / "a.old-1").config, {}).close()
        elif looks == [0, 1, 2]:
            (tmp_path / "a").rename(tmp_path / "a.old-2")
            make(tmp_path / "a", "es", seed=1, generations=6).close()
        elif len(looks) == 4:
            other.status("complete", 2)
            other.close()

    monkeypatch.setattr("esac_mpi.analysis.followed.time.sleep", sleep)
    words = [str(tmp_path / "a"), str(tmp_path / "b"), "--format", "tensorboard", "--follow"]
    assert export.main([*words, *(["--out", str(tmp_path / "all")] if out else [])]) == 0
    found = events(folder / "events.out.tfevents.esac_mpi")
    assert [step for _, step, _ in found] == [5100 * g for g in range(1, 7)]
    assert found[4][2]["eval/theta_es.mean"] == pytest.approx(155)  # seed 1: 30 * 5 + 5
    if not out:
        old = events(tmp_path / "a.old-1/events.out.tfevents.esac_mpi")
        assert len(old) == 4


def test_followed_runs_of_one_name_share_no_folder_and_one_named_twice_is_written_once(
    tmp_path, capsys
):
    pytest.importorskip("tensorboardX")
    for name in ("x/a", "y/a"):
        make(tmp_path / name, generations=2).close()
    line = ["--format", "tensorboard", "--follow", "--out", str(tmp_path / "all")]
    assert export.main([str(tmp_path / "x/a"), str(tmp_path / "y/a"), *line]) == 2
    assert "would share a folder; leave it out" in capsys.readouterr().err
    assert export.main([str(tmp_path / "x/a"), str(tmp_path / "x/../x/a"), *line]) == 0
    assert len(events(tmp_path / "all/a/events.out.tfevents.esac_mpi")) == 2


def test_following_says_what_it_cannot_do(tmp_path, capsys):
    pytest.importorskip("tensorboardX")
    make(tmp_path / "a", "es", generations=2).close()
    make(tmp_path / "none", "es", generations=0).close()
    (tmp_path / "file").touch()
    words = ["--format", "tensorboard", "--follow"]
    assert export.main([str(tmp_path / "none"), str(tmp_path / "a"), *words]) == 2
    said = capsys.readouterr()
    assert said.err == f"{tmp_path / 'none'}: no generation has been published yet\n"
    assert said.out == f"{tmp_path / 'a/events.out.tfevents.esac_mpi'}\n"
    assert export.main([str(tmp_path / "a"), *words, "--out", str(tmp_path / "file/x")]) == 2
    assert "Not a directory; choose another --out" in capsys.readouterr().err
    assert export.main([str(tmp_path / "a"), *words, "--out", "/proc/x"]) == 2
    assert "No such file or directory; choose another --out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        export.main([str(tmp_path / "a"), *words[:2], "--every", "3"])
    assert "without --follow, --format tensorboard does not read --every" in capsys.readouterr().err


def grown(file, rows):
    """Wait until the file has so many rows."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        with suppress(OSError, IndexError):  # nothing yet
            if len(events(file)) >= rows:
                return
        time.sleep(0.1)
    raise AssertionError(f"{file}: no {rows} rows after 300 s")


def test_a_history_is_of_a_run_that_has_one(tmp_path, capsys):
    make(tmp_path / "a", generations=2).close()
    assert export.main([str(tmp_path), "--format", "csv"]) == 2
    assert "not a run directory" in capsys.readouterr().err
    assert export.main([str(tmp_path / "a/policy.h5"), "--format", "tensorboard"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert (
        export.main(
            [str(tmp_path / "a"), "--format", "csv", "--out", str(tmp_path / "nowhere/b.csv")]
        )
        == 2
    )
    assert "nowhere/b.csv: No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        export.main([str(tmp_path / "a"), "--format", "csv", "--step", "generation"])
    assert end.value.code == 2
