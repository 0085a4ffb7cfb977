"""run.lock: one run in a directory, also where the file system has no locks."""

import errno
import os
import socket
import subprocess
import time
from types import SimpleNamespace

import pytest
from conftest import CYCLIC_ES
from short_runs import HOLD, elsewhere, failing, keeps_others_out, make, snapshot, state
from whole_runs import wait_for

from esac_mpi import Config, record
from esac_mpi.record import Refused, Run, Unreadable, Unsaved
from esac_mpi.training.active_run import check_directory_is_shared


def test_a_locked_directory_is_refused_and_a_stale_one_taken(tmp_path, begin):
    with elsewhere(HOLD.format(path=str(tmp_path))) as process:
        Run.open(tmp_path).state  # noqa: B018  # reading does not disturb the lock
        before = snapshot(tmp_path)
        with pytest.raises(Refused, match=f"host {socket.gethostname()}, pid {process.pid}"):
            begin(tmp_path)
        assert snapshot(tmp_path) == before
    begin(tmp_path)
    assert (tmp_path / "run.lock").read_text().split()[1] == str(os.getpid())


def test_a_start_looks_who_sees_its_lock_and_keeps_it(tmp_path, begin, world):
    """A process that closes a file lets go of its locks on it, however often it has it open."""
    check_directory_is_shared(SimpleNamespace(run=begin(tmp_path), world=world))
    assert keeps_others_out(tmp_path)


def test_a_lock_that_a_reader_in_its_process_dropped_is_taken_again(tmp_path, begin):
    """As a callback does that copies the directory somewhere."""
    run = begin(tmp_path)
    (tmp_path / "run.lock").read_bytes()
    run.status("running", 0)
    assert keeps_others_out(tmp_path)


def test_a_batch_job_waits_for_the_end_of_the_run_before_it(tmp_path, monkeypatch, caplog, begin):
    slept = []
    clock = SimpleNamespace(monotonic=lambda: sum(slept), sleep=slept.append, time=time.time)
    monkeypatch.setattr(record.lock, "time", clock)
    monkeypatch.setenv("PBS_JOBID", "7.server")
    with elsewhere(HOLD.format(path=str(tmp_path))) as process:
        with pytest.raises(Refused, match="in use by another run"):
            begin(tmp_path)
        assert f"host {socket.gethostname()}, pid {process.pid})" in caplog.text
        with pytest.raises(Refused, match="in use by another run"):
            Run.foresee(tmp_path, Config(), {})
        assert caplog.text.count("which may be ending: waits for up to 180 s") == 2
        assert 2 * 180 <= sum(slept) < 2 * 182
        clock.sleep = lambda seconds: (process.kill(), process.wait())
        assert Run.foresee(tmp_path, Config(), {}).restored is None
        begin(tmp_path).close()


@pytest.mark.parametrize("there", [True, False])
def test_a_directory_moved_aside_while_waited_for_is_refused(tmp_path, monkeypatch, there, begin):
    path, honest = tmp_path / "run", record.lock.wait
    make(path)

    def moved(*arguments):
        path.rename(tmp_path / "old")
        path.mkdir()
        if there:
            (path / "run.lock").touch()
        return honest(*arguments)

    monkeypatch.setattr(record.lock, "wait", moved)
    with pytest.raises(Refused, match="another run has just begun here; start again"):
        begin(path)


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_run_whose_directory_was_taken_ends_in_a_sentence(tmp_path, start, ranks):
    often = "--checkpoint.every_generations 1 --budget.nominal_steps 0 --budget.generations 1000000"
    process = start(ranks, *CYCLIC_ES, *often.split(), "--run-dir", tmp_path / "run")
    wait_for((tmp_path / "run/checkpoint.h5").exists)
    (tmp_path / "run/run.lock").write_text(ELSEWHERE)
    _, said = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "another run has taken this directory" in said
    assert "Traceback" not in said


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(record.lock.fcntl, "lockf", failing(errno.ENOLCK))


def touched(path, ago):
    when = time.time() - ago
    os.utime(path / "run.lock", (when, when))


def contents(path):
    return {name: content for name, (_, content) in snapshot(path).items()}


ELSEWHERE = "elsewhere 77 2026-01-01T00:00:00\n"


