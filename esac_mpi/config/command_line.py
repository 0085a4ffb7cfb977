"""The command line: every field by its dotted name; and --help."""

import ast
import inspect
import json
import shutil
import textwrap
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn, get_args, get_origin

from esac_mpi.config.bounds import AUTO
from esac_mpi.config.exact import whole
from esac_mpi.config.fields import NAMES, flatten, hint, shown, takes_auto, updated
from esac_mpi.config.files import KWARGS, ONE, coerced, gathered, no_file, read_file
from esac_mpi.config.names import known
from esac_mpi.config.reads import reads
from esac_mpi.config.renamed import RENAMED, refuse_former
from esac_mpi.config.resolution import Hear, joined
from esac_mpi.config.whole import ALGORITHMS, Config, ConfigError
from esac_mpi.host.invocation import program
from esac_mpi.host.log import tell

WHO = "command line"  # in messages
HELP = {"--help", "-h"}
USAGE = """\
mpirun -n N python -m esac_mpi [CONFIG.toml] [--section.field value ...] [--run-dir DIR]
                               [--fresh] [--from RUN]
RUN/config.toml goes on with the run of that directory. --fresh starts over and moves an old run
aside; not in a batch job's later rounds. --from RUN, or a policy.h5, begins another run where that
one stands.
--check looks at launch, nodes, task and run directory, and runs nothing.

--algorithm NAME --help shows the fields that one algorithm reads.

Examples:
  --task.id Hopper-v5 --algorithm sac --run-dir runs/hopper     one learner, one process
  configs/esac/walker-walk.toml --seed 3 --esac.sigma 0.01      a file, and what differs from it
  runs/hopper/config.toml --budget.env_steps 2000000            goes on with a run, for longer

SIGUSR1 to the launcher or a rank: saved and stopped at the end of the generation, exit code 75; a
second one, a second or more later: the generation is given up, saved; a third: the end, unsaved.
SIGUSR2, SIGXCPU and SIGHUP to a rank are the same, but kill MPICH's mpirun and its ranks with it.
Ctrl-C is the same without a launcher, but makes launchers kill their ranks: MPICH's mpirun the
second one, Open MPI's the first, srun two within a second; the run then goes on from its last
checkpoint.

Sources of the defaults: P the paper, C its public code, M measured here.
"""
TRUTHS = {"true": True, "false": False, "True": True, "False": False}


def as_words(value: Any) -> list[str]:
    """Write a field's value as words of a command line."""
    return [shown(entry) for entry in (value if isinstance(value, list | tuple) else [value])]


def load(
    argv: list[str], say: Hear = lambda text: None, warn: Hear = lambda text: None
) -> tuple[Config, bool]:
    """Resolve defaults, preset, configuration file and command line, in this order.

    Return (config, fresh). The config.toml of a run directory means this directory, wherever it is
    now. `say` hears what es takes from [esac], `warn` what the file sets in vain. Raises
    ConfigError for a bad file, key, value or combination, and for a field of the command line that
    the run would not read; SystemExit after --help.
    """
    words = [word for word in argv if word not in {"--fresh", *HELP}]
    source = _take_file(words)
    file = read_file(source, warn) if source else {}
    options = _options(words, source)
    if HELP & {*argv}:
        algorithm = options.get("algorithm", "")
        _help(algorithm if algorithm in ALGORITHMS else "", updated(Config(), file))
    named = coerced(gathered(options, file.get(KWARGS, {})), WHO)
    return joined(file, named, WHO, source, say, warn), "--fresh" in argv


def _take_file(words: list[str]) -> str:
    """Take the configuration file out of the words, "" for none."""
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        of_option = before.startswith("--") and "=" not in before
        if word.endswith(".toml") and not word.startswith("--") and not of_option:
            return words.pop(i)
    return ""


