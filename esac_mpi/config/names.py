"""Names that a person or an older version wrote: a key that there is, or what is meant by another."""

import difflib
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from esac_mpi.config.fields import NAMES
from esac_mpi.config.presets import NUMBERS, PRINTED, SIZES
from esac_mpi.config.whole import ConfigError

# what is no more, and what took its place
FORMER = {"esac.adopt_sac": "esac.adoption", "esac.offspring_transitions": "esac.replayed"}
# fields of tables in 0.1.0: a file of a run has them all, one that a person wrote hardly so many
AES_RL_0_1_0 = 33
WHOLE = 35  # of [esac], in 0.1.0 with 48, some fewer before
# a table and its fields in 0.1.0 -> what was done before there were others
BEFORE: dict[tuple[str, int], dict[str, Any]] = {
    ("aes_rl", AES_RL_0_1_0): {"aes_rl.mean_reused": False, "aes_rl.reward_shift": 0.0},
    ("erl", 42): {"erl.injection": "kept", "erl.reward_shift": 0.0},
    ("esac", WHOLE): {"esac.reward_shift": 0.0},
    ("es", 15): {"es.reward_shift": 0.0},
    ("cem", 10): {"cem.reward_shift": 0.0},
    ("cem_rl", 23): {"cem_rl.reward_shift": 0.0},
}
RESUMES = "is no key, and not needed: the same command goes on with the run that its directory has"
# words of other programs for what is asked otherwise here
ELSEWHERE = {"resume": RESUMES, "continue": RESUMES}
ELSEWHERE_CALLED = {  # what other programs call a field, and how ours begins, in the same table or in one of its own
    "learning_rate": ("lr_actor", "lr_"), "lr": ("lr_actor", "lr_"), "buffer_size": ("replay_capacity",),
    "learning_starts": ("start_steps",), "n_steps": ("steps_per_generation",), "n_epochs": ("epochs",),
    "ent_coef": ("temperature", "entropy_coefficient"), "std": ("sigma",), "noise_std": ("sigma", "exploration_noise"),
    "total_timesteps": ("budget.env_steps",), "total_steps": ("budget.env_steps",), "net_arch": ("policy.hidden",),
    "max_steps": ("task.horizon",), "env_id": ("task.id",),
}  # fmt: skip

FEW = 5  # fields of a table that one sentence can name


def known(name: str, source: str) -> str:
    """Return the name of a field. Raises ConfigError, naming `source` and the one like it, where there is none."""
    if name in NAMES:
        return name
    if name in ELSEWHERE:
        raise ConfigError(f"{source}: {name} {ELSEWHERE[name]}")
    if name in FORMER:
        raise ConfigError(f"{source}: {name} is no more: {FORMER[name]} in its place")
    table = f"{name.rpartition('.')[0]}."
    beside = [other for other in NAMES if other.startswith(table)]
    if ours := called_here(name):
        said = f"did you mean '{ours}'?"
    elif 0 < len(beside) <= FEW:
        said = meant(name, beside)
    else:
        said = meant(name, NAMES, "--help lists those that there are")
    raise ConfigError(f"{source}: unknown key '{name}'; {said}")


def called_here(name: str) -> str:
    """Return the field that other programs call so, "" for none."""
    table, _, last = name.rpartition(".")
    begins = ELSEWHERE_CALLED.get(last.casefold(), ())
    for begin in begins:
        for other in NAMES:
            if other == begin or other.startswith(f"{table}.{begin}"):
                return other
    return ""


def meant(name: str, among: Collection[str], otherwise: str = "") -> str:
    """Say which name this one is like, where none is `otherwise`, or else all that there are."""
    there = {other.casefold(): other for other in among}
    for near in difflib.get_close_matches(name.casefold(), there):  # of a likeness of 0.6 and more
        if ends_alike(name.casefold(), near):
            return f"did you mean '{there[near]}'?"
    return otherwise or f"there are {', '.join(among)}"


def ends_alike(name: str, other: str) -> bool:
    """Tell whether what follows the last dots is alike: a table in common is no likeness."""
    ends = name.rpartition(".")[2], other.rpartition(".")[2]
    alike = difflib.SequenceMatcher(None, *ends).ratio() >= 0.5
    return alike or other.startswith(f"{name}.")


def current(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Translate {dotted name: value} to what this version has. Raises ConfigError for what is no more."""
    found = dict(values)
    # another value is refused as any
    switches = {name: found.pop(name) for name in FORMER if isinstance(found.get(name), bool)}
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
    count = Counter(name.partition(".")[0] for name in found)
    if "aes_rl.order" not in found and count["aes_rl"] == AES_RL_0_1_0:
        found.setdefault("aes_rl.critic_cost", 1.0)  # it had none
    for (table, fields), before in BEFORE.items():
        if count[table] >= fields:
            found = before | found
    if count["esac"] >= WHOLE:  # what were the defaults
        printed = {} if "esac.adoption_wins" in found else PRINTED
        found = SIZES | NUMBERS | printed | found
    return found
