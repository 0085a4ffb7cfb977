"""A training in this process, asked for by the command line, a script or a notebook.

The command line's process ends with its training: an error of one rank ends them all, and signals
pass at the end. In another's all is put back as it was found, and an error is an exception like
any, as long as there is no other rank to wait for ever. What all ranks find together, or one of
them and the others are told in their exchange (stop.EndsRun), is the end of the training, in one
sentence, and of no process.
"""

import math
import os
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from esac_mpi import record
from esac_mpi.comm import launch
from esac_mpi.comm.world import World
from esac_mpi.config import Config, ConfigError
from esac_mpi.host import batch_system, log, process_start, process_state, threads
from esac_mpi.host.errors import FAILED, WRONG_USAGE
from esac_mpi.host.invocation import deleted_directory, look_away, look_here, without_arguments
from esac_mpi.training import check, loop
from esac_mpi.training.active_run import run_directory
from esac_mpi.training.ended import Ended, as_end, last_words, reason, run_together

GUEST = threading.Lock()  # held while a training is a guest in this process
raise_interrupt: Callable[[], None] = partial(signal.default_int_handler, signal.SIGINT, None)
BEGUN = set[Path]()  # run directories of the trainings of this process, on rank 0

Answer = tuple[Config, bool]  # a configuration, and whether the run begins anew


class Asked(NamedTuple):
    """What a training is asked for."""

    # rank 0 alone calls it; it may raise ConfigError, or SystemExit after a text of help
    resolve: Callable[[], Answer]
    command: list[str]  # for the run's files
    listener: loop.Listener | None = None  # hears of every generation
    looks: bool = False  # --check in place of a run
    alike: str = ""  # what all ranks must ask for, in words; empty: rank 0 alone asks


class Outcome(NamedTuple):
    """How a training ended."""

    code: int  # the command line's exit code
    path: Path | None = None  # of the run, on rank 0
    wished: bool = False  # whether this rank wishes to stop, of a guest


@without_arguments()
def program(asked: Asked) -> int:
    """Train in a process that ends with it; return its exit code."""
    world = None
    try:
        world = World()
        log.setup(world.rank)
        world.stop.listen()
        return run(world, asked).code
    except BaseException as error:
        end = as_end(error, world is None or world.size == 1)
        if end is None:
            abort(world, error)
        if world is None or world.rank == 0:
            log.complain(f"esac_mpi: {end}")
        return end.code
    finally:
        if world:
            world.stop.end()


def guest(asked: Asked, quiet: bool = False) -> Outcome:
    """Train in a process that goes on after it. All ranks call this, and all raise Ended."""
    if not GUEST.acquire(blocking=False):
        why = "one at a time, as signals and random numbers are the process's"
        told = f"another training goes on in this process: {why}"
        raise Ended(WRONG_USAGE, f"{told}; start others as processes of their own")
    world = None
    try:
        with put_back(), log.preserve_log():
            world = World()
            log.setup(world.rank, quiet)
            with handle_signals(world):
                return run(world, asked)._replace(wished=world.stop.wished)
    except BaseException as error:
        alone = world is None or world.size == 1
        end = as_end(error, alone)
        if end is not None:
            raise end from None
        if not alone:
            abort(world, error)
        raise
    finally:
        GUEST.release()


def run(world: World, asked: Asked) -> Outcome:
    """Do what is asked for; release the world if ranks end together. Raises Ended."""
    try:
        outcome = carry_out(world, asked)
    except BaseException as error:
        if world.size == 1 or as_end(error, False):
            world.free()
        raise
    world.free()
    return outcome


def carry_out(world: World, asked: Asked) -> Outcome:
    """Do what is asked for. Raises Ended for what is refused."""
    run_together(world, lambda: launch.check_launcher(dict(os.environ), world.size))
    if world.leads and batch_system.is_stale(os.environ):
        log.warn("SLURM_JOB_END_TIME is past, so it is another job's and is ignored: unset it")
    refuse_others(world.gather(asked.alike))
    # rank 0's answer, or its exit code where it has printed its help
    answer = run_together(world, lambda: 0 if world.rank else resolve_asked(asked.resolve))
    answer = world.from_root(answer)
    if isinstance(answer, int):
        return Outcome(answer)
    config, fresh = answer
    left = process_start.SECONDS_LEFT - (time.monotonic() - process_start.BEGAN)
    if asked.looks:
        left = min(3600 * config.max_hours or math.inf, left)
        return Outcome(check.check(config, world, left, fresh))
    place = None
    if world.leads:
        place = run_directory(config).absolute()  # a callback may change the directory
        BEGUN.add(place)
    return Outcome(loop.train(config, fresh, world, asked.command, left, asked.listener), place)


def refuse_others(asked: list[str]) -> None:
    """Raise Ended where a rank asks for another training than rank 0; asked: of each, in words."""
    if apart := [rank for rank, words in enumerate(asked) if words != asked[0]]:
        told = f"rank {apart[0]} asks for other settings than rank 0, and all ranks train one run"
        remedy = "ask for the same on all; runs of other seeds are processes of their own"
        raise Ended(WRONG_USAGE, f"{told}: {remedy}")


def resolve_asked(resolve: Callable[[], Answer]) -> Answer | int:
    """Resolve a configuration; --fresh means a job's first round. Raises ConfigError."""
    if gone := deleted_directory():
        raise ConfigError(gone)
    try:
        config, fresh = resolve()
    except SystemExit as end:  # the help is printed
        return end.code if isinstance(end.code, int) else FAILED
    if fresh and (later := later_round(config)):
        ignored = f"--fresh is ignored in a job's later round ({later})"
        log.warn(f"{ignored}: the run goes on where it stands")
        fresh = False
    return config, fresh


def later_round(config: Config) -> str:
    """Say by what a batch job shows that it has been at this run before, or ""."""
    place = run_directory(config)
    status = record.read_status(place)
    owner = status.get("host"), status.get("pid")
    if place.absolute() in BEGUN and owner == (socket.gethostname(), os.getpid()):
        return ""
    return batch_system.later_round(os.environ, status)


def abort(world: World | None, error: BaseException) -> NoReturn:
    """End all ranks, and say why."""
    end, words = as_end(error, True), last_words(error)
    who = f"rank {world.rank}" if world else "a rank"
    told = words if end else f"{who} on {platform.node()} {words}"
    record = None
    if world and world.rank:  # rank 0 has written its own
        record = partial(world.record, words, reason(error))
    launch.abort(end.code if end else FAILED, f"esac_mpi: {told}", record=record)


@contextmanager
def handle_signals(world: World) -> Iterator[None]:
    """Let signals stop a training as the command line's; put handlers back, leave no thread.

    Only the main thread hears signals. On one rank a third one is a KeyboardInterrupt, and nothing
    watches for what hangs: a person does.
    """
    if threading.current_thread() is threading.main_thread():
        world.stop.listen(raise_interrupt if world.size == 1 else None)
    world.watchdog.sleeps = world.size == 1
    try:
        yield
    finally:
        world.stop.let_go()
        world.watchdog.end()


@contextmanager
def put_back() -> Iterator[None]:
    """Put back what a training changes: threads, global random numbers, what a GPU asks of torch.

    A task in the current directory is found meanwhile.
    """
    with threads.single_threaded() as known, ExitStack() as back:
        for part in process_state.GUEST:
            back.callback(part.put, part.found())
        if here := look_here():
            back.callback(look_away, here)
        if not known:
            remedy = "start Python with OMP_NUM_THREADS=1 for the bits of the command line"
            log.warn(f"numpy's BLAS is no OpenBLAS: {remedy}")
        yield
