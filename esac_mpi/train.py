"""The outer loop: set up, restore, generation after generation, evaluate, record, checkpoint, stop."""

import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from esac_mpi import comm, envs, learners, log, provenance, rollout
from esac_mpi.algorithms import ALGORITHMS, es
from esac_mpi.comm import World
from esac_mpi.config import Config, to_toml
from esac_mpi.noise import Purpose, generator, integer
from esac_mpi.policy import Layout, Policy

if TYPE_CHECKING:
    from esac_mpi.record import Run

FINISHED, STOPPED, WRONG_USAGE, NO_CHECKPOINT, UNSAVED, FAILED = 0, 75, 2, 65, 74, 1
PROBE_STEPS = 100  # physics steps that nodes compare at the start


class Ended(Exception):
    """The run ends here, on all ranks, with `code`; rank 0 prints the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def together(world: World, action: Callable[[], Any], codes: dict[type[Exception], int]) -> Any:
    """Run `action` on every rank; if one fails with an error of `codes`, all ranks raise Ended with the first such error."""
    failure, result = None, None
    try:
        result = action()
    except tuple(codes) as error:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        failure = (code, str(error))
    for found in world.gather(failure):
        if found is not None:
            raise Ended(*found)
    return result


@dataclass
class Job:
    """Everything a run is made of, on one rank. `run` and `learner` are None on all ranks but 0."""

    config: Config
    world: World
    env: envs.Env
    params: Any
    state: Any
    policy: Policy
    run: "Run | None"
    learner: Any
    display: log.Display | None

    @property
    def algorithm(self) -> Any:
        """The algorithm's module."""
        return ALGORITHMS[self.config.algorithm]


def train(config: Config, fresh: bool, world: World, command: list[str]) -> int:
    """Run `config` to the end of its budget, from where its run directory stands; return the exit code."""
    try:
        job = set_up(config, fresh, world, command)
    except Ended as end:
        if world.rank == 0:
            print(f"esac_mpi: {end}", file=sys.stderr if end.code else sys.stdout, flush=True)
        return end.code
    world.stop_on_signals()
    start = world.clock()
    before = job.run.wall_seconds if job.run else 0.0
    tried = (job.state.generation, start)
    try:
        while progress(job) < 1 and not world.stopping:
            row, timing = job.algorithm.generation(job.params, job.state, world, job.env, job.learner)
            row.update(evaluation_columns(job))
            if job.run:
                timing.update(wall_seconds=before + world.clock() - start, bytes_exchanged=world.bytes_exchanged)
                record(job, row, timing)
                tried = checkpoint_if_due(job, tried)
        return finish(job)
    except Exception:
        if job.run:
            with suppress(Exception):  # what ended the run is the error to tell
                job.run.status("failed", job.state.generation)
        raise


def set_up(config: Config, fresh: bool, world: World, command: list[str]) -> Job:
    """Make the task, the state, the run directory and the learner; restore what is saved. Raises Ended."""
    env = together(
        world, lambda: envs.make(config.task.id, config.task.horizon), {envs.TaskError: WRONG_USAGE, ImportError: WRONG_USAGE}
    )
    layout = Layout((env.observation_size, *config.policy.hidden, env.action_size))
    algorithm = ALGORITHMS[config.algorithm]
    params = algorithm.Params(config, layout, env.horizon)
    origin = compare_nodes(config, env, world, command)
    directory = together(world, lambda: begin(config, fresh, origin, world), exit_codes(world))
    state = algorithm.init(params, world)
    learner = None
    if world.rank == 0 and config.algorithm != "es":
        learner = learners.make("sac", config, layout, layout.initial(config.seed, es.THETA_SAC))
    job = Job(config, world, env, params, state, es.make_policy(params, env), directory, learner, None)
    together(world, lambda: restore(job), exit_codes(world))
    share(state, world)
    if progress(job) >= 1 and world.from_root(directory is not None and directory.complete):
        where = run_directory(config)
        raise Ended(FINISHED, f"the run in {where} is finished; raise its budget to go on, or --fresh to start over")
    if directory:
        log.append_to(directory.path / "log.txt", world.rank, platform.node())
        announce(job, origin)
        saved(lambda: directory.status("running", job.state.generation, **results(job)))
        if state.best.policy:  # policy.h5 may hold what was evaluated at the end of a smaller budget
            saved(lambda: save_policy(job, state.best))
        job.display = log.Display(config.display.style, config.display.every_seconds)
    return job


