"""The line about what a start would do with what is in the run directory: a new run, one that goes on, or a refusal."""

from contextlib import suppress
from typing import TYPE_CHECKING

from esac_mpi import envs, learners
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.comm import World
from esac_mpi.config import Budget, Config
from esac_mpi.play import state
from esac_mpi.play.counters import Counters
from esac_mpi.play.params import make_layout
from esac_mpi.training import provenance, replay_memory, set_up
from esac_mpi.training.active_run import spent
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line
from esac_mpi.training.check.world_stand_in import NO_START, begun

if TYPE_CHECKING:
    from esac_mpi.record import Checkpoint


def foreseen(
    config: Config, fresh: bool, env: envs.Env | None, ranks: list[Rank], world: World
) -> tuple[list[Line], Budget | None]:
    """Return the line about the run, on rank 0, which alone knows its files, and what is left of its budget, None for nothing.

    Nothing is made, moved or locked.
    """
    from esac_mpi.record import Run, source
    from esac_mpi.training import warm_start

    codes, path = set_up.exit_codes(world), set_up.run_directory(config)
    if config.start_from and env is not None and warm_start.is_within(config.start_from, path):
        return begun_from(config, env, origin(env, ranks), world), config.budget
    try:
        run = Run.foresee(path, config, origin(env, ranks), fresh)
        if config.own.follows and run.restored is None:
            source(config, path, origin(env, ranks))
    except tuple(codes) as error:
        code = next(c for kind, c in codes.items() if isinstance(error, kind))
        return [Line("run", "refused", str(error), True, code)], None
    if run.restored is None:
        new = Line(
            "run", f"a new run; the old one is moved to {run.aside}" if run.aside else "a new run"
        )
        return [new, *begun_from(config, env, origin(env, ranks), world)], config.budget
    generation, counters = run.restored.generation, Counters()
    state.load(counters, run.restored.state, "counters.")
    if end := set_up.at_once(
        config, run, spent(config, generation, counters, run.restored.wall_seconds)
    ):
        code, message = end
        return [
            Line(
                "run",
                f"{'failed' if code else 'finished'} at generation {generation}",
                message,
                bool(code),
                code,
            )
        ], None
    if told := half_way(config, env, world, run.restored):
        return [Line("run", f"refused at generation {generation}", told, True)], None
    changed = (
        f"the task has changed: {'; '.join(run.task_changed)}; the best policy begins anew"
        if run.task_changed
        else ""
    )
    done = counters.env_steps, counters.nominal_steps, run.restored.wall_seconds
    left = config.budget.left(generation, *done)
    return [
        Line("run", f"goes on from generation {generation}, {run.restored.source.name}", changed)
    ], left


def half_way(config: Config, env: envs.Env | None, world: World, restored: "Checkpoint") -> str:
    """Return why a run does not go on within a generation under a smaller budget; empty if it does."""
    if env is None or not state.can_be_half_way(ALGORITHMS[config.algorithm].State):
        return ""
    with suppress(*NO_START):  # which other lines tell
        return replay_memory.half_way(
            config, env.horizon, begun(config, env, world.size)[1], restored
        )
    return ""


def begun_from(
    config: Config, env: envs.Env | None, now: dict[str, str], world: World
) -> list[Line]:
    """Return the line about what a new run would begin from; none where that is nothing."""
    if not config.start_from or env is None:
        return []
    from esac_mpi.training import warm_start

    codes = set_up.exit_codes(world)
    try:
        source = warm_start.find(
            config.start_from, config, env, make_layout(config, env).d, set_up.run_directory(config)
        )
        params, state, _ = begun(config, env, world.size)
        learners.clear()  # the line about the GPU had one: a device may have room for one
        found = warm_start.plan(
            source, config, state, set_up.make_learner(params, env, state, world), now
        )
    except tuple(codes) as error:
        return [
            Line(
                "start",
                "refused",
                str(error),
                True,
                next(c for kind, c in codes.items() if isinstance(error, kind)),
            )
        ]
    except NO_START as error:
        return [Line("start", f"from {source.words}", str(error), True)]
    return [
        Line(
            "start",
            f"from {source.words}, takes {', '.join(found.taken)}",
            "; not taken: ".join(["", *found.left])[2:],
        )
    ]


def origin(env: envs.Env | None, ranks: list[Rank]) -> dict[str, str]:
    """Return what a start compares with what the run recorded of its task; empty where the task cannot be made."""
    first = ranks[0]
    if env is None or first.found is None:
        return {}
    here = {rank.physics for rank in ranks if rank.host == first.host}
    return provenance.compared(
        env, first.made, first.found, [rank.cpu for rank in ranks], len(here) == 1
    )
