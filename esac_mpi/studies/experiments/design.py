"""Experiments as files: configs/experiments/<id>.toml in, argument lines of a budget's runs out.

A file names what is common ([settings]), what is compared ([variants.NAME], and [sweep] for the
values of one field), on what ([tasks.NAME]) and at which scale ([budgets.smoke], small, paper).
Settings are fields of the program by their dotted names. Where two places set one field, the later
of this list counts: the task's configuration file, settings, tasks, budgets.B.settings,
budgets.B.for_task, variants, budgets.B.for_variant, sweep. A field of a table that a run's
algorithm does not read is left out. configs/experiments/README.md has the format.
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, replace
from functools import cache
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from esac_mpi.analysis.groups import format_value
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import Config, ConfigError, automatic, check, from_table, read_toml, suggest
from esac_mpi.config import resolve as settled
from esac_mpi.config.fields import full_name
from esac_mpi.config.files import KWARGS
from esac_mpi.config.reads import find_unread
from esac_mpi.config.renamed import renew_name
from esac_mpi.host.data_files import checkout, data_folder
from esac_mpi.host.paths import read_path
from esac_mpi.studies.experiments.plan import Budget, Experiment, Planned, Product, Settings

# `esac-mpi examples` has put them here
OURS = checkout() is None and (Path.cwd() / "configs/experiments").is_dir()
ROOT = Path.cwd() if OURS else data_folder()
FOLDER = ROOT / "configs/experiments"
PLANNED = "seed", "run_dir"  # of each run, which the plan sets
MEASURED = "random"  # a file there that is no experiment: what a command has measured


Found = TypeVar("Found")


def names() -> list[str]:
    """Return the ids of the experiments that there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path.stem != MEASURED)


def experiment(id: str) -> Experiment:
    """Read an experiment. Raises Unusable naming the file and the key."""
    path = read_path(id, Unusable) if id.endswith(".toml") else FOLDER / f"{id}.toml"
    if not path.exists():
        known = ": no such file" if id.endswith(".toml") else f"; there are {', '.join(names())}"
        raise Unusable(f"no experiment '{id}'{known}")
    try:
        return parse(path.stem, tomllib.loads(path.read_text(encoding="utf-8-sig")), str(path))
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path}: not valid TOML: {error}") from error


def parse(id: str, table: dict[str, Any], source: str) -> Experiment:
    """Return the experiment that a parsed file describes. Raises Unusable."""
    kinds = {"title": str, "claim": str, "points": int} | dict.fromkeys(
        ("settings", "tasks", "variants", "sweep", "budgets"), dict
    )
    check_keys(table, {**kinds, "products": list}, source)
    for name in ("title", "claim", "tasks", "variants", "budgets"):
        if not table.get(name):
            raise Unusable(f"{source}: {name} is missing or empty")
    sweep = table.get("sweep", {})
    check_keys(sweep, {"field": str, "values": list}, f"{source}: sweep")
    if sweep.get("field") in ("algorithm", *PLANNED):
        raise Unusable(
            f"{source}: sweep: field = '{sweep['field']}': "
            "algorithms are variants, seeds a budget's"
        )
    products = table.get("products", [])
    found = Experiment(
        id=id,
        title=table["title"],
        claim=" ".join(table["claim"].split()),
        settings=check_planned(table.get("settings", {}), f"{source}: settings"),
        tasks=read_each(table["tasks"], read_task, f"{source}: tasks"),
        variants=read_each(table["variants"], check_planned, f"{source}: variants"),
        field=sweep.get("field", ""),
        values=sweep.get("values", []),
        points=table.get("points", 25),
        products=[read_product(entry, f"{source}: products") for entry in products],
        budgets=read_each(table["budgets"], read_budget, f"{source}: budgets"),
    )
    outs = [one.out for one in found.products]
    if twice := next((out for out in outs if outs.count(out) > 1), ""):
        raise Unusable(f"{source}: products: out = {twice!r} is that of two")
    for name, b in found.budgets.items():
        check_names(found, b, f"{source}: budgets.{name}")
    if found.points < 1:
        raise Unusable(f"{source}: points = {found.points}: expected 1 or more")
    return found


def read_product(table: dict[str, Any], source: str) -> Product:
    """Return a product, its arguments by present names. Raises Unusable for no file or command."""
    product: Product = read_as(Product, table, source)
    out = product.out
    if Path(out).name != out or out in ("", "..", "results.csv") or "\0" in out:
        beside = "a file's name; it is written beside the experiment's results.csv"
        raise Unusable(f"{source}: out = {out!r}: {beside}")
    name = product.command
    known = name and "." not in name and find_spec(f"esac_mpi.commands.{name}")
    if not known and not product.tool.startswith("tools."):
        what = "no command, nor a program of the checkout as tools.operators"
        raise Unusable(f"{source}: tool = {product.tool!r}: {what}")
    if product.command == "results" and product.arguments[:1] == ["draw"]:  # of 0.2.0
        now = 'tool = "plot", which draws CSV files, too'
        raise Unusable(f"{source}: out = {out!r}: `results draw` is gone: {now}")
    words = product.arguments
    if product.command in ("plot", "table"):
        pairs = zip(["", *words], words, strict=False)
        words = [renew_name(word) if before == "--field" else word for before, word in pairs]
    return replace(product, arguments=words)


