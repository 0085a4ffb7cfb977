"""A race to stated returns on the same cores, ours against what people run: seconds and true steps."""

import argparse
from collections.abc import Iterator

from tools.bench.measurement import Measurement


def measurements(options: argparse.Namespace) -> Iterator[Measurement]:
    """Race, write table and picture, yield the times; competitors' processes import nothing of it. Raises Unusable."""
    from tools.bench.race.holding import measurements

    yield from measurements(options)
