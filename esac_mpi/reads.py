"""What each algorithm reads of the configuration: data, and who asks it.

Of a field that a run does not read the command line is refused, and a file's value is named in a warning.
"""

from collections.abc import Iterable
from typing import Any

COMMON = ("task", "budget", "policy", "evaluation", "checkpoint", "stop", "display")  # tables that every algorithm reads

TABLES = {  # beside these and the fields without a table
    "esac": ("esac", "sac", "learner"),
    "es": ("es",),
    "sac": ("sac", "learner"),
    "td3": ("td3", "learner"),
    "ddpg": ("ddpg", "learner"),
    "ppo": ("ppo", "learner"),
}
ALSO = {"es": ("esac.reading",), "sac": ("esac.reading",)}  # ESAC's halves: a reading sets fields of theirs
EXCEPT = {
    "esac": ("sac.steps_per_generation",),  # a phase has its own length
    "ppo": ("policy.output",),  # always clips
}
ONLY_WITH: dict[str, dict[str, Any]] = {  # field: what others must be for it to matter
    **{f"{table}.noise_table_size": {f"{table}.noise": "table"} for table in ("esac", "es")},
    **{f"{table}.noise_rank": {f"{table}.noise": "lowrank"} for table in ("esac", "es")},
    "esac.gradient_interval": {"esac.sac_phases": True},
    "esac.gate": {"esac.sac_phases": True},
    "esac.learner_lag": {"esac.sac_phases": True},
    "esac.sac_episodes": {"esac.sac_phases": True},
    "esac.sac_min_steps": {"esac.sac_phases": True},
    "esac.p_sac_initial": {"esac.sac_phases": True},
    "esac.p_sac_annealed": {"esac.sac_phases": True},
    "esac.p_sac_final": {"esac.sac_phases": True, "esac.p_sac_annealed": True},
    "esac.p_sac_decay": {"esac.sac_phases": True, "esac.p_sac_annealed": True},
    "esac.amt_interval": {"esac.amt_trigger": "interval"},
    **{f"{table}.steps_per_generation": {f"{table}.episodes_on": "root"} for table in ("td3", "ddpg")},
    **{f"{table}.interleaved": {f"{table}.episodes_on": "root"} for table in ("td3", "ddpg")},
    **{f"{table}.episodes_per_generation": {f"{table}.episodes_on": "ranks"} for table in ("td3", "ddpg")},
    "ppo.argmax_std": {"ppo.action": "gaussian_argmax"},
}


def reads(algorithm: str, name: str) -> bool:
    """Return whether an algorithm reads a field, whatever the other fields are."""
    table, dot, _ = name.rpartition(".")
    if name in EXCEPT.get(algorithm, ()):
        return False
    return not dot or table in COMMON or table in TABLES[algorithm] or name in ALSO.get(algorithm, ())


def unread(config: Any, names: Iterable[str]) -> dict[str, str]:
    """Return {name: why} of those fields that a run of `config` does not read."""
    found = {}
    for name in names:
        if not reads(config.algorithm, name):
            found[name] = f"algorithm = {config.algorithm} does not read it"
        elif missing := [f"{n} = {shown(v)}" for n, v in ONLY_WITH.get(name, {}).items() if value_of(config, n) != v]:
            found[name] = f"read only with {missing[0]}"
    return found


def value_of(config: Any, name: str) -> Any:
    """Return the value of a field."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def shown(value: Any) -> str:
    """Return a value as a person writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
