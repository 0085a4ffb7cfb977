"""The commands, a file each: `esac-mpi NAME`, the one way to call them.

May import: host, config, operators, envs, record, comm, play, learners, algorithms, analysis,
policies, training, studies.
Begin with: __main__.py.

A command has its help as docstring, add_arguments(line), and main(options), which yields what is
printed or returns the exit code. What they are made of is in analysis/, policies/ and studies/.
"""

from pathlib import Path

GROUPS = {
    "train": ("run", "examples"),
    "look at runs": ("watch", "summary", "plot", "table"),
    "take policies and figures elsewhere": ("evaluate", "render", "export"),
    "study": ("sweep", "search", "experiment", "results"),
}
NOW = {  # what a command of older versions is now
    "compare": "esac-mpi summary --compare",
    "updates": "esac-mpi plot --what updates",
    "scaling": "esac-mpi plot --what scaling",
    "sensitivity": "esac-mpi plot --what sensitivity",
    "waiting": "esac-mpi table --what waiting",
    "operators": "python -m tools.operators, from a checkout",
    "completion": "gone: `esac-mpi COMMAND --help` has the options",
}
NAMES = tuple(name for names in GROUPS.values() for name in names)


def about(name: str) -> str:
    """Return the first line of a command's help, without importing it."""
    text = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return text.splitlines()[0].removeprefix('"""')
