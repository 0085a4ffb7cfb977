"""The command line: every field by its dotted name, parsed by tyro, and one configuration of what was said where."""

import json
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, get_args, get_origin

from esac_mpi.config import kwargs
from esac_mpi.config.errors import ConfigError
from esac_mpi.config.exact import whole
from esac_mpi.config.fields import NAMES, flatten, hint, shown, updated
from esac_mpi.config.files import read_file
from esac_mpi.config.help import read_by
from esac_mpi.config.joining import joined
from esac_mpi.config.names import known
from esac_mpi.config.whole import ALGORITHMS, Config
from esac_mpi.config.wrong_file import no_file
from esac_mpi.host import streams
from esac_mpi.host.invocation import program


def as_words(value: Any) -> list[str]:
    """Return a field's value as words of a command line."""
    return [shown(entry) for entry in (value if isinstance(value, list | tuple) else [value])]


def load(
    argv: list[str],
    say: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[Config, bool]:
    """Resolve defaults, reading, configuration file and command line, in this order; return (config, fresh).

    The config.toml of a run directory means this directory, wherever it is now. `say` hears what es takes from [esac], `warn`
    what the file sets in vain. Raises ConfigError for a bad file, key or combination, and for a field of the command line that
    the run would not read; SystemExit (0 for --help, 2 for a bad value) from tyro.
    """
    argv = [_unshortened(token) for token in argv]
    fresh = "--fresh" in argv
    argv = [token for token in argv if token != "--fresh"]
    file: dict[str, Any] = {}
    source = ""
    position = next(
        (i for i, t in enumerate(argv) if t.endswith(".toml") and not _is_of_option(argv, i)), None
    )
    if position is not None:
        source = argv.pop(position)
        file = read_file(source, warn)
    argv = kwargs.joined(argv, file.get(kwargs.FIELD, {}))
    names = _command_line_names(argv)
    _refuse_strays(argv, source)
    parsed = dict(flatten(_parse(argv, updated(Config(), file))))
    named = {name: parsed[name] for name in names}
    return joined(file, named, "command line", source, say, warn), fresh


def _unshortened(token: str) -> str:
    """Return a token with the full name of --from, which no field can have: it is a word of Python."""
    return "--start_from" + token[6:] if token == "--from" or token.startswith("--from=") else token


def _is_of_option(argv: list[str], i: int) -> bool:
    """Return whether a token is an option with its value, or the value of the option before it."""
    return argv[i].startswith("--") or (
        i > 0 and argv[i - 1].startswith("--") and "=" not in argv[i - 1]
    )


def _command_line_names(argv: list[str]) -> set[str]:
    """Return the dotted names that the command line sets; rewrite true/false of switches as tyro wants them."""
    named, name = set(), ""
    for i, token in enumerate(argv):
        if token.startswith("--") and token != "--help":
            name = known(token[2:].split("=")[0].replace("-", "_"), "command line")
            named.add(name)
        option, equals, value = token.rpartition("=")
        if name and (equals or not token.startswith("--")) and _is_whole(name):
            argv[i] = option + equals + _whole(name, value)
        if value in ("true", "false") and name and hint(name) is bool:
            argv[i] = option + equals + value.capitalize()
    return named


def _is_whole(name: str) -> bool:
    return hint(name) is int or (get_origin(hint(name)) is tuple and int in get_args(hint(name)))


def _whole(name: str, text: str) -> str:
    """Write a whole number with digits alone, 1e6 as 1000000. Raises ConfigError for another number; leaves other words."""
    try:
        return str(whole(text))
    except ValueError:
        with suppress(ValueError):
            raise ConfigError(
                f"command line: {name} = {float(text):g}: expected an integer"
            ) from None
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
            raise ConfigError(
                f"command line: {field} = {word!r}: expected numbers apart by blanks, as in --{field} 64 64"
            )
        if count == 1 or word.startswith("-") or (many and word.isdigit()):
            continue
        if source and word.endswith(".toml"):
            raise ConfigError(
                f"command line: {word!r}: one configuration file is read, and {source} is named before it"
            )
        raise ConfigError(f"command line: {no_file(word)}")


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
    flags = (tyro.conf.FlagConversionOff,)
    default = read_by(asked, default) if (asked := _asked_about(argv)) else default
    tables = tyro.constructors.ConstructorRegistry()
    tables.primitive_rule(_json_of)
    with tables:
        try:
            return tyro.cli(
                type(default),
                prog=program(),
                description=text,
                default=default,
                args=argv,
                config=flags,
            )
        except OSError:  # the reader, `head` say, has seen enough of the help; or nothing takes it
            streams.let_go()
            raise SystemExit(0) from None


def _asked_about(argv: list[str]) -> str:
    """Return the algorithm that a command line asks for help about, "" for none or all."""
    words = " ".join(argv).replace("=", " ").split()
    named = [
        value for name, value in pairwise(words) if name == "--algorithm" and value in ALGORITHMS
    ]
    return named[-1] if named and {"--help", "-h"} & set(words) else ""


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
