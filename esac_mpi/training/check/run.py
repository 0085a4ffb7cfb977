"""The line about what a start would do: begin a run, go on with one, or refuse."""

from contextlib import suppress

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World
from esac_mpi.config import Budget, Config
from esac_mpi.play import state
from esac_mpi.play.counters import Counters
from esac_mpi.play.params import make_layout
from esac_mpi.record import Checkpoint, Run, source
from esac_mpi.training import provenance, replay_memory, set_up
from esac_mpi.training.active_run import spent
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line
from esac_mpi.training.check.world_stand_in import begun
from esac_mpi.training.ended import NO_START, code_of, of_files


def foreseen(
    config: Config, fresh: bool, env: envs.Env | None, ranks: list[Rank], world: World
) -> tuple[list[Line], Budget | None]:
    """Say what a start would do, and what is left of the budget, None for nothing. Rank 0 only.

    Nothing is made, moved or locked.
    """
    from esac_mpi.training import warm_start

    path, now = set_up.run_directory(config), origin(env, ranks)
    if config.start_from and env is not None and warm_start.is_within(config.start_from, path):
        return begun_from(config, env, now, world), config.budget
    try:
        run = Run.foresee(path, config, now, fresh)
        if config.own.follows and run.restored is None:
            source(config, path, now)
    except of_files(world) as error:
        return [Line("run", "refused", str(error), True, code_of(error))], None
    saved = run.restored
    if saved is None:
        moves = f"; the old one is moved to {run.aside}" if run.aside else ""
        lines = [Line("run", f"a new run{moves}"), *begun_from(config, env, now, world)]
        return lines, config.budget
    generation, counters = saved.generation, Counters()
    state.load(counters, saved.state, "counters.")
    done = spent(config, generation, counters, saved.wall_seconds)
    if end := set_up.at_once(config, run, done):
        code, message = end
        found = f"{'failed' if code else 'finished'} at generation {generation}"
        return [Line("run", found, message, bool(code), code)], None
    if why := half_way(config, env, world, saved):
        return [Line("run", f"refused at generation {generation}", why, True)], None
    changed = "; ".join(run.task_changed)
    if changed:
        changed = f"the task has changed: {changed}; the best policy begins anew"
    counts = counters.env_steps, counters.nominal_steps, saved.wall_seconds
    found = f"goes on from generation {generation}, {saved.source.name}"
    return [Line("run", found, changed)], config.budget.left(generation, *counts)


def half_way(config: Config, env: envs.Env | None, world: World, restored: Checkpoint) -> str:
    """Say why a run does not go on within a generation under a smaller budget; empty if it does."""
    if env is None or not state.can_be_half_way(ALGORITHMS[config.algorithm].State):
        return ""
    with suppress(*NO_START):  # which other lines tell
        initial = begun(config, env, world.size)[1]
        return replay_memory.half_way(config, env.horizon, initial, restored)
    return ""


def begun_from(
    config: Config, env: envs.Env | None, now: dict[str, str], world: World
) -> list[Line]:
    """Say what a new run would begin from; nothing where that is nothing."""
    if not config.start_from or env is None:
        return []
    from esac_mpi.training import warm_start

    d, path = make_layout(config, env).d, set_up.run_directory(config)
    words = ""
    try:
        source = warm_start.find(config.start_from, config, env, d, path)
        words = f"from {source.words}"
        params, state, _ = begun(config, env, world.size)
        learners.clear()  # the line about the GPU had one: a device may have room for one
        learner = set_up.make_learner(params, env, state, world)
        found = warm_start.plan(source, config, state, learner, now)
    except of_files(world) as error:
        return [Line("start", "refused", str(error), True, code_of(error))]
    except NO_START as error:
        return [Line("start", words, str(error), True)]
    left = f"anew: {', '.join(found.left)}" if found.left else ""
    return [Line("start", f"{words}, takes {', '.join(found.taken)}", left)]


def origin(env: envs.Env | None, ranks: list[Rank]) -> dict[str, str]:
    """Gather what a start compares with the run's task; empty where it cannot be made."""
    first = ranks[0]
    if env is None or first.found is None:
        return {}
    here = {rank.physics for rank in ranks if rank.host == first.host}
    return provenance.compared(
        env, first.made, first.found, [rank.cpu for rank in ranks], len(here) == 1
    )