def read_each(
    table: dict[str, Any], read: Callable[[Any, str], Found], source: str
) -> dict[str, Found]:
    """Read the tables of a table. Raises Unusable for anything else in it."""
    for name, entry in table.items():
        if not isinstance(entry, dict):
            raise Unusable(f"{source}.{name} = {entry!r}: expected a table")
    return {name: read(entry, f"{source}.{name}") for name, entry in table.items()}


def check_keys(table: dict[str, Any], kinds: dict[str, Any], source: str) -> None:
    """Raise Unusable for an unknown key, naming one like it, or for a value of another type."""
    for name, value in table.items():
        if name not in kinds:
            raise Unusable(f"{source}: unknown key '{name}'; {suggest(name, kinds)}")
        kind = kinds[name]
        if not isinstance(value, (int, float) if kind is float else kind) or (
            isinstance(value, bool) and kind is not bool
        ):
            raise Unusable(
                f"{source}: {name} = {value!r}: "
                f"expected {'a number' if kind is float else kind.__name__}"
            )


def check_planned(table: dict[str, Any], source: str) -> Settings:
    """Check settings of an experiment's runs, which are not what the plan sets."""
    found = from_table(table, source)
    if name := next((name for name in PLANNED if name in found), ""):
        raise Unusable(f"{source}: {name}: every run has its own; leave it out")
    return found


def read_task(table: dict[str, Any], source: str) -> tuple[str, Settings]:
    """Return a task's configuration file, "" for none, and its settings."""
    own = dict(table)
    name = own.pop("config", "")
    check_keys({"config": name}, {"config": str}, source)
    path = f"configs/{name if '/' in name else f'esac/{name}'}.toml" if name else ""
    settings = check_planned(own, source)
    if path and not (ROOT / path).exists():
        raise Unusable(f"{source}: config = {name!r}: there is no {path}")
    if not path and "task.id" not in settings:
        raise Unusable(f"{source}: needs config, a file of configs/esac/, or task.id")
    return path, settings


def read_as(kind: Any, table: Any, source: str) -> Any:
    """Read a table, and those in it, as dataclasses whose fields have bounds. Raises Unusable."""
    if not isinstance(table, dict):
        raise Unusable(f"{source}: {table!r}: expected a table")
    hints = get_type_hints(kind)
    inner = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    kinds = {name: get_origin(hint) or hint for name, hint in hints.items()}
    check_keys(table, kinds | dict.fromkeys(inner, dict), source)
    for one in dataclasses.fields(kind):
        if one.name not in table and one.default is one.default_factory is MISSING:
            raise Unusable(f"{source}: {one.name} is missing")
        for bound in getattr(one.type, "__metadata__", ()) if one.name in table else ():
            if problem := bound.problem(table[one.name]):
                raise Unusable(f"{source}: {one.name} = {table[one.name]!r}: {problem}")
    found = {
        name: read_as(inner[name], entry, f"{source}: {name}") if name in inner else entry
        for name, entry in table.items()
    }
    return kind(**found)


def read_budget(table: dict[str, Any], source: str) -> Budget:
    """Return a budget. Raises Unusable."""
    b: Budget = read_as(Budget, table, source)
    settings = check_planned(b.settings, f"{source}.settings")
    if b.seconds and "budget.minutes" in settings:
        raise Unusable(f"{source}: seconds is budget.minutes, which settings has, too")
    if b.ranks and "cores" in table:
        raise Unusable(f"{source}: ranks says how many each run has, so that none reads cores")
    return replace(
        b,
        settings=settings,
        for_task=read_each(b.for_task, check_planned, f"{source}.for_task"),
        for_variant=read_each(b.for_variant, check_planned, f"{source}.for_variant"),
    )


def check_names(found: Experiment, budget: Budget, source: str) -> None:
    """Raise Unusable where a budget names a task or variant that is none, or values of no field."""
    for key, asked, there in (
        ("tasks", budget.tasks, found.tasks),
        ("for_task", budget.for_task, found.tasks),
        ("variants", budget.variants, found.variants),
        ("for_variant", budget.for_variant, found.variants),
    ):
        for name in asked:
            if name not in there:
                raise Unusable(f"{source}: {key}: unknown '{name}'; {suggest(name, there)}")
    if bool(found.field) != bool(found.values) or (budget.values and not found.field):
        raise Unusable(
            f"{source}: sweep needs both field and values, and a budget's values need a sweep"
        )


