"""A run that begins from another one, or from a policy alone. Only rank 0 comes here.

What a run takes of its source: the policies, by their names where both have them, else the one that
counts, and the sums over observations, always. All else only where it is of the same kind, has the
same shapes and grew out of the same settings: what there is of a State by its parts
(play/marks.py), the learner, its replay if the task is the same. It begins anew otherwise, as do
counts, the best policy and the number of generations always. What a run's files hold of it is the
attribute `start`; docs/how-to/warm-start.md has the rules.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS, head_scale_of
from esac_mpi.config import Config, ConfigError, PolicyNetwork, amend, as_text, as_words, check
from esac_mpi.config.fields import normalisation, normalisation_of, value_of
from esac_mpi.host.errors import translate_error
from esac_mpi.host.run_directory import POLICY, is_run
from esac_mpi.play.counters import Counters, least_variance
from esac_mpi.play.marks import ANEW, OBSERVATIONS, Part, mark_of, marked
from esac_mpi.play.params import make_layout
from esac_mpi.play.state import checkpoint_fields, put_back
from esac_mpi.record import Away, Checkpoint, Refused, compare_start, replays
from esac_mpi.record.checkpoints import newest
from esac_mpi.record.directory_check import task_changes
from esac_mpi.record.policies import Policy
from esac_mpi.training.active_run import Job, run_directory

NEVER = ("generation", "counters", "best")
SEEN = {False: "plain", True: "standardised", "shrink": "shrunk"}
APART = ("changed", "horizon")  # fields of [task] that leave the meaning of a transition as it is
# observations that the mean and standard deviation of a policy alone count as
POLICY_WEIGHS = 1_000_000


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
    normalisation: bool | str  # how its policies see observations, a key of SEEN
    sums: np.ndarray | None  # over observations, float64 [3, o], by which they do
    about: dict[str, Any]  # what a run's files hold of it
    head_scale: float = 1.0  # what its policies' last layers are held times, if actions are choices
    narrow: int = 0  # observations of a standard deviation below what this run standardises by
    config: Config | None = None
    checkpoint: Checkpoint | None = None

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
        return format_task(self.about["task"], self.about["task_kwargs"])


def find(config: Config, env: envs.Env) -> Source:
    """Read what a run is to begin from, a run or a policy. Raises Refused, Unreadable."""
    said, path = config.start_from, Path(config.start_from)
    try:
        if path.is_dir() and is_run(path):
            source = read_run(said, path)
        elif path.is_file() or (path / POLICY).is_file():
            source = read_policy(said, path, least_variance(config))
        else:
            raise Refused(f"--from {said}: no run directory of esac_mpi, and no policy.h5")
    except OSError as error:  # somebody else's folder, or no name of a file
        problem = translate_error(f"--from {said}", error)
        raise problem if isinstance(problem, Away) else Refused(str(problem)) from error
    if found := [*obstacles(source, config, env)]:
        raise Refused(f"--from {said}: {'; '.join(found)}")
    return source


def is_within(config: Config) -> bool:
    """Tell whether a run's source is its own directory, or in it."""
    path = Path(config.start_from)
    folder = path if os.path.isdir(path) else path.parent
    return os.path.realpath(run_directory(config)) == os.path.realpath(folder)


def read_run(said: str, path: Path) -> Source:
    """Read a run at its newest sound checkpoint; it may go on. Raises Refused, Unreadable."""
    best = path / POLICY
    another = f"Begin with its best policy, --from {best}" if best.exists() else "Choose another"
    saved = newest(path, remedy=another)
    if saved is None:
        raise Refused(f"--from {said}: this run has no checkpoint yet")
    config, state, attributes = saved.config, saved.state, saved.attributes
    sums, sizes = state.get("observation_sums"), str(attributes.get("sizes", "")).split()
    declares = ALGORITHMS[config.algorithm].DECLARES
    before = json.loads(attributes.get("start") or "{}")
    about = make_source(said, path, "run", config.task.id, config.task.kwargs) | {
        "algorithm": config.algorithm,
        "seed": config.seed,
        # of the run, and of those that it came from in turn
        "seeds": [config.seed, *before.get("seeds", [])],
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
        normalisation=normalisation(config),
        sums=sums if sums is not None and sums.any() else None,
        about=about,
        head_scale=declares.head_scale,
        config=config,
        checkpoint=saved,
    )


