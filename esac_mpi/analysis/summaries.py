"""What can be said about a run in one object: what `esac-mpi summary RUN --json` prints."""

from typing import Any

from esac_mpi.analysis import measures
from esac_mpi.analysis.measures import last
from esac_mpi.analysis.resume import resume_command
from esac_mpi.record import RunFiles


def summary(run: RunFiles) -> dict[str, Any]:
    """Return what can be said about a run; null where it is not known (yet)."""
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
