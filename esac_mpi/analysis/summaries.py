"""A run in one object, as `esac-mpi summary RUN --json` prints it; the command to continue it."""

import shlex
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
    """Return the command that continues the run by its own settings; None: it is not to be."""
    if run.state in ("running", "complete", "pruned"):
        return None
    ranks, words = run.provenance.get("ranks", 1), ["python", "-m", "esac_mpi"]
    words.append(str(run.path / "config.toml"))
    return shlex.join(["mpirun", "-n", str(ranks), *words] if ranks > 1 else words)
