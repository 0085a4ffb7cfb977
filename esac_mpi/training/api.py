"""`from esac_mpi import train`: a training by one call, of one process or all ranks of mpirun."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from esac_mpi.config import Config, as_words, resolve_given, to_plain
from esac_mpi.host import errors, process_start

if TYPE_CHECKING:
    from esac_mpi.record import RunFiles
    from esac_mpi.training.loop import Listener

SENTENCES = {
    errors.NotSaved.code: "its last state could not be saved; what was saved before stands",
    errors.RunError.code: (
        "it counts as failed, as no evaluation and its confirmation had all returns finite or too"
        " many starts were in vain: log.txt tells"
    ),
}


def train(
    config: Config | str | os.PathLike[str] | None = None,
    given: Mapping[str, Any] | None = None,
    *,
    run_dir: str | os.PathLike[str] | None = None,
    start_from: str | os.PathLike[str] | None = None,
    fresh: bool = False,
    callback: "Listener | None" = None,
    quiet: bool = False,
) -> "RunFiles | None":
    """Train, or go on with a run; return the run's files, None on all ranks but 0.

    config: a TOML file, a Config, or None for the defaults. given: what differs, by dotted names,
    {"esac.sigma": 0.02}, or tables. run_dir: as --run-dir. start_from: as --from. fresh: as
    --fresh. callback: called on rank 0 after every generation with its row, {name: number or
    array}, the columns of metrics/ in docs/reference/hdf5.md and wall_seconds; if it returns
    something true, the training ends there, saved, on all ranks. quiet: print nothing but warnings.

    Under mpirun all ranks call this alike. A training that was stopped before its budget is spent
    returns, too: run.status["status"] is "requeue", and the same call goes on with it. Raises
    RunError: WrongUsage, NoCheckpoint, NotSaved, Interrupted, each with `code`, the exit code. See
    docs/start/python.md.
    """
    session, ended = import_training()
    if config is not None and not isinstance(config, Config | str | os.PathLike):
        told = f"the first argument is a TOML file, a Config or None, not a {type(config).__name__}"
        remedy = "settings are the second one: train(None, {...})"
        raise errors.WrongUsage(f"esac_mpi.train: {told}; {remedy}")
    require("given", given, given is None or isinstance(given, Mapping), "settings by name")
    require("callback", callback, callback is None or callable(callback), "a function")
    for name, switch in {"fresh": fresh, "quiet": quiet}.items():
        require(name, switch, isinstance(switch, bool | np.bool_), "True or False")
    named = dict(given or {})
    for name, path in {"run_dir": run_dir, "start_from": start_from}.items():
        if path is not None:
            require(name, path, isinstance(path, str | os.PathLike), "a path")
            require(name, path, name not in named, "it here or in the settings, not twice")
            named[name] = os.fspath(path)
    command = ["esac_mpi.train"]
    if not (config is None or isinstance(config, Config)):
        command.append(os.fspath(config))
    for name, value in to_plain(named).items():
        command += [f"--{name}", *as_words(value)]
    if fresh:
        command.append("--fresh")
    alike = repr((config, given, fresh))  # not places, which may have the time in their names
    asked = session.Asked(
        lambda: (resolve_given(config, named), bool(fresh)), command, callback, alike=alike
    )
    try:
        code, path, _ = session.guest(asked, quiet)
    except ended.Ended as end:
        raise errors.KINDS[end.code](str(end)) from None
    if code not in (errors.FINISHED, errors.STOPPED):
        raise errors.KINDS[code](f"{path or 'the run'}: {SENTENCES[code]}")
    if path is None:
        return None
    from esac_mpi.record import Run  # rank 0 alone reads files

    return Run.open(path)


def require(name: str, value: object, fits: bool, expected: str) -> None:
    """Raise WrongUsage for an argument of `train` that does not fit."""
    if not fits:
        raise errors.WrongUsage(f"esac_mpi.train: {name} = {value!r:.80}: expected {expected}")


def import_training() -> tuple[Any, Any]:
    """Import what starts MPI, which no process can undo: a training needs it, and nothing before.

    Raises ImportError without an MPI library, WrongUsage where MPI cannot begin, or has begun in
    the parent of a fork.
    """
    try:
        process_start.check_place(os.environ)
        from esac_mpi.training import ended, session
    except errors.Misplaced as error:
        raise errors.WrongUsage(f"esac_mpi.train: {error}") from None
    except (ImportError, RuntimeError) as error:  # mpi4py's
        if told := errors.why_not_imported(error):
            raise ImportError(told) from None
        raise
    return session, ended
