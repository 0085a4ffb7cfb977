"""Small runs of CEM and CEM-RL: their command lines, and one in this process."""

from small_runs import PENDULUM, Made, begun

LEARNER = ["--cem_rl.start_steps", 100, "--cem_rl.batch_size", 16, "--cem_rl.replay_capacity", 1000]
# enough of them, and quick
RATES = ["--cem_rl.critic_updates_per_step=0.3", "--cem_rl.actor_updates_per_step=0.2"]


def options(name):
    return [f"--{name}.population_size", 6, *(LEARNER + RATES if name == "cem_rl" else [])]


def arguments(name, *more):
    return ["--algorithm", name, *PENDULUM, *options(name), *more]


def made(world, name: str, *more, env=None) -> Made:
    """Return a run before its first generation; more: of its command line."""
    return begun(world, arguments(name, *more), env)
