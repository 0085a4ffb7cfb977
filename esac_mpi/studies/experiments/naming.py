"""What the names in an experiment's file have to be: known, and one for a task."""

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config.names import meant
from esac_mpi.studies.experiments.plan import Budget, Experiment, Planned


def check_names(found: Experiment, budget: Budget, source: str) -> None:
    """Raise Unusable where a budget names a task or variant that is none, or values of no field."""
    for key, given, there in (
        ("tasks", budget.tasks, found.tasks),
        ("for_task", budget.for_task, found.tasks),
        ("variants", budget.variants, found.variants),
        ("for_variant", budget.for_variant, found.variants),
    ):
        for name in given:
            if name not in there:
                raise Unusable(f"{source}: {key}: unknown '{name}'; {meant(name, there)}")
    if bool(found.field) != bool(found.values) or (budget.values and not found.field):
        raise Unusable(
            f"{source}: sweep needs both field and values, and a budget's values need a sweep"
        )


def refuse_one_task_twice(found: Experiment, settled: list[Planned]) -> None:
    """Raise Unusable where two tasks have one id, by which results are told apart."""
    names: dict[tuple[str, str, str], str] = {}
    for run in settled:
        id = run.config.task.id
        one = names.setdefault((id, run.variant, run.value), run.task)
        if one != run.task:
            raise Unusable(
                f"{found.id}: tasks {one} and {run.task} are both {id}, and results know a task by "
                "its id: make two experiments of them"
            )
