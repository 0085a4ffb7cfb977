"""A study for a person: its trials, what made them good, the best one, a job array's list."""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.tables import aligned
from esac_mpi.config import NAMES, Config, ConfigError, to_toml, updated
from esac_mpi.config.fields import DEFAULTS, as_text
from esac_mpi.config.reads import unread
from esac_mpi.host.invocation import called
from esac_mpi.host.streams import as_json
from esac_mpi.record import Refused, Run, Unreadable, lock
from esac_mpi.studies.experiments.jobs import SCRIPTS, without_scripts
from esac_mpi.studies.search.journal import Journal, Trial
from esac_mpi.studies.search.study import OWN, Study, measured, refuse_another

ENOUGH = 10  # complete trials from which it is said what made them good
PROGRAM = "python -m esac_mpi.commands"  # as job scripts call it


def table(study: Study, top: int) -> Iterator[str]:
    """Yield the best trials as lines of a table, and what made them good. Raises Unusable.

    top: how many; 0: all.
    """
    journal = Journal(study)
    trials = ranked(study, journal)
    yield f"{study.path}: {counts(study, trials)}"
    yield f"value: {measured(study)}; of one given up, or that goes on, the last that it reported"
    heads = ["trial", "state", "value", *study.space]
    yield from aligned([heads, *([*cells(trial, study)] for trial in trials[: top or None])])
    yield from (
        f"trial {trial.number} failed: {trial.why}"
        for trial in trials[: top or None]
        if trial.state == "failed"
    )
    complete = [trial for trial in trials if trial.state == "complete"]
    if not complete:
        return
    yield ""
    if len(complete) >= ENOUGH and (shares := journal.importance()):
        yield "importance: " + ", ".join(
            f"{name} {100 * share:.0f} %" for name, share in shares.items()
        )
    yield (
        "the best as a configuration: "
        f"{called('search')} best {shlex.quote(str(study.path))} --out best.toml"
    )


def rows(study: Study, top: int) -> Iterator[str]:
    """Yield the trials as one JSON object a line, the best first. Raises Unusable."""
    for trial in ranked(study, Journal(study))[: top or None]:
        about = {"trial": trial.number, "state": trial.state, "value": trial.value, **trial.found}
        runs = [str(study.run_of(trial.number, seed)) for seed in study.seeds]
        yield as_json({**about, "why": trial.why, "runs": runs})


def ranked(study: Study, journal: Journal) -> list[Trial]:
    """Sort the trials: the best complete one first, then others by their last values."""
    left = [
        replace(trial, state="left")
        if trial.state == "running" and lock.is_free(study.lock_of(trial.number))
        else trial
        for trial in journal.trials()
    ]
    return sorted(
        left, key=lambda t: (t.state != "complete", t.value is None, -(t.value or 0.0), t.number)
    )


def counts(study: Study, trials: list[Trial]) -> str:
    """Say how many trials are in each state."""
    states = Counter(trial.state for trial in trials)
    told = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    again = f"{called('search')} run {shlex.quote(str(study.path))}"
    left = "those" if states["left"] > 1 else "the one"
    advice = f"; {again} goes on with {left} left" if states["left"] else ""
    return f"{len(trials)} of {study.trials} trials begun: {told}{advice}"


def cells(trial: Trial, study: Study) -> Iterator[str]:
    """Yield a trial as cells of a table."""
    yield str(trial.number)
    yield trial.state
    yield "-" if trial.value is None else f"{trial.value:,.6g}"
    for name in study.space:
        value = trial.found.get(name)
        yield "-" if value is None else f"{value:.4g}" if type(value) is float else as_text(value)


def best(study: Study) -> str:
    """Write the best complete trial as a configuration file. Raises Unusable."""
    trials = ranked(study, Journal(study))
    if not trials or trials[0].state != "complete":
        raise Unusable(f"{study.path}: no trial is complete yet: {counts(study, trials)}")
    first, seeds = trials[0], ", ".join(map(str, study.seeds))
    about = (
        f"# Trial {first.number}, the best of {sum(t.state == 'complete' for t in trials)} "
        f"that are complete, in {study.path}.\n"
        f"# Value {first.value:,.6g}: {measured(study)}.\n"
        f"# It was chosen on seed{'s' * (len(study.seeds) > 1)} {seeds}, "
        "so its value is too good: report other seeds.\n"
    )
    return about + as_file(made_with(study, first))


def made_with(study: Study, trial: Trial) -> Config:
    """Read the configuration of a trial's first run, whatever the defaults are. Raises Unusable.

    Where its files are gone, it is what its values make of the study, if the defaults are the same.
    """
    try:
        config = Run.open(study.run_of(trial.number, study.seeds[0])).config
    except (Refused, ConfigError, Unreadable):
        refuse_another(study)
        return study.config(trial.found)
    return updated(config, {name: DEFAULTS[name] for name in OWN if name != "seed"})


def as_file(config: Config) -> str:
    """Write a configuration as TOML, all that it reads, whatever the defaults become."""
    return to_toml(config, set(NAMES) - {"seed"} - unread(config, NAMES).keys())


def jobs(study: Study, place: Path, tasks: int) -> Iterator[object]:
    """Write the list of a job array of tasks; yield it, and how to submit it."""
    out = study.path / "jobs.txt"
    lines = [
        ["search", "run", str(place), "--run-dir", str(study.path / "tasks" / str(task))]
        for task in range(tasks)
    ]
    out.write_text("".join(f"{shlex.join(line)}\n" for line in lines), encoding="utf-8")
    yield out
    yield (
        f"{tasks} tasks for {study.trials} trials, "
        f"{len(study.seeds)} seed{'s' * (len(study.seeds) > 1)} each"
    )
    setting = f"LIST={shlex.quote(str(out))} PROGRAM={shlex.quote(PROGRAM)}"
    yield f"SLURM    {setting} sbatch --array=0-{tasks - 1} jobs/slurm-array.sbatch"
    if tasks > 1:
        yield f"PBS      {setting} qsub -v LIST,PROGRAM -J 0-{tasks - 1} jobs/pbs-array.sh"
    else:
        yield f"PBS      INDEX=0 {setting} qsub -v LIST,PROGRAM,INDEX jobs/pbs-array.sh"
    if not SCRIPTS.is_dir():
        yield f"jobs     {without_scripts()}"
    yield f"here     {called('search')} run {shlex.quote(str(place))}"
