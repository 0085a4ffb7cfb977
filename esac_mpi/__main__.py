"""Command line: `mpirun -n N python -m esac_mpi [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--check]`"""

import math
import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before numpy: one BLAS thread per rank
    os.environ[_name] = "1"

import time

from esac_mpi import batch_system

BEGAN, SECONDS_LEFT = time.monotonic(), batch_system.seconds_left(os.environ)  # before MPI starts: it may run a command

import platform
import sys
import traceback

from esac_mpi import agenda, check, comm, config, job, learners, log, rollout, train


def parse(world: comm.World, argv: list[str]) -> tuple[config.Config, bool] | int:
    """Return (configuration, fresh), or the exit code of a command line that asks for help or is wrong. Rank 0 parses."""
    answer: tuple[config.Config, bool] | int = 0
    if world.rank == 0:
        try:
            answer = config.load(argv, log.say, log.warn)
            if answer[1] and (later := batch_system.later_round(os.environ)):
                log.warn(f"--fresh is ignored in a job's later round ({later}): the run goes on where it stands")
                answer = answer[0], False
        except config.ConfigError as error:
            print(f"esac_mpi: {error}", file=sys.stderr, flush=True)
            answer = job.WRONG_USAGE
        except SystemExit as end:  # tyro has printed its help or its complaint
            answer = end.code if isinstance(end.code, int) else job.FAILED
    return world.from_root(answer)


def main(argv: list[str]) -> int:
    """Run the program on this rank; return its exit code. One rank's exception ends the whole job."""
    world = None
    try:
        world = comm.World()
        log.setup(world.rank, platform.node())
        world.stop.listen()
        return work(world, argv)
    except comm.LaunchError as error:
        print(f"esac_mpi: {error}", file=sys.stderr, flush=True)
        return job.WRONG_USAGE
    except (comm.DivergedError, rollout.NoFiniteReturn, rollout.ThetaNotFinite) as error:  # all ranks raise these together
        if world and world.rank == 0:
            print(f"esac_mpi: {error}", file=sys.stderr, flush=True)
        return job.FAILED
    except (learners.LearnerNotFinite, rollout.ReturnDiffers, agenda.OrderDiffers) as error:  # rank 0 alone raises these
        told = ", ".join([str(error), *getattr(error, "__notes__", [])])
        comm.abort(job.FAILED, f"esac_mpi: {told}; the last checkpoint stands")
    except BaseException:
        who = f"rank {world.rank}" if world else "a rank"
        comm.abort(job.FAILED, f"esac_mpi: {who} on {platform.node()} failed:\n{traceback.format_exc()}")
    finally:
        if world:
            world.stop.end()


def work(world: comm.World, argv: list[str]) -> int:
    """Do what the command line asks for; return the exit code."""
    comm.check_launcher(dict(os.environ), world.size)
    answer = parse(world, [token for token in argv if token != "--check"])
    elapsed = time.monotonic() - BEGAN
    if isinstance(answer, int):
        code = answer
    elif "--check" in argv:
        code = check.check(answer[0], world, min(3600 * answer[0].max_hours or math.inf, SECONDS_LEFT) - elapsed, answer[1])
    else:
        code = train.train(*answer, world, ["python", "-m", "esac_mpi", *argv], SECONDS_LEFT, elapsed)
    world.free()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
