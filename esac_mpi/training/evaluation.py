"""Noise-free evaluations of a run's policies, and which policy is the best.

Of many noisy means the greatest flatters, and is seldom of the best policy. So a policy whose
evaluation is above what the best one has shown only challenges it: both play as many episodes from
equal, new start states (Purpose.DUEL), and the one with the greater mean is the best. The return
that is told of it is the mean over as many others, which chose nothing (Purpose.CONFIRMATION).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from esac_mpi.host import process_state
from esac_mpi.operators.noise import Purpose, integer
from esac_mpi.operators.policy import Normaliser
from esac_mpi.play import rollout
from esac_mpi.play.counters import Best
from esac_mpi.training.active_run import Job

Returns = dict[str, np.ndarray]  # of each policy [episodes]


class Played(NamedTuple):
    """Evaluation episodes of policies; nothing of them is counted yet."""

    returns: Returns  # evaluation_<policy>
    env_steps: int
    unstable: int  # episodes
    seconds: np.ndarray  # of each episode [policies * episodes]


def on_schedule(job: Job) -> tuple[dict[str, np.ndarray | float], np.ndarray]:
    """Evaluate on schedule; return a row's columns and each episode's seconds, or nan."""
    counters, episodes = job.state.counters, job.config.evaluation.episodes
    columns = {f"evaluation_{name}": np.full(episodes, np.nan) for name in job.state.policies}
    seconds = np.full(len(columns) * episodes, np.nan)
    if job.evaluated:
        found, job.state.best = evaluate(job)
        columns, seconds = found[0].returns, np.concatenate([each.seconds for each in found])
        counters.env_steps_evaluation += sum(each.env_steps for each in found)
        counters.unstable_episodes += sum(each.unstable for each in found)
    return {**columns, "best_return": job.state.best.episodic_return}, seconds


def at_end(job: Job) -> tuple[Best, Best]:
    """Choose the best policy of the last generation, and the best policy of the run.

    Evaluates off schedule where needed, without a trace in the state.
    """
    if job.evaluated:
        columns = job.run.last_row("evaluation_") if job.run else None
        return better(job, columns, Best()) if columns else Best(), job.state.best
    job.world.end_background()  # of a phase in flight the start is saved
    found, best = evaluate(job)
    if job.run:
        row = {
            "generation": np.array(job.state.generation),
            "env_steps_evaluation": np.array(sum(each.env_steps for each in found)),
            "best_return": np.array(best.episodic_return),
        }
        job.run.final(row | found[0].returns)
    return better(job, found[0].returns, Best()), best


def evaluate(job: Job) -> tuple[list[Played], Best]:
    """Evaluate this generation's policies; a challenger that wins its duel becomes the best.

    Returns the evaluation, and then the duel and the confirmation, as far as they were played.
    """
    holder, seen = job.state.best, job.state.normaliser(job.config)
    played = [play(job, job.state.policies, Purpose.EVALUATION)]
    challenger = better(job, played[0].returns, holder)
    if challenger is holder:
        return played, holder
    shown = [challenger.episodic_return]
    if holder.policy:
        both = {"challenger": challenger.theta, "best policy": holder.theta}
        played.append(play(job, both, Purpose.DUEL, (seen, holder.standardised)))
        mine, theirs = (rollout.mean_return(returns) for returns in played[-1].returns.values())
        if mine <= theirs:
            return played, holder
        shown.append(mine)
    played.append(play(job, {challenger.policy: challenger.theta}, Purpose.CONFIRMATION))
    (returns,) = played[-1].returns.values()
    confirmed = rollout.mean_return(returns)
    if not np.isfinite(confirmed):
        return played, holder
    bar = float(np.mean([*shown, confirmed]))
    return played, replace(challenger, episodic_return=confirmed, shown=bar)


@process_state.preserve_state(wholly=False)
def play(
    job: Job, policies: Returns, purpose: Purpose, normalisers: Sequence[Normaliser | None] = ()
) -> Played:
    """Play the purpose's noise-free episodes of policies [d], each from equal start states.

    normalisers: of each policy; by default all have the state's.
    """
    world, config, k = job.world, job.config, job.state.generation
    names, episodes = list(policies), config.evaluation.episodes
    seen = normalisers or [job.state.normaliser(config)] * len(names)

    def work(i: int) -> np.ndarray:
        which, number = divmod(i, episodes)
        name, start = names[which], world.clock()
        seed = integer(config.seed, purpose, k, block=number)
        job.policy.normaliser = seen[which]
        where = f"in the evaluation of {name} after generation {k}, episode {number}"
        with rollout.note_origin(where):
            episode = rollout.play(job.env, job.policy.set(policies[name]), seed)
        return np.array([episode.episodic_return, episode.episodic_length, world.clock() - start])

    board = rollout.evaluation_board(len(names), episodes)
    table, _ = world.map(work, board.rows, board.columns)
    returns = table[:, 0].reshape(len(names), episodes).copy()
    columns = {f"evaluation_{name}": each for name, each in zip(names, returns, strict=True)}
    steps, unstable = int(table[:, 1].sum()), int(np.isnan(returns).sum())
    return Played(columns, steps, unstable, table[:, 2].copy())


def better(job: Job, columns: Returns, best: Best) -> Best:
    """Choose the best of this generation's policies if it surpasses `best`, else `best`.

    Where each policy is reported by itself, only the first is compared.
    """
    policies = list(job.state.policies.items())
    for name, theta in policies[:1] if job.algorithm.DECLARES.apart else policies:
        value = rollout.mean_return(columns[f"evaluation_{name}"])
        if value > best.bar:
            seen, normaliser = np.zeros((2, 0), np.float32), job.state.normaliser(job.config)
            if normaliser is not None:
                seen = np.stack([normaliser.mean, normaliser.std])
            best = Best(value, job.state.generation, name, theta.copy(), seen, value)
    return best
