"""Noise-free evaluations of a run's policies; a new best policy plays a second one.

The best policy is that of the greatest mean return in an evaluation. Of many noisy means the
greatest flatters. So its return is the mean over as many other episodes, which chose nothing
(Purpose.CONFIRMATION): it may be less than that of the policy before.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import learner_phases, rollout
from esac_mpi.play.counters import Best
from esac_mpi.training.active_run import Job

Returns = dict[str, np.ndarray]  # of each policy [episodes]


class Played(NamedTuple):
    """Evaluation episodes of policies; nothing of them is counted yet."""

    returns: Returns  # evaluation_<policy>
    env_steps: int
    unstable: int  # episodes
    seconds: np.ndarray  # of each episode [policies * episodes], and then of each that confirmed


def on_schedule(job: Job) -> tuple[dict[str, np.ndarray | float], np.ndarray]:
    """Evaluate on schedule; return a row's columns and each episode's seconds, or nan."""
    counters, episodes = job.state.counters, job.config.evaluation.episodes
    columns = {f"evaluation_{name}": np.full(episodes, np.nan) for name in job.state.policies}
    seconds = np.full(len(columns) * episodes, np.nan)
    if job.evaluated:
        found, job.state.best = evaluate(job)
        columns, seconds = found.returns, found.seconds
        counters.env_steps_evaluation += found.env_steps
        counters.unstable_episodes += found.unstable
    return {**columns, "best_return": job.state.best.episodic_return}, seconds


def at_end(job: Job) -> tuple[Best, Best]:
    """Choose the best policy of the last generation, and the best policy of the run.

    Evaluates off schedule where needed, without a trace in the state.
    """
    if job.evaluated:
        columns = job.run.last_row("evaluation_") if job.run else None
        return better(job, columns, Best()) if columns else Best(), job.state.best
    learner_phases.give_up(job.world)  # its start is saved
    found, best = evaluate(job)
    if job.run:
        row = {
            "generation": np.array(job.state.generation),
            "env_steps_evaluation": np.array(found.env_steps),
            "best_return": np.array(best.episodic_return),
        }
        job.run.final(row | found.returns)
    return better(job, found.returns, Best()), best


def evaluate(job: Job) -> tuple[Played, Best]:
    """Evaluate this generation's policies; confirm the return of one that becomes the best."""
    first = play(job, job.state.policies, Purpose.EVALUATION)
    best = better(job, first.returns, job.state.best)
    if best is job.state.best:
        return first, best
    again = play(job, {best.policy: best.theta}, Purpose.CONFIRMATION)
    confirmed = rollout.mean_return(again.returns[f"evaluation_{best.policy}"])
    best = replace(best, episodic_return=confirmed) if np.isfinite(confirmed) else job.state.best
    steps, unstable = first.env_steps + again.env_steps, first.unstable + again.unstable
    return Played(first.returns, steps, unstable, np.append(first.seconds, again.seconds)), best


@process_state.kept(wholly=False)
def play(job: Job, policies: Returns, purpose: Purpose) -> Played:
    """Play the evaluation episodes of policies, [d] each."""
    job.policy.normaliser = job.state.normaliser
    config, k = job.config, job.state.generation
    count, seed = config.evaluation.episodes, config.seed
    returns, steps, unstable, seconds = rollout.evaluate_policies(
        job.world, job.env, job.policy, policies, count, seed, k, purpose
    )
    columns = {f"evaluation_{name}": each for name, each in returns.items()}
    return Played(columns, steps, unstable, seconds)


def better(job: Job, columns: Returns, best: Best) -> Best:
    """Choose the best of this generation's policies if it surpasses `best`, else `best`.

    Where each policy is reported by itself, only the first is compared.
    """
    policies = list(job.state.policies.items())
    for name, theta in policies[:1] if job.algorithm.DECLARES.apart else policies:
        value = rollout.mean_return(columns[f"evaluation_{name}"])
        if value > best.bar:
            normaliser = job.state.normaliser
            seen = np.zeros((2, 0), np.float32) if normaliser is None else normaliser.stacked()
            best = Best(value, job.state.generation, name, theta.copy(), seen, value)
    return best
