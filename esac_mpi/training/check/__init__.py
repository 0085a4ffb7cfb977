"""What `python -m esac_mpi --check` does: look at launch, nodes, task and directory before a job.

The first thing to run on a new cluster, with the launcher, the configuration and the options of the
job itself. Every rank looks at its own surroundings and plays 100 steps of the task, and whole
episodes; rank 0 lets the learner make updates, and prints one block, a line a subject, each ending
in ok or in what to do. Nothing that it makes stays.
"""

import math
import os

from esac_mpi.comm.world import World
from esac_mpi.config import Config
from esac_mpi.host import log
from esac_mpi.training import set_up
from esac_mpi.training.check import cost, directory, learner, memory, ranks, report, run
from esac_mpi.training.task_set_up import sentences, settled


def check(config: Config, world: World, seconds_left: float = math.inf, fresh: bool = False) -> int:
    """Look at all that a run of `config` needs; rank 0 prints it. All ranks call this.

    seconds_left: what --max-hours or the batch system leaves to this job, as the run will read it
    [s]. fresh: whether the run would be begun anew. Returns the exit code: 0, or that of the first
    thing that is wrong: 2, or what the run would end with.
    """
    env, mine = ranks.look(config, world)
    of_task: list[report.Line] = []
    names = ""  # of settings that are left to the task
    if env is not None:
        config, names = settled(config, env)
        of_task = [report.Line("settings", sentence) for sentence in sentences(config, names, env)]
    config, resolved = run.settle(config, env, world, fresh)
    found: list[ranks.Rank] = world.gather(mine)
    place = directory.look(set_up.run_directory(config), world)
    exchanged = ranks.exchange(world)
    before, lines, left = [], [], None
    if world.rank == 0:
        on_node = sum(one.node == mine.node for one in found)
        before = [*ranks.launch(found, world), *ranks.libraries(found)]
        before += [learner.library(config, mine.cores, on_node), *learner.gpu(config, env, world)]
        lines = [*run.playing(config, found), *of_task, *resolved]
        lines += [*run.work(config, env, world.size), *memory.shared(config, env, found)]
        lines += [*memory.replay(config, env)]
        lines += [*ranks.scheduler(dict(os.environ), seconds_left), *place]
        if not place[0].fatal:
            start, left = run.foreseen(config, fresh, env, found, world, names)
            lines += start
        lines.append(exchanged)
    left = world.from_root(None if any(line.fatal for line in [*before, *lines]) else left)
    updating = 0.0
    if left:
        scratch = memory.Counter(1)
        forecast, updating = cost.look(config, env, found, world, scratch, seconds_left, left)
        lines += forecast
    if world.rank == 0 and not any(line.fatal for line in before):
        before += learner.core(config, env, updating)
    lines = [*before, *lines]
    code = next((line.code for line in lines if line.fatal), 0)
    if world.rank == 0:
        title = f"esac_mpi --check: {config.algorithm} on {config.task.id}, {world.size} rank(s)"
        log.tell("\n".join([title, *report.block(lines), report.verdict(lines)]))
    return int(world.from_root(code))
