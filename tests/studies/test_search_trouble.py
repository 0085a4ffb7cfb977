"""A search in trouble: signals at any time, decisions not told, machines that can make no trial."""

import gc
import json
import signal
import weakref
from unittest.mock import Mock

import pytest
from optuna.storages.journal import JournalFileBackend
from short_runs import failing
from small_studies import SETTINGS, TASK, completed, held_elsewhere, made, states, stopped_at

from esac_mpi.comm.command_ranks import Alone
from esac_mpi.comm.headers import DivergedError
from esac_mpi.comm.world import World
from esac_mpi.record import Run, Unsaved
from esac_mpi.studies.search import trial_loop, trial_ranks
from esac_mpi.studies.search.journal import JOURNAL, Journal
from esac_mpi.training.ended import Ended

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("moment", "generation"), [((Journal, "values"), None), ((trial_loop.Task, "_hours_left"), 1)]
)
def test_a_signal_before_the_first_generation_does_not_wait(tmp_path, moment, generation):
    """Until its settings are proposed nothing is begun; then it stops in its first generation."""
    study, honest = made(tmp_path, "trials = 1"), getattr(*moment)

    def signalled(*arguments):
        signal.raise_signal(signal.SIGTERM)
        return honest(*arguments)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(*moment, signalled)
        assert trial_ranks.search(study.path, Alone()) == 75
    path = study.run_of(0, 100)
    assert (Run.open(path).generation if path.exists() else None) == generation
    assert states(study) == [(0, "running")]
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete")]


def test_a_trial_whose_learner_is_not_finite_has_failed(tmp_path, together):
    """On all ranks. Its run's checkpoint, of the generation before, stands."""
    learner = "td3.start_steps = 35\ntd3.batch_size = 8\ntd3.steps_per_generation = 30"
    settings = f'algorithm = "td3"\n{TASK}\n{learner}\nbudget.generations = 3'
    search, sampler = "td3.lr_td3 = [1e30, 1e-3]", "[sampler]\nkind = 'random'"
    study = made(tmp_path, "trials = 4", settings, search, sampler)
    together(2, "search", "run", study.path)
    trials = Journal(study).trials()
    assert [trial.found["td3.lr_td3"] for trial in trials] == [1e-3, 1e30, 1e30, 1e-3]
    assert [trial.state for trial in trials] == ["complete", "failed", "failed", "complete"]
    said = "not finite at training step 37, in the TD3 phase of generation 2; the last checkpoint"
    assert said in trials[1].why
    assert Run.open(study.run_of(1, 100)).state == "failed"


@pytest.mark.parametrize(
    ("code", "kind", "state"),
    [
        (2, MemoryError, "failed"), (1, None, "failed"),  # stop.starts
        (2, ImportError, "running"), (1, DivergedError, "running"), (74, Unsaved, "running"),
    ],
)  # fmt: skip
def test_a_trial_fails_by_its_own_fault_alone(tmp_path, monkeypatch, code, kind, state):
    study, refused = made(tmp_path, "trials = 1"), Ended(code, "it was late", kind)
    monkeypatch.setattr(trial_ranks.session, "guest", Mock(side_effect=refused))
    assert trial_ranks.search(study.path, Alone()) == (0 if state == "failed" else code)
    assert states(study) == [(0, state)]
    assert Journal(study).trial(0).why == ("it was late" if state == "failed" else "")


def test_what_a_failed_trial_had_is_freed_before_the_next(tmp_path, monkeypatch):
    search = "es.lr_es = [1e30, 1e35]"
    settings = SETTINGS + 'es.optimiser = "sgd"\nes.weight_decay = 1e10\nes.population_size = 8\n'
    study, worlds, left = made(tmp_path, "trials = 3", settings=settings, search=search), [], []

    class Heard(World):
        def __init__(self):
            left.append(sum(world() is not None for world in worlds))
            worlds.append(weakref.ref(self))
            super().__init__()

    monkeypatch.setattr(trial_ranks.session, "World", Heard)
    gc.disable()
    try:
        assert trial_ranks.search(study.path, Alone()) == 0
    finally:
        gc.enable()
    assert states(study) == [(number, "failed") for number in range(3)]
    assert left == [0, 0, 0]


