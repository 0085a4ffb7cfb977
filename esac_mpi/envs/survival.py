"""What a task pays for each step of staying alive: `healthy_reward`, as Gymnasium calls it.

Hopper, Walker2d and Ant pay 1, Humanoid 5, and all of them for going forward. Without the bonus,
progress is what is left (ARS, section 4.1). InvertedDoublePendulum's 10 is none: it pays for
nothing else, so that without it the first fall would be the best. Nor is InvertedPendulum's 1,
which is its whole reward. On Ant an action costs up to 4: a fall at once would save more than that.
"""

import math
from contextlib import suppress
from inspect import getattr_static
from typing import Any

import numpy as np

from esac_mpi.envs import Env, is_of

BALANCE = "gymnasium.envs.mujoco.inverted_double_pendulum_v5", "InvertedDoublePendulumEnv"
HARMLESS = {  # wrappers that leave rewards and the number of steps as they are
    ("gymnasium.core", "ObservationWrapper"),
    ("gymnasium.core", "ActionWrapper"),
    ("gymnasium.wrappers.common", "TimeLimit"),
    ("gymnasium.wrappers.common", "OrderEnforcing"),
    ("gymnasium.wrappers.common", "PassiveEnvChecker"),
}


def survival_bonus(env: Env) -> tuple[float, str]:
    """Find a task's bonus for a step alive; 0 where there is none, or it is not known, and why."""
    *wrappers, own = getattr(env, "layers", [env])
    named = getattr_static(own, "healthy_reward", None)
    try:
        # where it is a property, it is 0 in a bad state
        kept = named is None or isinstance(named, property)
        bonus: Any = getattr(own, "_healthy_reward", None) if kept else None
        bonus = getattr(own, "healthy_reward", 0.0) if bonus is None else bonus
    except Exception as error:  # a property of a user's own
        return 0.0, f"its healthy_reward raises {type(error).__name__}"
    if is_of(own, *BALANCE) or not np.any(getattr(own, "_forward_reward_weight", 1.0)):
        return 0.0, ""
    for wrapper in wrappers if np.any(bonus) else ():
        if not any(is_of(wrapper, *harmless) for harmless in HARMLESS):
            return 0.0, f"its wrapper {type(wrapper).__name__} may change what a step pays"
    if np.any(bonus) and is_inherited(own, named):
        return 0.0, f"{type(own).__name__} may change what a step pays"
    with suppress(TypeError, ValueError):
        if 0 <= float(bonus) < math.inf:
            return float(bonus), ""
    return 0.0, f"its healthy_reward is {bonus!r:.80}"


def is_inherited(own: Any, bonus: Any) -> bool:
    """Whether a bonus is of a robot of Gymnasium's, whose reward the user's own code replaces."""
    parts = [getattr_static(own, name, None) for name in ("step", "_get_rew")]
    modules = [getattr(part, "__module__", "") for part in parts if part is not None]
    shipped = getattr(getattr(bonus, "fget", None), "__module__", "").startswith("gymnasium.")
    return shipped and not all(name.startswith("gymnasium.") for name in modules)


def survival_shift(env: Env) -> tuple[float, str]:
    """Find what a fitness leaves out of a return for each step: the bonus, or 0 and why."""
    bonus, why = survival_bonus(env)
    try:
        cost = effort(getattr(env, "layers", [env])[-1]) if bonus else 0.0
    except Exception as error:  # a property of a user's own, or what no number is
        return 0.0, f"its _ctrl_cost_weight raises {type(error).__name__}"
    if bonus < cost:
        return 0.0, f"an action costs up to {cost:g}, which a fall would save"
    return bonus, why


def effort(own: Any) -> float:
    """Compute what the largest action costs a step, as Gymnasium's robots have it [reward]."""
    weight = getattr(own, "_ctrl_cost_weight", None)
    space: Any = getattr(own, "action_space", None)
    if weight is None or not is_of(space, "gymnasium.spaces.box", "Box"):
        return 0.0
    largest = np.maximum(np.abs(space.low), np.abs(space.high))
    return float((weight * largest**2).sum())
