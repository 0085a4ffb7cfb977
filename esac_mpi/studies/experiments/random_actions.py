"""Measure the returns of uniform random actions on tasks: the 0 of normalised scores.

Each action is uniform within its bounds, drawn anew at every step; of discrete ones each is as
likely. Episodes have the task's own time limit, or that of --horizon, and the start states of
esac-mpi evaluate with seed 0. Cost: some seconds a task.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi import envs
from esac_mpi.analysis.messages import Unusable, note
from esac_mpi.analysis.results.rows import describe_changes, task_form
from esac_mpi.analysis.results.scores import random_returns
from esac_mpi.host import process_state
from esac_mpi.host.data_files import checkout, data_folder
from esac_mpi.host.invocation import call_of, look_here
from esac_mpi.host.paths import whole_file
from esac_mpi.operators.noise import Purpose, generator, integer
from esac_mpi.play.rollout import explore
from esac_mpi.studies.experiments.design import FOLDER

FILE = FOLDER / "random.toml"
EPISODES = 100
HEAD = f"""\
# Returns of {EPISODES} episodes of uniform random actions: the 0 of normalised scores \
(esac-mpi results aggregate). Other tasks
# are added, and these measured again, by: esac-mpi experiment random TASK [TASK ...]
# mean, its standard error, and the worst and best episode
"""


def play_randomly(env: envs.Env, episode: int) -> float:
    """Return one episode's return by uniform random actions, nan for unstable physics."""
    random = generator(0, Purpose.ACTION, 0, block=episode)

    def act(_: np.ndarray) -> np.ndarray:
        return random.uniform(-1, 1, env.action_size).astype(np.float32)

    return explore(env, act, integer(0, Purpose.EVALUATION, 0, block=episode))[1].episodic_return


@process_state.preserve_state()
def returns(env: envs.Env, episodes: int) -> np.ndarray:
    """Return the returns [episodes]. Raises Unusable where the physics was unstable in one."""
    with envs.refuse_errors(env.id, "played"):
        found = np.array([play_randomly(env, episode) for episode in range(episodes)])
    if unstable := int(np.isnan(found).sum()):
        told = f"the physics was unstable in {unstable} of {episodes} episodes of random actions"
        raise Unusable(f"{env.id}: {told}")
    return found


def write(
    tasks: Iterable[str],
    path: Path = FILE,
    episodes: int = EPISODES,
    horizon: int = 0,
    kwargs: Mapping[str, Any] | None = None,
) -> Path:
    """Measure these tasks into the file, which keeps others; return its path. Raises TaskError.

    horizon: where episodes are truncated [steps]; 0: the tasks' own limit. kwargs: what the tasks
    are made with.
    """
    look_here()
    if checkout() is None and path.is_relative_to(data_folder()):
        remedy = f"{call_of('examples')} copies configs/ here, for your own"
        raise Unusable(f"{path} belongs to the installed package: {remedy}")
    known = random_returns(path) if path.exists() else {}
    for id in tasks:
        found = returns(envs.make(id, horizon, dict(kwargs or {})), episodes)
        deviation = found.std(ddof=1) / np.sqrt(episodes)
        name = task_form(id, describe_changes(horizon, kwargs or {}))
        extremes = {"worst": found.min(), "best": found.max()}
        known[name] = {"mean": found.mean(), "error": deviation, **extremes}
        note(f"{name}: {found.mean():.6g} ± {deviation:.3g}")
    lines = []
    for id, figures in sorted(known.items()):
        text = ", ".join(f"{name} = {float(value):.6g}" for name, value in figures.items())
        lines.append(f"{json.dumps(id)} = {{ {text} }}")
    with whole_file(path) as file:
        file.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return path