def test_a_task_that_raises_is_told_as_failed(tmp_path, monkeypatch):
    study, place = made(tmp_path, "trials = 2"), tmp_path / "task"
    monkeypatch.setattr(trial_ranks.session, "guest", Mock(side_effect=ZeroDivisionError))
    with pytest.raises(ZeroDivisionError):
        trial_ranks.search(study.path, Alone(), status=place)
    assert json.loads((place / "status.json").read_text())["status"] == "failed"


def test_a_trial_whose_directory_is_in_use_has_not_failed(tmp_path, capfd):
    """There is a complete trial, by which settings alone are known to be at fault."""
    study = made(tmp_path, "trials = 2")
    completed(study, 1.0)
    with held_elsewhere(study.run_of(1, 100)):
        assert trial_ranks.search(study.path, Alone()) == 2
    assert "in use by another run" in capfd.readouterr().out
    assert states(study) == [(0, "complete"), (1, "running")]
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "complete"), (1, "complete")]


def test_a_trial_whose_checkpoints_are_damaged_has_failed(tmp_path, capfd):
    """Trial 0 is stopped in its sixth generation, which leaves two checkpoints; others go on."""
    study = made(tmp_path, "trials = 2")
    with stopped_at(0, 10):
        assert trial_ranks.search(study.path, Alone()) == 75
    files = [study.run_of(0, 100) / name for name in ("checkpoint.h5", "checkpoint_prev.h5")]
    for file in files:
        file.write_bytes(file.read_bytes()[:-600])
    capfd.readouterr()
    assert trial_ranks.search(study.path, Alone()) == 0
    assert states(study) == [(0, "failed"), (1, "complete")]
    why = Journal(study).trial(0).why
    assert all(f"{file}: truncated" in why for file in files)
    assert f"trial 0: failed: {why}\n" in capfd.readouterr().out
    assert "\n" not in why


def test_a_trial_whose_results_are_damaged_has_failed(tmp_path, monkeypatch):
    study, honest = made(tmp_path, "trials = 1"), trial_loop.outcome

    def damaged(run, measure):
        for file in run.path.glob("*.h5"):
            file.write_bytes(b"not HDF5")
        return honest(Run.open(run.path), measure)

    monkeypatch.setattr(trial_loop, "outcome", damaged)
    assert trial_ranks.search(study.path, Alone()) == 0
    assert "metrics.h5" in Journal(study).trial(0).why


def test_a_task_edited_meanwhile_ends_the_search(tmp_path, monkeypatch, capfd):
    study, seen = made(tmp_path, "trials = 3"), []
    monkeypatch.setattr(
        "esac_mpi.training.task_set_up.identity.edited_modules",
        lambda env: seen.append(env) or ["mine"] * (len(seen) > 2),
    )
    assert trial_ranks.search(study.path, Alone()) == 2
    assert "mine was edited since it was imported here" in capfd.readouterr().out
    assert states(study) == [(0, "complete"), (1, "running")]
    monkeypatch.undo()
    assert trial_ranks.search(study.path, Alone()) == 0
    assert [state for _, state in states(study)] == ["complete"] * 3


def test_what_all_trials_begin_from_is_no_fault_of_one(tmp_path, capfd):
    source = tmp_path / "source"
    source.mkdir()
    (source / "checkpoint.h5").write_bytes(b"not HDF5")
    (source / "status.json").write_text("{}")
    study = made(tmp_path, settings=SETTINGS + f'start_from = "{source}"')
    assert trial_ranks.search(study.path, Alone()) == 65
    assert "no readable checkpoint" in capfd.readouterr().out
    assert states(study) == [(0, "running")]


def test_a_full_disk_is_told_with_the_journal(tmp_path, monkeypatch, capfd):
    study = made(tmp_path, "trials = 1")
    Journal(study, fresh=True)
    monkeypatch.setattr(JournalFileBackend, "append_logs", failing())
    assert trial_ranks.search(study.path, Alone()) == 74
    assert f"No space left on device: '{study.path / JOURNAL}'" in capfd.readouterr().err


def test_a_list_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch, call):
    study = made(tmp_path, "trials = 1")
    full = Mock(side_effect=Unsaved("study.json: No space left on device"))
    monkeypatch.setattr("esac_mpi.studies.search.study.begin", full)
    assert call("search jobs", study.source, code=74).err == "study.json: No space left on device\n"
