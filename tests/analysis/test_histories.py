"""esac-mpi export --format csv and tensorboard: the history of a run, read back."""

import csv
import signal
import struct
from contextlib import suppress

import numpy as np
import pytest
from commands import begun
from figure_runs import make as figured
from figure_runs import trained
from growing_runs import going, make, one_more
from run_files import young
from whole_runs import wait_for

from esac_mpi.analysis.histories import collect_curves
from esac_mpi.record import Run

CURVES = "events.out.tfevents.esac_mpi"


TENSORBOARD = "export --format tensorboard"


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_csv_has_the_columns_of_the_run_by_their_names(tmp_path, call):
    place, path = make(tmp_path / "a", generations=10), tmp_path / "new/a.csv"
    assert call("export --format csv --out", path, place).out == f"{path}\n"
    path = place / "metrics.csv"
    assert call("export --format csv", place).out == f"{path}\n"
    rows, run = rows_of(path), Run.open(place)
    assert next(iter(rows[0])) == "metrics/generation"
    assert set(run.columns.scalars) < set(rows[0])
    for name in run.columns.scalars:
        assert [float(row[name] or "-inf") for row in rows] == run.columns[name].tolist()
    assert rows[9]["metrics/env_steps_population"] == "50000"
    assert [row["metrics/evaluation_sac.mean"] != "" for row in rows] == ([False] * 4 + [True]) * 2
    assert float(rows[4]["metrics/evaluation_sac.mean"]) == pytest.approx(170)  # 30 * 5 + 20
    assert float(rows[9]["metrics/fitness.max"]) == run.members("fitness")[9].max()


def test_before_the_first_evaluation_there_is_no_best_return(tmp_path, call):
    call("export --format csv", figured(tmp_path / "a", (None, 5.0)))
    rows = rows_of(tmp_path / "a/metrics.csv")
    assert [row["metrics/best_return"] for row in rows] == ["", "5.0"]


def test_what_an_older_version_did_not_count_is_empty(tmp_path, call):
    filled = [{"member_updates": count} for count in (np.iinfo(np.int64).min, 7)]
    call("export --format csv", trained(tmp_path / "a", "cem_rl", filled).path)
    rows = rows_of(tmp_path / "a/metrics.csv")
    assert [row["metrics/member_updates"] for row in rows] == ["", "7.0"]


@pytest.mark.parametrize(
    ("returns", "shown"),
    [(np.arange(1.0, 11.0), ["5.5", "1.0", "10.0"]), (np.array([np.nan, *range(9)]), ["", "", ""])],
)
def test_an_evaluation_at_the_end_is_in_the_last_row(tmp_path, call, returns, shown):
    run = going(tmp_path / "a", "es", generations=6)
    run.final({"generation": np.array(6), "evaluation_theta_es": returns})
    run.close()
    call("export --format csv", tmp_path / "a")
    last = rows_of(tmp_path / "a/metrics.csv")[-1]
    assert [last[f"metrics/evaluation_theta_es.{what}"] for what in ("mean", "min", "max")] == shown


