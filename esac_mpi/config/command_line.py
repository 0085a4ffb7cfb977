"""The command line: every field by its dotted name, parsed by tyro, and one configuration of what was said where."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, make_dataclass
from itertools import pairwise
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from esac_mpi.config.exact import whole
from esac_mpi.config.fields import NAMES, flatten, hint, shown, updated
from esac_mpi.config.files import KWARGS, ONE, SAID, no_file, read_file, with_entry
from esac_mpi.config.names import known
from esac_mpi.config.reads import reads
from esac_mpi.config.resolution import Hear, joined
from esac_mpi.config.whole import ALGORITHMS, Config, ConfigError
from esac_mpi.host import streams
from esac_mpi.host.invocation import program

WHO = "command line"  # in messages


def as_words(value: Any) -> list[str]:
    """Write a field's value as words of a command line."""
    return [shown(entry) for entry in (value if isinstance(value, list | tuple) else [value])]


def load(
    argv: list[str], say: Hear = lambda text: None, warn: Hear = lambda text: None
) -> tuple[Config, bool]:
    """Resolve defaults, reading, configuration file and command line, in this order; return (config, fresh).

    The config.toml of a run directory means this directory, wherever it is now. `say` hears what es takes from [esac], `warn`
    what the file sets in vain. Raises ConfigError for a bad file, key or combination, and for a field of the command line that
    the run would not read; SystemExit (0 for --help, 2 for a bad value) from tyro.
    """
    fresh = "--fresh" in argv
    argv = [_unshortened(token) for token in argv if token != "--fresh"]
    file: dict[str, Any] = {}
    source = ""
    for i, token in enumerate(argv):
        before = argv[i - 1] if i else ""
        of_option = before.startswith("--") and "=" not in before
        if token.endswith(".toml") and not token.startswith("--") and not of_option:
            source = argv.pop(i)
            file = read_file(source, warn)
            break
    argv = _with_kwargs(argv, file.get(KWARGS, {}))
    argv, names = _named(argv)
    _refuse_strays(argv, source)
    parsed = dict(flatten(_parse(argv, updated(Config(), file))))
    named = {name: parsed[name] for name in names}
    return joined(file, named, WHO, source, say, warn), fresh


def _unshortened(token: str) -> str:
    """Write --from with its full name: no field can have that, it is a word of Python."""
    return "--start_from" + token[6:] if token == "--from" or token.startswith("--from=") else token


def _named(argv: list[str]) -> tuple[list[str], set[str]]:
    """Return the words as tyro wants them, and the fields that they set: true as True, 1e6 as 1000000."""
    words, names, name = [], set(), ""
    for token in argv:
        if token.startswith("--") and token != "--help":
            name = known(token[2:].split("=")[0].replace("-", "_"), WHO)
            names.add(name)
        option, equals, value = token.rpartition("=")
        if name and (equals or not token.startswith("--")):
            kind = hint(name)
            if kind is int or (get_origin(kind) is tuple and int in get_args(kind)):
                value = _whole(name, value)
            elif kind is bool and value in ("true", "false"):
                value = value.capitalize()
        words.append(option + equals + value)
    return words, names


def _whole(name: str, text: str) -> str:
    """Write a whole number with digits alone. Raises ConfigError for another number; leaves other words."""
    try:
        return str(whole(text))
    except ValueError:
        with suppress(ValueError):
            told = f"{name} = {float(text):g}: expected an integer"
            raise ConfigError(f"{WHO}: {told}") from None
        return text


def _refuse_strays(argv: list[str], source: str) -> None:
    """Raise ConfigError for a word that is no value of an option. source: the configuration file, "" for none."""
    field, count = "", 1  # values of the field so far
    for token in argv:
        word = token
        if token.startswith("--"):
            option, equals, word = token[2:].partition("=")
            field, count = option.replace("-", "_"), 0
            if not equals:
                continue
        count += 1
        many = field in NAMES and get_origin(hint(field)) is tuple
        if many and "," in word:
            wanted = f"expected numbers apart by blanks, as in --{field} 64 64"
            raise ConfigError(f"{WHO}: {field} = {word!r}: {wanted}")
        if count == 1 or word.startswith("-") or (many and word.isdigit()):
            continue
        if source and word.endswith(".toml"):
            why = f"one configuration file is read, and {source} is named before it"
            raise ConfigError(f"{WHO}: {word!r}: {why}")
        raise ConfigError(f"{WHO}: {no_file(word)}")


def _with_kwargs(argv: list[str], given: Mapping[str, Any]) -> list[str]:
    """Join --task.kwargs NAME by NAME into one JSON object.

    given: those of the file, which single ones join and an object replaces. Raises ConfigError.
    """
    rest, found, waiting = [], None, list(argv)
    while waiting:
        option, equals, value = waiting.pop(0).partition("=")
        name = option.replace("-", "_")
        if name != f"__{KWARGS}" and not name.startswith(f"__{ONE}"):
            rest.append(option + equals + value)
            continue
        if not equals:
            if not waiting or waiting[0].startswith("--"):
                raise ConfigError(f"{WHO}: {option}: expected a value after it")
            value = waiting.pop(0)
        if name == f"__{KWARGS}":
            found = _object(value)
        else:  # an argument of Python's has no dashes, a table in one may
            first, dot, inner = option[len(ONE) + 2 :].partition(".")
            argument = first.replace("-", "_") + dot + inner
            found = with_entry(given if found is None else found, argument, _value(value))
    return rest if found is None else [*rest, f"--{KWARGS}={json.dumps(found)}"]


