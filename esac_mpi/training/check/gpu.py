"""The line about the learner's GPU, on rank 0: whether it has room there, and how fast it is."""

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World
from esac_mpi.config import Config
from esac_mpi.training import set_up
from esac_mpi.training.check.report import Line
from esac_mpi.training.check.world_stand_in import begun
from esac_mpi.training.ended import NO_START

SECONDS = 2.0  # of updates that are measured


def learner(config: Config, env: envs.Env | None, world: World) -> list[Line]:
    """Look at the learner's GPU; nothing on a CPU, or where machine.py said why not.

    It is made as a run's is, with the room that its replay has beside the capacity.
    """
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    if learning is None or env is None or config.learner.device == "cpu":
        return []
    import torch

    if not torch.cuda.is_available():
        return []
    try:
        params, state, _ = begun(config, env, 1)
        made = set_up.make_learner(params, env, state, world)
    except NO_START as error:
        return [Line("GPU", "not to be used", str(error), True)]
    (free, total), driver = torch.cuda.mem_get_info(), learners.load("gpu").driver()
    found = f"{torch.cuda.get_device_name()}, {total:,} bytes of memory"
    found += f", {free:,} free beside this learner; driver {driver or 'not told'}"
    if getattr(made, "chunks", None):
        try:
            rate = learners.load("chunks").updates_per_second(made, SECONDS)
        except RuntimeError as error:
            why = learners.load("gpu").sentence(error, 2)
            return [Line("GPU", f"{found}; its updates fail", why, True)]
        found += f"; {rate:,.0f} updates/s, {config.learner.precision}"
    return [Line("GPU", found)]
