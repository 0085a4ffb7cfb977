"""The algorithms, by name. A module has four names: Params, State, init(), generation()."""

from types import ModuleType

from esac_mpi.algorithms import es, esac, sac

ALGORITHMS: dict[str, ModuleType] = {"esac": esac, "es": es, "sac": sac}
