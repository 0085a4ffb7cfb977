"""The lines about the task: whether every rank can play it, how fast, with the same bits, and what work it makes."""

import numpy as np

from esac_mpi import envs
from esac_mpi.config import Config
from esac_mpi.envs import probe
from esac_mpi.play import epsilon
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training import replay_memory, set_up
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line, spans


def playing(config: Config, ranks: list[Rank]) -> list[Line]:
    """Return the lines about the task: whether every rank can play it, how fast, and with the same bits."""
    broken = [r for r, rank in enumerate(ranks) if rank.task]
    if broken:
        return [
            Line(
                "task",
                f"{config.task.id} cannot be played on ranks {spans(broken)}",
                ranks[broken[0]].task,
                True,
            )
        ]
    speeds = np.array([rank.steps_per_second for rank in ranks])
    rates = " / ".join(f"{rate:,.0f}" for rate in np.quantile(speeds, (0, 0.5, 1)))
    slowest = max(rank.seconds_import for rank in ranks)
    found = f"made in {slowest:.1f} s; {probe.PROBE_STEPS} steps on each rank: min / median / max {rates} steps/s"
    odd = sorted({rank.host for rank in ranks if rank.physics != ranks[0].physics})
    differ = f"other bits on {', '.join(odd)}: use nodes of one kind, or results depend on which evaluates what"
    physics = Line("physics", f"digests on rank 0: {ranks[0].physics}", differ if odd else "")
    again = Line(
        "episodes",
        "not repeated" if ranks[0].apart else "the same again after others",
        ranks[0].apart,
    )
    first = ranks[0].found
    bad = (
        [Line("observations", "not all finite", first.not_finite)]
        if first and first.not_finite
        else []
    )
    return [Line("task", found), physics, again, *bad]


def work(config: Config, env: envs.Env | None, ranks: int) -> list[Line]:
    """Return the lines about what the ranks and the learner have to do."""
    if env is None:
        return []
    params = Params(config, make_layout(config, env), env.horizon, epsilon.Philox(config.seed))
    found, better = set_up.spread(params, ranks)
    if better and getattr(config.own, "episodes_on", "") == "root":
        better += f"; in a new run with --{config.algorithm}.episodes_on ranks they play its training episodes"
    lines = [Line("work", found, better)]
    if cut := replay_memory.unseen(config, env.horizon):
        lines.append(Line("learner", "its episodes are cut", cut))
    return lines
