"""What `python -m esac_mpi --check` does: look at launch, nodes, task and directory before a job.

The first thing to run on a new cluster, with the launcher, the configuration and the options of the
job itself. Every rank looks at its own surroundings and plays 100 steps of the task, and whole
episodes; rank 0 lets the learner make updates, and prints one block, a line a subject, each ending
in ok or in what to do. Nothing that it makes stays.
"""

import math
import os

from esac_mpi import envs
from esac_mpi.comm.world import World
from esac_mpi.config import Config
from esac_mpi.host import batch_system, log
from esac_mpi.training.active_run import run_directory
from esac_mpi.training.check import cost, directory, learner, memory, ranks, report, run
from esac_mpi.training.task_set_up import describe_task, resolve_by_task


def check(config: Config, world: World, seconds_left: float = math.inf, fresh: bool = False) -> int:
    """Look at all that a run of `config` needs; rank 0 prints it. All ranks call this.

    seconds_left: what --max-hours or the batch system leaves to this job, as the run will read it
    [s]. fresh: whether the run would be begun anew. Returns the exit code: 0, or that of the first
    thing that is wrong: 2, or what the run would end with.
    """
    env, mine = ranks.look(config, world)
    found: list[ranks.Rank] = world.gather(mine)
    exchanged = ranks.exchange(world)
    place = directory.look(run_directory(config), world)
    lines = list[report.Line]()
    if world.rank == 0:
        lines = [*ranks.launch(found, world), *ranks.libraries(found), exchanged]
        lines += [ranks.time_left(batch_system.job_name(os.environ), seconds_left), *place]
        lines += run.playing(config, found)
    if env is not None and not any(one.task for one in found):
        look_at_run(config, env, found, world, seconds_left, fresh, lines)
    code = next((line.code for line in lines if line.fatal), 0)
    if world.rank == 0:
        title = f"esac_mpi --check: {config.algorithm} on {config.task.id}, {world.size} rank(s)"
        log.tell("\n".join([title, *report.block(lines), report.verdict(lines)]))
    return int(world.from_root(code))


def look_at_run(
    config: Config,
    env: envs.Env,
    found: list[ranks.Rank],
    world: World,
    seconds_left: float,
    fresh: bool,
    lines: list[report.Line],
) -> None:
    """Look at a run of a task that can be played: settings, learner, memory, start and cost.

    lines: of its surroundings, on rank 0, to which these are added. All ranks call this.
    """
    config, names = resolve_by_task(config, env)
    lines += [report.Line("settings", sentence) for sentence in describe_task(config, names, env)]
    too_large = memory.networks(config, env) if world.rank == 0 else []
    lines += too_large
    if world.from_root(bool(too_large)):  # nothing more can be looked at
        return
    config, resolved = run.settle(config, env, world, fresh)
    left = None
    if world.rank == 0:
        lines += [*resolved, learner.library(config, found), *learner.gpu(config, env, world)]
        lines += [*run.work(config, env, world.size), *memory.shared(config, env, found)]
        lines += memory.replay(config, env)
        if not any(line.fatal and line.subject == "directory" for line in lines):
            start, left = run.foresee(config, fresh, env, found, world, names)
            lines += start
    left = world.from_root(None if any(line.fatal for line in lines) else left)
    if left:
        forecast, updating = cost.look(config, env, world, seconds_left, left)
        if world.rank == 0:
            lines += [*learner.core(config, env, updating), *forecast]
