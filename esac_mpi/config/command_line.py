"""The command line: every field by its dotted name; and --help."""

import ast
import difflib
import inspect
import json
import re
import shlex
import shutil
import textwrap
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, get_args

from esac_mpi.config.exact import whole
from esac_mpi.config.fields import DEFAULTS, NAMES, as_text, choices, flatten, hint, is_list
from esac_mpi.config.files import KWARGS, ONE, no_file, read_file
from esac_mpi.config.genetic import FORMS
from esac_mpi.config.reads import reads
from esac_mpi.config.resolution import CHOICES, Hear, resolve, resolve_all, settings
from esac_mpi.config.whole import ALGORITHMS, FORM_OF, Config, ConfigError
from esac_mpi.host.invocation import program
from esac_mpi.host.log import tell

WHO = "command line"  # in messages
HELP = {"--help", "-h"}
USAGE = """\
usage: {0} [CONFIG.toml] [--SETTING VALUE ...] [--check] [--fresh] [--from RUN]

Train a locomotion policy by evolution and gradients, on one process or on N MPI ranks.

Run:
  {0} --task.id Hopper-v5 # with ESAC, on one process
  mpirun -n 8 {0} --task.id Hopper-v5 # the same on eight ranks
  {0} configs/esac/hopper.toml --seed 3 # a file, then what differs from it

Check:
  {0} --task.id Hopper-v5 --check # forecast time and cost, train nothing

Resume:
  the same command again # it continues, on any number of ranks
  {0} RUN/config.toml --budget.minutes 60 # that run continues, for longer
  --fresh # start over; the old run is moved aside
  --from RUN, --from policy.h5 # a new run begins with these weights

Your own task:
  {0} --task.id mine:Mine-v0 # mine.py registers it with Gymnasium

The settings that matter most, with default and unit (without a budget of yours, a run ends
after {1:,} nominal steps):
{2}

Algorithms:
{3}

The rest:
  {0} --algorithm NAME --help # all settings that this algorithm reads
  esac-mpi --help # commands: watch, plot, evaluate, ...
  docs/reference/tasks.md # tasks, and what your own must provide
  docs/how-to/clusters.md # job scripts, trouble
  docs/reference/exit-codes.md # exit codes and signals
"""
MAIN = {  # settings that --help shows: placeholder, meaning
    "task.id": ("ID", "Gymnasium id, dm_control/DOMAIN-TASK-v0, or MODULE:ID"),
    "algorithm": ("NAME", "one of those below"),
    "seed": ("N", "decides every random number"),
    "run_dir": ("DIR", "default: runs/TASK-ALGORITHM-seedN"),
    "budget.minutes": ("M", "end after this time of training [min]; 0: no limit"),
    "budget.env_steps": ("N", "end after so many environment steps [steps]; 0: no limit"),
    "max_hours": ("H", "stop, saved, after this wall time [h]; 0: no limit"),
    "policy.hidden": ("N ...", "hidden layers [units]"),
    "esac.population_size": ("N", "policies per generation [members]; auto: fits the ranks"),
    "esac.sigma": ("X", "standard deviation of the mutations"),
}
ALIKE = 0.8  # likeness from which a flag is meant
FLAGS = ("--check", "--fresh", "--help", "--version")
NO_ENTRY = "[]"  # a list's value where it has none, as in a file
TRUTHS = {"true": True, "false": False, "True": True, "False": False}


def as_words(value: Any) -> list[str]:
    """Write a field's value as words of a command line."""
    entries = value if isinstance(value, list | tuple) else [value]
    return [as_text(entry) for entry in entries] or [NO_ENTRY]


def as_option(value: Any) -> str:
    """Write a field's value as a person types it after its option."""
    return shlex.join(as_words(value))


def load(argv: list[str], warn: Hear = lambda text: None) -> tuple[Config, bool]:
    """Resolve defaults, preset, configuration file and command line, in this order.

    Return (config, fresh). The config.toml of a run directory means this directory, wherever it is
    now. `warn` hears what the file sets in vain. Raises ConfigError for a bad file, key, value or
    combination, and for a field of the command line that the run would not read; SystemExit after
    --help.
    """
    words = [word for word in argv if word not in {"--fresh", *HELP}]
    source = _take_file(words)
    file = read_file(source) if source else {}
    named = settings(_options(words), WHO, file)
    if HELP & {*argv}:
        tell(_help_of(file, named) if "algorithm" in named else _overview())
        raise SystemExit(0)
    return resolve_all(file, named, WHO, source, warn), "--fresh" in argv


def _take_file(words: list[str]) -> str:
    """Take the configuration file out of the words, "" for none."""
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        of_option = before.startswith("--") and "=" not in before
        if word.endswith(".toml") and not word.startswith("--") and not of_option:
            return words.pop(i)
    return ""


