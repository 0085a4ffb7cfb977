"""Fields that files of older versions have under other names, or that are no more."""

from collections.abc import Mapping
from typing import Any

from esac_mpi.config.errors import ConfigError
from esac_mpi.config.readings import NUMBERS, PRINTED, SIZES

FORMER = {
    "esac.adopt_sac": "esac.adoption",
    "esac.offspring_transitions": "esac.replayed",
}  # and what took its place
AES_RL_0_1_0 = (
    33  # fields of its table; a file of a run has them all, one that a person wrote hardly so many
)
WHOLE = 35  # so of [esac], in 0.1.0 with 48, some fewer before
BEFORE: dict[
    tuple[str, int], dict[str, Any]
] = {  # a table and its fields in 0.1.0 -> what was done before there were others
    ("aes_rl", AES_RL_0_1_0): {"aes_rl.mean_reused": False, "aes_rl.reward_shift": 0.0},
    ("erl", 42): {"erl.injection": "kept", "erl.reward_shift": 0.0},
    ("esac", WHOLE): {"esac.reward_shift": 0.0},
    ("es", 15): {"es.reward_shift": 0.0},
    ("cem", 10): {"cem.reward_shift": 0.0},
    ("cem_rl", 23): {"cem_rl.reward_shift": 0.0},
}


def current(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return {dotted name: value} as this version has them. Raises ConfigError, naming the file, for what is no more."""
    found = dict(values)
    switches = {
        name: found.pop(name) for name in FORMER if isinstance(found.get(name), bool)
    }  # another value is refused as any
    if "esac.adopt_sac" in switches:
        found.setdefault("esac.adoption", "means" if switches["esac.adopt_sac"] else "off")
        found.setdefault("esac.sigma_rule", "grow")  # as it was
    if switches.get("esac.offspring_transitions"):
        raise ConfigError(
            f'{source}: esac.offspring_transitions = true is no more: esac.replayed = "sample" in its place'
        )
    if "esac.offspring_transitions" in switches:
        found.setdefault("esac.replayed", "none")
    if found.get("policy.initial_last_layer") == 1:  # was there between two releases
        del found["policy.initial_last_layer"]
    if (
        "aes_rl.order" not in found
        and sum(name.startswith("aes_rl.") for name in found) == AES_RL_0_1_0
    ):
        found.setdefault("aes_rl.critic_cost", 1.0)  # it had none
    for (table, fields), before in BEFORE.items():
        if sum(name.startswith(f"{table}.") for name in found) >= fields:
            found = before | found
    if sum(name.startswith("esac.") for name in found) >= WHOLE:
        found = (
            SIZES | NUMBERS | (PRINTED if "esac.adoption_wins" not in found else {}) | found
        )  # what were the defaults
    return found
