"""Optuna's side of a study: its journal, what it proposes and prunes. The only importer of Optuna.

The lock is JournalFileOpenLock, by exclusive creation, which NFS has from version 3 on. The other
one, by a symbolic link, never finds that a holder was killed where the path is relative. A killed
holder's lock expires after 30 s.
"""

import json
import os
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import DAMAGED, Missing, Unusable
from esac_mpi.config import exact, hint
from esac_mpi.config.renamed import renew_name, renew_value
from esac_mpi.host.errors import INSTALL
from esac_mpi.studies.search.space import Choices, Range
from esac_mpi.studies.search.study import Sampler, Study

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import TrialState
except ImportError as error:
    raise Missing(f"A search needs optuna: {INSTALL} '.[search]'") from error

NAME = "esac_mpi"  # of the study in its journal
JOURNAL = "journal.log"  # in the study's directory
BLOCK = 2**16  # of the journal, read from its end [bytes]
PARTS = 20  # of the budget of a run: a value is reported in each
WHY = "why"  # attribute of a trial: why it failed

optuna.logging.set_verbosity(optuna.logging.ERROR)
# of a range whose last step ends below `high`
warnings.filterwarnings("ignore", "The distribution is specified by")


@dataclass
class Trial:
    """A trial as the journal has it: running, complete, pruned or failed; left, if in no hands."""

    number: int
    state: str
    value: float | None  # its own, or the last reported
    found: dict[str, Any]  # values by names of fields
    why: str
    reported: int  # the last step with a value, -1 for none


class Lines(JournalFileBackend):
    """Optuna's file, a line an entry, which goes on after its last sound line.

    A full disk, or a lost node, leaves a part of one, to which an editor may have added its end;
    with more behind it nobody could read on.
    """

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries. Raises OSError, naming the file."""
        try:
            self._drop_part()
            super().append_logs(logs)
        except OSError as error:
            error.filename = error.filename or self._file_path
            raise

    def _drop_part(self) -> None:
        """Drop the last line if it is no entry."""
        self._lock.acquire()
        try:
            with open(self._file_path, "r+b") as file:
                start, tail = file.seek(0, os.SEEK_END), b""
                while start and b"\n" not in tail[:-1]:
                    before, start = start, max(0, start - BLOCK)
                    file.seek(start)
                    tail = file.read(before - start) + tail
                last = tail.rfind(b"\n", 0, -1) + 1
                if not is_entry(tail[last:]):
                    file.truncate(start + last)
        finally:
            self._lock.release()


def is_entry(line: bytes) -> bool:
    """Tell whether a line of a journal is whole, and can be read."""
    try:
        return line.endswith(b"\n") and isinstance(json.loads(line), dict)
    except ValueError:
        return False


class Journal:
    """The trials of a study. fresh: begin a journal where there is none, or raise Unusable."""

    def __init__(self, study: Study, fresh: bool = False) -> None:
        self._of = study
        file = study.path / JOURNAL
        nothing = Unusable(f"{study.path}: no trial was begun yet")
        if not fresh and not file.exists():
            raise nothing
        place = str(file)
        try:
            self._storage = JournalStorage(Lines(place, JournalFileOpenLock(place)))
        except (ValueError, LookupError, TypeError, AssertionError) as error:
            remedy = f'name another directory = "..." in {study.source}'
            remain = f"the runs in {study.path}/trial-* remain"
            told = f"{file}: a line is damaged: {error}: {remedy}; {remain}"
            raise Unusable(told, DAMAGED) from error
        by: dict[str, Any] = {"sampler": optuna.samplers.RandomSampler(), "pruner": pruner(study)}
        by |= {"study_name": NAME, "storage": self._storage}
        if fresh:
            self._study = optuna.create_study(**by, direction="maximize", load_if_exists=True)
            return
        try:
            self._study = optuna.load_study(**by)
        except KeyError:  # a full disk may have left the file empty
            raise nothing from None

    def trials(self) -> list[Trial]:
        """Read the study's trials, by their numbers.

        Tasks that ask at once may begin more than it has: these wait until it has more.
        """
        found = self._study.get_trials(deepcopy=False)[: self._of.trials]
        return [trial_of(trial, self._of) for trial in found]

    def trial(self, number: int) -> Trial:
        """Read a trial."""
        return trial_of(self._study.get_trials(deepcopy=False)[number], self._of)

    def begin(self) -> int:
        """Begin a trial; return its number."""
        return self._study.ask().number

    def values(self, number: int) -> dict[str, Any]:
        """Propose the values of a trial's fields, or read those known; what others depend on first.

        Each is proposed from an address, (seed of the sampler, trial, field), and from the trials
        that are finished or under way: no generator's past counts.
        """
        trial = self._open(number)
        study = self._of
        found: dict[str, Any] = {}
        waiting = sorted(
            study.space,
            key=lambda name: (name != "algorithm", isinstance(study.space[name], Range)),
        )
        while name := next((name for name in waiting if study.is_read(name, found)), ""):
            waiting.remove(name)
            address = study.sampler.seed, number, list(study.space).index(name)
            self._study.sampler = sampler(study.sampler, address)
            found[name] = suggest(trial, name, study.space[name])
        return {name: found[name] for name in study.space if name in found}

    def report(self, number: int, step: int, value: float) -> bool:
        """Report a trial's value so far; return whether to give it up."""
        trial = self._filled(number, step)
        trial.report(value, step)
        return trial.should_prune()

    def _filled(self, number: int, stop: int) -> optuna.Trial:
        """Fill the steps below `stop` that have no value with the one before; others compare."""
        trial = self._open(number)
        so_far = self.trial(number)
        if so_far.state == "running" and so_far.value is not None:
            for step in range(so_far.reported + 1, stop):
                trial.report(so_far.value, step)
        return trial

    def complete(self, number: int, value: float) -> None:
        """End a trial with its value."""
        self._filled(number, len(self._of.seeds) * PARTS)
        self._study.tell(number, value, skip_if_finished=True)

    def prune(self, number: int) -> None:
        """End a trial that was given up."""
        self._study.tell(number, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, number: int, why: str) -> None:
        """End a trial that has no value."""
        self._open(number).set_user_attr(WHY, why)
        self._study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def _open(self, number: int) -> optuna.Trial:
        return optuna.Trial(
            self._study,
            self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number),
        )


