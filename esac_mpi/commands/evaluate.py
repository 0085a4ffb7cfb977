"""Evaluate a policy: returns and lengths of noise-free episodes, with 95 % intervals.

    esac-mpi evaluate RUN|POLICY [--episodes N] [--seed S] [--task ID] [--json]

Examples:
    esac-mpi evaluate runs/Hopper-v5-esac-seed0                     # its best policy, 100 times
    mpirun -n 8 esac-mpi evaluate policy.h5 --episodes 1000         # on eight ranks: equal numbers
    esac-mpi evaluate policy.h5 --weight-noise 0.02 --json          # with perturbed weights

The start states follow from --seed and the episode's number. No training uses them. Needs no torch,
and in one process no MPI. Cost: 0.05 to 0.5 s an episode; start-up 1 s.

iqm             interquartile mean: mean of the middle 50 % of the returns
interval        of the mean, iqm_interval of the iqm: 95 % percentile bootstrap over episodes, null
                for one. It covers other start states, but no other training seeds
std             sample standard deviation (n - 1)
unstable        episodes whose return is not finite; with any, the statistics are null
"""

import argparse
import json
from hashlib import sha256
from typing import Any

import numpy as np

from esac_mpi import Policy, envs
from esac_mpi.analysis.command import amount, count, whole_number
from esac_mpi.analysis.messages import Unusable
from esac_mpi.comm.command_ranks import on_all, over_ranks
from esac_mpi.host.errors import RunError
from esac_mpi.host.invocation import look_here
from esac_mpi.host.log import complain, figures
from esac_mpi.host.paths import read_path
from esac_mpi.host.streams import answer_alone, as_json
from esac_mpi.policies.evaluation import make_env, play_episodes, statistics


def report(
    policy: Any, env: envs.Env, world: Any, options: Any, returns: np.ndarray, lengths: np.ndarray
) -> dict[str, Any]:
    """Return everything about an evaluation."""
    return {
        "policy": str(policy.path), "trained_on": policy.task, "task": env.id,
        "task_kwargs": {} if options.task else policy.task_kwargs,
        "horizon": env.horizon, "seed": options.seed, "weight_noise": options.weight_noise,
        "ranks": world.size, "episodes": len(returns),
        "unstable": int(np.isnan(returns).sum()), **statistics(returns),
        "length": {
            "mean": lengths.mean(), "shortest": int(lengths.min()), "longest": int(lengths.max()),
        },
        "returns": [value if np.isfinite(value) else None for value in returns.tolist()],
        "lengths": lengths.tolist(),
    }  # fmt: skip


def format_report(policy: Any, found: dict[str, Any]) -> str:
    """Format the report for a person."""
    count = f"{found['episodes']} episode{'s' if found['episodes'] > 1 else ''}"
    if found["unstable"]:
        which = f" ({found['not_finite']})" if found["not_finite"] else ""
        returns = f"unstable in {found['unstable']} of {count}{which}: no mean of all can be given"
    else:
        ends = {"mean": found["interval"], "IQM": found["iqm_interval"]}
        parts = []
        for name in ("mean", "std", "median", "IQM", "worst", "best"):
            value, pair = found[name.lower()], ends.get(name)
            shown = "one episode has no interval" if value is None else f"{name} {figures(value)}"
            parts.append(f"{shown} [{', '.join(map(figures, pair))}]" if pair else shown)
        returns = ", ".join(parts)
    steps = "mean {mean:.1f}, {shortest} to {longest} steps".format(**found["length"])
    kwargs = f" {json.dumps(found['task_kwargs'])}" if found["task_kwargs"] else ""
    noise = f", weight noise {found['weight_noise']:g}" if found["weight_noise"] else ""
    about = f"{found['task']}{kwargs}, {count}, seed {found['seed']}{noise}"
    return f"{policy}\n{about}\nreturn  {returns}\nlength  {steps} of at most {found['horizon']}"


def load_on_all(options: argparse.Namespace, world: Any) -> tuple[Policy, envs.Env]:
    """Return the policy, the same on all ranks, and its task. Raises on all what one raises."""
    policy = on_all(world, lambda: Policy.load(options.policy))
    env = on_all(world, lambda: make_env(policy, options.task, options.horizon))
    if len({*world.gather(sha256(policy.theta.tobytes()).digest())}) > 1:
        raise Unusable(f"{options.policy}: a better policy came while the ranks read it; try again")
    return policy, env


def add_arguments(line: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its line."""
    add = line.add_argument
    add("policy", type=read_path, metavar="POLICY|RUN", help="policy.h5 or run directory")
    add("--episodes", type=count, default=100, help="noise-free episodes (100)")
    text = "another task of equal spaces, or this one without its task.kwargs"
    add("--task", default="", help=text)
    text = "truncate episodes there [steps]; 0: the task's own limit (as in training)"
    add("--horizon", type=whole_number, help=text)
    add("--seed", type=whole_number, default=0, help="which start states (0)")
    text = "perturb every weight, each episode (0)"
    add("--weight-noise", type=amount, default=0.0, metavar="SIGMA", help=text)
    add("--json", action="store_true", help="one JSON object, with every episode")


def main(options: argparse.Namespace) -> int:
    """Print the evaluation; return 2 for a wrong use or task or no policy, 65 for a bad file."""
    look_here()
    return over_ranks(lambda world: evaluate(options, world))


def evaluate(options: argparse.Namespace, world: Any) -> int:
    """Print the evaluation on rank 0; return the exit code."""
    with answer_alone(options.json) as answer:
        try:
            policy, env = load_on_all(options, world)
        except RunError as error:
            if world.rank == 0:
                complain(error)
            return error.code
        noise = options.weight_noise
        played = play_episodes(world, env, policy, options.episodes, options.seed, noise)
        found = report(policy, env, world, options, *played)
        found["not_finite"] = next(filter(None, world.gather(env.not_finite)), "")
        if world.rank == 0:
            answer(as_json(found) if options.json else format_report(policy, found))
    return 0
