"""Small runs of ERL's four forms: their command lines, and one in this process."""

from small_runs import PENDULUM, Made, begun

from esac_mpi.config.genetic import FORMS

GENETIC = ["--erl.population_size", 6, "--erl.sync_interval", 2]
MEMORIES = ["--erl.memory_size", 80]
OWN = ["--erl.batch_size", 16, "--erl.replay_capacity", 400, "--erl.critic_hidden", 8, 8]
OF_FORM = {
    "n_point": [],
    "distillation": ["--erl.distillation_batch", 8, "--erl.distillation_epochs", 2],
    "gaussian": [],
    "proximal": ["--erl.mutation_batch", 16],
}


def options(name):
    crossover, mutation = FORMS[name]
    memories = MEMORIES if name != "erl" else []
    return [*GENETIC, *OWN, *memories, *OF_FORM[crossover], *OF_FORM[mutation]]


def arguments(name, *more):
    return ["--algorithm", name, *PENDULUM, *options(name), *more]


def made(world, name: str, *more, env=None) -> Made:
    """Return a run of a form before its first generation; more: of its command line."""
    return begun(world, arguments(name, *more), env)
