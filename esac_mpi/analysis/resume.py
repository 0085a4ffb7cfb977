"""The command that continues a run."""

import shlex
from itertools import pairwise
from pathlib import Path

from esac_mpi.record import RunFiles


def resume_command(run: RunFiles) -> str | None:
    """Return the command that continues the run from the current directory, None where there is nothing to continue.

    It is the command that started it, less --fresh, where that would come back to this directory from here; else one that
    names the run's own config.toml.
    """
    command = run.provenance.get("command", "python -m esac_mpi")
    if run.state in ("running", "complete", "pruned"):
        return None
    words = [word for word in shlex.split(command) if word != "--fresh"]
    called = words[:1] == [
        "esac_mpi.train"
    ]  # from Python, with settings that no command line may have
    words = ["python", "-m", "esac_mpi"] if called else words
    named = [value for name, value in pairwise(words) if name in ("--run-dir", "--run_dir")]
    here = named and Path(named[-1]).resolve() == run.path.resolve()
    if not (here and all(Path(word).exists() for word in words if word.endswith(".toml"))):
        words = [*words[:3], str(run.path / "config.toml"), "--run-dir", str(run.path)]
    ranks = run.provenance.get("ranks", 1)
    return shlex.join([*(("mpirun", "-n", str(ranks)) if ranks > 1 else ()), *words])