@pytest.mark.parametrize("locks", [True, False])
def test_a_holder_elsewhere_is_refused_if_it_shows_life(tmp_path, request, locks, begin):
    """Locks may reach one host alone; its last touch says whether it lives."""
    make(tmp_path)
    if not locks:
        request.getfixturevalue("no_locks")
    file = tmp_path / "run.lock"
    file.write_text(ELSEWHERE)
    touched(tmp_path, ago=60)  # of 120
    before = contents(tmp_path)
    with pytest.raises(Refused, match=r"host elsewhere, pid 77, since 2026\S+"):
        begin(tmp_path)
    assert contents(tmp_path) == before
    assert not record.lock.is_free(tmp_path)
    touched(tmp_path, ago=-3600)  # its clock was ahead, and it may be dead
    with pytest.raises(Refused, match=f"host elsewhere, .* ahead: .* remove {file}"):
        begin(tmp_path)
    touched(tmp_path, ago=130)
    assert record.lock.is_free(tmp_path)
    run = begin(tmp_path)  # no sign any more
    assert not locks or keeps_others_out(tmp_path)
    file.write_text(ELSEWHERE)  # two at the same moment: the later one stays
    before = contents(tmp_path)
    for write in (lambda: run.status("running", 3), lambda: run.checkpoint(4, state(4), {})):
        with pytest.raises(Refused, match="another run has taken"):
            write()
    run.close()
    assert contents(tmp_path) == before


def test_without_locks_who_let_go_or_is_dead_holds_nobody_up(
    tmp_path, no_locks, monkeypatch, begin
):
    monkeypatch.setattr(record.lock.time, "sleep", lambda seconds: pytest.fail("it waited"))
    make(tmp_path)
    assert (tmp_path / "run.lock").read_bytes().isspace()
    begin(tmp_path).close()
    gone = subprocess.Popen(["true"])
    gone.wait()
    # the last is a dead one's: in a container, say, numbers come again
    for pid, ago, free in ((os.getppid(), 0, False), (gone.pid, 0, True), (os.getpid(), 130, True)):
        (tmp_path / "run.lock").write_text(f"{socket.gethostname()} {pid} 2026-01-01T00:00:00\n")
        touched(tmp_path, ago)
        assert record.lock.is_free(tmp_path) == free
        if free:
            begin(tmp_path).close()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_run_touches_its_lock(tmp_path, monkeypatch, fresh, begin):
    monkeypatch.setattr("esac_mpi.record.lock.BEAT", 0.1)
    if fresh:
        make(tmp_path / "run")
    run = begin(tmp_path / "run", fresh=fresh)

    def is_touched():
        return (tmp_path / "run/run.lock").stat().st_mtime > time.time() - 900

    # at each publication, and between
    for action in (run._lock.beat, lambda: run.status("running", 1), lambda: wait_for(is_touched)):
        touched(tmp_path / "run", ago=1000)
        action()
        assert is_touched()
    run.close()
    touched(tmp_path / "run", ago=1000)
    run._lock.beat()  # does nothing
    time.sleep(0.3)
    assert not is_touched()


def test_a_run_that_came_meanwhile_is_gone_on_with(tmp_path, monkeypatch, begin):
    honest, others = record.lock.RunLock.claim, []

    def claim(held, *arguments, **more):
        if not others:
            others.append(held)
            make(tmp_path)
        return honest(held, *arguments, **more)

    monkeypatch.setattr(record.lock.RunLock, "claim", claim)
    run = begin(tmp_path)
    assert run.restored.generation == Run.open(tmp_path).generation > 0


@pytest.mark.parametrize(
    ("number", "unread", "unchecked"),
    [(errno.ESTALE, Unsaved, Unsaved), (errno.EIO, Unreadable, Refused)],
)
def test_a_file_system_that_is_away_is_told_from_damage(
    tmp_path, monkeypatch, number, unread, unchecked, begin
):
    make(tmp_path)
    monkeypatch.setattr(record.files, "verify", failing(number))
    with pytest.raises(unread):
        begin(tmp_path)
    monkeypatch.setattr(record.directory_check, "check", failing(number))
    with pytest.raises(unchecked, match=os.strerror(number)):
        begin(tmp_path)


def test_a_history_on_a_file_system_that_is_away_is_waited_for(tmp_path, monkeypatch, begin):
    """Its later rows may have an order that is to be kept."""
    make(tmp_path)
    honest, away = record.files.regular, failing(errno.ESTALE)

    def regular(path, flags):
        return (away if path.endswith("metrics.h5") else honest)(path, flags)

    monkeypatch.setattr(record.files, "regular", regular)
    with pytest.raises(Unsaved):
        begin(tmp_path)


def test_a_file_that_may_not_be_read_or_written_is_named(tmp_path, monkeypatch, begin):
    """It may be another user's, in a directory that all may write.

    A newest checkpoint that one may not read is no damaged one, which an older one would replace.
    """
    make(tmp_path)
    before = snapshot(tmp_path)
    with monkeypatch.context() as m:
        m.setattr(record.files, "verify", failing(errno.EACCES))
        with pytest.raises(Unreadable, match="; the run goes on once it can be read"):
            begin(tmp_path)
    assert snapshot(tmp_path) == before

    def opened(path, *given):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(record.lock.os, "open", opened)
    with pytest.raises(Refused, match=f"^{tmp_path}/run.lock: Permission denied; choose another"):
        begin(tmp_path)
