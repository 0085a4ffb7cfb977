"""A study for a person: its trials, the best one, a job array's list."""

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from esac_mpi.analysis.command import opened
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.tables import align
from esac_mpi.config import AUTO, DEFAULTS, NAMES, Config, amend, as_words, find_unread, to_toml
from esac_mpi.config.fields import normalisation, normalisation_of
from esac_mpi.host.invocation import call_of
from esac_mpi.host.run_directory import is_there
from esac_mpi.record import lock
from esac_mpi.studies import job_lists
from esac_mpi.studies.search.journal import Journal, Trial
from esac_mpi.studies.search.space import OWN
from esac_mpi.studies.search.study import Study, describe_value


def table(study: Study, top: int) -> Iterator[str]:
    """Yield the best trials as lines of a table; top: how many, 0: all. Raises Unusable."""
    trials = rank(study)
    listed = trials[: top or None]
    yield f"{study.path}: {counts(study, trials)}"
    value = describe_value(study)
    yield f"value: {value}; of one given up, or that goes on, the last that it reported"
    heads = ["trial", "state", "value", *study.space]
    yield from align([heads, *([*cells(trial, study)] for trial in listed)])
    for trial in listed:
        if trial.state == "failed":
            yield f"trial {trial.number} failed: {trial.why}"
    if trials and trials[0].state == "complete":
        best = f"{call_of('search')} best {shlex.quote(str(study.path))} --out best.toml"
        yield f"\nthe best as a configuration: {best}"


def rank(study: Study) -> list[Trial]:
    """Sort the trials: the best complete one first, then others by their last values."""
    trials = Journal(study).trials()
    for trial in trials:
        place = study.lock_of(trial.number)  # which a task that was killed may not have made
        if trial.state == "running" and (not place.exists() or lock.is_free(place)):
            trial.state = "left"
    return sorted(
        trials, key=lambda t: (t.state != "complete", t.value is None, -(t.value or 0.0), t.number)
    )


def counts(study: Study, trials: list[Trial]) -> str:
    """Format the counts of trials by state."""
    states = Counter(trial.state for trial in trials)
    text = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    if states["left"]:
        again = f"{call_of('search')} run {shlex.quote(str(study.path))}"
        text += f"; {again} goes on with what is left"
    return f"{len(trials)} of {study.trials} trials begun: {text}"


def cells(trial: Trial, study: Study) -> Iterator[str]:
    """Yield a trial as cells of a table."""
    yield str(trial.number)
    yield trial.state
    yield "-" if trial.value is None else f"{trial.value:,.6g}"
    for name in study.space:
        value = trial.found.get(name, "-")
        yield f"{value:.4g}" if type(value) is float else " ".join(as_words(value))


def best(study: Study) -> str:
    """Write the best complete trial as a configuration file. Raises Unusable."""
    trials = rank(study)
    if not trials or trials[0].state != "complete":
        raise Unusable(f"{study.path}: no trial is complete yet: {counts(study, trials)}")
    first = trials[0]
    about = (
        f"# Trial {first.number}, the best of {sum(t.state == 'complete' for t in trials)} "
        f"that are complete, in {study.path}.\n"
        f"# Value {first.value:,.6g}: {describe_value(study)}.\n"
        "# It was chosen by this value, which is too good therefore: report other seeds.\n"
    )
    run = study.run_of(first.number, study.seeds[0])
    if is_there(run):
        config = opened([run])[0].config
    else:
        about += f'# {run} is gone: what was "auto" in it is chosen anew.\n'
        config = study.configure(first.found)
    return about + as_file(amend(config, {name: DEFAULTS[name] for name in OWN}))


def as_file(config: Config) -> str:
    """Write a configuration as TOML, all that it reads, whatever the defaults become.

    But what nobody said and the task may leave unread, which would refuse it.
    """
    names = set(NAMES) - {"seed"} - find_unread(config, NAMES).keys()
    if normalisation(config) == AUTO:
        unsaid = names.difference(config.said or ())
        names -= find_unread(amend(config, {normalisation_of(config): True}), unsaid).keys()
    return to_toml(config, names)


def jobs(study: Study, place: Path, tasks: int) -> Iterator[object]:
    """Write the list of a job array of tasks; yield it, and how to submit it."""
    out = study.path / "jobs.txt"
    call = ["search", "run", str(place), "--run-dir"]
    job_lists.write(out, ([*call, str(study.path / "tasks" / str(i))] for i in range(tasks)))
    yield out
    seeds = f"{len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''} each"
    yield f"{tasks} tasks for {study.trials} trials, {seeds}"
    yield from job_lists.submission(out, tasks, program="esac-mpi")
    yield f"here     {call_of('search')} run {shlex.quote(str(place))}"