def runs(found: Experiment, name: str, root: Path) -> list[Planned]:
    """Return the checked runs of a budget, seed after seed, all in one folder. Raises Unusable."""
    if name not in found.budgets:
        raise Unusable(f"{found.id} has no budget '{name}'; it has {', '.join(found.budgets)}")
    b = found.budgets[name]
    compared = product(
        b.tasks or found.tasks, b.values or found.values or [None], b.variants or found.variants
    )
    settled = [plan(found, b, *one) for one in compared]
    read = {name for run in settled for name in run.settings}
    values = b.values or found.values
    swept = {name for run in settled for name in sweep(found, values[:1], run.settings)}
    if swept and not swept & read:
        raise Unusable(f"{found.id}: sweep: {min(swept)}: no run reads it")
    made: dict[Path, Planned] = {}
    recorded: dict[tuple[str, str, str, int], Planned] = {}  # by what tells results apart
    for seed, run, ranks in product(range(b.seeds), settled, b.ranks or [0]):
        parts = [run.run_dir.name, f"seed{seed}", *([f"ranks{ranks}"] if ranks else [])]
        where = root / f"{found.id}-{name}" / "-".join(parts)
        config = replace(run.config, seed=seed)
        one = replace(run, seed=seed, ranks=ranks, run_dir=where, config=config)
        if made.setdefault(where, one) is not one:
            raise Unusable(f"{found.id}: two runs would share {where}: choose other names")
        id = config.task.id
        if (twin := recorded.setdefault((id, one.label, one.value, seed), one)) is not one:
            raise Unusable(
                f"{found.id}: tasks {twin.task} and {one.task} are both {id}, and results know a "
                "task by its id: make two experiments of them"
            )
    return list(made.values())


def plan(found: Experiment, b: Budget, task: str, value: Any, variant: str) -> Planned:
    """Plan seed 0 without ranks; its directory is the first part of a name. Raises Unusable."""
    path, _ = found.tasks[task]
    settings = resolve_settings(found, b, task, variant, value)
    text = "" if value is None else format_value(tuple(value) if isinstance(value, list) else value)
    parts = [task, variant, *([f"{found.field.split('.')[-1]}{text}"] if text else [])]
    config = settled(from_file(path), settings)
    what = f"{found.id}: {task}, {variant}"
    try:
        check(config)
    except ConfigError as error:
        raise Unusable(f"{what}: {error}") from error
    refuse_automatic(config, what)
    file, run_dir = str(place(path)) if path else "", Path("-".join(map(file_name, parts)))
    return Planned(task, variant, text, 0, 0, file, settings, run_dir, config)


def file_name(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", text).strip("-")


def resolve_settings(found: Experiment, b: Budget, task: str, variant: str, value: Any) -> Settings:
    """Return the settings beyond the configuration file, the algorithm first. Raises Unusable."""
    path, own = found.tasks[task]
    mine = found.variants[variant] | b.for_variant.get(variant, {})
    time = {"budget.minutes": b.seconds / 60} if b.seconds else {}
    base = from_file(path)
    settings = {"algorithm": base.get("algorithm", Config.algorithm)} | found.settings | own
    settings |= b.settings | time | b.for_task.get(task, {}) | mine
    swept = sweep(found, [] if value is None else [value], base | settings)
    for name in swept.keys() & mine.keys() - {KWARGS}:  # which are joined
        raise Unusable(f"{found.id}: variants.{variant} sets {name}, which is swept")
    settings |= swept
    for name, why in find_unread(settled(base, settings), settings).items():
        if name in mine:
            raise Unusable(f"{found.id}: variants.{variant} sets {name}: {why}")
        del settings[name]
    limits = {name for name in settings if name.startswith("budget.")}
    if limits:  # an experiment that names a limit means no other
        settings |= {name: 0 for name in base if name.startswith("budget.") and name not in limits}
    return settings


def sweep(found: Experiment, values: list[Any], beside: Settings) -> Settings:
    """Return the swept field with its value, none without one. Raises ConfigError."""
    return from_table(
        {full_name(beside["algorithm"], found.field): value for value in values},
        f"{found.id}: sweep",
        beside,
    )


@cache
def from_file(path: str) -> Settings:
    """Return the settings of a configuration file, none for ""."""
    return read_toml(ROOT / path) if path else {}


def place(path: str) -> Path:
    """Return a file of the checkout, relative to where we are if it is below."""
    full = ROOT / path
    return full.relative_to(Path.cwd()) if full.is_relative_to(Path.cwd()) else full


def refuse_automatic(config: Config, what: str) -> None:
    """Raise Unusable where a run's first start would choose a number: compared runs share it."""
    if names := automatic(config):
        told = " and ".join(f'{name} = "auto"' for name in names)
        raise Unusable(
            f"{what}: {told} would be chosen at each run's first start; "
            "name numbers instead, such as those that --check of one run prints"
        )