def events(path):
    """Read a file of TensorBoard's: [(wall time, step, {tag: number})], without the first."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    content, found = path.read_bytes(), []
    while len(content) > 16:
        (length,) = struct.unpack("<Q", content[:8])
        if len(content) < 16 + length:
            break
        found.append(event_pb2.Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    assert found.pop(0).file_version == "brain.Event:2"
    return [
        (event.wall_time, event.step, {v.tag: v.simple_value for v in event.summary.value})
        for event in found
    ]


def steps(path):
    return [step for _, step, _ in events(path / CURVES)]


@pytest.fixture
def tensorboard():
    pytest.importorskip("tensorboardX")


def test_tensorboard_has_every_finite_number_at_its_step(tmp_path, call, tensorboard):
    path = make(tmp_path / "a", generations=10) / CURVES
    assert call(TENSORBOARD, tmp_path / "a").out == f"{path}\n"
    found = events(path)
    # 5,000 of the population, 100 of the learner
    assert steps(tmp_path / "a") == [5100 * g for g in range(1, 11)]
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
    call(f"{TENSORBOARD} --step generation --out", tmp_path / "b", tmp_path / "a")
    assert steps(tmp_path / "b/a") == list(range(1, 11))  # a folder a run


def test_episodes_that_go_on_over_generations_have_their_length(tmp_path):
    """Of 160 steps in generations of 100: the ones that ended in one are 0 or 1."""
    ended = np.diff(100 * np.arange(101) // 160).tolist()
    rows = [{"sac_episodes": n, "sac_episodic_return": 5.0 if n else np.nan} for n in ended]
    found = collect_curves(trained(tmp_path / "a", "sac", rows))["rollout/ep_len_mean"]
    assert np.isnan(found[0])
    assert found[[1, 99]].tolist() == [200, 160]


def test_curves_follow_runs_to_their_ends(tmp_path, call, monkeypatch, tensorboard):
    run = going(tmp_path / "a", "es", generations=4, status="running")
    other = make(tmp_path / "b", generations=3)
    written, file = [], tmp_path / "all/a" / CURVES

    def sleep(_):
        written.append(len(events(file)))
        if len(written) == 1:
            one_more(run)
        elif len(written) == 2:
            run.final({"generation": np.array(5), "evaluation_theta_es": np.full(10, 7.0)})
            run.status("complete", 5)
            run.close()

    monkeypatch.setattr("esac_mpi.analysis.followed.time.sleep", sleep)
    call(f"{TENSORBOARD} --follow --out", tmp_path / "all", tmp_path / "a", other)
    assert written[:2] == [4, 5]
    # the fifth repeats the fourth
    assert steps(tmp_path / "all/a") == [5100 * g for g in (1, 2, 3, 4, 4, 4)]
    tags = {"eval/mean_reward", *(f"eval/theta_es.{s}" for s in ("mean", "min", "max"))}
    assert events(file)[5][2].keys() == tags
    assert len(steps(tmp_path / "all/b")) == 3


@pytest.mark.slow
def test_ctrl_c_ends_the_following_and_not_the_run(tmp_path, tensorboard):
    run = going(tmp_path / "a", "es", generations=4, status="running")
    process = begun("export", tmp_path / "a", "--format", "tensorboard", "--follow")
    wait_for(lambda: rows_in(tmp_path / "a" / CURVES) >= 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    run.close()


@pytest.mark.parametrize("out", [False, True])
def test_a_run_that_is_begun_anew_has_curves_of_its_own(
    tmp_path, call, monkeypatch, out, tensorboard
):
    looks, path = [], make(tmp_path / "a", "es", generations=4)
    other = going(tmp_path / "b", "es", generations=2, status="running")  # followed on, for this

    def sleep(_):
        looks.append(len(looks))
        if looks == [0]:
            path.rename(tmp_path / "a.old-1")
        elif looks == [0, 1]:
            young(path)
        elif looks == [0, 1, 2]:
            path.rename(tmp_path / "a.old-2")
            make(path, "es", seed=1, generations=6)
        elif len(looks) == 4:
            other.status("complete", 2)
            other.close()

    monkeypatch.setattr("esac_mpi.analysis.followed.time.sleep", sleep)
    words = ["--out", tmp_path / "all"] if out else []
    call(f"{TENSORBOARD} --follow", path, tmp_path / "b", *words)
    folder = tmp_path / "all/a" if out else path
    assert steps(folder) == [5100 * g for g in range(1, 7)]
    # seed 1: 30 * 5 + 5
    assert events(folder / CURVES)[4][2]["eval/theta_es.mean"] == pytest.approx(155)
    assert out or len(steps(tmp_path / "a.old-1")) == 4


def test_followed_runs_of_one_name_share_no_folder(tmp_path, call, tensorboard):
    one, two = (make(tmp_path / name, generations=2) for name in ("x/a", "y/a"))
    line = f"{TENSORBOARD} --follow --out {tmp_path / 'all'}"
    assert "would share a folder" in call(line, one, two, code=2).err
    call(line, one, tmp_path / "x/../x/a")  # written once
    assert len(steps(tmp_path / "all/a")) == 2


def test_following_says_what_it_cannot_do(tmp_path, call, tensorboard):
    none, run = make(tmp_path / "none", "es", generations=0), make(tmp_path / "a", generations=2)
    (tmp_path / "file").touch()
    line = f"{TENSORBOARD} --follow"
    said = call(line, none, run, code=2)
    assert said.err == f"{none}: no generation has been published yet\n"
    assert said.out == f"{run / CURVES}\n"
    for out in (tmp_path / "file/x", "/proc/x"):
        assert "choose another --out" in call(line, run, "--out", out, code=2).err
    assert "without --follow" in call(f"{TENSORBOARD} --every 3", run, code=2).err


def rows_in(file):
    with suppress(OSError, IndexError):  # nothing yet
        return len(events(file))
    return 0


def test_a_history_is_of_a_run_that_has_one(tmp_path, call):
    run = make(tmp_path / "a", generations=2)
    told = call("export --format csv", tmp_path, code=2).err
    assert "not a run directory" in told
    told = call(TENSORBOARD, run / "policy.h5", code=2).err
    assert told.count("\n") == 1
    call("export --format csv --step generation", run, code=2)
