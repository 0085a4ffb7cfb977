"""The task of a configuration, for an algorithm that can act in it."""

import json
from collections.abc import Iterator
from typing import Any

from esac_mpi import envs
from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import AUTO, Config, amend, as_option, as_text, flatten, unread_in, value_of
from esac_mpi.config.fields import normalisation, normalisation_of
from esac_mpi.config.reads import find_unmet, find_unread, reads
from esac_mpi.config.run import GAIN, NARROW, WIDE
from esac_mpi.config.table import SURVIVAL
from esac_mpi.envs import identity
from esac_mpi.envs.survival import survival_shift
from esac_mpi.host import log, process_state
from esac_mpi.play.params import make_env

MANY = 64  # observations; beyond, some are mostly 0, and standardised as loud as the rest
RATE, LOWER_RATE = 1e-3, 3e-4  # of SAC: up to MANY observations, and beyond


def make_task(config: Config) -> envs.Env:
    """Make the task, one in which the algorithm can act. Raises envs.TaskError."""
    env = make_env(config)
    if edited := identity.edited_modules(env):
        remedy = "what would run is what was imported: start Python anew"
        files = f"{', '.join(edited)} was edited since it was imported here"
        raise envs.EditedTask(f"{env.id}: {files}; {remedy}")
    able = [name for name, module in ALGORITHMS.items() if module.DECLARES.discrete]
    envs.refuse_discrete(env, config.algorithm, able)
    unread, said = list(unread_in(config, envs.is_discrete(env))), config.said or ()
    settled, _ = resolve_by_task(config, env)
    for name in find_unread(settled, said).keys() - find_unread(config, said).keys():
        *_, other = find_unmet(settled, name)
        value = as_text(value_of(settled, other))
        unread.append(f"{name}: not read with {other} = {value}, which auto is in this task")
    if unread:
        raise envs.TaskError(f"{env.id}: {'; '.join(unread)}")
    return env


def resolve_by_task(config: Config, env: envs.Env) -> tuple[Config, str]:
    """Complete a configuration by what it leaves to the task, and name such fields."""
    shifts = [(name, value) for name, value in flatten(config) if name.endswith(".reward_shift")]
    names = [name for name, value in shifts if value == SURVIVAL and reads(config.algorithm, name)]
    values: dict[str, Any] = dict.fromkeys(names, survival_shift(env)[0] if names else 0.0)
    many = env.observation_size > MANY
    if normalisation(config) == AUTO:
        values[normalisation_of(config)] = "shrink" if many else True
    if config.sac.lr_sac == AUTO and reads(config.algorithm, "sac.lr_sac"):
        values["sac.lr_sac"] = LOWER_RATE if many else RATE
    if config.policy.hidden == AUTO:
        values["policy.hidden"] = WIDE if many else NARROW
    if config.policy.linear_gain == AUTO:
        values["policy.linear_gain"] = config.policy.path_gain(env.observation_size) or GAIN
    return amend(config, values), " ".join(values)


def describe_task(config: Config, names: str, env: envs.Env) -> Iterator[str]:
    """Yield what to say of a task beside its id; names: of fields whose numbers it had."""
    standardises = normalisation_of(config)
    if config.task.kwargs:
        yield f"task.kwargs {json.dumps(config.task.kwargs)}"
    limits = {"horizon": config.task.horizon}
    limits["kwargs.max_episode_steps"] = config.task.kwargs.get("max_episode_steps", 0)
    for name, asked in limits.items():
        if asked > env.horizon != config.task.horizon:
            yield f"task.{name} {asked}: unused, the task's limit is {env.horizon}"
    usual = {"policy.hidden": NARROW, "policy.linear_gain": GAIN, "sac.lr_sac": RATE}
    usual[standardises] = True
    for name in names.split():
        if name in usual and (found := value_of(config, name)) != usual[name]:
            yield f"{name} {as_option(found)}: for {env.observation_size} observations"
    if "reward_shift" in names:
        shift = vars(config.own)["reward_shift"]
        unknown = survival_shift(env)[1]
        why = "the bonus for survival" if shift else "the task names no healthy_reward"
        if unknown:
            why = f"the bonus for survival stays, as {unknown}; a new run could name it"
        yield f"reward_shift {shift:g}: {why}"
    hidden = config.policy.hidden
    inputs, outputs = env.observation_size, env.action_size
    if hidden == NARROW and inputs + outputs > hidden[0]:
        remedy = f"if it learns slowly, begin a run with --policy.hidden {as_option(WIDE)}"
        if normalisation(config) is True:
            remedy += f" or --{standardises} shrink"
        yield f"a large task for networks of {hidden[0]} units: {inputs} observations; {remedy}"


def let_go(*made: envs.Env | None) -> None:
    """Close tasks, which may hold a simulator; an error comes too late to end a run."""
    for env in made:
        try:
            with process_state.preserve_state():
                getattr(env, "close", lambda: None)()
        except (Exception, SystemExit) as error:
            log.warn(f"the task cannot be closed: {type(error).__name__}: {error}")
