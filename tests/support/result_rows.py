"""Rows of results whose tables and pictures can be worked out by hand."""

import dataclasses

from esac_mpi.analysis.results import rowfiles
from esac_mpi.analysis.results.rows import Row

EMPTY = Row("x", "small", "A-v0", "ES", "", 0, 1, 0, 0, 0.0, 0, 0, None, None, None, None, False)


def history(variant, seed, points, **more):
    """Return a run's rows: (true steps, wall seconds, return of theta_es, of the learner) each."""
    found = [
        dataclasses.replace(
            EMPTY, variant=variant, seed=seed, generation=g,
            env_steps=steps, wall_seconds=float(wall),
            nominal_steps=steps if es is None else 50 * g,
            gradient_updates=2 * steps, training_episodes=g, training_return=float(g),
            return_theta_es=es, return_learner=learner,
            fitness_mean=None if es is None else es - 1, **more,
        )
        for g, (steps, wall, es, learner) in enumerate(points, 1)
    ]  # fmt: skip
    return [*found[:-1], dataclasses.replace(found[-1], complete=True)]


def study():
    """Two seeds of ESAC and of SAC: SAC's steps are half as many, and slower."""
    return [
        *history("SAC", 0, [(50, 8, None, 4.0), (150, 40, None, 20.0)]),
        *history("SAC", 1, [(60, 8, None, 6.0), (160, 44, None, 22.0)]),
        *history("ESAC", 0, [(100, 10, 1.0, 3.0), (200, 20, 5.0, 4.0), (300, 30, 9.0, 8.0)]),
        *history("ESAC", 1, [(100, 10, 2.0, 2.0), (200, 20, 7.0, 6.0), (300, 31, 11.0, 10.0)]),
    ]


def stored(path, rows):
    rowfiles.write(path, rows)
    return str(path)
