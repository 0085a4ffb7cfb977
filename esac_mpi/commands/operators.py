"""Show what crossover and mutation do to policies of the ERL family: PDERL, Figures 5-9.

    esac-mpi operators RUN [--what KIND] [--of KIND] [--number N] [--episodes E] [--out NAME]

Examples:
    esac-mpi operators runs/Hopper-v5-pderl-seed0                               # children's returns
    esac-mpi operators runs/Hopper-v5-pderl-seed0 --what visits --of mutation   # where mutants go
    mpirun -n 8 esac-mpi operators runs/Hopper-v5-pderl-seed0 --episodes 50     # on eight ranks

The parents are the members of the newest checkpoint. The operators, memories and critic are those
of training; a run of erl has no memories, so n-point children and Gaussian mutants only. All are
played without noise, from equal start states.
crossover   N random pairs of parents (10), the fitter first, their n-point and their distilled
            child: returns (Figure 5)
mutation    N random parents (10), a Gaussian and a proximal mutant of each: returns (Figure 7)
visits      N of either (1, --of): where they go, as densities of two dimensions of the state
            (Figures 1, 6; 2, 8)
magnitude   N random parents (3), proximal mutants of several magnitudes, and a Gaussian one: where
            they go (Figure 9)
A return is shown as a fraction of the first parent's where that is positive.
Writes NAME.png, NAME.pdf and the table NAME.csv, the same on any number of ranks. Needs torch and
matplotlib; one process needs no MPI.
Cost: an episode each, a fraction of a second a child, and the memory of the replay on every rank.
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

from esac_mpi.analysis.command import ended, parser, refuse_others, seed
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.relatives import Relative, Visits, rows, visits
from esac_mpi.analysis.tables import rendered
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
COMMON = ("run", "number", "episodes", "seed")
READ = {  # options, by what is asked
    "crossover": COMMON,
    "mutation": (*COMMON, "magnitude"),
    "visits": (*COMMON, "of", "dimensions", "magnitude"),
    "magnitude": (*COMMON, "dimensions", "magnitude"),
}


def check(line: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Raise Unusable for options that do not fit what is asked."""
    refuse_others(line, options, READ[options.what])
    magnitudes = options.magnitude or []
    if options.number < 0 or options.episodes < 1 or not all(0 <= m < 1e6 for m in magnitudes):
        raise Unusable("--number and --episodes must be at least 1, --magnitude at least 0")
    takes = 1 if "mutation" in (options.what, options.of) else 0
    if options.what != "magnitude" and len(magnitudes) > takes:
        several = "several with --what magnitude, and none with children"
        raise Unusable(f"--magnitude takes one number with mutants, {several}")


def study_of(population: Population, options: argparse.Namespace, world: Any) -> Study:
    """Return the study that the options ask for. Raises Unusable."""
    i, j = options.dimensions
    size = population.env.observation_size
    dimensions = (i, j) if options.what in ("visits", "magnitude") else None
    if dimensions and not (0 <= i < size and 0 <= j < size and i != j):
        wanted = f"must be two different ones of the {size} of a state, 0 to {size - 1}"
        raise Unusable(f"--dimensions {i} {j}: {wanted}")
    number = options.number or NUMBERS[options.what]
    return Study(population, world, number, options.episodes, options.seed, dimensions)


def relatives(study: Study, options: argparse.Namespace) -> list[Relative]:
    """Make and play what the options ask for. Raises Unusable."""
    if options.what == "magnitude":
        return offspring.magnitudes(study, options.magnitude or MAGNITUDES)
    if "mutation" in (options.what, options.of):
        return offspring.mutation(study, *options.magnitude or ())
    return offspring.crossover(study)


def written(
    study: Study, found: list[Relative], seen: list[Visits], options: argparse.Namespace
) -> Iterator[Path]:
    """Draw, and tabulate; yield the files written."""
    from esac_mpi.analysis import relatives_pictures
    from esac_mpi.analysis.figures import save

    population, out = study.population, options.out or options.run / f"operators-{options.what}"
    config, generation = population.params.config, population.state.generation
    about = (
        f"{config.algorithm.upper()} on {config.task.id}, "
        f"seed {config.seed}, generation {generation}"
    )
    if study.dimensions:
        mutants = options.what == "magnitude" or options.of == "mutation"
        figure = relatives_pictures.maps(seen, study.dimensions, about, mutants)
    else:
        figure = relatives_pictures.bars(found, about)
    yield from save(figure, out)
    name = out.name.removesuffix(out.suffix) if out.suffix in (".png", ".pdf", ".svg") else out.name
    table = out.with_name(f"{name}.csv")
    table.write_text(rendered(rows(found, seen), "csv") + "\n", encoding="utf-8")
    yield table


def studied(
    line: argparse.ArgumentParser, options: argparse.Namespace, world: Any
) -> Iterator[Path]:
    """Make the table and pictures; yield the files written. Raises Unusable."""
    check(line, options)
    # whether it can draw is known before the work
    from esac_mpi.analysis import figures  # noqa: F401

    look_here()
    population = on_all(world, lambda: restored(options.run), (Unusable, Unreadable))
    if len({*world.gather(population.state.generation)}) > 1:
        raise Unusable(f"{options.run}: the run went on while its checkpoint was read; try again")
    study = study_of(population, options, world)
    with process_state.kept():
        found = relatives(study, options)
    seen = visits(found) if study.dimensions else []
    if world.rank == 0:
        yield from written(study, found, seen, options)


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    add = line.add_argument
    add("run", type=given, metavar="RUN", help="run directory")
    add("--what", choices=tuple(NUMBERS), default="crossover", help="see above")
    add("--of", choices=("crossover", "mutation"), default="crossover", help="of visits: whose")
    add("--number", type=whole, default=0, metavar="N", help="pairs of parents, or parents")
    add("--episodes", type=whole, default=10, metavar="E", help="of each policy (10)")
    ij, text = ("I", "J"), "of the state (0 1)"
    add("--dimensions", type=whole, nargs=2, default=[0, 1], metavar=ij, help=text)
    text = "of proximal mutation; default: the run's"
    add("--magnitude", type=float, nargs="+", metavar="M", help=text)
    text = "who is drawn, how they are crossed and mutated, start states (0)"
    add("--seed", type=seed, default=0, help=text)
    add("--out", type=given, metavar="NAME", help="default: operators-<what>, in the run")
    return line


def main(argv: list[str], world: Any) -> int:
    """Write the files, print their paths; return 2 with nothing to study, 65 without a run."""
    line = command_line()
    options = line.parse_args(argv)
    with redirect_stderr(StringIO() if world.rank else sys.stderr):  # rank 0 says it for all
        return ended(lambda: studied(line, options, world))
