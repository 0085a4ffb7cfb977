"""Configuration files: TOML in, TOML out."""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from os.path import expanduser, isdir, isfile, join  # false, no error, for what no path can be
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from esac_mpi.config.bounds import PLAIN, is_plain
from esac_mpi.config.fields import DEFAULTS, NAMES, choices, flatten, hint
from esac_mpi.config.presets import NUMBERS, PRINTED, SIZES
from esac_mpi.config.reads import reads
from esac_mpi.config.renamed import refuse_former, renew, renew_name
from esac_mpi.config.whole import ALGORITHMS, INSTALLED, Config, ConfigError
from esac_mpi.host.errors import BrokenAlgorithm
from esac_mpi.host.invocation import call_of
from esac_mpi.host.paths import read_path
from esac_mpi.host.run_directory import CONFIG, is_run, regular

SAID = "said"  # the key of a run's own file that names what a person said
# no part of a run: a directory is moved, a job has its own limit, and a change is let be once
UNSAVED = ("run_dir", "max_hours", "task.changed")
WHOLE = 200  # fields of a run's own file, at least: it has those that the run does not read, too
KWARGS = "task.kwargs"  # of the task's maker: a table of any names
ONE = f"{KWARGS}."  # begins the name of one of them
# a key of another file: what that file is, and its command
USES = {"variants": ("an experiment", "experiment"), "trials": ("a search", "search")}
# what was done in 0.1.0, before there were fields for it or others were the defaults
BEFORE: dict[str, Any] = {
    **SIZES,
    **NUMBERS,
    **{f"{table}.reward_shift": 0.0 for table in ("es", "cem", "cem_rl", "aes_rl", "erl")},
    "es.scaled_noise": False,
    "aes_rl.mean_reused": False,
    "esac.transfer_at_once": False,
    "erl.injection": "kept",
}
FEW = 5  # fields of a table that one sentence can name
KINDS = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def from_table(
    table: dict[str, Any], source: str, beside: Mapping[str, Any] | None = None, former: bool = True
) -> dict[str, Any]:
    """Check a parsed TOML table against the fields; return {dotted name: value}, SAID included.

    beside: the settings that it is set beside, whose algorithm counts where it names none, and
    whose task.kwargs single ones join. former: whether it may have former names and SAID, as a
    file may.
    Raises ConfigError naming `source`, the key and the nearest valid key, or the expected type.
    """
    found: dict[str, Any] = {}
    said: dict[str, Any] = {}
    for key, entry in table.items():
        if not isinstance(key, str):
            raise ConfigError(f"{source}: {key!r}: expected the name of a field")
        if key == SAID and former and isinstance(entry, list):
            names = {renew_name(name) for name in entry if isinstance(name, str)}
            said = {SAID: tuple(name for name in NAMES if name in names)}
            continue
        table_of_fields = isinstance(entry, dict) and key not in NAMES and not key.startswith(ONE)
        part = {f"{key}.{k}": v for k, v in entry.items()} if table_of_fields else {key: entry}
        if twice := found.keys() & part.keys():
            raise ConfigError(f"{source}: {min(twice)} is set twice")
        found |= part
    if former:
        found = renew(found, source)
    else:
        for name, value in found.items():
            refuse_former(name, value, source)
    whole = former and len(found) >= WHOLE
    found = _coerce(complete(found) if whole else found, source, beside)
    if whole and not said:  # of 0.1.0, which did not list it
        others = (name for name in NAMES if name in found and found[name] != DEFAULTS[name])
        said = {SAID: tuple(others)}
    return said | found


