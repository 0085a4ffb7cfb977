"""A study: a TOML file of what trials have in common, what is searched, how they are measured.

Its directory has the study as it was begun, with the configuration file that it names read in
(study.json), Optuna's journal, locks/, and a run directory of every trial and seed,
trial-0007-seed100.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

from esac_mpi import __version__
from esac_mpi.analysis.messages import DAMAGED, Unusable
from esac_mpi.analysis.outcomes import MEASURES, OF_POLICY
from esac_mpi.config import FREE as FREE_IN_RUNS
from esac_mpi.config import (
    Config,
    ConfigError,
    as_words,
    find_unread,
    flatten,
    from_table,
    read_toml,
    resolve,
    resolve_all,
    to_plain,
)
from esac_mpi.config.bounds import Bound, Fraction, NonNegativeInt, PositiveInt
from esac_mpi.envs import TaskError
from esac_mpi.envs.identity import identity
from esac_mpi.host.paths import read_path
from esac_mpi.record.directory_check import translate_errors
from esac_mpi.record.files import replace
from esac_mpi.studies.experiments.design import read_as, refuse_automatic
from esac_mpi.studies.search.space import OWN, Choices, Space, parse_space
from esac_mpi.training.task_set_up import make_task

STUDY = "study.json"
VERSION = ".".join(__version__.split(".")[:2])  # within which defaults stay
SEEDS = Bound(
    lambda found: (
        len({*map(str, found)}) == len(found) > 0
        and all(type(seed) is int and 0 <= seed < 2**63 for seed in found)
    ),
    "expected numbers from 0 on, each once, below 2**63",
)
MOST = 1000  # combinations of choices in which it is looked for what is read
FREE = FREE_IN_RUNS - {"budget"}  # tables and fields that may change while a study goes on
# what is not read, by table and kind
UNREAD = {("sampler", "random"): ["startup"], ("pruner", "none"): ["startup", "warmup"]}


def one_of(*words: str) -> Bound:
    """Bound a text to these words."""
    return Bound(lambda word: word in words, f"expected {' or '.join(map(repr, words))}")


@dataclass(frozen=True)
class Sampler:
    """Who proposes trials: Optuna's TPE, each field by itself, or chance alone."""

    kind: Annotated[str, one_of("tpe", "random")] = "tpe"
    seed: NonNegativeInt = 0
    startup: PositiveInt = 10  # trials by chance before TPE has enough to learn from


@dataclass(frozen=True)
class Pruner:
    """When a trial is given up: its best value so far is below the median of the complete ones."""

    kind: Annotated[str, one_of("median", "none")] = "median"
    startup: PositiveInt = 5  # complete trials before any is given up
    warmup: Fraction = 0.3  # share of the budget before a trial is given up


@dataclass(frozen=True)
class Written:
    """A study as its file has it."""

    trials: PositiveInt
    search: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    sampler: Sampler = field(default_factory=Sampler)
    pruner: Pruner = field(default_factory=Pruner)
    measure: Annotated[str, one_of(*OF_POLICY)] = "best"
    seeds: Annotated[list[int], SEEDS] = field(default_factory=lambda: [100])
    config: str = ""
    directory: str = ""


@dataclass(frozen=True, kw_only=True)
class Study(Written):
    """A study, its settings by dotted names. file: what its configuration file sets beside them."""

    source: str  # for messages
    path: Path
    table: dict[str, Any]  # as it was written
    file: dict[str, Any]
    space: Space

    def run_of(self, number: int, seed: int) -> Path:
        """Name the run directory of a trial."""
        return self.path / f"trial-{number:04}-seed{seed}"

    def lock_of(self, number: int) -> Path:
        """Name the directory that has a trial's lock."""
        return self.path / "locks" / f"trial-{number:04}"

    def configure(self, found: Mapping[str, Any], **own: Any) -> Config:
        """Make the configuration of a trial; own: what the search sets. Raises ConfigError.

        What these values let be unread, settings or searched, is left out.
        """
        named = {**self.settings, **found, **own}
        idle = find_unread(resolve(self.file, named), named)
        read = {name: value for name, value in named.items() if name not in idle}
        return resolve_all(self.file, read, self.source, self.source, lambda in_vain: None)

    def is_read(self, name: str, found: Mapping[str, Any]) -> bool:
        """Whether a trial with these values, as far as they are known, reads a field."""
        return not find_unread(resolve(self.file, {**self.settings, **found}), [name])


def read(place: Path) -> Study:
    """Read the study of a TOML file, or of a directory. Raises Unusable, ConfigError."""
    try:
        if place.is_dir():
            return read_directory(place)
        table = tomllib.loads(place.read_text(encoding="utf-8-sig"))
        return parse(table, place, lambda name: read_toml(read_path(name, ConfigError)))
    except FileNotFoundError as error:
        raise Unusable(
            f"{place}: no such study file, nor a directory with {STUDY} in it"
        ) from error
    except OSError as error:
        raise Unusable(f"{place}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{place}: not valid TOML: {error}") from error


def read_directory(path: Path) -> Study:
    """Read the study that a directory holds. Raises FileNotFoundError, Unusable."""
    file = path / STUDY
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        return parse(saved["study"], file, lambda name: from_table(saved["file"], "file"), path)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unusable(f"{file}: not a study: {error}", DAMAGED) from error


