"""Former names of fields and values: files have them for ever, a command line does not."""

from collections.abc import Mapping
from typing import Any

from esac_mpi.config.whole import ConfigError

RENAMED = {  # former name of a field: its name
    "esac.reading": "esac.preset",
    "erl.reading": "erl.preset",
    "esac.adoption": "esac.transfer",
    "esac.adoption_episodes": "esac.transfer_episodes",
    "esac.adoption_interval": "esac.transfer_interval",
    "esac.adoption_wins": "esac.transfer_wins",
    "esac.adoption_moments": "esac.transfer_moments",
    "esac.replayed": "esac.resimulated",
    "esac.replayed_members": "esac.resimulated_members",
}
# fields that files may still have, and nothing reads: what there is in their place
GONE = {"display.style": "a run prints lines; esac-mpi watch has the table"}
FORMER = {name: former for former, name in RENAMED.items()}
OF_PRESETS = {"recommended": "default", "mended": "corrected", "repo": "reference-code"}
WORDS = {  # field: {former value: value}
    "esac.preset": OF_PRESETS,
    "erl.preset": OF_PRESETS,
    "es.start_states": {"slot": "pair"},
    "esac.start_states": {"slot": "pair"},
}


def renew_name(name: str) -> str:
    """Return the present name of a field."""
    return RENAMED.get(name, name)


def renew_value(name: str, value: Any) -> Any:
    """Return the present form of a value, given the field's present name."""
    return WORDS.get(name, {}).get(value, value) if isinstance(value, str) else value


def renew(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return {dotted name: value} by present names. Raises ConfigError where a file has both."""
    found: dict[str, Any] = {}
    for former, value in values.items():
        if former in GONE:
            continue
        name = renew_name(former)
        if name != former and name in values:
            raise ConfigError(f"{source}: {former} is the former name of {name}; leave one out")
        found[name] = renew_value(name, value)
    return found


def first_names(name: str, value: Any) -> tuple[str, Any]:
    """Return the first names of a field and its value, which digests of results use."""
    words = {word: before for before, word in WORDS.get(name, {}).items()}
    return FORMER.get(name, name), words.get(value, value) if isinstance(value, str) else value


def refuse_former(name: str, value: Any, source: str) -> None:
    """Raise ConfigError for a former name or value."""
    if name in GONE:
        raise ConfigError(f"{source}: {name} is no setting any more: {GONE[name]}")
    now = renew_name(name)
    word = renew_value(now, value)
    if (now, word) != (name, value):
        raise ConfigError(f"{source}: {name} = {value!r}: is called {now} = {word!r} now")
