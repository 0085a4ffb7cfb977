"""TD3 and DDPG updates/s: ours and stable-baselines3's; sampling included."""

import argparse
from collections.abc import Iterator

from tools.bench.competitors import ours, sb3
from tools.bench.measurement import Measurement, against, installed, turns


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Measure TD3 and DDPG updates/s, sampling included, on one thread; an update of TD3 is one of its critics."""
    nets, rounds, seconds = [((32, 32), 128), ((256, 256), 256)], options.rounds or 5, 0.7
    if options.quick:
        nets, rounds, seconds = nets[:1], 1, 0.05
    for name in ("td3", "ddpg"):
        for hidden, batch in nets:
            competitors = {"ours": ours(name, hidden, batch, "cpu", 1, seconds, {})}
            if installed("stable_baselines3"):
                competitors["stable-baselines3"] = sb3(name, hidden, batch, "cpu", 1, seconds)
            case = f"{name} cpu threads=1 {len(hidden)}x{hidden[0]} batch={batch}"
            yield from against("rivals", case, turns(competitors, rounds), "updates/s")
