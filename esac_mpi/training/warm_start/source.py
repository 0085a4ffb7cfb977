"""What a warm start begins from, as its files have it, and what of it no run can begin from."""

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS, head_scale_of
from esac_mpi.config import (
    NAMES,
    Config,
    ConfigError,
    PolicyNetwork,
    as_words,
    check,
    table_of,
    updated,
)
from esac_mpi.config.fields import shown, value_of
from esac_mpi.host.run_directory import CHECKPOINT, PREVIOUS, is_run
from esac_mpi.play.counters import Counters
from esac_mpi.record import Away, Checkpoint, Refused, Unreadable, begun_otherwise
from esac_mpi.record.checkpoints import read_checkpoint
from esac_mpi.record.errors import unread
from esac_mpi.record.policies import Policy
from esac_mpi.record.task_identity import changes

# observations that the mean and standard deviation of a policy alone count as
POLICY_WEIGHS = 1_000_000
APART = ("changed", "horizon")  # fields of [task] that leave the meaning of a transition as it is


class Obstacle(NamedTuple):
    """Why no run can begin so, and the fields that take it away, None where no setting does."""

    told: str
    settings: dict[str, Any] | None


@dataclass(frozen=True)
class Source:
    """A run at a checkpoint, or a policy alone, whose `config` and `checkpoint` are None."""

    said: str  # as the person wrote it
    folder: Path  # in which its files are
    policies: dict[str, np.ndarray]  # float32 [d] by name; the one that counts first
    # policy.hidden, activation, layer_norm, linear and linear_gain, by their whole names
    network: dict[str, Any]
    output: str  # how its policies' outputs are bounded
    sizes: tuple[int, int] | None  # of observation and action, where its files say so
    discrete: bool | None  # whether an action is a choice, where its files say so
    standardises: bool  # whether its policies see standardised observations
    sums: np.ndarray | None  # over observations, float64 [3, o], by which they do
    about: dict[str, Any]  # what a run's files hold of it
    head_scale: float = 1.0  # what its policies' last layers are held times, if actions are choices
    config: Config | None = None
    checkpoint: Checkpoint | None = None
    # of the run, and of those that it came from in turn
    seeds: list[int] = field(default_factory=list)

    @property
    def theta(self) -> np.ndarray:
        """The policy that counts, float32 [d]."""
        return next(iter(self.policies.values()))

    @property
    def words(self) -> str:
        """What it is, in words."""
        what = f"{self.about['algorithm']}," if self.config else f"{self.about['policy']} of"
        return f"{self.said} ({what} generation {self.about['generation']}, {self.task})"

    @property
    def task(self) -> str:
        """Its task, in words."""
        return in_words(self.about["task"], self.about["task_kwargs"])


def find(
    said: str, config: Config, env: envs.Env, d: int, run_directory: Path, whole: bool = True
) -> Source:
    """Read what a run is to begin from, a run or a policy. Raises Refused, Unreadable.

    d: parameters of the run's policies. whole: whether to look through the source's replay, too.
    """
    path = Path(said)
    try:
        refuse_place(said, path)
        source = of_run(said, path, whole) if path.is_dir() else of_policy(said, path)
    except OSError as error:  # somebody else's folder, or no name of a file
        problem = unread(f"--from {said}", error)
        raise problem if isinstance(problem, Away) else Refused(str(problem)) from error
    if found := [*obstacles(source, config, env, d, run_directory)]:
        why = "; ".join(obstacle.told for obstacle in found)
        raise Refused(f"--from {said}: {why}{way_out(found, config)}")
    here = env.observation_size, env.action_size  # older files do not say
    return replace(source, discrete=envs.is_discrete(env), sizes=source.sizes or here)


def is_within(said: str, run_directory: Path) -> bool:
    """Say whether a source is a run's own directory, or in it."""
    path = Path(said)
    return run_directory.resolve() == (path if os.path.isdir(path) else path.parent).resolve()


def refuse_place(said: str, path: Path) -> None:
    """Raise Refused for what is no run and no policy; OSError where that cannot be seen."""
    folder = path if path.is_dir() else path.parent
    if not path.exists():
        raise Refused(f"--from {said}: there is no such run directory and no such policy.h5")
    # config.toml, status.json, log.txt
    if path.is_file() and path.suffix in (".toml", ".json", ".txt"):
        run = f", {folder}" if is_run(folder) else ""
        meant = f"the directory of a run is meant{run}, or a policy.h5"
        raise Refused(f"--from {said}: not a policy; {meant}")
    if path.is_dir() and not is_run(path):
        raise Refused(f"--from {said}: not a run directory of esac_mpi, nor a policy.h5")


