"""Hyperparameters: each field once, with its default, unit, source, bounds and conditions.

May import: host.
Begin with: run.py and evolution.py for the tables, whole.py for how they make one Config.

Defaults are the paper's (P: Suri et al., ESAC, section or appendix) where it states a value, then
the public code's (C), then our own measurement (M). When ESAC's phases run and what passes between
ES and SAC is by default what came out best; presets.py has the paper's. A TOML file and the command
line hold only what differs. A table stands with its family (run, evolution, off_policy, ppo);
whole.py makes them one Config. What others use of all this is named here.
"""

from esac_mpi.config.automatic import automatic, estimate, resolve_on_ranks
from esac_mpi.config.bounds import AUTO
from esac_mpi.config.command_line import as_option, as_words, load
from esac_mpi.config.distribution import AESRL, CEM, CEMRL, individuals
from esac_mpi.config.evolution import ES, ESAC, Evolution, child_slots, members, slots, winners
from esac_mpi.config.exact import exact
from esac_mpi.config.fields import DEFAULTS, NAMES, amend, as_text, flatten, hint, marks, value_of
from esac_mpi.config.files import from_table, read_file, read_toml, suggest, to_toml
from esac_mpi.config.genetic import ERL, imitations
from esac_mpi.config.off_policy import DDPG, SAC, TD3
from esac_mpi.config.ppo import PPO
from esac_mpi.config.presets import PRESETS
from esac_mpi.config.reads import FREE, WARN, differences, find_unread, unread_in
from esac_mpi.config.renamed import renew_name
from esac_mpi.config.resolution import check, resolve, resolve_all, resolve_given, to_plain
from esac_mpi.config.run import (
    Budget,
    Checkpoint,
    Display,
    Evaluation,
    Learner,
    PolicyNetwork,
    Stop,
    Task,
)
from esac_mpi.config.table import SURVIVAL
from esac_mpi.config.whole import ALGORITHMS, Config, ConfigError, table_of

__all__ = [
    "AESRL", "ALGORITHMS", "AUTO", "CEM", "CEMRL", "DDPG", "DEFAULTS", "ERL", "ES", "ESAC", "FREE",
    "NAMES", "PPO", "PRESETS", "SAC", "SURVIVAL", "TD3", "WARN", "Budget", "Checkpoint", "Config",
    "ConfigError", "Display", "Evaluation", "Evolution", "Learner", "PolicyNetwork", "Stop", "Task",
    "amend", "as_option", "as_text", "as_words", "automatic", "check", "child_slots", "differences",
    "estimate", "exact", "find_unread", "flatten", "from_table", "hint", "imitations",
    "individuals", "load", "marks", "members", "read_file", "read_toml", "renew_name", "resolve",
    "resolve_all", "resolve_given", "resolve_on_ranks", "slots", "suggest", "table_of", "to_plain",
    "to_toml", "unread_in", "value_of", "winners",
]  # fmt: skip
