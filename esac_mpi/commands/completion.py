"""Print what completes commands, options and their values in bash or zsh.

    esac-mpi completion bash > ~/.local/share/bash-completion/completions/esac-mpi
    echo 'source <(esac-mpi completion zsh)' >> ~/.zshrc

Where nothing else fits, names of files are completed. Cost: 1 s to print it, and nothing when it completes.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module

from esac_mpi.analysis.command import parser
from esac_mpi.commands import NAMES
from esac_mpi.config import ALGORITHMS
from esac_mpi.config.fields import NAMES as FIELDS
from esac_mpi.host.invocation import SCRIPT

SWITCHES = ("--help", "--check", "--fresh", "--from")  # of `run`, beside the fields
BASH = """\
_esac_mpi() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=
    if ((COMP_CWORD == 1)); then
        words="@names --help --version"
    else
        case "$command ${COMP_WORDS[COMP_CWORD-1]}" in
@values
        *) case "$word" in
            -*) case "$command" in
@options
                esac ;;
            esac ;;
        esac
    fi
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


def taken(name: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the options of a command, and the values that can follow a word: the command's own name, or an option."""
    if name == "run":
        names = [field if "." in field else field.replace("_", "-") for field in FIELDS]
        return [*SWITCHES, *(f"--{name}" for name in names)], {"--algorithm": list(ALGORITHMS)}
    options, values = dict.fromkeys(["--help"]), dict[str, list[str]]()
    for action in actions(import_module(f"esac_mpi.commands.{name}").command_line()):
        options |= dict.fromkeys(word for word in action.option_strings if word.startswith("--"))
        for word in action.option_strings or [name]:
            values[word] = sorted({*values.get(word, []), *map(str, action.choices or ())})
    return list(options), {word: found for word, found in values.items() if found}


def script(shell: str) -> str:
    """Return the text that a shell reads."""
    options, values = list[str](), list[str]()
    for name in NAMES:
        own, following = taken(name)
        options.append(f'                {name}) words="{" ".join(own)}" ;;')
        values += [
            f'        "{name} {word}") words="{" ".join(found)}" ;;'
            for word, found in following.items()
        ]
    bash = BASH
    for mark, text in {
        "@names": " ".join(NAMES),
        "@values": "\n".join(values),
        "@options": "\n".join(options),
    }.items():
        bash = bash.replace(mark, text)
    return f"# completion of {SCRIPT}: {SCRIPT} completion {shell}\n{ZSH if shell == 'zsh' else ''}{bash}"


def main(argv: list[str]) -> int:
    """Print the text; return 0."""
    print(script(command_line().parse_args(argv).shell), end="")
    return 0