def begin(config: Config, fresh: bool, origin: dict[str, Any], world: World) -> "Run | None":
    """Open the run directory, on rank 0."""
    if world.rank:
        return None
    from esac_mpi.record import Run

    return Run.begin(run_directory(config), config, origin, fresh)


def exit_codes(world: World) -> dict[type[Exception], int]:
    """Return the exit codes of what the run directory can refuse."""
    if world.rank:
        return {}
    from esac_mpi import record

    return {record.Refused: WRONG_USAGE, record.Unreadable: NO_CHECKPOINT, record.Unsaved: UNSAVED}


def run_directory(config: Config) -> Path:
    """Return the run directory: the one named, or a name made of task, algorithm and seed."""
    task = config.task.id.replace("/", "-").replace(":", "-")
    return Path(config.run_dir or f"runs/{task}-{config.algorithm}-seed{config.seed}")


def restore(job: Job) -> None:
    """Load the run's checkpoint into state and learner, on rank 0; write the first one of a new run."""
    if job.run is None:
        return
    if job.run.restored is None:
        job.run.checkpoint(0, arrays(job.state), learner_arrays(job), replay(job))
        return
    load(job.state, job.run.restored.state)
    if job.learner is not None:
        job.learner.load(job.run.restored.learner)
        job.run.restore_replay(job.learner.replay)


