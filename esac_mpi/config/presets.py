"""Settings of algorithms and presets, and what ES and SAC take from [esac].

ESAC's "corrected" is the paper's algorithm with what lets its parts work; "paper" departs from that
only where the paper says something else in words or in Algorithm 1; "reference-code" makes the
public code's choices and keeps its dead operators dead, but not its crashes.
"""

from dataclasses import fields
from typing import Any

from esac_mpi.config.bounds import AUTO
from esac_mpi.config.distribution import AESRL
from esac_mpi.config.evolution import ESAC, Evolution
from esac_mpi.config.genetic import ERL, FORMS
from esac_mpi.config.reads import reads
from esac_mpi.config.whole import Config

Settings = dict[str, Any]  # {dotted name: value}

# of the paper's population; and what phases on a virtual clock were timed for before "auto"
SIZES: Settings = {
    "esac.population_size": 50,  # D.1
    "esac.workers": 7,
    "esac.update_cost": 30.0,
}
# of the paper and its public code, where the defaults are what learns fast on few cores
NUMBERS: Settings = {
    "policy.hidden": (512, 512),  # 6.1
    "policy.linear": False,
    "learner.kernels": "torch",
    "esac.reward_shift": 0.0,
    "esac.start_states": "member",
    "esac.sigma": 0.005,  # D.1
    "esac.lr_es": 0.005,  # D.1
    "esac.observation_normalisation": False,
    "esac.scaled_noise": False,
    "esac.sigma_rule": "grow",  # Eq. 6
    "sac.lr_sac": 3e-4,  # D.1
    "sac.temperature": 0.2,
    "sac.automatic_temperature": False,
    "sac.batch_size": 256,
    "sac.start_steps": 10_000,
}
PRINTED: Settings = {  # what passes from half to half, and when, but for the paper's own operators
    "esac.phase_timing": "interval",  # line 12: ranks wait for a phase
    "esac.p_sac_annealed": True,  # 5.1.1
    "esac.resimulated": "none",  # 5.1.1: a dedicated replay
    "esac.transfer": "off",
    "esac.transfer_wins": 1,
    "esac.transfer_at_once": False,
}
CORRECTED: Settings = {**SIZES, **NUMBERS, **PRINTED}
PRESETS: dict[str, Settings] = {
    "default": {},
    "corrected": CORRECTED,
    "paper": {
        **CORRECTED,
        "esac.sampling": "onesided",  # line 6
        "esac.winner_pull": 0.0,  # lines 11 and 27 have none
        "esac.crossover": "element",  # 5.1.2
        "esac.gate": "normal",  # line 12
        "esac.sac_min_steps": 0,  # D.1 counts episodes
        "sac.value_network": True,  # line 19
    },
    "reference-code": {
        **CORRECTED,
        "esac.sampling": "repo",  # n pairs
        "esac.population_size": 10,
        "esac.sac_copies": 4,
        "esac.winner_pull": 0.0,
        "esac.crossover": "off",  # works on copies, result discarded
        "esac.amt_trigger": "interval",
        "esac.amt_input": "rank",
        "esac.amt_scope": "gradient",
        "esac.sac_min_steps": 0,
        "sac.interleaved": True,
        "policy.hidden": (256, 256),
        "policy.output": "clip",
    },
}
ERL_PRESETS: dict[str, Settings] = {
    "default": {},
    "reference-code": {
        "erl.elite_fitness": "stale",
        "erl.parent_actions": "stored",
        "erl.memory_order": "shuffled",
        "erl.distillation_start": "worse",
        "erl.time_limits": "termination",
        "erl.initial_last_layer": 1.0,
        "erl.injection": "worst_or_next",
    },
}
# in ERL's public code; PDERL's clips, and spares an elite
ERL_ALONE: Settings = {"erl.exploration_clip": False, "erl.injection": "worst"}
# where ESAC's defaults are not those of others
OTHERS: Settings = {"policy.linear": False, "learner.kernels": "torch"}
RIVAL: Settings = {**OTHERS, "policy.hidden": (512, 512)}  # as ESAC's paper has all
ERL_ACTOR: Settings = {  # as the public code of ERL
    **OTHERS,
    **{
        f"sac.{name}": NUMBERS[f"sac.{name}"]
        for name in ("lr_sac", "temperature", "automatic_temperature", "batch_size")
    },
    "policy.hidden": (128, 128),
    "policy.activation": "tanh",
    "policy.layer_norm": True,
}
# as the public code of CEM-RL, and of AES-RL
CEM_ACTOR: Settings = {**OTHERS, "policy.hidden": (400, 300), "policy.activation": "tanh"}
# not fewer than workers: all ranks meet after each generation
ARRIVALS = "aes_rl.arrivals_per_generation"
HALVES = {  # algorithm -> fields of [esac] that it takes where its own table says nothing
    "es": [f.name for f in fields(Evolution)],
    "sac": ["observation_normalisation"],
}


def preset(given: Settings) -> Settings:
    """Look up what an algorithm and its preset set by their names."""
    algorithm = given.get("algorithm", Config.algorithm)
    if algorithm in FORMS:
        form = dict(zip(("erl.crossover", "erl.mutation"), FORMS[algorithm], strict=True))
        name = given.get("erl.preset", ERL.preset)
        alone = ERL_ALONE if (algorithm, name) == ("erl", "reference-code") else {}
        return form | ERL_ACTOR | ERL_PRESETS[name] | alone
    if algorithm == "aes_rl":
        workers = given.get("aes_rl.workers", AESRL.workers)
        least = AESRL.arrivals_per_generation
        return CEM_ACTOR | {ARRIVALS: least if workers == AUTO else max(least, workers)}
    if algorithm in ("cem", "cem_rl"):
        return CEM_ACTOR
    if reads(algorithm, "esac.preset"):
        return PRESETS[given.get("esac.preset", ESAC.preset)]
    return RIVAL


def pairs(algorithm: str) -> list[tuple[str, str]]:
    """Pair the fields of a half of ESAC with those of [esac] that they follow."""
    return [(f"{algorithm}.{name}", f"esac.{name}") for name in HALVES.get(algorithm, [])]


def complete_half(values: Settings) -> Settings:
    """Complete settings by what a half of ESAC takes from [esac], to be compared alike."""
    algorithm = values.get("algorithm", Config.algorithm)
    return {own: values[esac] for own, esac in pairs(algorithm) if esac in values} | values