def trial_of(trial: optuna.trial.FrozenTrial, study: Study) -> Trial:
    """Convert a trial of Optuna's. Raises Unusable where the study does not search its values."""
    reported = -1 if trial.last_step is None else trial.last_step
    found = {}
    for former, given in trial.params.items():
        name = renew_name(former)
        value, one = renew_value(name, given), study.space.get(name)
        if one is None or (isinstance(one, Choices) and value not in one.named):
            told = (
                f"trial {trial.number} has {name} = {given}, which {study.source} does not search"
            )
            raise Unusable(f"{study.path / JOURNAL}: {told}: put back what was edited", DAMAGED)
        found[name] = one.named[value] if isinstance(one, Choices) else value
    return Trial(
        number=trial.number,
        state="failed" if trial.state == TrialState.FAIL else trial.state.name.lower(),
        value=trial.intermediate_values.get(reported) if trial.value is None else trial.value,
        found=found,
        why=trial.user_attrs.get(WHY, ""),
        reported=reported,
    )


def suggest(trial: optuna.Trial, name: str, one: Range | Choices) -> Any:
    """Let the sampler propose a field's value."""
    if isinstance(one, Choices):
        return one.named[trial.suggest_categorical(name, tuple(one.named))]
    if hint(name) is int:
        low, high, step = int(one.low), int(one.high), int(one.step) or 1
        return trial.suggest_int(name, low, high, step=step, log=one.log)
    return trial.suggest_float(name, one.low, one.high, step=one.step or None, log=one.log)


def sampler(asked: Sampler, address: tuple[int, ...]) -> optuna.samplers.BaseSampler:
    """Make the sampler that proposes one value."""
    seed = int(np.random.SeedSequence(address).generate_state(1)[0])
    if asked.kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(
        n_startup_trials=asked.startup, seed=seed, multivariate=False, constant_liar=True
    )


def pruner(study: Study) -> optuna.pruners.BasePruner:
    """Make the pruner, which decides whether a trial is given up."""
    asked = study.pruner
    if asked.kind == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(asked.startup, round(exact(asked.warmup) * PARTS))