def _coerce(
    values: Mapping[str, Any], source: str, beside: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Check names and types of {dotted name: value}; return values as fields have them.

    beside: as from_table has it; None where it is not known yet.
    """
    usual = None if beside is None else beside.get("algorithm", Config.algorithm)
    algorithm = values.get("algorithm", usual)
    found = {}
    for name, value in gather_kwargs(values, source, (beside or {}).get(KWARGS, {})).items():
        check_name(name, source, algorithm)
        found[name] = _typed(name, value, source)
    return found


def check_name(name: str, source: str, algorithm: Any) -> None:
    """Raise ConfigError for the name of no field, naming one like it that the algorithm reads.

    algorithm: None where it is not known yet.
    """
    if name in NAMES:
        return
    if within := [other for other in NAMES if other.startswith(f"{name}.")]:
        told = f"'{name}' is a table of settings, which has no value of its own"
        raise ConfigError(f"{source}: {told}: name one of them, such as {within[0]}")
    there, chosen = NAMES, "NAME"
    if algorithm in ALGORITHMS:
        there = tuple(field for field in NAMES if reads(algorithm, field))
        chosen = algorithm
    table = f"{name.rpartition('.')[0]}."
    beside = [other for other in there if other.startswith(table)]
    if beside and sum(other.startswith(table) for other in NAMES) <= FEW:
        said = suggest(name, beside)
    else:
        said = suggest(name, there, f"--algorithm {chosen} --help lists them")
    raise ConfigError(f"{source}: unknown key '{name}'; {said}")


def suggest(name: str, among: Collection[str], otherwise: str = "") -> str:
    """Suggest a name like this one, `otherwise` if there is none, or else list all."""
    there = {other.casefold(): other for other in among}
    for near in difflib.get_close_matches(name.casefold(), there):  # of a likeness of 0.6 and more
        ends = name.casefold().rpartition(".")[2], near.rpartition(".")[2]
        # a table in common is no likeness
        alike = difflib.SequenceMatcher(None, *ends).ratio() >= 0.6
        if alike or near.startswith(f"{name.casefold()}."):
            return f"did you mean '{there[near]}'?"
    return otherwise or f"there are {', '.join(among)}"


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the {dotted name: value} of a run's own file by what its version did."""
    before = dict(BEFORE)
    if "esac.transfer_wins" not in values:
        before |= PRINTED
    if "aes_rl.order" not in values:
        before["aes_rl.critic_cost"] = 1.0  # it had none
    return before | dict(values)


def gather_kwargs(
    values: Mapping[str, Any], source: str, beside: Mapping[str, Any]
) -> dict[str, Any]:
    """Put keyword arguments that are named one by one into their table, or else the one beside.

    Raises ConfigError for one that the table of the same source has, too.
    """
    found = {name: value for name, value in values.items() if not name.startswith(ONE)}
    single = {name[len(ONE) :]: value for name, value in values.items() if name.startswith(ONE)}
    if single and isinstance(table := found.get(KWARGS, beside), Mapping):
        if twice := single.keys() & found.get(KWARGS, {}).keys():
            raise ConfigError(f"{source}: {ONE}{min(twice)} is set twice")
        found[KWARGS] = {**table, **single}
    return found


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a configuration file; return {dotted name: value}. Raises ConfigError."""
    try:
        if Path(path).is_dir() or Path(path).suffix == ".h5":
            raise ConfigError(no_file(str(path)))
        # editors of Windows begin a file with a mark
        with open(path, encoding="utf-8-sig", opener=regular) as file:
            text = file.read()
        if not text.strip():  # as a copy that failed leaves it; comments alone are a file
            raise ConfigError(f"{path}: empty; name another file, or none for the defaults")
        table = tomllib.loads(text)
        for key in USES.keys() & table.keys():
            what, command = USES[key]
            raise ConfigError(f"{path} is the file of {what}: {call_of(command)} run {path}")
        return from_table(table, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also 5,000 digits, and lists in lists in lists
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def no_file(word: str) -> str:
    """Return the error for a word that names no configuration file, with a suggestion."""
    place = expanduser(word)
    if isfile(config := join(place, CONFIG)):
        told = f"{config} goes on with the run, and so does the command that began it"
        return f"{word!r} is a run's directory: {told}"
    if isdir(place):
        return f"{word!r} is a directory; name the configuration file in it"
    if word.endswith(".h5"):
        return f"{word!r} has no settings; to begin a run from a policy is --from {word}"
    if re.search(r"-v\d+$", word):
        return f"{word!r} is a task, which is named by --task.id {word}"
    meant = "the one configuration file, which ends in .toml, nor the value of an option"
    return f"{word!r} is neither {meant}"


def read_file(place: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a file that a person names, where a run's means its directory. Raises ConfigError."""
    path = read_path(place, ConfigError)
    values = read_toml(path)
    if path.name == CONFIG and is_run(path.parent):
        values["run_dir"] = str(path.parent)
    return values


def to_toml(config: Config, names: Collection[str] | None = None) -> str:
    """Write the resolved configuration as TOML, from which `read_toml` restores all but UNSAVED.

    names: of the fields to write, None for all, and for what was said. Of the tables that other
    packages bring, only the running algorithm's is whole: the file is read without them, too.
    """
    others = INSTALLED.keys() - {config.algorithm}
    values = {
        name: value
        for name, value in flatten(config)
        if name not in UNSAVED
        and (names is None or name in names)
        and not (name.partition(".")[0] in others and value == DEFAULTS[name])
    }
    tables: dict[str, list[str]] = {"": []}
    for name, value in values.items():
        table, _, key = name.rpartition(".")
        if isinstance(value, dict):
            tables[name] = [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in value.items()]
        else:
            tables.setdefault(table, []).append(f"{key} = {_toml_value(value)}")
    if names is None and config.said is not None:
        tables[""].append(f"{SAID} = {_toml_value(config.said)}")
    parts = [[f"[{title}]", *lines] if title else lines for title, lines in tables.items() if lines]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _typed(name: str, value: Any, source: str) -> Any:
    """Check the type of a field's value; return it as the field has it. Raises ConfigError."""
    kind, words = hint(name), choices(name)
    if isinstance(value, str) and value in words:
        return words[words.index(value)]  # an Enum of texts writes itself otherwise
    if get_origin(kind) is Union:  # a number, or a word for one
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        wanted = " | ".join(map(repr, words))
        if name == "algorithm":
            wanted += ", or that of an installed package (docs/how-to/extend.md)"
    elif get_origin(kind) is tuple:
        entries = [_whole(v) for v in value] if isinstance(value, list) else [value]
        if isinstance(value, list) and all(type(v) is int for v in entries):
            return tuple(entries)
        listed = f"integers: [64, 64] in a file, --{name} 64 64 on a command line"
        wanted = ", or ".join([listed, *map(repr, words)])
    elif kind == dict[str, Any]:
        if isinstance(value, dict) and is_plain(value):
            return value
        wanted = PLAIN
    else:
        value = _whole(value) if kind is int else value
        if type(value) is kind or (kind is float and type(value) is int):
            # an integer beyond any float: inf, which `check` refuses
            return float(repr(value)) if kind is float else value
        wanted = " or ".join([KINDS[kind], *map(repr, words)])
    raise ConfigError(f"{source}: {name} = {value!r}: expected {wanted}")


def check_installed() -> None:
    """Raise BrokenAlgorithm for a default of an installed table that no file gives back."""
    for name in NAMES:
        table, value = name.partition(".")[0], DEFAULTS[name]
        if table not in INSTALLED:
            continue
        with suppress(Exception):  # of any type that a user's table has
            if _typed(name, tomllib.loads(f"x = {_toml_value(value)}")["x"], "") == value:
                continue
        kinds = "a number, a text, true or false, one of several texts, or a tuple of integers"
        told = f"entry point {table} of esac_mpi.tables: {name} = {value!r}"
        raise BrokenAlgorithm(f"{told}: a setting is {kinds}")


def _whole(value: Any) -> Any:
    """Turn a whole float, as 1e6 is in TOML, into an integer; leave anything else."""
    return int(value) if type(value) is float and value.is_integer() else value


def _toml_key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _toml_text(name)


def _toml_text(text: str) -> str:
    # which JSON leaves as it is
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _toml_text(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        entries = (f"{_toml_key(name)} = {_toml_value(v)}" for name, v in value.items())
        return f"{{{', '.join(entries)}}}"
    return repr(value)


check_installed()