def _options(words: list[str]) -> dict[str, Any]:
    """Read {dotted name: value}. Raises ConfigError for a stray word."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            if equals and f"--{option}" in FLAGS:
                raise ConfigError(f"{WHO}: --{option} takes no value: leave ={value} out")
            name = "start_from" if option == "from" else option.replace("-", "_")
            found[name] = [value] if equals else []
        elif name and (not found[name] or is_list(name) or not _is_known(name)):
            found[name].append(word)
        else:
            raise ConfigError(f"{WHO}: {no_file(word)}")
    return {name: _value(name, given) for name, given in found.items()}


def _option(name: str) -> str:
    """Spell the option of a field as the pages do."""
    if name == "start_from":
        return "--from"
    return f"--{name}" if "." in name else f"--{name.replace('_', '-')}"


def _is_known(name: str) -> bool:
    return name in NAMES or name.startswith(ONE)


def _value(name: str, words: list[str]) -> Any:
    """Read the words of an option as a file has its value. Raises ConfigError."""
    if not _is_known(name):
        for flag in difflib.get_close_matches(f"--{name}", FLAGS, 1, ALIKE):
            meant = f"did you mean '{flag}', which takes no value?"
            raise ConfigError(f"{WHO}: unknown key '{name}'; {meant}")
        return " ".join(words)  # which is refused with the name
    if not words:
        raise ConfigError(f"{WHO}: {_option(name)}: expected a value after it")
    text = words[0]
    if is_list(name) and not (len(words) == 1 and text in choices(name)):
        return [] if words == [NO_ENTRY] else [_number(word) for word in words]
    if name == KWARGS or name.startswith(ONE):
        for read in (TRUTHS.__getitem__, json.loads, float):
            with suppress(KeyError, ValueError, RecursionError):
                return read(text)
        return text
    kind = hint(name)
    if bool in {kind, *get_args(kind)}:
        return TRUTHS.get(text, text)
    return _number(text) if {int, float} & {kind, *get_args(kind)} else text


def _number(text: str) -> int | float | str:
    """Read a number, 1e6 as a whole one; leave other words."""
    for read in (whole, float):
        with suppress(ValueError):
            return read(text)
    return text


def _overview() -> str:
    """Fill in USAGE; what follows a # begins in one column."""
    main = [
        f"  {f'{_option(name)} {value}':24} {' '.join(as_words(DEFAULTS[name])):14} {about}"
        for name, (value, about) in MAIN.items()
    ]
    known = [f"  {name:8}  {_about(name)}" for name in ALGORITHMS]
    steps = DEFAULTS["budget.nominal_steps"]
    text = USAGE.format(program(), steps, "\n".join(main), "\n".join(known)).rstrip()
    return re.sub("(?m)^(.*) # ", lambda found: f"{found[1]:56}  ", text)


def _about(algorithm: str) -> str:
    """Describe an algorithm in a line: by the first sentence of its table."""
    if algorithm in FORM_OF:
        return f"ERL with {' crossover and '.join(FORMS[algorithm])} mutation"
    text = " ".join((Config(algorithm=algorithm).own.__doc__ or "").split())
    return re.split(r"\.(?= [A-Z]|$)", text)[0]


def _help_of(file: dict[str, Any], named: dict[str, Any]) -> str:
    """Describe every field that an algorithm reads; a file's and a preset's values are defaults."""
    default = resolve(file, {name: named[name] for name in CHOICES if name in named})
    algorithm = default.algorithm
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    fill = partial(textwrap.fill, break_on_hyphens=False)  # paths stay whole
    usage = f"usage: {program()} --algorithm {algorithm} [--SETTING VALUE ...]"
    lines = [usage, "\nSources of the defaults: P the paper, C its public code, M measured here."]
    tables: set[str] = set()
    for name, value in flatten(default):
        if not reads(algorithm, name):
            continue
        table, _, key = name.rpartition(".")
        kind: type = type(getattr(default, table)) if table else Config
        if table not in tables:
            tables.add(table)
            about = f"[{table}] {kind.__doc__ or ''}" if table else "Without a table"
            lines += ["", fill(" ".join(about.split()), width)]
        lines.append(f"  --{name} {values_of(name)}")
        about = f"{docstrings(kind).get(key, '')} (default: {' '.join(as_words(value))})"
        lines.append(textwrap.indent(fill(about, width - 6), " " * 6))
    return "\n".join(lines)


def values_of(name: str) -> str:
    """Describe the values that a field takes."""
    kind = hint(name)
    if is_list(name):
        return "|".join(["int ...", *choices(name)])
    if kind == dict[str, Any]:
        return "JSON"
    kinds = [each for each in (kind, *get_args(kind)) if isinstance(each, type)]
    named = ("true|false" if each is bool else each.__name__ for each in kinds)
    return "|".join([*named, *choices(name)])


@cache
def docstrings(kind: type) -> dict[str, str]:
    """Read what stands below the fields of a table, and of those that it is made of."""
    found: dict[str, str] = {}
    for owner in filter(is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for node, below in pairwise(definition.body):
            if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(node.target)] = " ".join(ast.literal_eval(below.value).split())
    return found
