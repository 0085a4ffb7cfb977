"""Noise-free evaluations of a run's policies, on schedule and at its end; a new best policy plays a second one.

The best policy is that of the greatest mean return in an evaluation. Of many noisy means the greatest flatters. So its return is
the mean over as many other episodes, which chose nothing (Purpose.CONFIRMATION): it may be less than that of the policy before.
"""

from dataclasses import dataclass, replace

import numpy as np

from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose
from esac_mpi.play import learner_phases, rollout
from esac_mpi.play.counters import Best
from esac_mpi.training.active_run import Job

Returns = dict[str, np.ndarray]  # of each policy [episodes]


@dataclass(frozen=True)
class Evaluation:
    """What the evaluation of a generation gave; nothing of it is counted yet."""

    columns: Returns  # of the generation's row
    best: Best  # after it
    env_steps: int  # those of the confirmation, too
    unstable: int  # episodes
    seconds: np.ndarray  # of each episode [policies * episodes], and then of each that confirmed


def on_schedule(job: Job) -> tuple[dict[str, np.ndarray | float], np.ndarray]:
    """Evaluate on schedule; return a row's columns about it, and the seconds of each episode; nan without evaluation."""
    episodes, names, counters = (
        job.config.evaluation.episodes,
        list(job.state.policies),
        job.state.counters,
    )
    columns = {f"evaluation_{name}": np.full(episodes, np.nan) for name in names}
    seconds = np.full(len(names) * episodes, np.nan)
    if job.evaluated:
        found = evaluated(job)
        columns, seconds, job.state.best = found.columns, found.seconds, found.best
        counters.env_steps_evaluation += found.env_steps
        counters.unstable_episodes += found.unstable
    return {**columns, "best_return": job.state.best.episodic_return}, seconds


def at_end(job: Job) -> tuple[Best, Best]:
    """Return the policy of the last generation that counts, by its evaluation, and the best policy of the run.

    Evaluates off schedule where needed, without a trace in the state.
    """
    if job.evaluated:
        columns = job.run.last_row("evaluation_") if job.run else None
        return better(job, columns, Best()) if columns else Best(), job.state.best
    learner_phases.give_up(job.world)  # its start is saved
    found = evaluated(job)
    if job.run:
        generation, best = np.array(job.state.generation), np.array(found.best.episodic_return)
        steps = np.array(found.env_steps)
        job.run.final(
            {
                "generation": generation,
                "env_steps_evaluation": steps,
                "best_return": best,
                **found.columns,
            }
        )
    return better(job, found.columns, Best()), found.best


def evaluated(job: Job) -> Evaluation:
    """Evaluate this generation's policies; confirm the return of one that becomes the best."""
    columns, env_steps, unstable, seconds = played(job, job.state.policies, Purpose.EVALUATION)
    best = better(job, columns, job.state.best)
    if best is job.state.best:
        return Evaluation(columns, best, env_steps, unstable, seconds)
    again, more_steps, more_unstable, more_seconds = played(
        job, {best.policy: best.theta}, Purpose.CONFIRMATION
    )
    confirmed = rollout.mean_return(again[f"evaluation_{best.policy}"])
    best = replace(best, episodic_return=confirmed) if np.isfinite(confirmed) else job.state.best
    return Evaluation(
        columns,
        best,
        env_steps + more_steps,
        unstable + more_unstable,
        np.append(seconds, more_seconds),
    )


@process_state.kept(wholly=False)
def played(job: Job, policies: Returns, purpose: Purpose) -> tuple[Returns, int, int, np.ndarray]:
    """Play the evaluation episodes of policies, [d] each.

    Returns {evaluation_<policy>: returns [episodes]}, environment steps, unstable episodes, and the seconds of each episode
    [policies * episodes].
    """
    job.policy.normaliser = job.state.normaliser
    returns, env_steps, unstable, seconds = rollout.evaluate_policies(
        job.world,
        job.env,
        job.policy,
        policies,
        job.config.evaluation.episodes,
        job.config.seed,
        job.state.generation,
        purpose,
    )
    return (
        {f"evaluation_{name}": values for name, values in returns.items()},
        env_steps,
        unstable,
        seconds,
    )


def better(job: Job, columns: Returns, best: Best) -> Best:
    """Return the best of this generation's policies if its evaluation surpasses that of `best`, else `best`.

    Where each policy is reported by itself, only the first is compared.
    """
    for name, theta in list(job.state.policies.items())[
        : 1 if job.algorithm.DECLARES.apart else None
    ]:
        value = rollout.mean_return(columns[f"evaluation_{name}"])
        if value > best.bar:
            normaliser = job.state.normaliser
            seen = np.zeros((2, 0), np.float32) if normaliser is None else normaliser.stacked()
            best = Best(value, job.state.generation, name, theta.copy(), seen, value)
    return best
