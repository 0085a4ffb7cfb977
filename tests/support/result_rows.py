"""Rows of results, and scores of them, whose tables and pictures can be worked out by hand."""

import dataclasses
from itertools import chain

from esac_mpi.analysis import plots
from esac_mpi.analysis.results import pictures
from esac_mpi.analysis.results.rows import Row, write_rows
from esac_mpi.analysis.results.scores import score_study
from esac_mpi.analysis.results.traces import Wall, sections

RANDOM = {"A-v0": {"mean": 2.0}, "B-v0": {"mean": -100.0}}
SIX = Wall(0, 6.0)
EMPTY = Row("x", "small", "A-v0", "ES", "", 0, 1, 0, 0, 0.0, 0, 0, None, None, None, None, False)


def history(variant, seed, points, **more):
    """Return a run's rows: (true steps, wall seconds, return of theta_es, of the learner) each."""
    found = [
        dataclasses.replace(
            EMPTY, variant=variant, seed=seed, generation=g, env_steps=steps,
            wall_seconds=float(wall), nominal_steps=steps if es is None else 50 * g,
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
    write_rows(path, rows)
    return str(path)


def run(variant, seed, points, task="A-v0", done=True, **more):
    """Return a run's rows: (seconds, return) each, of theta_es for ES, else of the learner."""
    own = variant.startswith("ES") and not variant.startswith("ESAC")
    made = [
        (10 * g, seconds, value if own else None, None if own else value)
        for g, (seconds, value) in enumerate(points, 1)
    ]
    rows = history(variant, seed, made, task=task, **more)
    return [*rows[:-1], dataclasses.replace(rows[-1], complete=done)]


def drawn(rows, what, policy="better", x=None):
    """Return the picture that `esac-mpi plot` draws of these rows."""
    return plots.draw_curves(sections(rows), what, *pictures.curves_of(what, policy), x)


def scored(rows, wall=SIX, left_out=()):
    return score_study(sections(chain.from_iterable(rows)), RANDOM, wall, list(left_out))


def names(runs):
    return [run.name for run in runs]


def finals(returns, task="A-v0", start=0):
    """Return runs that end at 6 s with these returns: {variant: one a seed}."""
    found = []
    for variant, values in returns.items():
        found += [run(variant, seed, [(6, v)], task) for seed, v in enumerate(values, start)]
    return found