def _object(text: str) -> dict[str, Any]:
    """Read a JSON object. Raises ConfigError for anything else."""
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            return found
    wanted = f"a JSON object, as '{{\"name\": 0.5}}', or --{ONE}NAME VALUE"
    raise ConfigError(f"{WHO}: {KWARGS} = {text!r}: expected {wanted}")


def _value(text: str) -> Any:
    """Read a value as JSON has it, or Python a number or a truth; any other text is itself."""
    truths = {"True": True, "False": False}
    for read in (truths.__getitem__, json.loads, float):
        with suppress(KeyError, ValueError, RecursionError):
            return read(text)
    return text


def _parse(argv: list[str], default: Config) -> Config:
    import tyro  # rank 0 alone parses

    text = (
        f"{Config.__doc__}\n\n"
        "mpirun -n N python -m esac_mpi [CONFIG.toml] [--section.field value ...] [--run-dir DIR] [--fresh] [--from RUN]\n"
        "RUN/config.toml goes on with the run of that directory. --fresh starts over and moves an old run aside; not in a\n"
        "batch job's later rounds. --from RUN, or a policy.h5, begins another run where that one stands.\n"
        "--check looks at launch, nodes, task and run directory, and runs nothing.\n\n"
        "--algorithm NAME --help shows the fields that one algorithm reads.\n\n"
        "Examples:\n"
        "  --task.id Hopper-v5 --algorithm sac --run-dir runs/hopper     one learner, one process\n"
        "  configs/esac/walker-walk.toml --seed 3 --esac.sigma 0.01      a file, and what differs from it\n"
        "  runs/hopper/config.toml --budget.env_steps 2000000            goes on with a run, for longer\n\n"
        "SIGUSR1 to the launcher or a rank: saved and stopped at the end of the generation, exit code 75; a second one, a\n"
        "second or more later: the generation is given up, saved; a third: the end, unsaved. SIGUSR2, SIGXCPU and SIGHUP\n"
        "to a rank are the same, but kill MPICH's mpirun and its ranks with it. Ctrl-C is the same without a\n"
        "launcher, but makes launchers kill their ranks: MPICH's mpirun the second one, Open MPI's the first, srun two within\n"
        "a second; the run then goes on from its last checkpoint.\n\n"
        "Sources of the defaults: P the paper, C its public code, M measured here."
    )
    shown_fields = _fields_of(_asked_about(argv), default)
    tables = tyro.constructors.ConstructorRegistry()
    tables.primitive_rule(_json_of)
    with tables:
        try:
            return tyro.cli(
                type(shown_fields),
                prog=program(),
                description=text,
                default=shown_fields,
                args=argv,
                config=(tyro.conf.FlagConversionOff,),
            )
        except OSError:  # the reader, `head` say, has seen enough of the help; or nothing takes it
            streams.let_go()
            raise SystemExit(0) from None


def _asked_about(argv: list[str]) -> str:
    """Find the algorithm that a command line asks for help about, "" for none or all."""
    words = " ".join(argv).replace("=", " ").split()
    named = [value for name, value in pairwise(words) if name == "--algorithm"]
    asks = named and named[-1] in ALGORITHMS and {"--help", "-h"} & set(words)
    return named[-1] if asks else ""


def _fields_of(algorithm: str, config: Config) -> Config:
    """Make an object like a configuration, of whose fields help shows those that an algorithm reads; "": all settings."""
    hidden: dict[str, set[str]] = {"": {SAID}}
    for name in NAMES if algorithm else ():
        if not reads(algorithm, name):
            table, _, key = name.rpartition(".")
            hidden.setdefault(table, set()).add(key)
    parts = {}
    for table in hidden.keys() - {""}:
        part = getattr(config, table)
        if hidden[table] == {f.name for f in fields(part)}:
            hidden[""].add(table)
        else:
            parts[table] = _without(part, hidden[table], {})
    return _without(config, hidden[""], parts)


def _without(config: Any, hidden: set[str], parts: dict[str, Any]) -> Any:
    """Make an object like a dataclass's, with some fields hidden from tyro's help and others replaced."""
    import tyro

    kind = type(config)
    hints = get_type_hints(kind, include_extras=True)
    types: dict[str, Any] = {name: Annotated[hints[name], tyro.conf.Suppress] for name in hidden}
    types |= {name: type(part) for name, part in parts.items()}
    changed = [(name, types[name], kind.__dataclass_fields__[name]) for name in types]
    made: Any = make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True)
    made.__module__ = kind.__module__  # where tyro reads what the fields' docstrings say
    return made(**{f.name: parts.get(f.name, getattr(config, f.name)) for f in fields(kind)})


def _json_of(field: Any) -> Any:
    """Tell tyro how a table of any names is read and shown; None of another field."""
    import tyro

    if field.type != dict[str, Any]:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        1,
        "JSON",
        lambda words: json.loads(words[0]),
        lambda value: isinstance(value, dict),
        lambda value: [shown(value)],
    )
