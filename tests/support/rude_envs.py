"""Environments that change the process they live in.

`rude_envs:Rude-v0` has `what` (a key of CHANGES) and `when`.

RUDE in the environment is what this module does when it is imported.
"""

import argparse
import ctypes
import logging
import os
import random
import signal
import sys
import tempfile
import warnings
from threading import Event, Thread

import gymnasium
import numpy as np
from own_envs import Walk

from esac_mpi.envs.probe import PROBE_STEPS

LATE = 2 * PROBE_STEPS
NOWHERE = open(os.devnull, "w")  # noqa: SIM115


def silence_all():
    """Silence all libraries that there are, as many programs do."""
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).setLevel(logging.CRITICAL)
        logging.getLogger(name).propagate = False


def vanish():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)


def fork():
    if os.fork() == 0:
        sys.exit(0)  # through all that called
    os.wait()


def linger():
    Thread(target=Event().wait, name="viewer").start()


def torch_settings():
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_num_threads(2)
    torch.manual_seed(0)


def threads():
    from esac_mpi.host.threads import openblas

    for _, _, put in openblas():
        put(2)


def flush():
    import torch

    torch.set_flush_denormal(True)


def c_handler():
    # SIG_IGN, which Python does not hear of
    ctypes.CDLL(None).signal(signal.SIGUSR1, ctypes.c_void_p(1))


def say():
    print("a word from Python")
    ctypes.CDLL(None).puts(b"a word from C")
    os.write(1, b"a word to the descriptor\n")


CHANGES = {
    "directory": lambda: os.chdir("/"),
    "vanish": vanish,
    "umask": lambda: os.umask(0),
    "handlers": lambda: [
        signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    ],
    "c_handler": c_handler,
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
    "replaced": lambda: setattr(sys, "stdout", NOWHERE),
    "closed": lambda: [sys.stdout.close(), os.close(1)],
    "elsewhere": lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 1),
    "environment": lambda: os.environ.update(
        OMP_NUM_THREADS="2", CUDA_VISIBLE_DEVICES="7", SLURM_JOB_ID="1", TERM="dumb"
    ),
    "argv": lambda: sys.argv.extend(["--fresh"]),
    "path": lambda: sys.path.insert(0, "/nowhere"),
    "warnings": lambda: warnings.simplefilter("error"),
    "logging": lambda: logging.disable(logging.CRITICAL),
    "levels": silence_all,
    "dictconfig": lambda: [
        setattr(each, "disabled", True) for each in logging.root.manager.loggerDict.values()
    ],
    "errors": lambda: np.seterr(all="raise"),
    "cores": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "threads": threads,
    "torch": torch_settings,
    "flush": flush,
    "random": lambda: [random.seed(0), np.random.seed(0)],  # noqa: NPY002
    "fork": fork,
    "linger": linger,
    "exit": lambda: sys.exit(0),
    "parse": lambda: argparse.ArgumentParser().parse_args(),
    "say": say,
    "nothing": lambda: None,
}


class Rude(Walk):
    """Do `what` when it is made, reset, stepped, closed, at its "first" step or "late", LATE."""

    def __init__(self, what="nothing", when="made", infinite=0.0):
        self.what, self.when, self.steps = what.split(), when, 0
        self.change("made")

    def change(self, when):
        for what in self.what * (when == self.when):
            CHANGES[what]()

    def reset(self, *, seed=None, options=None):
        self.change("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self.change("step")
        self.steps += 1
        if self.steps in (1, LATE):
            self.change("first" if self.steps == 1 else "late")
        return super().step(action)

    def close(self):
        self.change("closed")


for change in os.environ.get("RUDE", "").split():
    CHANGES[change]()
gymnasium.register("Rude-v0", entry_point=Rude, max_episode_steps=30)
