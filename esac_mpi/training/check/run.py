"""The lines about a start: its settings, its task, and whether it begins, goes on or refuses."""

import numpy as np

from esac_mpi import envs, learners
from esac_mpi.comm.world import World
from esac_mpi.config import NAMES, Budget, Config, amend, estimate, value_of
from esac_mpi.envs import probe
from esac_mpi.play import state
from esac_mpi.play.counters import Counters
from esac_mpi.play.params import make_layout, make_params
from esac_mpi.record import Run, source
from esac_mpi.training import memory, provenance, set_up, warm_start
from esac_mpi.training.active_run import run_directory
from esac_mpi.training.check.memory import make_counted
from esac_mpi.training.check.ranks import Rank
from esac_mpi.training.check.report import Line, format_ranges
from esac_mpi.training.ended import REFUSALS, code_of
from esac_mpi.training.forecast.automatic import resolve


def settle(config: Config, env: envs.Env, world: World, fresh: bool) -> tuple[Config, list[Line]]:
    """Resolve what is "auto", by some number where that fails. All ranks call this."""
    values: dict[str, object] | None = {}
    lines: list[Line] = []
    if world.rank == 0:
        try:
            values, said = resolve(config, env, world, fresh)
            lines = [Line("settings", sentence) for sentence in said]
        except REFUSALS as error:
            values = None
            lines = [Line("settings", "not resolved", str(error), True, code_of(error))]
    values = world.from_root(values)
    return estimate(config) if values is None else amend(config, values), lines


def playing(config: Config, ranks: list[Rank]) -> list[Line]:
    """Tell whether every rank can play the task, how fast, and with the same bits."""
    first = ranks[0].found
    if broken := [r for r, rank in enumerate(ranks) if rank.task]:
        found = f"{config.task.id} cannot be played on ranks {format_ranges(broken)}"
        return [Line("task", found, ranks[broken[0]].task, True)]
    speeds = np.array([rank.steps_per_second for rank in ranks])
    rates = " / ".join(f"{rate:,.0f}" for rate in np.quantile(speeds, (0, 0.5, 1)))
    found = f"made in {max(rank.seconds_import for rank in ranks):.1f} s"
    found += f"; {probe.PROBE_STEPS} steps on each rank: min / median / max {rates} steps/s"
    differ, again = "", "not repeated" if first.apart else "the same again after others"
    if odd := sorted({rank.host for rank in ranks if rank.found.digests != first.digests}):
        differ = f"other bits on {', '.join(odd)}: use nodes of one kind"
        differ += ", or results depend on which evaluates what"
    lines = [
        Line("task", found),
        Line("physics", f"digests on rank 0: {first.digests}", differ),
        Line("episodes", again, first.apart),
    ]
    if first.not_finite:
        lines.append(Line("numbers", "not all finite", first.not_finite))
    return lines


def work(config: Config, env: envs.Env, ranks: int) -> list[Line]:
    """Say what the ranks and the learner have to do."""
    found, better = set_up.describe_work(make_params(config, env), ranks)
    name = f"{config.algorithm}.episodes_on"
    if better and name in NAMES and value_of(config, name) == "root":
        better += f"; in a new run with --{name} ranks they play its training episodes"
    lines = [Line("work", found, better)]
    if cut := memory.cut_episodes(config, env.horizon):
        lines.append(Line("learner", "its episodes are cut", cut))
    if never := memory.never_learns(config, env.horizon):
        lines.append(Line("learner", "it makes no update", never))
    return lines


def foresee(
    config: Config, fresh: bool, env: envs.Env, ranks: list[Rank], world: World, settled: str
) -> tuple[list[Line], Budget | None]:
    """Say what a start would do, and what is left of the budget, None for nothing. Rank 0 only.

    settled: names of the settings that are left to the task. Nothing is made, moved or locked.
    """
    path = run_directory(config)
    first, each = ranks[0], [(rank.host, rank.cpu, rank.found.digests) for rank in ranks]
    now = provenance.gather_compared(env, first.made, first.found, each, config.algorithm)
    now |= {"settled": settled, "sizes": set_up.describe_sizes(make_layout(config, env))}
    if config.start_from and warm_start.is_within(config):
        return describe_source(config, env, now, world), config.budget
    try:
        run = Run.foresee(path, config, now, fresh)
        if config.own.follows and run.restored is None:
            source(config, path, now)
    except REFUSALS as error:
        return [Line("run", "refused", str(error), True, code_of(error))], None
    saved = run.restored
    if saved is None:
        moves = f"; the old one is moved to {run.aside}" if run.aside else ""
        lines = [Line("run", f"a new run{moves}"), *describe_source(config, env, now, world)]
        return lines, config.budget
    generation, counters = saved.generation, Counters()
    state.load(counters, saved.state, "counters.")
    if why := memory.too_small(config, env.horizon, saved):
        return [Line("run", f"refused at generation {generation}", why, True)], None
    counts = counters.env_steps, counters.nominal_steps, saved.wall_seconds
    if end := set_up.end_of(config, run, config.budget.spent(generation, *counts)):
        code, message = end
        found = f"{'failed' if code else 'finished'} at generation {generation}"
        return [Line("run", found, message, bool(code), code)], None
    changed = "; ".join(run.task_changed)
    if changed:
        changed = f"the task has changed: {changed}; the best policy begins anew"
    found = f"goes on from generation {generation}, {saved.source.name}"
    return [Line("run", found, changed)], config.budget.left(generation, *counts)


def describe_source(config: Config, env: envs.Env, now: dict[str, str], world: World) -> list[Line]:
    """Describe the source of a new run; nothing without one."""
    if not config.start_from:
        return []
    words = ""
    try:
        source = warm_start.find(config, env)
        words = f"from {source.words}"
        params, state, _ = make_counted(config, env, world.size)
        learners.clear()  # the line about the GPU had one: a device may have room for one
        learner = set_up.make_learner(params, env, state, world)
        found = warm_start.plan(source, config, state, learner, now)
    except REFUSALS as error:
        return [Line("start", words or "refused", str(error), True, code_of(error))]
    left = f"anew: {', '.join(found.left)}" if found.left else ""
    return [Line("start", f"{words}, takes {', '.join(found.taken)}", left)]
