"""The line about what is "auto": what a start here would resolve it to."""

from esac_mpi import envs, learners
from esac_mpi.comm import World
from esac_mpi.config import Config, ConfigError, in_numbers, updated
from esac_mpi.training import set_up
from esac_mpi.training.check.report import Line
from esac_mpi.training.ended import NO_START, code_of, of_files
from esac_mpi.training.forecast.automatic import resolve


def settled(
    config: Config, env: envs.Env | None, world: World, fresh: bool
) -> tuple[Config, list[Line]]:
    """Resolve what is "auto", by some number where that fails. All ranks call this."""
    values: dict[str, object] | None = {} if env else None
    lines: list[Line] = []
    refusals: tuple[type[Exception], ...] = ConfigError, learners.LearnerNotFinite
    refusals += (*NO_START, *of_files(world))
    if world.rank == 0 and env is not None:
        try:
            values, said = resolve(config, env, world, set_up.run_directory(config), fresh)
            lines = [Line("settings", sentence) for sentence in said]
        except envs.TaskError:
            values = None  # which another line tells
        except refusals as error:
            values = None
            lines = [Line("settings", "not resolved", str(error), True, code_of(error))]
    values = world.from_root(values)
    return in_numbers(config) if values is None else updated(config, values), lines
