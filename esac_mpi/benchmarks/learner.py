"""SAC updates/s: ours, stable-baselines3's SAC, a CleanRL-style eager loop; sampling included."""

import argparse
from collections.abc import Callable, Iterator

from esac_mpi.benchmarks.competitors import ours, sb3
from esac_mpi.benchmarks.eager import eager_sac
from esac_mpi.benchmarks.measurement import Measurement, Timed, against, installed, turns


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure SAC updates/s, sampling included, on each device and number of threads."""
    import torch

    devices = [("cpu", threads) for threads in (1, 2)] + [("cuda", 1)] * torch.cuda.is_available()
    nets, rounds, seconds = [((32, 32), 128), ((256, 256), 256), ((512, 512), 256)], options.rounds or 5, 0.7
    if options.quick:
        devices, nets, rounds, seconds = devices[:1], nets[:1], 1, 0.05
    baselines = installed("stable_baselines3")
    for hidden, batch in nets:
        for device, threads in devices:
            competitors: dict[str, Callable[[], Timed]] = {}
            competitors["ours"] = ours("sac", hidden, batch, device, threads, seconds, {})
            if device == "cuda" or options.bf16:
                competitors["ours bf16"] = ours("sac", hidden, batch, device, threads, seconds, {"learner.precision": "bf16"})
            if baselines:
                competitors["stable-baselines3"] = sb3("sac", hidden, batch, device, threads, seconds)
            competitors["CleanRL-style"] = eager_sac(hidden, batch, device, threads, seconds)
            rates = turns(competitors, rounds)
            case = f"{device} threads={threads} {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("learner", case, rates, "updates/s")
            for name in list(competitors)[1:]:
                if name.startswith("ours") and baselines:
                    ratio = rates[name] / rates["stable-baselines3"]
                    yield Measurement.of("learner", case, f"{name} / stable-baselines3", "ratio", ratio)
