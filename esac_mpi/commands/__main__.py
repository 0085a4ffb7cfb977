"""Train locomotion policies by evolution and gradients, and look at the results.

    esac-mpi run --task.id Hopper-v5 --run-dir runs/first                 # train, in one process
    mpirun -n 64 esac-mpi run configs/esac/halfcheetah.toml --seed 3      # on 64 ranks
    esac-mpi plot runs/first                                              # its learning curve

`esac-mpi COMMAND --help` has a command's options and examples. `esac-mpi --version`: the version.
"""

import difflib
import os
import sys
from argparse import ArgumentParser
from importlib import import_module

from esac_mpi.commands import GROUPS, NAMES, NOW, about
from esac_mpi.host import log, streams, threads
from esac_mpi.host.batch_system import is_speaker
from esac_mpi.host.errors import INSTALL, WRONG_USAGE, NotSaved, RunError, why_not_imported
from esac_mpi.host.invocation import SCRIPT, call_of, deleted_directory, version, without_arguments
from esac_mpi.host.stop import EndsRun, die_of_interrupt

EXTRAS = {  # extra of setup.cfg that has a library
    "matplotlib": "analysis", "pandas": "analysis",
    "PIL": "render", "imageio": "render", "imageio_ffmpeg": "render",
    "tensorboardX": "tensorboard", "onnx": "export", "onnxscript": "export",
    "stable_baselines3": "baselines", "evotorch": "bench",
}  # fmt: skip


def overview() -> str:
    """List what all commands do, a line each."""
    width = max(map(len, NAMES))
    groups = [
        "\n".join([f"{title}:", *(f"  {name:{width}}  {about(name)}" for name in names)])
        for title, names in GROUPS.items()
    ]
    return "\n\n".join([(__doc__ or "").rstrip(), *groups])


def refusal(words: list[str]) -> str:
    """Return the sentence that refuses a command line without a known command."""
    if not words:
        return f"{SCRIPT}: which command? {', '.join(NAMES)}; {call_of('--help')} says what they do"
    if words[0] in NOW:
        return f"{SCRIPT} {words[0]} is now {NOW[words[0]]}"
    near = difflib.get_close_matches(words[0], NAMES, 1)
    meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
    return f"{SCRIPT}: no command '{words[0]}'; {meant}"


def command_line(name: str) -> ArgumentParser:
    """Make a command's parser."""
    command = import_module(f"esac_mpi.commands.{name}")
    from esac_mpi.analysis.command import parser

    line = parser(command.__doc__)
    command.add_arguments(line)
    return line


@without_arguments()
def call(name: str, arguments: list[str]) -> int:
    """Call a command, print what it yields; return its exit code."""
    if name != "run":
        os.environ["MPLBACKEND"] = "Agg"  # commands draw into files, whatever a notebook has
    command = import_module(f"esac_mpi.commands.{name}")
    if name == "run":  # the program reads its own
        return command.main(arguments)
    from esac_mpi.analysis.command import print_all

    options = command_line(name).parse_args(arguments)
    found = command.main(options)
    return found if isinstance(found, int) else print_all(found, vars(options))


def run(name: str, arguments: list[str]) -> int:
    """Carry out a command; return its exit code, 2 for a missing library or current directory."""
    threads.limit_program()  # before numpy
    if gone := deleted_directory():
        if is_speaker(os.environ):
            log.complain(f"{SCRIPT}: {gone}")
        return WRONG_USAGE
    code = 0
    try:
        try:
            code = call(name, arguments)
        finally:  # also after a help, which ends the program
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        die_of_interrupt()
    except EndsRun as error:  # of a task
        log.complain(f"{call_of(name)}: {error}")
        return RunError.code
    except RunError as error:  # a file that was damaged, or replaced, after it was opened
        log.complain(error)
        return error.code
    except OSError as error:
        if error.filename is not None:
            raise
        streams.let_go()
        if isinstance(error, BrokenPipeError):  # the reader, `head` say, has seen enough
            return code
        # a library's own error is a text alone
        what = f"standard output: {error.strerror}" if error.strerror else error
        log.complain(f"{call_of(name)}: {what}")
        return code or NotSaved.code
    except (ImportError, RuntimeError) as error:  # mpi4py's
        missing = (isinstance(error, ModuleNotFoundError) and error.name) or ""
        if extra := EXTRAS.get(library := missing.partition(".")[0]):
            log.complain(f"{call_of(name)} needs {library}: {INSTALL} '.[{extra}]'")
        elif told := why_not_imported(error):
            log.complain(f"{call_of(name)}: {told}")
        else:
            raise
    return WRONG_USAGE


def main(argv: list[str] | None = None) -> int:
    """Carry out what a command line asks for; return the exit code."""
    streams.open_missing()
    if hasattr(sys.stdout, "reconfigure") and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # as in training (log.py)
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in NAMES:
        return run(words[0], words[1:])
    if is_speaker(os.environ):
        if words in (["--help"], ["-h"]):
            log.tell(overview())
        elif words == ["--version"]:
            log.tell(version())
        else:
            log.complain(refusal(words))
    return 0 if words in (["--help"], ["-h"], ["--version"]) else WRONG_USAGE


if __name__ == "__main__":
    sys.exit(main())
