"""SAC updates/s: ours, stable-baselines3's SAC, a CleanRL-style eager loop; sampling included.

On a GPU also ours without graphs, without determinism, and in other precisions, and the loop compiled and captured as LeanRL's.
Never run on one so far.
"""

import argparse
from collections.abc import Callable, Iterator

from esac_mpi.benchmarks.competitors import ours, sb3
from esac_mpi.benchmarks.eager import Captured, eager_sac
from esac_mpi.benchmarks.measurement import Measurement, Timed, against, installed, say, turns

NETS = [((32, 32), 128), ((256, 256), 256), ((512, 512), 256)]  # hidden layers, batch
Turns = dict[str, Callable[[], Timed]]


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure SAC updates/s, sampling included, on each device and number of threads, or on the one device asked for."""
    import torch

    devices = [("cpu", threads) for threads in (1, 2)] + [("cuda", 1)] * torch.cuda.is_available()
    devices = [each for each in devices if each[0] == options.device] if options.device else devices
    if not devices:
        say(f"bench.py learner --device {options.device}: torch sees no such device here")
        raise SystemExit(2)
    nets, rounds, seconds = NETS, options.rounds or 5, 0.7
    if options.device == "cuda":
        nets = [*NETS, ((512, 512), 1024)]
    if options.quick:
        devices, nets, rounds, seconds = devices[:1], nets[:1], 1, 0.05
    for hidden, batch in nets:
        for device, threads in devices:
            size = hidden, batch, device, threads, seconds
            competitors = on_gpu(*size) if device == "cuda" else on_cpu(*size, options.bf16)
            rates = turns(competitors, rounds)
            case = f"{device} threads={threads} {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("learner", case, rates, "updates/s")
            for name in list(competitors)[1:]:
                if name.startswith("ours") and "stable-baselines3" in rates:
                    ratio = rates[name] / rates["stable-baselines3"]
                    yield Measurement.of("learner", case, f"{name} / stable-baselines3", "ratio", ratio)


def on_cpu(hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float, bf16: bool) -> Turns:
    """Return the turns of ours, in bf16 too where asked, and of its peers."""
    size = hidden, batch, device, threads, seconds
    found: Turns = {"ours": ours("sac", *size, {})}
    if bf16:
        found["ours bf16"] = ours("sac", *size, {"learner.precision": "bf16"})
    if installed("stable_baselines3"):
        found["stable-baselines3"] = sb3("sac", *size)
    return {**found, "CleanRL-style": eager_sac(*size)}


def on_gpu(hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float) -> Turns:
    """Return the turns of ours in its ways and of its peers, each under its own settings of torch."""
    size = hidden, batch, device, threads, seconds
    found: Turns = {"ours": under(ours("sac", *size, {}), True)}
    found["ours one by one"] = under(ours("sac", *size, {}, captured=False), True)
    found["ours, determinism off"] = under(ours("sac", *size, {}), False)
    for precision in ("tf32", "bf16"):
        turn = ours("sac", *size, {"learner.precision": precision})
        found[f"ours {precision}"] = under(turn, True, precision == "tf32")
    if installed("stable_baselines3"):
        found["stable-baselines3"] = under(sb3("sac", *size), False)
    found["CleanRL-style"] = under(eager_sac(*size), False)
    found["compiled, captured"] = under(eager_sac(*size, Captured), False)
    return found


def under(work: Callable[[], Timed], deterministic: bool, tf32: bool = False) -> Callable[[], Timed]:
    """Return a turn before which torch's settings, which all in a process share, are made what the competitor's own would be."""
    import torch

    def turn() -> Timed:
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return work()

    return turn
