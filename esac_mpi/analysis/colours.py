"""Which colour an algorithm has in every picture, and how several lines of one are told apart.

Colours of algorithms that are drawn together differ for the colour-blind, too
(tests/analysis/test_colours.py). Variants of an algorithm have shades of its colour and other line
styles. What names no algorithm has a colour that no algorithm has.
"""

from collections.abc import Mapping
from itertools import count, cycle, product
from typing import NamedTuple

from esac_mpi.analysis.names import sort_key

STRONGEST = "esac"  # has the thickest line
COLOURS = {
    STRONGEST: "#0072B2", "es": "#D55E00", "sac": "#009E73", "td3": "#882255",
    "ddpg": "#E69F00", "ppo": "#56B4E9",
    "erl": "#000000", "perl": "#AA4499", "derl": "#C8B560", "pderl": "#4B0055",
    "cem": "#BBBBBB", "cem_rl": "#DDCC77", "aes_rl": "#332288",
    "pgpe": "#4A4A00",
}  # fmt: skip
NOBODYS = ("#D48FB8", "#5E3A2A", "#8A8A3C", "#A9DCD2")
STYLES = ("-", "--", "-.", ":")
SHADES = (-0.45, 0.35, 0.6)  # of variants: towards black where less than 0, else towards white
WIDTH, THICK = 1.6, 2.6  # of lines [points]


class Look(NamedTuple):
    """How a line is drawn."""

    colour: str
    style: str = "-"
    width: float = WIDTH


def algorithm_of(label: str) -> str:
    """Return the algorithm that begins a label or follows a comma in it; "" if there is none."""
    for part in label.split(","):
        name = part.split()[0].lower().replace("-", "_").removeprefix("p_") if part.strip() else ""
        if name in COLOURS:
            return name
    return ""


def shade(colour: str, by: float) -> str:
    """Move a colour by a part of its way to white, or to black where `by` is less than 0."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(
        f"{round(part + abs(by) * ((255 if by > 0 else 0) - part)):02X}" for part in parts
    )


def ink(colour: str) -> str:
    """Return a colour in which letters on white can be read: a pale one is darkened."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return shade(colour, -0.35) if 0.3 * red + 0.59 * green + 0.11 * blue > 140 else colour


def variant(algorithm: str, place: int) -> Look:
    """Return the look of a line of an algorithm, the place-th of its lines in the picture."""
    colour, style = COLOURS[algorithm], STYLES[place % len(STYLES)]
    if place:
        return Look(shade(colour, SHADES[(place - 1) % len(SHADES)]), style)
    return Look(colour, style, THICK if algorithm == STRONGEST else WIDTH)


def looks(labels: Mapping[str, str]) -> dict[str, Look]:
    """Choose the look of each label, the same in every panel; labels: {label: its algorithm}."""
    places = {algorithm: count() for algorithm in COLOURS}
    others = cycle(Look(colour, style) for style, colour in product(STYLES, NOBODYS))
    return {
        label: variant(labels[label], next(places[labels[label]]))
        if labels[label] in COLOURS
        else next(others)
        for label in sorted(labels, key=sort_key)
    }


def ramp(colour: str, n: int) -> list[str]:
    """Return n shades of a colour, from a pale one to itself."""
    return [shade(colour, 0.65 * (n - 1 - i) / max(n - 1, 1)) for i in range(n)]