def arrays(state: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Return every field of a state as an array, by dotted name."""
    found: dict[str, np.ndarray] = {}
    for f in fields(state):
        value = getattr(state, f.name)
        found.update(arrays(value, f"{prefix}{f.name}.") if is_dataclass(value) else {prefix + f.name: np.asarray(value)})
    return found


def load(state: Any, saved: dict[str, np.ndarray], prefix: str = "") -> None:
    """Put back what `arrays` returned; shared arrays in place."""
    for f in fields(state):
        value = getattr(state, f.name)
        if is_dataclass(value):
            load(value, saved, f"{prefix}{f.name}.")
        elif f.metadata.get("shared"):
            value[...] = saved[prefix + f.name]
        else:
            entry = saved[prefix + f.name]
            setattr(state, f.name, entry if isinstance(value, np.ndarray) else type(value)(entry[()]))


def share(state: Any, world: World) -> None:
    """Give every rank rank 0's state."""
    for f in fields(state):
        if f.metadata.get("shared"):
            world.broadcast_shared(getattr(state, f.name))
        else:
            setattr(state, f.name, world.from_root(getattr(state, f.name)))


def progress(job: Job) -> float:
    """Return how much of the budget is spent; 1 or more is the end."""
    budget, counters = job.config.budget, job.state.counters
    spent = [
        (job.state.generation, budget.generations),
        (counters.env_steps, budget.env_steps),
        (counters.nominal_steps, budget.nominal_steps),
    ]
    return max(done / limit for done, limit in spent if limit)


def evaluation_columns(job: Job) -> dict[str, np.ndarray | float]:
    """Evaluate on schedule; return a row's columns about it, nan in a generation without evaluation."""
    evaluation, state = job.config.evaluation, job.state
    if state.generation % evaluation.every:
        columns = {f"evaluation_{name}": np.full(evaluation.episodes, np.nan) for name in state.policies}
    else:
        columns = evaluate(job)
        for name in state.policies:
            value = rollout.mean_return(columns[f"evaluation_{name}"])
            if value > state.best.episodic_return:
                state.best = rollout.Best(value, state.generation, name, state.policies[name].copy())
    return {**columns, "best_return": state.best.episodic_return}


def evaluate(job: Job) -> dict[str, np.ndarray]:
    """Play the evaluation episodes of this generation and count them; return {evaluation_<policy>: returns [episodes]}."""
    episodes, state = job.config.evaluation.episodes, job.state
    job.policy.normaliser = state.normaliser
    returns, steps, unstable = rollout.evaluate(
        job.world, job.env, job.policy, state.policies, episodes, job.config.seed, state.generation
    )
    state.counters.env_steps_evaluation += steps
    state.counters.unstable_episodes += unstable
    return {f"evaluation_{name}": values for name, values in returns.items()}


def record(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> None:
    """Add a generation to the run's history; show it. Rank 0 only."""
    counters = {f.name: getattr(job.state.counters, f.name) for f in fields(job.state.counters)}
    run(job).append({"generation": job.state.generation, **counters, **row}, timing)
    if job.state.best.generation == job.state.generation:
        saved(lambda: save_policy(job, job.state.best))
    run(job).publish_metrics()
    if job.display:
        job.display.update(shown(job, row, timing))


def save_policy(job: Job, best: rollout.Best) -> None:
    """Write policy.h5. Rank 0 only."""
    policy, normaliser = job.policy, job.state.normaliser
    seen = {} if normaliser is None else {"normaliser_mean": normaliser.mean, "normaliser_std": normaliser.std}
    about = {
        "sizes": np.array(policy.layout.sizes), "activation": policy.activation, "output": policy.output,
        "low": policy.low, "high": policy.high, "task": job.config.task.id, "policy": best.policy,
        "generation": best.generation, "episodic_return": best.episodic_return, **seen,
    }  # fmt: skip
    run(job).save_policy(best.theta, about)


def checkpoint_if_due(job: Job, tried: tuple[int, float]) -> tuple[int, float]:
    """Save the complete state when its time has come; return when that was last tried (generation, clock). Rank 0 only."""
    due, now = job.config.checkpoint, job.world.clock()
    by_generation = due.every_generations and job.state.generation - tried[0] >= due.every_generations
    by_time = due.every_minutes and now - tried[1] >= 60 * due.every_minutes
    if not (by_generation or by_time):
        return tried
    if checkpoint(job):
        run(job).status("running", job.state.generation, **results(job))
    return job.state.generation, job.world.clock()


def checkpoint(job: Job) -> bool:
    """Save the complete state; return whether it could be written. A failure leaves the checkpoint before it as it was."""
    return saved(lambda: run(job).checkpoint(job.state.generation, arrays(job.state), learner_arrays(job), replay(job)))


def saved(write: Callable[[], None]) -> bool:
    """Write something; return whether that worked, and warn if not. Rank 0 only."""
    from esac_mpi.record import Unsaved

    try:
        write()
    except Unsaved as error:
        log.warn(str(error))
        return False
    return True


def finish(job: Job) -> int:
    """Save the state; at the end of the budget also evaluate what is final; return the exit code."""
    complete = progress(job) >= 1
    final = final_evaluation(job) if complete else rollout.Best()
    code = FINISHED if complete else STOPPED
    if job.run:
        status = "complete" if complete else "requeue"
        if not checkpoint(job) or not saved(lambda: run(job).status(status, job.state.generation, **results(job, final))):
            code = UNSAVED
        if job.display:
            job.display.close()
        say_end(job, code, final)
        job.run.close()
    return job.world.from_root(code)


def final_evaluation(job: Job) -> rollout.Best:
    """Return the better policy of the last generation; evaluate off schedule where needed, without a trace in the state."""
    state = job.state
    if state.generation % job.config.evaluation.every:
        steps, unstable = state.counters.env_steps_evaluation, state.counters.unstable_episodes
        columns = evaluate(job)
        extra = state.counters.env_steps_evaluation - steps
        state.counters.env_steps_evaluation, state.counters.unstable_episodes = steps, unstable
        if job.run:
            job.run.final({"generation": np.array(state.generation), "env_steps_evaluation": np.array(extra), **columns})
    else:
        columns = job.run.last_row("evaluation_") if job.run else {}
    final = rollout.Best()
    for name in state.policies if job.run else ():
        value = rollout.mean_return(columns[f"evaluation_{name}"])
        if value > final.episodic_return:
            final = rollout.Best(value, state.generation, name, state.policies[name].copy())
    if job.run and final.episodic_return > state.best.episodic_return:
        saved(lambda: save_policy(job, final))
    return final


def results(job: Job, final: rollout.Best | None = None) -> dict[str, Any]:
    """Return what status.json says about the run's results."""
    best = job.state.best.episodic_return
    values = {"best_return": best}
    if final is not None and final.policy:
        values = {"best_return": max(best, final.episodic_return), "final_return": final.episodic_return}
    return {key: value for key, value in values.items() if np.isfinite(value)}


def learner_arrays(job: Job) -> dict[str, np.ndarray]:
    """Return the learner's arrays without its replay."""
    return {} if job.learner is None else job.learner.arrays()


def replay(job: Job) -> Any:
    """Return the learner's replay, or None."""
    return None if job.learner is None else job.learner.replay


def compare_nodes(config: Config, env: envs.Env, world: World, command: list[str]) -> dict[str, Any]:
    """Return the run's provenance; warn if the nodes would compute different bits."""
    mine = {"cpu": provenance.cpu(), "versions": provenance.versions(), "physics": physics_digest(config, env)}
    everyone = world.gather(mine)
    for what in mine:
        odd = sorted({world.hosts[r] for r in range(world.size) if everyone[r][what] != everyone[0][what]})
        if odd and world.rank == 0:
            log.warn(f"{what} of {', '.join(odd)} differs from {world.hosts[0]}: results depend on which node evaluates what")
    return {
        "config": to_toml(config), "command": " ".join(command), "git_commit": provenance.git_commit(), "mpi": comm.library(),
        "ranks": world.size, "nodes": world.nodes, "hosts": ", ".join(sorted(set(world.hosts))), "cpu": mine["cpu"],
        "python": platform.python_version(), "platform": platform.platform(), "versions": mine["versions"],
        "probe_steps": PROBE_STEPS * world.size, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def physics_digest(config: Config, env: envs.Env) -> str:
    """Return a digest of the observations of a few steps, to compare nodes. These steps are in no counter but `probe_steps`."""
    random = generator(config.seed, Purpose.PROBE)
    seen = [env.reset(integer(config.seed, Purpose.PROBE, block=1))]
    for number in range(PROBE_STEPS):
        action = random.uniform(env.low, env.high).astype(np.float32)
        observation, _, terminated, truncated = env.step(action)
        if terminated or truncated:
            observation = env.reset(integer(config.seed, Purpose.PROBE, block=2 + number))
        seen.append(observation)
    return sha256(np.stack(seen).tobytes()).hexdigest()[:16]


def announce(job: Job, origin: dict[str, Any]) -> None:
    """Say what runs, where, and from which generation. Rank 0 only."""
    config, device = job.config, "" if job.learner is None else f", SAC on {job.learner.device}"
    log.say(f"esac_mpi: {config.algorithm} on {config.task.id}, seed {config.seed}, {job.params.layout.d:,} parameters{device}")
    log.say(f"  {job.world.size} ranks on {job.world.nodes} node(s): {origin['hosts']}; {origin['mpi']}")
    log.say(f"  run directory {run(job).path}")
    before = run(job).restored
    if before is not None:
        dropped = f"; {run(job).dropped} later rows dropped, will be made again" if run(job).dropped else ""
        log.say(f"  resumed at generation {job.state.generation} from {before.source.name}{dropped}")
        for what in ("cpu", "versions"):
            if before.attributes.get(what) != origin[what]:
                log.warn(f"{what}: was {before.attributes.get(what)}, is now {origin[what]}: exact, but bits may differ")


def shown(job: Job, row: dict[str, Any], timing: dict[str, Any]) -> dict[str, Any]:
    """Return what the display shows of a generation."""
    counters, seconds = job.state.counters, timing["wall_seconds"]
    fitness = row.get("fitness", np.array([row.get("sac_episodic_return", np.nan)]))
    finite = fitness[np.isfinite(fitness)]
    values = {
        "generation": job.state.generation,
        "progress": min(progress(job), 1.0),
        "env_steps": counters.env_steps,
        "fitness_mean": finite.mean() if finite.size else np.nan,
        "fitness_max": finite.max() if finite.size else np.nan,
        "sigma": row.get("sigma", np.nan),
        "gradient_updates": counters.gradient_updates,
        "wall_seconds": seconds,
    }
    for name in job.state.policies:
        values[f"evaluation_{name}"] = rollout.mean_return(row[f"evaluation_{name}"]) if state_evaluated(job) else np.nan
    return values


def state_evaluated(job: Job) -> bool:
    """Return whether this generation was evaluated."""
    return job.state.generation % job.config.evaluation.every == 0


def say_end(job: Job, code: int, final: rollout.Best) -> None:
    """Say where the results are and what to do with them. Rank 0 only."""
    path, generation = run(job).path, job.state.generation
    if code == FINISHED:
        best = max(job.state.best.episodic_return, final.episodic_return)
        log.say(
            f"finished at generation {generation}: best return {best:.1f}, final {final.episodic_return:.1f} ({final.policy})"
        )
    elif code == STOPPED:
        log.say(f"stopped at generation {generation}, saved; run the same command again to go on")
    else:
        log.warn(f"generation {generation} could not be saved; the checkpoint before it stands")
    log.say(f"  results {path / 'metrics.h5'}, best policy {path / 'policy.h5'}")
    log.say(f"  curve   python tools/plot.py {path}")


def run(job: Job) -> "Run":
    """Return the run directory. Rank 0 only."""
    assert job.run is not None
    return job.run
