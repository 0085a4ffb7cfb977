"""Race to stated returns on these cores: our ESAC, ES, SAC and TD3 against what people run.

    python -m tools.race [--task ID ...] [--only NAME ...] [--seeds 3] [--limit S] [--out FOLDER]

One run after another has all cores; all of a seed before the next one's. Each ends as a row of
race.csv in --out, beside it race.md and race.png; logs/ has what they printed. Stopped by a signal,
the race ends with the run that is going on; the same command goes on, and makes what failed again.
It says how many hours at most; docs/results/race.md has the rules. The peers,
of stable-baselines3, sb3-contrib, SBX and EvoTorch, come with
`pip install -c constraints.txt -e '.[bench]'`; what is not installed is left out, and said. Nothing
else should run meanwhile."""

import json
import os
import re
import shutil
import sys
import time
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

import numpy as np

from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import flatten, resolve
from esac_mpi.config.exact import whole
from esac_mpi.host import affinity
from esac_mpi.host.errors import INSTALL
from esac_mpi.host.paths import read_path
from esac_mpi.studies.experiments.running import collected_signals, launcher
from esac_mpi.training import provenance
from tools import ONE_THREAD, parser, processes
from tools.bench.measurement import say
from tools.race import field, rows, standings
from tools.race.running import Look, Plan

EPISODES = 10  # of an evaluation
LIMIT = 120.0  # of a run, where field.toml has none [s]
RULES = 2  # counted up when competitors are run or looked at otherwise, settings apart
BUSY = 0.5  # load average from which other work is noticed
SPARE = 60.0  # beside thrice its limit, what a process may last that does not end itself [s]
PACKAGES = {  # of a library, whose versions decide a row
    "": (),
    field.SB3: ("stable_baselines3",),
    field.CONTRIB: ("sb3_contrib", "stable_baselines3"),
    field.SBX: ("sbx-rl", "jax", "stable_baselines3"),
    field.EVOTORCH: ("evotorch", "ray"),
}


class Failed(Exception):
    """A competitor's process failed within the limit; the message says why."""


def plan_runs(tasks: list[str], only: list[str], seeds: int, limit: float | None) -> list[Plan]:
    """Return all runs that are asked for, in their order, of who is installed.

    limit: of a run [s]; None: the task's.
    """
    asked = [entry for entry in field.ENTRIES if entry.name in only]
    there = {name: versions(name) for name in sorted({entry.library for entry in asked})}
    cores, found = len(affinity.cores()), []
    for seed, task, entry in product(range(seeds), tasks, asked):
        about, made_of = field.table()["tasks"][task], there[entry.library]
        if made_of is None:
            continue
        most = limit or about.get("limit", LIMIT)
        for name, settings in entry.runs(task).items():
            found.append(Plan(
                name, entry.program, entry.library, task, about["goal"], seed, most, EPISODES,
                cores, settings, ", ".join([provenance.versions(own=()), *made_of]),
            ))  # fmt: skip
    return [replace(plan, made_with=digest(plan)) for plan in found]


def versions(library: str) -> list[str] | None:
    """Return the versions of a library's packages; say if one is missing, and return None."""
    try:
        return [f"{name} {version(name)}" for name in PACKAGES[library]]
    except PackageNotFoundError as error:
        say(f"{library} is left out: {error.name} is not installed: {INSTALL} '.[bench]'")
        return None


def digest(plan: Plan) -> str:
    """Return a digest of all that decides a row but seed and machine; defaults count too."""
    settings = plan.settings
    if plan.program == "ours":
        settings = dict(flatten(resolve({}, settings)))
    about = {**asdict(plan), "seed": 0, "settings": settings, "rules": RULES}
    return sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]


def race(plans: list[Plan], folder: Path) -> standings.Standings:
    """Make the runs without a row; publish, however it ends; return how all stand."""
    file, cpu = folder / "race.csv", provenance.cpu()
    done = {(row.made_with, row.seed): row for row in rows.read(file) if row.cpu == cpu}
    keys = [(plan.made_with, plan.seed) for plan in plans]
    left = [plan for plan, key in zip(plans, keys, strict=True) if key not in done]
    hours = sum(plan.limit for plan in left) / 3600
    say(
        f"{len(left)} of {len(plans)} runs to make, "
        f"{hours:.1f} hours at most, half more to evaluate"
    )
    if left and (load := os.getloadavg()[0]) > BUSY:
        say(f"load {load:.1f}: other work is going on, and the times are not these cores' alone")
    try:
        with collected_signals() as heard:
            for number, plan in enumerate(left, 1):
                row = None
                try:
                    row = run_competitor(plan, folder)
                    outcome = standings.in_words(row)
                except Failed as error:
                    outcome = f"failed: {error}"
                if heard:  # it may have heard that, too
                    break
                if row is not None:
                    rows.append(file, row)
                    done[row.made_with, row.seed] = row
                say(f"{number}/{len(left)} {plan.name}: {outcome}")
    finally:
        found = standings.Standings([done[key] for key in keys if key in done])
        if found.rows:
            publish(found, folder)
    return found