def of_run(said: str, path: Path, whole: bool) -> Source:
    """Read a run at its newest sound checkpoint; it may go on. Raises Refused, Unreadable."""
    saved = newest(said, path, whole)
    config, state, attributes = saved.config, saved.state, saved.attributes
    sums, sizes = state.get("observation_sums"), str(attributes.get("sizes", "")).split()
    declares, before = ALGORITHMS[config.algorithm].DECLARES, attributes.get("start")
    about = {
        "from": said,
        "path": str(path.resolve()),
        "kind": "run",
        "algorithm": config.algorithm,
        "task": config.task.id,
        "task_kwargs": config.task.kwargs,
        "seed": config.seed,
        "generation": int(saved.generation),
        "theta_sha256": attributes["theta_sha256"],
        "state_sha256": attributes["state_sha256"],
        "counters": {f.name: int(state.get(f"counters.{f.name}", 0)) for f in fields(Counters)},
    }
    return Source(
        said,
        path,
        policies(config, state),
        network(config.policy),
        declares.output or config.policy.output,
        sizes=(int(sizes[0]), int(sizes[-1])) if sizes else None,
        discrete=bool(attributes["discrete"]) if "discrete" in attributes else None,
        standardises=standardised(config),
        sums=sums if sums is not None and sums.any() else None,
        about=about,
        head_scale=declares.head_scale,
        config=config,
        checkpoint=saved,
        seeds=[config.seed, *json.loads(before or "{}").get("seeds", [])],
    )


def of_policy(said: str, path: Path) -> Source:
    """Return a policy alone. Raises Unreadable."""
    found = Policy.load(path)
    layout, sums = found.layout, None
    o, *hidden, a = layout.sizes
    activation: Any = found.activation
    gain = layout.linear or PolicyNetwork.linear_gain
    form = PolicyNetwork(tuple(hidden), activation, layout.layer_norm, layout.path > 0, gain)
    if (normaliser := found.normaliser) is not None:
        mean, std = (part.astype(np.float64) for part in (normaliser.mean, normaliser.std))
        sums = POLICY_WEIGHS * np.stack([np.ones(o), mean, std**2 + mean**2])
    sha256 = hashlib.sha256(np.ascontiguousarray(found.theta, "<f4").tobytes()).hexdigest()
    about = {
        "from": said,
        "path": str(path.resolve()),
        "kind": "policy",
        "policy": found.kind,
        "task": found.task,
        "task_kwargs": found.task_kwargs,
        "generation": found.generation,
        "theta_sha256": sha256,
    }
    return Source(
        said,
        path.parent,
        {found.kind: found.theta.copy()},
        network(form),
        found.output,
        sizes=(o, a),
        discrete=found.discrete,
        standardises=sums is not None,
        sums=sums,
        about=about,
        head_scale=head_scale_of(found.kind),
    )


def newest(said: str, path: Path, whole: bool) -> Checkpoint:
    """Read the newest sound checkpoint of a run, which may go on; without a damaged replay.

    Raises Refused, Unreadable.
    """
    if not any((path / name).exists() for name in (CHECKPOINT, PREVIOUS)):
        raise Refused(f"--from {said}: this run has no checkpoint yet")
    found: list[str] = []
    # the third: one published since the first look
    for name in (CHECKPOINT, PREVIOUS, CHECKPOINT, CHECKPOINT, PREVIOUS):
        lost = found[name == PREVIOUS] if len(found) > 2 else ""
        try:
            return read_checkpoint(path / name, whole, lost=lost)
        except Away:
            raise
        except (Unreadable, ConfigError) as error:
            found.append(str(error))
    raise Unreadable(f"--from {said}: no readable checkpoint: {'; '.join(found[:2])}")