def parse(table: dict[str, Any], place: Path, read_config: Any, path: Path | None = None) -> Study:
    """Make the study that a parsed file describes. Raises Unusable, ConfigError."""
    source = str(place)
    written: Written = read_as(Written, dict(table), source)
    settings = from_table(written.settings, f"{source}: settings")
    if own := [name for name in settings if name in OWN]:
        raise Unusable(f"{source}: settings: {own[0]}: {OWN[own[0]]}")
    space = parse_space(written.search, source)
    if both := sorted(settings.keys() & space.keys()):
        raise Unusable(
            f"{source}: {both[0]} stands under [settings] and under [search]: leave one out"
        )
    try:
        file = read_config(written.config) if written.config else {}
        path = path or read_path(written.directory or f"runs/{place.stem}", ConfigError)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error
    about: dict[str, Any] = {"source": source, "path": path, "table": table, "file": file}
    return Study(**vars(written) | about | {"settings": settings, "space": space})


def check(study: Study) -> list[Config]:
    """Make the configurations of each end of a range and each choice, beside the first of others.

    Raises ConfigError where one cannot be run, Unusable where no trial would read a field.
    """
    for (name, kind), unread in UNREAD.items():
        said = study.table.get(name, {})
        # a study that goes on keeps what it was begun with
        if said.get("kind") == kind and not (study.path / STUDY).exists():
            for key in said.keys() & unread:
                raise Unusable(f"{study.source}: {name}: {kind} does not read {key}: leave it out")
    first = {name: one.ends[0] for name, one in study.space.items()}
    tried = [{**first, name: end} for name, one in study.space.items() for end in one.ends]
    chosen = {name: one.ends for name, one in study.space.items() if isinstance(one, Choices)}
    # several choices together may let a field be read
    together = islice(product(*chosen.values()), MOST)
    every = [*tried, *({**first, **dict(zip(chosen, ends, strict=True))} for ends in together)]
    for name in (*study.settings, *study.space):
        if not any(study.is_read(name, values) for values in every):
            why = find_unread(resolve(study.file, {**study.settings, **first}), [name])[name]
            raise Unusable(f"{study.source}: {name}: {why}")
    found = [study.configure(values) for values in tried]
    for config in found:
        refuse_automatic(config, study.source)
    return found


def task_source(study: Study, config: Config) -> str:
    """Digest the task's source. Raises Unusable where it cannot be made, or acted in."""
    try:
        return identity(make_task(config))["source"]
    except (TaskError, ImportError) as error:
        raise Unusable(f"{study.source}: {error}") from error


def begin(study: Study, source: str) -> None:
    """Make the study's directory, or find it made by the same study. Raises Unusable, Unsaved.

    More trials are no other study. source: of the task; "": not known.
    """
    file, remedy = study.path / STUDY, f'name another directory = "..." in {study.source}'
    with translate_errors(study.path, remedy):
        refuse_another(study, source)
        study.path.mkdir(parents=True, exist_ok=True)
        others = [path for path in study.path.iterdir() if not path.name.startswith(STUDY)]
    if others and not file.exists():
        raise Unusable(f"{study.path}: not empty, and not a study: {remedy}")
    known = {"study": study.table, "file": to_plain(study.file), "version": VERSION, "task": source}
    content = json.dumps(known, indent=1).encode()  # the order of what is searched counts
    if not file.exists() or file.read_bytes() != content:
        replace(file, [content])


def refuse_another(study: Study, source: str = "") -> None:
    """Raise Unusable where the directory's trials cannot be compared with this study's.

    They had other settings or another task, or a version with other defaults made them.
    """
    file = study.path / STUDY
    if not file.exists():
        return
    before, now = what_counts(read_directory(study.path)), what_counts(study)
    saved = json.loads(file.read_text(encoding="utf-8"))
    before["version"] = saved.get("version", "0.2.0 or before")
    changed = [
        f"{name}: {' '.join(as_words(before.get(name)))} -> {' '.join(as_words(now.get(name)))}"
        for name in {**now, **before}
        if before.get(name) != now.get(name)
    ]
    warns = {**study.file, **study.settings}.get("task.changed") == "warn"
    if source and saved.get("task", "") not in ("", source) and not warns:
        changed.append("the task's source, which was edited")
    if changed:
        raise Unusable(
            f"{study.path} holds a study with other settings or defaults, {'; '.join(changed)}: "
            f'name another directory = "..." in {study.source}, or put back what was changed'
        )


def what_counts(study: Study) -> dict[str, Any]:
    """List what must not change while a study goes on."""
    settings = {
        name: value
        for name, value in flatten(resolve(study.file, study.settings))
        if not {name, name.partition(".")[0]} & FREE
    }
    about = {name: getattr(study, name) for name in ("measure", "seeds", "sampler", "pruner")}
    return {**settings, **about, **study.space, "version": VERSION}


def describe_value(study: Study) -> str:
    """Describe a trial's value in words."""
    seeds = ", ".join(map(str, study.seeds))
    of = f"mean over seeds {seeds}" if len(study.seeds) > 1 else f"seed {seeds}"
    return f"{MEASURES[study.measure]}, {of}"
