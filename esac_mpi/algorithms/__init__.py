"""The algorithms, by name. A module has five names: Params, State, init(), board(), generation()."""

from types import ModuleType

from esac_mpi.algorithms import ddpg, es, esac, ppo, sac, td3

ALGORITHMS: dict[str, ModuleType] = {"esac": esac, "es": es, "sac": sac, "td3": td3, "ddpg": ddpg, "ppo": ppo}
