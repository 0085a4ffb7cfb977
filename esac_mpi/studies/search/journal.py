"""Optuna's side of a study: its journal on the shared file system, what it proposes and prunes. The only importer of Optuna.

Its lock is the one by exclusive creation (JournalFileOpenLock), which NFS has from version 3 on. The other one, by a symbolic
link, is for NFS 2: it judges the holder by the age of the journal in place of the lock's, and where the journal's path is
relative it never finds that the holder was killed. A killed one's lock counts for nothing after half a minute, that of who takes
a trial after one and a half. What a crash or a full disk left of a line is cut off before the next one is written, or nobody
could read the journal any more.
"""

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from esac_mpi.analysis.messages import Missing, Unusable, damaged
from esac_mpi.config import exact, hint
from esac_mpi.host.invocation import called
from esac_mpi.record import lock
from esac_mpi.studies.search.space import Choices, Range
from esac_mpi.studies.search.study import Sampler, Study

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import TrialState
except ImportError as error:
    raise Missing("A search needs optuna: pip install 'esac_mpi[search]'") from error

NAME = "esac_mpi"  # of the study in its journal
JOURNAL, TAKING = "journal.log", "taking"  # files of a study's directory
PATIENCE = round(
    3 * lock.BEAT
)  # for who takes a trial: a silent holder of it may be looked at for 1.5 BEAT [s]
PARTS = 20  # of the budget of a run: a value is reported in each
WHY, AGAIN = (
    "why",
    "again",
)  # attributes of a trial: why it failed; the seeds of runs that failed once and were begun again

optuna.logging.set_verbosity(optuna.logging.ERROR)


class MendingLock(JournalFileOpenLock):
    """The lock of a journal whose last line may be torn."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        self._journal = file

    def acquire(self) -> bool:
        """Wait for the lock; cut off what is left of a line."""
        taken = super().acquire()
        with self._journal.open("r+b") as file:
            if file.seek(0, 2) and (file.seek(-1, 2), file.read())[1] != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return taken


class Readable(JournalFileBackend):
    """A journal that says which of its lines is damaged."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file), MendingLock(file))
        self._journal = file

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        """Yield the entries from a number on. Raises Unusable at one that is none."""
        line = log_number_from + 1
        try:
            for entry in super().read_logs(log_number_from):
                if not isinstance(entry, dict) or not {"op_code", "worker_id"} <= entry.keys():
                    raise ValueError("not an entry of a journal")
                yield entry
                line += 1
        except ValueError as error:
            runs = f"{called('table')} {shlex.quote(str(self._journal.parent))}/trial-*"
            told = f"{self._journal}: line {line} is damaged: {error}. The trials' runs remain: {runs} shows them"
            raise damaged(f'{told}; the study begins anew in another directory = "..."') from error


@dataclass(frozen=True)
class Told:
    """A trial as the journal has it. state: running, complete, pruned or failed; value: its own, or the last reported."""

    number: int
    state: str
    value: float | None
    found: dict[str, Any]  # values by names of fields
    why: str
    reported: int  # the last step with a value, -1 for none
    again: list[int]  # seeds of its runs that failed once


