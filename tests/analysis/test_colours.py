"""One colour an algorithm, in every picture; told apart by the colour-blind, too."""

from itertools import combinations

import numpy as np
import pytest

from esac_mpi.analysis.colours import COLOURS, NOBODYS, algorithm_of, looks, shade
from esac_mpi.config import ALGORITHMS

TOGETHER = [  # in the pictures of docs/: the race, PDERL's, AES-RL's
    ("esac", "es", "sac", "td3", "ddpg", "ppo", "pgpe"),
    ("es", "td3", "ppo", "erl", "perl", "derl", "pderl"),
    ("aes_rl", "cem_rl", "td3", "sac", "cem", "erl", "es"),
]
SEEN = {  # linear RGB as it is seen, severity 1: Machado, Oliveira and Fernandes 2009
    "all": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
LMS = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def oklab(colour, seen):
    """Return a seen colour in Oklab (Ottosson 2020), where distances are those of perception."""
    part = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return LAB @ np.cbrt(LMS @ np.clip(seen @ linear, 0, 1))


@pytest.mark.parametrize("seen", SEEN)
def test_colours_of_a_picture_differ_for_everyone(seen):
    for names in (*TOGETHER, NOBODYS):
        colours = [oklab(COLOURS.get(name, name), np.array(SEEN[seen])) for name in names]
        for one, other in combinations(colours, 2):
            # the best that is to be had beside ES and SAC is 0.11
            assert np.linalg.norm(one - other) > 0.085


def test_every_algorithm_has_a_colour_of_its_own_and_keeps_it():
    assert set(ALGORITHMS) < set(COLOURS)
    assert len({*COLOURS.values(), *NOBODYS}) == len(COLOURS) + len(NOBODYS)
    others = {"a": "", "b": "another", "ESAC, replacing": "esac"}
    for beside in ({}, {"ES": "es", "SAC": "sac"}, others):
        found = looks({"PDERL": "pderl", "ESAC": "esac", **beside})
        assert (found["PDERL"].colour, found["ESAC"].colour) == (COLOURS["pderl"], COLOURS["esac"])
        assert max(found, key=lambda label: found[label].width) == "ESAC"


def test_variants_of_an_algorithm_have_its_shades_and_differ():
    found = looks({f"ESAC sigma={i}": "esac" for i in range(12)})
    assert len(set(found.values())) == 12
    shades = {shade(COLOURS["esac"], by) for by in (-0.45, 0.35, 0.6)}
    assert {look.colour for look in found.values()} <= {COLOURS["esac"], *shades}
    nobodys = {look.colour for look in looks({"fast": "", "slow": "", "mine": "mine"}).values()}
    assert len(nobodys) == 3
    assert not nobodys & set(COLOURS.values())


def test_a_shade_is_on_its_way_to_white_or_black():
    for by, colour in ((0.5, "#C0A080"), (-0.5, "#402000"), (1, "#FFFFFF"), (-1, "#000000")):
        assert shade("#804000", by) == colour


@pytest.mark.parametrize(
    ("label", "algorithm"),
    [
        ("ESAC", "esac"), ("ESAC, as printed", "esac"), ("PPO (notebook)", "ppo"),
        ("P-CEM-RL", "cem_rl"), ("AES-RL, 9 workers", "aes_rl"), ("PGPE", "pgpe"),
        ("Swimmer-v5, ES sigma=0.1", "es"), ("no SAC, no AMT", ""), ("fast", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_label_names_its_algorithm(label, algorithm):
    assert algorithm_of(label) == algorithm
