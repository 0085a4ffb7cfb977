"""A run in one object, as `esac-mpi summary RUN --json` prints it; the command to continue it."""

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from esac_mpi.analysis import measures
from esac_mpi.analysis.measures import last
from esac_mpi.record import RunFiles


def summary(run: RunFiles) -> dict[str, Any]:
    """Sum up a run; None where something is not known (yet)."""
    config = run.config
    return {
        "run": str(run.path),
        "status": run.state,
        "algorithm": config.algorithm,
        "task": config.task.id,
        "seed": config.seed,
        "ranks": run.provenance.get("ranks"),
        "generation": run.generation,
        "env_steps": {kind: measures.env_steps(run, kind) for kind in measures.KINDS},
        "nominal_steps": last(run, "nominal_steps") or 0,
        "gradient_updates": last(run, "gradient_updates") or 0,
        "member_updates": last(run, "member_updates") or 0,
        "unstable_episodes": last(run, "unstable_episodes") or 0,
        "sigma": last(run, "sigma"),
        "best_return": measures.best_return(run),
        "final_return": measures.final_return(run),
        "last_evaluation": measures.last_evaluation(run),
        **{
            name: run.provenance.get(name)
            for name in ("theta_sha256", "state_sha256", "checkpoint_generation", "command")
        },
        "wall_seconds": last(run, "wall_seconds", "timing") or 0.0,
        "parallel_efficiency": measures.parallel_efficiency(run),
        "env_steps_per_second": measures.rate(run, measures.counted_steps(run)),
        "time_percent": measures.time_percent(run),
        "time": run.status.get("time"),
        "resume": resume_command(run),
    }


def resume_command(run: RunFiles) -> str | None:
    """Return the command that continues the run from the current directory, or None.

    None: there is nothing to continue. It is the command that started it, less --fresh, where that
    would come back to this directory from here; else one that names the run's own config.toml.
    """
    command = run.provenance.get("command", "python -m esac_mpi")
    if run.state in ("running", "complete", "pruned"):
        return None
    words = [word for word in shlex.split(command) if word != "--fresh"]
    if words[:1] == ["esac_mpi.train"]:  # from Python, with settings that no command line may have
        words = ["python", "-m", "esac_mpi"]
    named = [value for name, value in pairwise(words) if name in ("--run-dir", "--run_dir")]
    here = named and Path(named[-1]).resolve() == run.path.resolve()
    if not (here and all(Path(word).exists() for word in words if word.endswith(".toml"))):
        words = [*words[:3], str(run.path / "config.toml"), "--run-dir", str(run.path)]
    ranks = run.provenance.get("ranks", 1)
    return shlex.join(["mpirun", "-n", str(ranks), *words] if ranks > 1 else words)
