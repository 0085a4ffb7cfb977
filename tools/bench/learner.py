"""SAC updates/s: ours by torch and compiled, stable-baselines3's SAC, SBX's, a CleanRL-style eager loop; sampling included.

On a GPU also ours without graphs, without determinism, and in other precisions, and the loop compiled and captured as LeanRL's.
Never run on one so far.
"""

import argparse
from collections.abc import Callable, Iterator
from functools import partial

from esac_mpi import learners
from tools.bench.competitors import ours, sb3, sbx
from tools.bench.eager import Captured, eager_sac
from tools.bench.measurement import (
    Measurement,
    Timed,
    against,
    failed,
    installed,
    lazily,
    say,
    turns,
)

NETS = [
    ((32, 32), 128),
    ((64, 64), 64),
    ((64, 64), 256),
    ((256, 256), 256),
    ((512, 512), 256),
]  # hidden layers, batch
ON_GPU = [
    ((256, 256), 256),
    ((512, 512), 256),
    ((32, 32), 128),
    ((512, 512), 1024),
]  # the same there, what counts most first
Turns = dict[str, Callable[[], Timed]]


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure SAC updates/s, sampling included, on each device and number of threads, or on the one device asked for.

    Who fails is told in a line, and the rest goes on. Raises SystemExit without such a device, and at the end if ours failed.
    """
    import torch

    devices = [("cpu", threads) for threads in (1, 2)] + [("cuda", 1)] * torch.cuda.is_available()
    devices = [each for each in devices if each[0] == options.device] if options.device else devices
    if not devices:
        say(
            f"python -m tools.bench learner --device {options.device}: torch sees no such device here"
        )
        raise SystemExit(2)
    nets, rounds, seconds = NETS, options.rounds or 5, 0.7
    if options.device == "cuda":
        nets = ON_GPU
    if options.quick:
        devices, nets, rounds, seconds = devices[:1], nets[:1], 1, 0.05
    whole = True
    for hidden, batch in nets:
        for device, threads in devices:
            size = hidden, batch, device, threads, seconds
            competitors = on_gpu(*size) if device == "cuda" else on_cpu(*size, options.bf16)
            rates = turns(competitors, rounds, failed)
            whole &= "ours" in rates
            case = f"{device} threads={threads} {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("learner", case, rates, "updates/s")
            for name in list(competitors)[1:]:
                for peer in ("stable-baselines3", "SBX"):
                    if name.startswith("ours") and {name, peer} <= rates.keys():
                        ratio = rates[name] / rates[peer]
                        yield Measurement.of("learner", case, f"{name} / {peer}", "ratio", ratio)
    if not whole:
        raise SystemExit(1)


def on_cpu(
    hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float, bf16: bool
) -> Turns:
    """Return the turns of ours, in bf16 too where asked, and of its peers."""
    size = hidden, batch, device, threads, seconds
    found: Turns = {"ours": lazily(partial(ours, "sac", *size, {}))}
    if threads == 1 and learners.load("cpu").KIND:
        found["ours compiled"] = lazily(
            partial(ours, "sac", *size, {"learner.kernels": "compiled"})
        )
    if bf16:
        found["ours bf16"] = lazily(partial(ours, "sac", *size, {"learner.precision": "bf16"}))
    if installed("stable_baselines3"):
        found["stable-baselines3"] = lazily(partial(sb3, "sac", *size))
    if threads == 1 and installed("sbx"):
        found["SBX"] = lazily(partial(sbx, *size))
    return {**found, "CleanRL-style": lazily(partial(eager_sac, *size))}


def on_gpu(hidden: tuple[int, ...], batch: int, device: str, threads: int, seconds: float) -> Turns:
    """Return the turns of ours in its ways and of its peers, each under its own settings of torch."""
    size = hidden, batch, device, threads, seconds
    found: Turns = {"ours": under(partial(ours, "sac", *size, {}), True)}
    found["ours one by one"] = under(partial(ours, "sac", *size, {}, captured=False), True)
    found["ours, determinism off"] = under(partial(ours, "sac", *size, {}), False)
    for precision in ("tf32", "bf16"):
        turn = partial(ours, "sac", *size, {"learner.precision": precision})
        found[f"ours {precision}"] = under(turn, True, precision == "tf32")
    if installed("stable_baselines3"):
        found["stable-baselines3"] = under(partial(sb3, "sac", *size), False)
    found["CleanRL-style"] = under(partial(eager_sac, *size), False)
    found["compiled, captured"] = under(partial(eager_sac, *size, Captured), False)
    return found


def under(
    make: Callable[[], Callable[[], Timed]], deterministic: bool, tf32: bool = False
) -> Callable[[], Timed]:
    """Return a turn before which torch's settings, which all in a process share, are made what the competitor's own would be.

    make: the competitor's turn; making a learner of ours sets them, too, so it comes before.
    """
    import torch

    made: list[Callable[[], Timed]] = []

    def turn() -> Timed:
        if not made:
            made.append(make())
        torch.set_deterministic_debug_mode("error" if deterministic else "default")
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return made[0]()

    return turn