def make_source(said: str, path: Path, kind: str, task: str, kwargs: Any) -> dict[str, Any]:
    """Name a source and its task, as a run's files do."""
    where = {"from": said, "path": str(path.resolve()), "kind": kind}
    return {**where, "task": task, "task_kwargs": kwargs}


def read_policy(said: str, path: Path, least: float) -> Source:
    """Read a policy alone; least: variance that a run standardises by. Raises Unreadable."""
    found = Policy.load(path)
    layout, sums, narrow = found.layout, None, 0
    o, *hidden, a = layout.sizes
    activation: Any = found.activation
    gain = layout.linear or PolicyNetwork.linear_gain
    form = PolicyNetwork(tuple(hidden), activation, layout.layer_norm, layout.path > 0, gain)
    if (normaliser := found.normaliser) is not None:
        mean, std = (part.astype(np.float64) for part in (normaliser.mean, normaliser.std))
        sums = POLICY_WEIGHS * np.stack([np.ones(o), mean, std**2 + mean**2])
        narrow = int((std**2 < least).sum())
    about = make_source(said, path, "policy", found.task, found.task_kwargs) | {
        "policy": found.kind,
        "seeds": [],
        "generation": found.generation,
        "theta_sha256": hashlib.sha256(found.theta.astype("<f4").tobytes()).hexdigest(),
    }
    return Source(
        said,
        path.parent,
        {found.kind: found.theta.copy()},
        network(form),
        found.output,
        sizes=(o, a),
        discrete=found.discrete,
        normalisation=sums is not None,
        sums=sums,
        about=about,
        head_scale=head_scale_of(found.kind),
        narrow=narrow,
    )


