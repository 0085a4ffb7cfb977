"""The line about what is "auto": what a start here would resolve it to."""

from esac_mpi import envs, learners
from esac_mpi.comm import World
from esac_mpi.config import Config, ConfigError, in_numbers, updated
from esac_mpi.training import set_up
from esac_mpi.training.active_run import WRONG_USAGE
from esac_mpi.training.check.report import Line
from esac_mpi.training.check.world_stand_in import NO_START
from esac_mpi.training.forecast.automatic import resolve


def settled(
    config: Config, env: envs.Env | None, world: World, fresh: bool
) -> tuple[Config, list[Line]]:
    """Resolve what is "auto"; some number is in its place where that cannot be done. All ranks call this; rank 0 has the line."""
    answer: dict[str, object] | None = {}
    lines: list[Line] = []
    if world.rank == 0:
        path = set_up.run_directory(config)
        codes: dict[type[Exception], int] = {
            **set_up.exit_codes(world),
            **dict.fromkeys((ConfigError, learners.LearnerNotFinite, *NO_START), WRONG_USAGE),
        }
        try:
            answer, told = (None, []) if env is None else resolve(config, env, world, path, fresh)
            lines = [Line("settings", one) for one in told]
        except envs.TaskError:
            answer = None  # which another line tells
        except tuple(codes) as error:
            code = next(c for kind, c in codes.items() if isinstance(error, kind))
            answer, lines = None, [Line("settings", "not resolved", str(error), True, code)]
    answer = world.from_root(answer)
    return in_numbers(config) if answer is None else updated(config, answer), lines
