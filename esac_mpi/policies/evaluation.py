"""A trained policy's episodes and what can be said of their returns."""

from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.algorithms import head_scale_of
from esac_mpi.analysis.intervals import interquartile_mean, interval, mean
from esac_mpi.analysis.messages import Unusable
from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play.rollout import play


def make_env(policy: Any, task: str, horizon: int | None) -> envs.Env:
    """Make the task that the policy plays, by default its own, truncated as in training.

    horizon: where episodes are truncated [steps]; 0: the task's own limit. Raises TaskError,
    and Unusable where the policy cannot act in the task.
    """
    made = (task, 0, {}) if task else (policy.task, policy.horizon, policy.task_kwargs)
    env = envs.make(made[0], made[1] if horizon is None else horizon, made[2])
    o, *_, a = policy.layout.sizes
    if (env.observation_size, env.action_size) != (o, a):
        sizes = f"{env.observation_size} observations and {env.action_size} actions"
        raise Unusable(f"{env.id} has {sizes}, this policy of {policy.task} {o} and {a}")
    if policy.discrete not in (None, envs.is_discrete(env)):
        kinds = "continuous", "discrete"
        ours, theirs = kinds[policy.discrete], kinds[not policy.discrete]
        raise Unusable(f"{env.id} has {theirs} actions, this policy of {policy.task} {ours} ones")
    if (policy.low < env.low).any() or (policy.high > env.high).any():
        ours = f"this policy's in {policy.low} to {policy.high}"
        raise Unusable(f"actions of {env.id} are in {env.low} to {env.high}, {ours}")
    return env


@process_state.preserve_state()
def play_episodes(
    world: Any, env: envs.Env, policy: Any, count: int, seed: int, weight_noise: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Play; return returns, float64 [count], nan where unstable, and lengths, int64 [count].

    weight_noise: standard deviation of Gaussian noise on every parameter, drawn anew for each
    episode; of a last layer that is held smaller than it is (declaration.head_scale), on what it
    is. Raises TaskError for what the task's code raises.
    """
    theta = policy.theta.copy()
    held = head_scale_of(policy.kind) if policy.discrete else 1.0
    sigma = np.float32(weight_noise) * policy.layout.scale(held)

    def work(i: int) -> np.ndarray:
        if weight_noise:
            random = generator(seed, Purpose.MUTATION, 0, i)
            policy.set(theta + sigma * random.standard_normal(theta.size, "f4"))
        with envs.refuse_errors(env.id, f"played, in episode {i}"):
            episode = play(env, policy, integer(seed, Purpose.EVALUATION, 0, block=i))
        return np.array([episode.episodic_return, episode.episodic_length])

    table, _ = world.map(work, count, 2)
    return table[:, 0], table[:, 1].astype(int)


def statistics(returns: np.ndarray) -> dict[str, Any]:
    """Sum up returns [episodes]; null where that cannot be."""
    names = ("mean", "interval", "std", "median", "iqm", "iqm_interval", "worst", "best")
    if not np.isfinite(returns).all():
        return dict.fromkeys(names)
    several = len(returns) > 1
    values = (
        returns.mean(),
        interval([returns], mean) if several else None,
        returns.std(ddof=1) if several else None,
        np.median(returns),
        interquartile_mean(returns),
        interval([returns]) if several else None,
        returns.min(),
        returns.max(),
    )
    found = zip(names, values, strict=True)
    return {name: None if value is None else np.asarray(value).tolist() for name, value in found}