def policies(config: Config, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Name the policies of a state, float32 [d], of its arrays alone."""
    found = object.__new__(ALGORITHMS[config.algorithm].State)
    for name, array in state.items():
        if "." not in name:
            setattr(found, name, array)
    return dict(found.policies)


def network(policy: PolicyNetwork) -> dict[str, Any]:
    """Name what policies of two runs must have in common beside observation and action."""
    names = ["hidden", "activation", "layer_norm", "linear"] if policy.hidden else ["hidden"]
    if policy.hidden and policy.linear:
        names.append("linear_gain")
    return {f"policy.{name}": getattr(policy, name) for name in names}


def obstacles(source: Source, config: Config, env: envs.Env) -> Iterator[str]:
    """Yield everything that would make a run of nonsense of it, with its remedy."""
    declares, d = ALGORITHMS[config.algorithm].DECLARES, make_layout(config, env).d
    if is_within(config):
        yield "that is in the directory of this run itself; choose another --run-dir"
    if config.seed in source.about["seeds"]:
        spent = f"it was made with seed {config.seed}, whose noise and episodes would come again"
        yield f"{spent}; choose another --seed"
    for name, was in source.network.items():
        now = value_of(config, name)
        if was != now:
            remedy = option(config, name, was)
            was, now = (" ".join(as_words(value)) for value in (was, now))
            yield f"its policies have {name} = {was}, this run's {now}{remedy}"
    here = env.observation_size, env.action_size
    if source.sizes not in (None, here):
        was, now = (f"{o} observations and {a} actions" for o, a in (source.sizes, here))
        yield f"its policies, for {source.task}, are of {was}, this run's of {now}"
    elif source.network == network(config.policy) and source.theta.size != d:
        yield f"its policies, for {source.task}, have {source.theta.size:,} parameters, not {d:,}"
    if source.discrete not in (None, envs.is_discrete(env)):
        kinds = ("continuous", "discrete")
        was, now = kinds if not source.discrete else kinds[::-1]
        task = format_task(env.id, config.task.kwargs)
        yield f"{source.task} is of {was} actions, {task} of {now} ones"
    if envs.is_discrete(env) and source.head_scale != declares.head_scale:
        yield f"where an action is a choice, {config.algorithm} scales a last layer otherwise"
    was, now = source.normalisation, normalisation(config)
    if was != (now if source.config else bool(now)):  # a policy alone has but what it divides by
        name = normalisation_of(config)
        remedy = option(config, name, was) if name else f": {config.algorithm} has plain ones alone"
        yield f"its policies see {SEEN[was]} observations{remedy}"
    if otherwise := compare_start(config, source.about):
        yield otherwise


def option(config: Config, name: str, value: Any) -> str:
    """Write the option that gives a run such policies, after a colon; "" where it cannot have."""
    try:
        check(amend(config, {name: value}))
    except ConfigError:
        return ""
    return f": {' '.join([f'--{name}', *as_words(value)])}"


def format_task(task: str, kwargs: Mapping[str, Any]) -> str:
    """Write a task in words."""
    return f"{task} with {as_text(kwargs)}" if kwargs else task


@dataclass
class Plan:
    """What is taken beside policies and sums over observations; and all that in words."""

    source: Source
    values: dict[str, Any] = field(default_factory=dict)  # field of the state -> value
    learner: dict[str, np.ndarray] = field(default_factory=dict)
    replay: bool = False
    taken: list[str] = field(default_factory=list)  # in words
    left: list[str] = field(default_factory=list)  # what begins anew, in words

    def text(self) -> str:
        """Write what the run's files hold, JSON."""
        return json.dumps({**self.source.about, "taken": self.taken, "not_taken": self.left})

    def note(self, what: str, fits: bool) -> None:
        """Note whether something is taken."""
        (self.taken if fits else self.left).append(what)


def begin_policies(source: Source, state: Any) -> list[str]:
    """Copy the source's policies and sums over observations into a new state; name them."""
    taken, seen = list[str](), list[str]()
    by_name = state.policies
    for f in fields(state):
        own = getattr(state, f.name)
        name = next((name for name, theta in by_name.items() if theta is own), None)
        if name is not None:
            given = name if name in source.policies else next(iter(source.policies))
            own[...] = source.policies[given]
            taken.append(f.name if given in (f.name, name) else f"{f.name} (of {given})")
        elif mark_of(f).members:
            own[...] = source.theta
        elif mark_of(f).part == OBSERVATIONS and source.sums is not None:
            setattr(state, f.name, source.sums.copy())
            seen = [OBSERVATIONS.name]
    return taken + seen


def plan(source: Source, config: Config, state: Any, learner: Any, now: Mapping[str, Any]) -> Plan:
    """Plan what a run takes; its state gets the policies, its learner is that of this state.

    now: what the run records of itself, its task among that.
    """
    found = Plan(source, taken=begin_policies(source, state))
    output = ALGORITHMS[config.algorithm].DECLARES.output or config.policy.output
    if output != source.output:
        found.left.append(f"the bound {source.output} of its actions, here {output}")
    if source.narrow:
        least = f"{least_variance(config) ** 0.5:g}"
        least = f"{least} ({source.narrow} of them), here {least}"
        found.left.append(f"standard deviations of observations below {least}")
    if source.config is None or source.checkpoint is None:
        found.left.append("all else, as it is a policy alone")
        return found
    before, saved = source.config, source.checkpoint
    plan_parts(found, before, saved, config, state)
    if learner is not None:
        if kind_of_learner(before) == kind_of_learner(config):
            with suppress(ValueError):  # of another form
                found.learner = learner.fitting(saved.learner, before)
        found.note("the learner", bool(found.learner))
        first, stop = saved.replay_bounds
        if learner.replay is not None and stop > first:
            limits = [vars(c.own).get("time_limits", "truncation") for c in (before, config)]
            changed = other_task(before, saved, config, now)
            found.replay = not changed and limits[0] == limits[1]
            found.note(f"the replay ({changed})" if changed else "the replay", found.replay)
    found.left += [f.name for f, mark in marked(state) if mark.numbers]
    if config.algorithm != before.algorithm:
        found.left.append(f"all else, as {config.algorithm} is not {before.algorithm}")
    return found


def plan_parts(found: Plan, before: Config, saved: Checkpoint, config: Config, state: Any) -> None:
    """Take the parts of the state that fit."""
    kind = ALGORITHMS[before.algorithm].State
    theirs = {mark.part for _, mark in marked(kind)}
    for part, those in parts(state).items():
        if not (kind is type(state) or (part.common and part in theirs)):
            continue
        values = {f.name: saved_value(f, saved) for f in those}
        own = {f.name: getattr(state, f.name) for f in those}
        fits = all(v is not None and np.shape(v) == np.shape(own[n]) for n, v in values.items())
        was, now = vars(before.own), vars(config.own)
        if not (fits and all(was.get(name) == now.get(name) for name in part.settings)):
            found.left.append(part.name)
            continue
        found.values |= values
        if any(np.any(value) for value in values.values()):
            found.taken.append(part.name)


def parts(state: Any) -> dict[Part, list[Field[Any]]]:
    """List the parts of a state; what is always taken and what always begins anew are none."""
    found: dict[Part, list[Field[Any]]] = {}
    policies = [id(theta) for theta in state.policies.values()]
    numbers = {mark.numbers for _, mark in marked(state)}
    for f in checkpoint_fields(state):
        mark = mark_of(f)
        part = mark.part or Part(f.name)
        always = part == OBSERVATIONS or id(getattr(state, f.name)) in policies
        apart = mark.numbers or mark.transitions  # goes with the numbers of transitions
        never = part == ANEW or apart or f.name in (*NEVER, *numbers)
        if not (always or never):
            found.setdefault(part, []).append(f)
    return found


def saved_value(f: Field[Any], saved: Checkpoint) -> Any:
    """Read a field of a checkpoint, an older one's by default; None where there is none."""
    value = saved.state.get(f.name)
    if value is None:
        value = None if f.default is MISSING else np.asarray(f.default)
    if value is not None and mark_of(f).generation:
        return np.asarray(int(value) - saved.generation)
    return value


def kind_of_learner(config: Config) -> str:
    """Name the learner of a configuration's algorithm, empty for none."""
    learning = ALGORITHMS[config.algorithm].DECLARES.learning
    return learning.learner(config) if learning else ""


def other_task(before: Config, saved: Checkpoint, config: Config, now: Mapping[str, Any]) -> str:
    """Say in what the task is another than the source's. now: what this run records of it."""
    was, here = vars(before.task), vars(config.task)
    changed = [
        f"task.{name} was {as_text(was[name])}"
        for name in was
        if was[name] != here[name] and name not in APART
    ]
    return ", ".join(changed or task_changes(saved.attributes, now))


def take_over(source: Source, job: Job, now: Mapping[str, Any]) -> str:
    """Take over what a new run begins from; return what its files hold of it. Raises Unreadable."""
    state, learner = job.state, job.learner
    found = plan(source, job.config, state, learner, now)
    if found.replay:
        assert source.checkpoint is not None
        replays.fill(learner.replay, source.folder, source.checkpoint, anew=True)
    if found.learner:
        learner.load(found.learner)
        job.algorithm.DECLARES.learning.actor(state)[...] = learner.theta
    for f, mark in marked(state):
        if f.name in found.values:
            put_back(state, f, found.values[f.name])
        elif mark.transitions and found.replay:
            setattr(state, f.name, learner.replay.added)
    return found.text()


def describe(start: str) -> str:
    """Say of a Plan's text where a run began, what it has of that, and what began anew."""
    about = json.loads(start)
    taken = ", ".join(about["taken"])
    line = f"begun from {about['from']}, generation {about['generation']}: {taken}"
    return f"{line}; anew: {', '.join(about['not_taken'])}" if about["not_taken"] else line