def _options(words: list[str], source: str) -> dict[str, Any]:
    """Read {dotted name: value}; source: the file. Raises ConfigError for a stray word."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
            name = _name(option)
            found[name] = [value] if equals else []
        elif name and (_is_list(name) or not found[name]):
            found[name].append(word)
        elif source and word.endswith(".toml"):
            why = f"one configuration file is read, and {source} is named before it"
            raise ConfigError(f"{WHO}: {word!r}: {why}")
        else:
            raise ConfigError(f"{WHO}: {no_file(word)}")
    for name, words in found.items():
        refuse_former(name, words[0] if words else "", WHO, "--{} {}")
    return {name: _value(name, given) for name, given in found.items()}


def _name(option: str) -> str:
    """Return the dotted name of an option; --from is short for --start-from."""
    if option == "from":
        return "start_from"
    if option.startswith(ONE):  # an argument of Python's has no dashes, a table in one may
        first, dot, inner = option[len(ONE) :].partition(".")
        return ONE + first.replace("-", "_") + dot + inner
    name = option.replace("-", "_")
    return name if name in RENAMED else known(name, WHO)


def _option(name: str) -> str:
    """Spell the option of a field as the pages do."""
    if name == "start_from":
        return "--from"
    return f"--{name}" if "." in name else f"--{name.replace('_', '-')}"


def _is_list(name: str) -> bool:
    return name in NAMES and get_origin(hint(name)) is tuple


def _value(name: str, words: list[str]) -> Any:
    """Read the words of an option as a file has its value. Raises ConfigError."""
    if _is_list(name):
        return [_entry(name, word) for word in words]
    if not words:
        raise ConfigError(f"{WHO}: {_option(name)}: expected a value after it")
    text = words[0]
    if name == KWARGS:
        return _object(text)
    if name.startswith(ONE):
        for read in (TRUTHS.__getitem__, json.loads, float):
            with suppress(KeyError, ValueError, RecursionError):
                return read(text)
        return text
    kind = hint(name)
    if kind is bool:
        return TRUTHS.get(text, text)
    return _number(text) if {int, float} & {kind, *get_args(kind)} else text


def _number(text: str) -> int | float | str:
    """Read a number, 1e6 as a whole one; leave other words."""
    for read in (whole, float):
        with suppress(ValueError):
            return read(text)
    return text


def _entry(name: str, word: str) -> int:
    """Read a number of a list."""
    number = _number(word)
    if "," in word:
        wanted = f"expected numbers apart by blanks, as in --{name} 64 64"
        raise ConfigError(f"{WHO}: {name} = {word!r}: {wanted}")
    if isinstance(number, str):
        raise ConfigError(f"{WHO}: {no_file(word)}")
    if isinstance(number, float):
        raise ConfigError(f"{WHO}: {name} = {number}: expected an integer")
    return number


def _object(text: str) -> dict[str, Any]:
    """Read a JSON object. Raises ConfigError for anything else."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            return found
    wanted = f"a JSON object, as '{{\"name\": 0.5}}', or --{ONE}NAME VALUE"
    raise ConfigError(f"{WHO}: {KWARGS} = {text!r}: expected {wanted}")


def _help(algorithm: str, default: Config) -> NoReturn:
    """Show the fields that an algorithm reads, all of them for "". Raises SystemExit."""
    width = min(shutil.get_terminal_size().columns, 100)
    lines = [f"usage: {program()} [OPTIONS]", "", str(Config.__doc__), "", USAGE]
    tables: set[str] = set()
    for name, value in flatten(default):
        if algorithm and not reads(algorithm, name):
            continue
        table, _, key = name.rpartition(".")
        kind: type = type(getattr(default, table)) if table else Config
        if table not in tables:
            tables.add(table)
            about = " ".join(f"[{table}] {kind.__doc__}".split()) if table else "Without a table"
            lines += ["", textwrap.fill(about, width)]
        lines.append(f"  --{name} {values_of(name)}")
        about = f"{docstrings(kind)[key]} (default: {' '.join(as_words(value))})"
        lines.append(textwrap.indent(textwrap.fill(about, width - 6), " " * 6))
    tell("\n".join(lines))
    raise SystemExit(0)


def values_of(name: str) -> str:
    """Say what values a field takes."""
    kind = hint(name)
    if _is_list(name) or kind == dict[str, Any] or kind is bool:
        return {bool: "true|false", dict[str, Any]: "JSON"}.get(kind, "int ...")
    kinds = [each for one in get_args(kind) or (kind,) for each in get_args(one) or (one,)]
    words = [each.__name__ if isinstance(each, type) else each for each in kinds]
    return "|".join([*words, AUTO] if takes_auto(name) else words)


@cache
def docstrings(kind: type) -> dict[str, str]:
    """Read what stands below the fields of a table, and of those that it is made of."""
    found: dict[str, str] = {}
    for owner in filter(is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(inspect.getsource(owner)).body
        assert isinstance(definition, ast.ClassDef)
        for node, below in pairwise(definition.body):
            if isinstance(node, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(node.target)] = " ".join(ast.literal_eval(below.value).split())
    return found
