"""The task of a configuration, for an algorithm that can act in it."""

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, unread_in
from esac_mpi.envs import identity
from esac_mpi.params import make_env


def make_task(config: Config) -> envs.Env:
    """Make the task; refuse one in which the algorithm cannot act, or of which a setting says nothing. Raises envs.TaskError."""
    env = make_env(config)
    if edited := identity.edited(env):
        remedy = "what would run is what was imported: start Python anew"
        raise envs.EditedTask(f"{env.id}: {', '.join(edited)} was edited since it was imported here; {remedy}")
    envs.refuse_discrete(env, config.algorithm, [name for name, module in ALGORITHMS.items() if module.DECLARES.discrete])
    if unread := list(unread_in(config, envs.is_discrete(env))):
        raise envs.TaskError(f"{env.id}: {'; '.join(unread)}")
    return env