def publish(found: standings.Standings, folder: Path) -> None:
    """Write table and picture. Without matplotlib there is no picture."""
    (folder / "race.md").write_text(found.markdown() + "\n", encoding="utf-8")
    try:
        from tools.race import picture

        picture.draw(found, folder / "race.png")
    except Unusable as error:
        say(f"no picture: {error}")


def run_competitor(plan: Plan, folder: Path) -> rows.Row:
    """Run a competitor in a process of its own, on a rank a core if it can; return its row.

    Raises Failed.
    """
    name = "-".join(re.findall(r"[A-Za-z0-9]+", f"{plan.name} {plan.made_with}"))
    place = (folder / "logs" / name).resolve()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    plan = replace(plan, folder=str(place), started=time.monotonic())
    (place / "plan.json").write_text(json.dumps(asdict(plan)), encoding="utf-8")
    ranks = plan.cores if plan.program == "ours" and plan.competitor not in field.ON_ONE else 1
    program = [sys.executable, "-m", "tools.race.peers", place / "plan.json"]
    line = [*launcher(ranks), *program] if ranks > 1 else program
    environ = processes.environ(**ONE_THREAD, JAX_PLATFORMS="cpu")
    said: list[str] = []
    code = processes.follow(line, 3 * plan.limit + SPARE, said.append, environ)
    (place / "log.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    shutil.rmtree(place / "run", ignore_errors=True)
    return result(plan, code, time.monotonic() - plan.started, said)


def read_looks(path: Path) -> tuple[float | None, list[Look]]:
    """Return a process's start-up [s], None where it did not come to train, and its looks."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]
    begun = next((entry["start_up"] for entry in entries if "start_up" in entry), None)
    return begun, [Look(**entry) for entry in entries if "start_up" not in entry]


def result(plan: Plan, code: int | None, lasted: float, said: list[str]) -> rows.Row:
    """Return the row of a run; lasted: in all [s]; code: None if it had to be ended.

    Raises Failed.
    """
    start_up, looks = read_looks(plan.looks)
    evaluating = looks[-1].evaluating if looks else 0.0
    reached = bool(looks) and looks[-1].reached(plan.goal)
    clock = lasted - evaluating
    if reached and looks[-1].seconds <= plan.limit:
        outcome, clock = rows.REACHED, looks[-1].seconds
    elif code is not None and clock < plan.limit and (code or start_up is None):
        raise Failed(reason(code, said))
    else:
        outcome = rows.LATE
    return rows.Row(
        plan.made_with, plan.task, plan.goal, plan.competitor, plan.seed,
        outcome, clock, clock if start_up is None else start_up,
        looks[-1].env_steps if looks else 0,
        max((look.mean for look in looks), default=np.nan), len(looks), evaluating,
        plan.limit, plan.cores, provenance.cpu(), plan.versions, provenance.git_commit(),
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip


def reason(code: int | None, said: list[str]) -> str:
    """Return why a process failed: its exit code, and its last error or line."""
    lines = [line.rstrip() for line in said if line.strip()]
    begun = max((i for i, line in enumerate(lines) if line.startswith("Traceback")), default=-1) + 1
    errors = [line for line in lines[begun:] if begun and not line[0].isspace()]
    told = (errors[:1] or lines[-1:] or [""])[0].strip()[:200]
    return f"exit code {code}{': ' if told else ''}{told}"


def main(argv: list[str]) -> int:
    """Race; print the table."""
    line, tasks = parser(__doc__), list(field.table()["tasks"])
    names = [entry.name for entry in field.ENTRIES]
    line.add_argument(
        "--task", nargs="+", choices=tasks, default=tasks, metavar="ID", help="these alone"
    )
    line.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="COMPETITOR", help="these alone"
    )
    line.add_argument("--seeds", type=whole, default=3)
    line.add_argument("--limit", type=float, help="of a run [s], not the task's own")
    line.add_argument("--out", type=read_path, default=Path("runs/race"), help="the folder")
    options = line.parse_args(argv)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        plans = plan_runs(options.task, options.only, options.seeds, options.limit)
        found = race(plans, options.out)
    except (Unusable, OSError) as error:
        say(str(error))
        return 2
    print(found.markdown() if found.rows else "no rows yet")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
