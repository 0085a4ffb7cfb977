"""Print what completes commands, options and their values in bash or zsh.

    esac-mpi completion bash|zsh

Examples:
    esac-mpi completion bash > ~/.local/share/bash-completion/completions/esac-mpi
    echo 'source <(esac-mpi completion zsh)' >> ~/.zshrc
    source <(esac-mpi completion bash)                              # this terminal alone

Where nothing else fits, file names are completed. Cost: 1 s to print it.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module

from esac_mpi.analysis.command import parser
from esac_mpi.commands import NAMES
from esac_mpi.config import ALGORITHMS
from esac_mpi.config.fields import NAMES as FIELDS

BASH = """\
_esac_mpi() {
    local word=${COMP_WORDS[COMP_CWORD]} words=
    case "${COMP_CWORD} ${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}" in
    1\\ *) words="%s --help --version" ;;
%s
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _esac_mpi esac-mpi
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def command_line() -> argparse.ArgumentParser:
    """Return the command line."""
    line = parser(__doc__)
    line.add_argument("shell", choices=("bash", "zsh"))
    return line


def actions(line: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all that a command line takes, of the commands below it too."""
    for action in line._actions:  # argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions(below)


def cases(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what may follow a word as (bash's pattern, words): an option's values, then options."""
    if name == "run":  # its line is the program's
        fields = [field if "." in field else field.replace("_", "-") for field in FIELDS]
        yield f"{name}\\ --algorithm", list(ALGORITHMS)
        yield f"{name}\\ *", [f"--{word}" for word in ("help", "check", "fresh", "from", *fields)]
        return
    values, options = dict[str, list[str]](), ["--help"]
    for action in actions(import_module(f"esac_mpi.commands.{name}").command_line()):
        options += [word for word in action.option_strings if word.startswith("--")]
        for word in action.option_strings or [name]:
            values[word] = sorted({*values.get(word, []), *map(str, action.choices or ())})
    for word, found in values.items():
        if found:
            yield f"{name}\\ {word}", found
    yield f"{name}\\ *", list(dict.fromkeys(options))


def script(shell: str) -> str:
    """Return the text that a shell reads."""
    lines = [
        f'    *\\ {pattern}) words="{" ".join(words)}" ;;'
        for name in NAMES
        for pattern, words in cases(name)
    ]
    text = BASH % (" ".join(NAMES), "\n".join(lines))
    return f"{ZSH if shell == 'zsh' else ''}{text}"


def main(argv: list[str]) -> int:
    """Print the text; return 0."""
    print(script(command_line().parse_args(argv).shell), end="")
    return 0
