"""Ranks beside a GPU: generations as a SIMULATION has them, made from one rank's costs, and as they are measured.

Never run on a device so far.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace

from esac_mpi.comm.clock.cluster import Cluster
from esac_mpi.config import ESAC
from esac_mpi.record import RunFiles
from tools.bench import scaling as whole
from tools.bench.gpu_bits import Finding
from tools.bench.gpu_runs import LONGEST, RANKS
from tools.bench.measurement import Measurement
from tools.bench.program import ended, learner_phase, train
from tools.bench.simulation import Costs

TASK, HIDDEN, BATCH, HORIZON, N, GENERATIONS = (
    "HalfCheetah-v5",
    (256, 256),
    256,
    200,
    50,
    8,
)  # short episodes: minutes are few
SIMULATED, POPULATIONS = (64, 256, 1024), (50, 500, 5000)
HOST = """
from tools.bench import gpu_bits, gpu_rates
made = gpu_bits.made("SAC", {device!r}, {device!r} != "cpu", {hidden}, batch_size={batch})
gpu_rates.host_seconds(made, 300)
print("host", gpu_rates.host_seconds(made, {count}))
"""


def scaling(device: str) -> Iterator[Finding]:
    """Measure ES and ESAC on one rank, simulate clusters from that, and measure on more ranks; each figure when it is there."""
    host, runs = host_per_update(device), {}
    yield Finding("what an update takes of rank 0's core", None, f"{1e6 * host:.1f} us")
    options = argparse.Namespace(
        task=TASK, latency=Cluster.latency, bandwidth=Cluster.bandwidth, cores_per_node=64
    )
    es, at_once, lagged = whole.KINDS
    for kind in (es, at_once):
        runs[kind, 1] = [run(kind, 1, device)]
    costs = {kind.algorithm: whole.measured(runs[kind, 1], host) for kind in (es, at_once)}
    costs["esac"] = replace(costs["esac"], durations=costs["es"].durations, noise=costs["es"].noise)
    for n in POPULATIONS:
        for ranks in SIMULATED:
            yield simulated(n, whole.cluster(options, ranks), costs)
    for ranks in dict.fromkeys((RANKS, max(RANKS // 4, 1), max(RANKS // 2, 1), max(RANKS // 8, 1))):
        for kind in (es, lagged):
            yield from told(
                whole.check_model({(kind, ranks): [run(kind, ranks, device)]}, costs, N, options)
            )


def run(kind: whole.Kind, ranks: int, device: str) -> RunFiles:
    """Run a population beside the device."""
    options: tuple[object, ...] = ("--policy.hidden", *HIDDEN, "--task.horizon", HORIZON)
    if kind.lag is not None:
        options += (
            *learner_phase(1000, 1.0),
            "--esac.learner_lag",
            kind.lag,
            "--learner.device",
            device,
        )
    return train(ranks, kind.algorithm, TASK, N, GENERATIONS, *options, seconds=LONGEST)


def simulated(n: int, cluster: Cluster, costs: dict[str, Costs]) -> Finding:
    """Return generations of n members on a cluster, and whether the learner is what they wait for."""
    g, learning = ESAC().gradient_interval, costs["esac"]
    seconds = {
        name: float(values.mean()) for name, values in whole.simulated(n, cluster, costs, g).items()
    }
    es, lagged, share = seconds["ES"], seconds[f"ESAC, lag {g}"], learning.phase / g
    found = f"ES {es:.4g} s a generation, ESAC with lag {g} {lagged:.4g} s, a {g}th of its phase {share:.4g} s: "
    return Finding(
        f"n={n} ranks={cluster.ranks}, SIMULATION",
        None,
        found + ("the floor" if share > es else "no floor"),
    )


def told(measurements: Iterator[Measurement]) -> Iterator[Finding]:
    """Yield measurements as findings."""
    for each in measurements:
        yield Finding(
            f"{each.case}: {each.figure}",
            None,
            f"{each.median:,.4g} {each.unit}{', SIMULATION' * each.simulation}",
        )


def host_per_update(device: str, count: int = 2000) -> float:
    """Measure what an update takes of the core that launches it [s]; in another process, which leaves the device."""
    line = HOST.format(
        device=device, hidden=HIDDEN, batch=BATCH, count=count if device != "cpu" else 20
    )
    code, said = ended([sys.executable, "-c", line], LONGEST)
    figure = next(
        (words[1] for words in map(str.split, said.splitlines()) if words[:1] == ["host"]), ""
    )
    if code != 0 or not figure:
        raise RuntimeError(f"exit {code}: {said[-500:]}")
    return float(figure)
