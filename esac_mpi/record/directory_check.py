"""Whether a run goes on in a directory: by what is in it, and by the run's settings and task."""

import errno
import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from esac_mpi.config import WARN, Config, ConfigError, as_option, differences
from esac_mpi.host.errors import PASSING, Refused, Unsaved, translate_error
from esac_mpi.host.run_directory import CONFIG, is_run, is_there
from esac_mpi.record.checkpoints import Checkpoint, newest, settings_in
from esac_mpi.record.files import describe_free

logger = logging.getLogger(__name__)

FROM_TASK = {  # settings that equal a number of the task where a person names none
    "reward_shift": "healthy_reward",
    "hidden": "number of observations",
    "linear_gain": "number of observations",
    "lr_sac": "number of observations",
    "observation_normalisation": "number of observations",
}
WORDS = {  # attribute of a run (provenance.gather): what it is
    "task_source": "its source",
    "task_wrappers": "its wrappers",
    "task_model": "its MuJoCo model as compiled",
    "task_probe": "what it answers in its first steps",
}
# attributes without which a model and a probe have other bits anyway
MACHINE = ("cpu", "versions", "python")


def check(path: Path) -> None:
    """Refuse a directory that is not ours or cannot be written."""
    place = next(p for p in (path.absolute(), *path.absolute().parents) if is_there(p))
    if not place.is_dir():
        raise Refused(f"{place}: not a directory; choose another --run-dir")
    if path.exists() and any(path.iterdir()) and not is_run(path):
        raise Refused(f"{path}: not empty, and not a run of esac_mpi; choose another --run-dir")
    if not os.access(place, os.W_OK | os.X_OK):
        raise Refused(f"{path}: no permission to write in {place}; choose another --run-dir")


@contextmanager
def translate_errors(path: Path, remedy: str = "choose another --run-dir") -> Iterator[None]:
    """Translate a file system's errors at a start: another directory, a full disk, or try again."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = describe_free(path)
            raise Unsaved(f"{path}: {error.strerror}; free {free}") from error
        if error.errno in PASSING:
            raise translate_error(path, error) from error
        raise Refused(f"{error.filename or path}: {error.strerror}; {remedy}") from error


def settings_of(path: Path) -> Config | None:
    """Read the settings of a directory's run, None without one. Raises Refused, Unreadable."""
    with translate_errors(path):
        if not is_run(path):
            return None
        with suppress(ConfigError):
            return settings_in(path)
        restored = newest(path)  # which takes longer
    return restored.config if restored else None


def compare(path: Path, restored: Checkpoint | None, config: Config, settled: str = "") -> None:
    """Refuse to continue under other settings; warn where bits may differ but meaning does not.

    settled: names of the settings that this start leaves to the task.
    """
    of_task = set[str]()
    if restored is not None:
        old = restored.config
        of_task = {*settled.split()} & {*str(restored.attributes.get("settled", "")).split()}
    elif (path / CONFIG).exists():
        try:
            old = settings_in(path)
        except ConfigError as error:
            raise Refused(f"{error}. Choose --fresh or another --run-dir") from error
    else:
        return
    changed = differences(old, config)
    for name in changed.keys() & WARN:
        was, now = map(as_option, changed.pop(name))
        logger.warning("%s was %s, is now %s: going on, bits may differ", name, was, now)
    if changed:
        listing = ""
        for name, change in zip(changed, list_changes(changed), strict=True):
            listing += f"\n  {change}"
            source = FROM_TASK.get(name.rpartition(".")[2])
            if source and name in of_task:
                # Ant has no bonus since actions may cost more than it, and is the same task
                why = f"the task's {source}, or what this version makes of it, has changed"
                listing += f", as {why}"
        own = f"with its own settings, {path / CONFIG}, it goes on as it is"
        if differences(old, settings_of(path) or old):
            own = f"{path / CONFIG} was edited: with the former values there it goes on"
        remedy = f"Choose --fresh (moves it aside) or another --run-dir; {own}"
        raise Refused(f"{path} holds a run of other settings:{listing}\n{remedy}")


def list_changes(changed: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Write how each setting has changed."""
    return [f"{name}: {as_option(was)} -> {as_option(now)}" for name, (was, now) in changed.items()]


def name_aside(path: Path) -> Path | None:
    """Name where --fresh moves an old run, <name>.old-<N>; None without one. Raises Refused."""
    if path == Path.cwd():
        told = "--fresh cannot move the directory it is started in; start it elsewhere"
        raise Refused(f"{path}: {told}")
    if not path.exists() or not any(path.iterdir()):
        return None
    names = (Path(f"{path}.old-{n}") for n in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


def task_changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the WORDS of what changed, with its parts; not what has to differ here."""
    same_machine = all(was.get(name) == now.get(name) for name in MACHINE)
    found = []
    for name, words in WORDS.items():
        old, new = was.get(name), now.get(name)
        always = name in ("task_source", "task_wrappers")
        comparable = always or (same_machine and old and new)
        if old is not None and new is not None and old != new and comparable:
            found.append(f"{words}{_which(name, old, new)}")
    return found


def _which(name: str, old: str, new: str) -> str:
    if name == "task_wrappers":
        return f" ({old or 'none'} -> {new or 'none'})"
    if name == "task_model":
        return ""
    apart = set(old.split(", ")) ^ set(new.split(", "))  # `part digest`
    return f" ({', '.join(sorted({entry.rpartition(' ')[0] for entry in apart if entry}))})"