def policies(config: Config, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the policies of a state by name, float32 [d], of its arrays alone."""
    kind = ALGORITHMS[config.algorithm].State
    found = object.__new__(kind)
    for name, array in state.items():
        if "." not in name:
            setattr(found, name, array)
    return dict(found.policies)


def network(policy: PolicyNetwork) -> dict[str, Any]:
    """Name what policies of two runs must have in common beside observation and action."""
    names = ["hidden", "activation", "layer_norm", "linear"]
    if policy.linear:
        names.append("linear_gain")
    return {f"policy.{name}": getattr(policy, name) for name in names}


def standardised(config: Config) -> bool:
    """Return whether a run standardises observations."""
    name = f"{table_of(config.algorithm)}.observation_normalisation"
    return name in NAMES and bool(value_of(config, name))


def obstacles(
    source: Source, config: Config, env: envs.Env, d: int, run_directory: Path
) -> Iterator[Obstacle]:
    """Yield everything that would make a run of nonsense of it."""
    if is_within(source.said, run_directory):
        free = next(path for n in count(2) if not Path(path := f"{run_directory}-{n}").exists())
        told = "that is in the directory of this run itself; choose another --run-dir"
        yield Obstacle(told, {"run_dir": free})
    if config.seed in source.seeds:
        unspent = next(n for n in count(config.seed + 1) if n not in source.seeds)
        told = f"it was made with seed {config.seed}, whose noise and episodes would come again"
        yield Obstacle(f"{told}; choose another --seed", {"seed": unspent})
    for name, was in source.network.items():
        if was != (now := value_of(config, name)):
            told = f"its policies have {name} = {listed(was)}, this run's {listed(now)}"
            yield Obstacle(told, {name: was})
    alike = source.network == network(config.policy)
    yield from other_sizes(source, config, env, d if alike else source.theta.size)
    if source.standardises != standardised(config):
        seen = "standardised" if source.standardises else "plain"
        name, *others = (
            f"{table_of(algorithm)}.observation_normalisation"
            for algorithm in (config.algorithm, *ALGORITHMS)
        )
        if name in NAMES:
            value = source.standardises
            told = f"its policies see {seen} observations: --{name} {shown(value)}"
            yield Obstacle(told, {name: value})
        else:
            able = ", ".join(other.partition(".")[0] for other in others if other in NAMES)
            told = f"its policies see {seen} observations, and {config.algorithm} has plain ones"
            yield Obstacle(f"{told} alone; those that can have others: {able}", None)
    if told := begun_otherwise(config, source.about):
        yield Obstacle(told, None)


def other_sizes(source: Source, config: Config, env: envs.Env, d: int) -> Iterator[Obstacle]:
    """Yield in what the task differs in kind; d: parameters of policies with its layers."""
    here, discrete = (env.observation_size, env.action_size), envs.is_discrete(env)
    whose = {"task.id": source.about["task"], "task.kwargs": source.about["task_kwargs"]}
    if whose["task.kwargs"] == config.task.kwargs:
        del whose["task.kwargs"]
    if (source.sizes or here) != here or source.theta.size != d:
        sizes = [f"{o} observations and {a} actions" for o, a in (source.sizes or here, here)]
        was, now = sizes if source.sizes else (f"{n:,} parameters" for n in (source.theta.size, d))
        yield Obstacle(f"its policies, for {source.task}, are of {was}, this run's of {now}", whose)
    if source.discrete is not None and source.discrete != discrete:
        kinds = ("continuous actions", "discrete ones")
        was, now = kinds if not source.discrete else kinds[::-1]
        able = ALGORITHMS[config.algorithm].DECLARES.discrete or discrete
        told = f"{source.task} is of {was}, {in_words(env.id, config.task.kwargs)} of {now}"
        if able:
            yield Obstacle(told, whose)
        else:
            yield Obstacle(f"{told}, and {config.algorithm} takes no discrete ones", None)


def way_out(found: Sequence[Obstacle], config: Config) -> str:
    """Say with which words the same command works, where settings can take all away."""
    if any(obstacle.settings is None for obstacle in found):
        return ""
    settings: dict[str, Any] = {}
    for obstacle in found:
        settings |= obstacle.settings or {}
    try:
        check(updated(config, settings))
    except ConfigError as error:
        return f". There is no way with {config.algorithm}: {error}"
    words = [
        word
        for name, value in settings.items()
        for word in (f"--{name.replace('run_dir', 'run-dir')}", *as_words(value))
    ]
    return f". The same command works with these words at its end: {shlex.join(words)}"


def listed(value: Any) -> str:
    """Return a field's value in words."""
    return " ".join(as_words(value))


def in_words(task: str, kwargs: Mapping[str, Any]) -> str:
    """Return a task in words."""
    return f"{task} with {shown(kwargs)}" if kwargs else task


def other_task(source: Source, config: Config, now: Mapping[str, Any]) -> str:
    """Say in what the task is another than the source's. now: what this run records of it."""
    assert source.config is not None
    assert source.checkpoint is not None
    before, here = vars(source.config.task), vars(config.task)
    changed = [
        f"task.{name} was {shown(was)}"
        for name, was in before.items()
        if was != here[name] and name not in APART
    ]
    return ", ".join(changed or changes(source.checkpoint.attributes, now))


def acts_as(source: Source, config: Config) -> str:
    """Say so where policies act by another bound than they did."""
    output = ALGORITHMS[config.algorithm].DECLARES.output or config.policy.output
    if output == source.output:
        return ""
    told = f"its policies acted by {source.output}, they act by {output} here"
    return f"{told}: the same sign, other values between the bounds"
