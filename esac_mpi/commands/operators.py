"""Ask of a run of the ERL family what crossover and mutation do to its policies: Figures 5 to 9 of the PDERL paper.

    esac-mpi operators RUN [--what crossover|mutation|visits|magnitude] [--of crossover|mutation] [--number N]
                              [--episodes E] [--dimensions I J] [--magnitude M [M ...]] [--seed S] [--out NAME]
    mpirun -n 8 esac-mpi operators RUN --episodes 50

The members of the run's newest checkpoint, whether it is finished or not, are the parents; children and mutants are made by the
operators of training, of their memories and of the learner's critic. A run of erl keeps no memories: n-point children and
Gaussian mutants alone. Played without noise, all from the same start states:
crossover   N random pairs of parents (10), the fitter first, their n-point and their distilled child: returns (Figure 5)
mutation    N random parents (10), a Gaussian and a proximal mutant of each: returns (Figure 7)
visits      N of either (1, --of): where they go, as densities of two dimensions of the state (Figures 1, 6; 2, 8)
magnitude   N random parents (3), proximal mutants of several magnitudes, a Gaussian one beside: how far they go (Figure 9)
A return is shown in parts of the first parent's where that is positive. KL is KL(p || q) = sum p ln(p / q) [nats] of the
densities of the picture, p the parent's, of a pair the mean of both, q the child's or mutant's (esac_mpi/analysis/densities.py).
Writes NAME.png, NAME.pdf and the table NAME.csv; NAME: operators-<what> in the run. Needs torch and matplotlib, no MPI in one
process. Under mpirun episodes are spread over the ranks; the numbers are the same. All follow from the run and --seed.
Cost: an episode each, and a fraction of a second a child; reading a full replay takes seconds, and its memory on every rank.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy, as in training

from esac_mpi.analysis.command import ended, parser, refuse_unread, seed
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.relatives import Relative, Visits, visits, write
from esac_mpi.comm.command_ranks import on_all
from esac_mpi.config.exact import whole
from esac_mpi.host import process_state
from esac_mpi.host.invocation import look_here
from esac_mpi.host.paths import given
from esac_mpi.policies import offspring
from esac_mpi.policies.offspring import Study
from esac_mpi.policies.population import Population, restored
from esac_mpi.record import Unreadable

NUMBERS = {"crossover": 10, "mutation": 10, "visits": 1, "magnitude": 3}  # of pairs or parents
MAGNITUDES = (0.0, 0.01, 0.05, 0.1, 0.2)  # public code
UNREAD = {
    "crossover": ("of", "dimensions", "magnitude"),
    "mutation": ("of", "dimensions"),
    "visits": (),
    "magnitude": ("of",),
}


def study_of(population: Population, options: argparse.Namespace, world: Any) -> Study:
    """Return the study that the options ask for. Raises Unusable."""
    looked = options.what in ("visits", "magnitude")
    i, j = options.dimensions
    size = population.env.observation_size
    if looked and not (0 <= i < size and 0 <= j < size and i != j):
        raise Unusable(
            f"--dimensions {i} {j}: must be two different ones of the {size} of a state, 0 to {size - 1}"
        )
    number = options.number or NUMBERS[options.what]
    return Study(
        population, world, number, options.episodes, options.seed, (i, j) if looked else None
    )


def relatives(study: Study, options: argparse.Namespace) -> list[Relative]:
    """Make and play what the options ask for. Raises Unusable."""
    if options.what == "magnitude":
        return offspring.magnitudes(study, options.magnitude or MAGNITUDES)
    if options.of == "mutation" or options.what == "mutation":
        return offspring.mutation(study, *options.magnitude or ())
    return offspring.crossover(study)


def pictures(
    study: Study, found: list[Relative], seen: list[Visits], options: argparse.Namespace
) -> Iterator[Path]:
    """Draw; yield the files written."""
    from esac_mpi.analysis import relatives_pictures
    from esac_mpi.analysis.figures import save

    config, out = (
        study.population.params.config,
        options.out or options.run / f"operators-{options.what}",
    )
    about = f"{config.algorithm.upper()} on {config.task.id}, seed {config.seed}, generation {study.population.state.generation}"
    if study.dimensions is None:
        figure = relatives_pictures.bars(found, about)
    elif options.what == "magnitude":
        figure = relatives_pictures.dials(seen, study.dimensions, about)
    else:
        figure = relatives_pictures.maps(seen, study.dimensions, about, options.of == "mutation")
    yield from save(figure, out)
    yield write(
        out.with_suffix(".csv")
        if out.suffix in (".png", ".pdf", ".svg")
        else out.with_name(f"{out.name}.csv"),
        found,
        seen,
    )


def studied(
    line: argparse.ArgumentParser, options: argparse.Namespace, world: Any
) -> Iterator[Path]:
    """Make the table and pictures; yield the files written. Raises Unusable."""
    refuse_unread(line, options, f"--what {options.what}", UNREAD[options.what])
    if (
        options.number < 0
        or options.episodes < 1
        or any(not 0 <= m < 1e6 for m in options.magnitude or ())
    ):
        raise Unusable("--number and --episodes must be at least 1, --magnitude at least 0")
    if options.what != "magnitude" and len(options.magnitude or ()) > (
        options.what == "mutation" or options.of == "mutation"
    ):
        raise Unusable(
            "--magnitude takes one number with mutants, several with --what magnitude, and none with children"
        )
    from esac_mpi.analysis import figures  # noqa: F401 - whether it can draw is known before the work

    look_here()
    population = on_all(world, lambda: restored(options.run), (Unusable, Unreadable))
    if len({*world.gather(population.state.generation)}) > 1:
        raise Unusable(
            f"{options.run}: the run has gone on while its checkpoint was read; try again"
        )
    study = study_of(population, options, world)
    with process_state.kept():
        found = relatives(study, options)
    seen = visits(found) if study.dimensions else []
    if world.rank == 0:
        yield from pictures(study, found, seen, options)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("run", type=given, metavar="RUN", help="run directory")
    line.add_argument("--what", choices=tuple(NUMBERS), default="crossover")
    line.add_argument(
        "--of", choices=("crossover", "mutation"), default="crossover", help="of visits: whose"
    )
    line.add_argument(
        "--number", type=whole, default=0, metavar="N", help="pairs of parents, or parents"
    )
    line.add_argument("--episodes", type=whole, default=10, metavar="E", help="of each policy (10)")
    line.add_argument(
        "--dimensions",
        type=whole,
        nargs=2,
        default=[0, 1],
        metavar=("I", "J"),
        help="of the state (0 1)",
    )
    line.add_argument(
        "--magnitude",
        type=float,
        nargs="+",
        metavar="M",
        help="of proximal mutation; default: the run's",
    )
    line.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="who is drawn, how they are crossed and mutated, start states (0)",
    )
    line.add_argument(
        "--out", type=given, metavar="NAME", help="default: operators-<what>, in the run"
    )
    return line


def main(argv: list[str], world: Any) -> int:
    """Write pictures and table, print their paths; return 2 if there is nothing to study, 65 if the run cannot be read."""
    line = command_line()
    options = line.parse_args(argv)
    with redirect_stderr(StringIO() if world.rank else sys.stderr):  # rank 0 says it for all
        return ended(lambda: studied(line, options, world))
