"""The lines about the task: whether all ranks can play it, how fast, and what work it makes."""

import numpy as np

from esac_mpi import envs
from esac_mpi.config import NAMES, Config
from esac_mpi.config.fields import value_of
from esac_mpi.envs import probe
from esac_mpi.play import epsilon
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training import replay_memory, set_up
from esac_mpi.training.check.rank import Rank
from esac_mpi.training.check.report import Line, spans


def playing(config: Config, ranks: list[Rank]) -> list[Line]:
    """Say whether every rank can play the task, how fast, and with the same bits."""
    first = ranks[0]
    if broken := [r for r, rank in enumerate(ranks) if rank.task]:
        found = f"{config.task.id} cannot be played on ranks {spans(broken)}"
        return [Line("task", found, ranks[broken[0]].task, True)]
    speeds = np.array([rank.steps_per_second for rank in ranks])
    rates = " / ".join(f"{rate:,.0f}" for rate in np.quantile(speeds, (0, 0.5, 1)))
    found = f"made in {max(rank.seconds_import for rank in ranks):.1f} s"
    found += f"; {probe.PROBE_STEPS} steps on each rank: min / median / max {rates} steps/s"
    odd = ", ".join(sorted({rank.host for rank in ranks if rank.physics != first.physics}))
    differ = (
        f"other bits on {odd}: use nodes of one kind, or results depend on which evaluates what"
    )
    again = "not repeated" if first.apart else "the same again after others"
    lines = [
        Line("task", found),
        Line("physics", f"digests on rank 0: {first.physics}", differ if odd else ""),
        Line("episodes", again, first.apart),
    ]
    if first.found and first.found.not_finite:
        lines.append(Line("observations", "not all finite", first.found.not_finite))
    return lines


def work(config: Config, env: envs.Env | None, ranks: int) -> list[Line]:
    """Say what the ranks and the learner have to do."""
    if env is None:
        return []
    params = Params(config, make_layout(config, env), env.horizon, epsilon.Philox(config.seed))
    found, better = set_up.spread(params, ranks)
    name = f"{config.algorithm}.episodes_on"
    if better and name in NAMES and value_of(config, name) == "root":
        better += f"; in a new run with --{name} ranks they play its training episodes"
    lines = [Line("work", found, better)]
    if cut := replay_memory.unseen(config, env.horizon):
        lines.append(Line("learner", "its episodes are cut", cut))
    return lines