class Journal:
    """The trials of a study. fresh: whether the journal is begun where there is none; else Unusable is raised."""

    def __init__(self, study: Study, fresh: bool = False) -> None:
        self._of, file = study, study.path / JOURNAL
        if not fresh and not file.exists():
            raise Unusable(f"{study.path}: no trial was begun yet")
        self._taking = JournalFileOpenLock(str(study.path / TAKING), PATIENCE)
        try:
            self._storage = JournalStorage(Readable(file))
            self._study = optuna.create_study(
                storage=self._storage, study_name=NAME, direction="maximize", load_if_exists=True, pruner=pruner(study),
                sampler=optuna.samplers.RandomSampler(),
            ) if fresh else optuna.load_study(study_name=NAME, storage=self._storage, pruner=pruner(study))  # fmt: skip
        except KeyError:
            raise Unusable(f"{study.path}: no trial was begun yet") from None
        self._id = self._storage.get_study_id_from_name(NAME)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other task take a trial meanwhile."""
        self._taking.acquire()
        try:
            yield
        finally:
            self._taking.release()

    def trials(self) -> list[Told]:
        """Return all trials, by their numbers."""
        return [told(trial, self._of) for trial in self._study.get_trials(deepcopy=False)]

    def trial(self, number: int) -> Told:
        """Return a trial."""
        return self.trials()[number]

    def begin(self) -> int:
        """Begin a trial; return its number."""
        return self._study.ask().number

    def values(self, number: int) -> dict[str, Any]:
        """Return the values of a trial's fields, proposed where they are not known yet; what others may hang on comes first.

        Each is proposed from an address, (seed of the sampler, trial, field): no generator's past counts, but the trials that are
        finished or under way.
        """
        trial, found, study = self._open(number), dict[str, Any](), self._of
        waiting = sorted(
            study.space,
            key=lambda name: (name != "algorithm", isinstance(study.space[name], Range)),
        )
        while name := next((name for name in waiting if study.is_read(name, found)), ""):
            waiting.remove(name)
            address = study.sampler.seed, number, list(study.space).index(name)
            self._study.sampler = sampler(study.sampler, address)
            found[name] = value_of(study.space[name], suggested(trial, name, study.space[name]))
        return {name: found[name] for name in study.space if name in found}

    def report(self, number: int, step: int, value: float) -> bool:
        """Tell how a trial goes; return whether it is to be given up."""
        trial = self._filled(number, step)
        trial.report(value, step)
        return trial.should_prune()

    def _filled(self, number: int, stop: int) -> optuna.Trial:
        """Return a trial with a value at every step since its first, below `stop`: the one before, as others are held to it."""
        trial, so_far = self._open(number), self.trial(number)
        if so_far.state == "running" and so_far.value is not None:
            for step in range(so_far.reported + 1, stop):
                trial.report(so_far.value, step)
        return trial

    def is_beaten(self, number: int) -> bool:
        """Return whether a trial is to be given up by what it has told so far."""
        return self._open(number).should_prune()

    def again(self, number: int, seed: int) -> None:
        """Note that a trial's run which failed is begun again."""
        self._open(number).set_user_attr(AGAIN, [*self.trial(number).again, seed])

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

    def importance(self) -> dict[str, float]:
        """Return each field's share in what makes a trial good, by PED-ANOVA; empty where too few are complete."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return optuna.importance.get_param_importances(
                    self._study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
                )
            except (ValueError, RuntimeError):
                return {}

    def _open(self, number: int) -> optuna.Trial:
        return optuna.Trial(
            self._study, self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        )


def told(trial: optuna.trial.FrozenTrial, study: Study) -> Told:
    """Return a trial as it stands."""
    value = (
        trial.value
        if trial.value is not None
        else trial.intermediate_values.get(trial.last_step or 0)
    )
    found = {name: value_of(study.space[name], given) for name, given in trial.params.items()}
    reported = -1 if trial.last_step is None else trial.last_step
    why, again = trial.user_attrs.get(WHY, ""), trial.user_attrs.get(AGAIN, [])
    if again is True:  # a former version's, which did not say which
        again = list(study.seeds)
    state = "failed" if trial.state == TrialState.FAIL else trial.state.name.lower()
    return Told(trial.number, state, value, found, why, reported, again)


def distribution(name: str, one: Range | Choices) -> BaseDistribution:
    """Return a field's range or choices as Optuna has them."""
    if isinstance(one, Choices):
        return CategoricalDistribution(tuple(one.named))
    if hint(name) is int:
        return IntDistribution(int(one.low), int(one.last), one.log, int(one.step) or 1)
    return FloatDistribution(one.low, one.last, one.log, one.step or None)


def value_of(one: Range | Choices, given: Any) -> Any:
    """Return a field's value by what stands for it in a journal."""
    return one.named[given] if isinstance(one, Choices) else given


def suggested(trial: optuna.Trial, name: str, one: Range | Choices) -> Any:
    """Return what the sampler proposes for a field."""
    space = distribution(name, one)
    if isinstance(space, CategoricalDistribution):
        return trial.suggest_categorical(name, space.choices)
    if isinstance(space, IntDistribution):
        return trial.suggest_int(name, space.low, space.high, step=space.step, log=space.log)
    assert isinstance(space, FloatDistribution)
    return trial.suggest_float(name, space.low, space.high, step=space.step, log=space.log)


def sampler(asked: Sampler, address: tuple[int, ...]) -> optuna.samplers.BaseSampler:
    """Return the sampler that proposes one value."""
    seed = int(np.random.SeedSequence(address).generate_state(1)[0])
    if asked.kind == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(
        n_startup_trials=asked.startup, seed=seed, multivariate=False, constant_liar=True
    )


def pruner(study: Study) -> optuna.pruners.BasePruner:
    """Return what decides whether a trial is given up."""
    asked = study.pruner
    if asked.kind == "none":
        return optuna.pruners.NopPruner()
    return optuna.pruners.MedianPruner(asked.startup, round(exact(asked.warmup) * PARTS))
