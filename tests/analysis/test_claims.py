"""Sentences of the pages of results, worked out from the records beside them."""

from pathlib import Path

import numpy as np
from conftest import ROOT

from esac_mpi.analysis.clock import Machine
from esac_mpi.analysis.results import rowfiles, scores, traces
from esac_mpi.analysis.results.aggregates import iqm

RECORDS = ROOT / "docs/results"
CARRIERS = ("cartpole-swingup", "cheetah-run", "halfcheetah", "lunarlandercontinuous")


def said(page):
    return " ".join((ROOT / page).read_text().split())


def ended(name):
    """Return {(task, variant): last rows of its runs}."""
    found = {}
    for labels in traces.sections(rowfiles.read([RECORDS / name])).values():
        for label, runs in labels.items():
            found[runs[0].rows[0].task, label] = [run.rows[-1] for run in runs]
    return found


def test_steps_and_updates_of_aes_rl_stand_beside_its_times():
    table, page = ended("aes-table1.csv"), said("docs/results/aes-rl.md")
    shares = {}
    for task in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"):
        names = ("CEM-RL", "P-CEM-RL", "AES-RL", "AES-RL, 9 workers")
        updates = [np.mean([row.gradient_updates for row in table[task, name]]) for name in names]
        assert (
            f"| its critic's updates | {' | '.join(f'{value:,.0f}' for value in updates)} |" in page
        )
        for name in names:
            shares.setdefault(name, []).extend(
                row.gradient_updates / row.nominal_steps for row in table[task, name]
            )
    least_and_most = [
        f"{f(shares[name]):.2f}" for name in ("AES-RL", "AES-RL, 9 workers") for f in (min, max)
    ]
    assert "AES-RL {} to {} with 5 workers and {} to {} with 9".format(*least_and_most) in page
    rivals = shares["CEM-RL"] + shares["P-CEM-RL"]
    assert f"CEM-RL and P-CEM-RL made {min(rivals):.2f} to {max(rivals):.2f} of these" in page
    steps = {key: [row.env_steps for row in rows] for key, rows in ended("aes-table3.csv").items()}
    hopper = steps["Hopper-v5", "AES-RL"]
    assert {*steps["HalfCheetah-v5", "AES-RL"], *steps["Swimmer-v5", "AES-RL"]} == {612_000}
    others = [count for (_, name), counts in steps.items() for count in counts if name != "AES-RL"]
    assert f"on Hopper, where the others have {min(others):,} to {max(others):,}" in page
    assert (
        "612,000 true steps on HalfCheetah and Swimmer"
        f" and {min(hopper):,} to {max(hopper):,} on Hopper" in page
    )


def best_of(files, seconds, groups):
    """Return the IQM of last returns by then of each group's [(variant, seed)] run.

    It is the run that the evaluation before chooses.
    """
    rows = traces.on_machine(scores.by_task(rowfiles.read(files)), Machine(8))
    found = traces.sections(rows)
    study = scores.study(
        found,
        scores.random_returns(ROOT / "configs/experiments/random.toml"),
        traces.Wall(Machine(8), seconds),
        [],
    )
    tasks = []
    for task in study.whole:
        made = {
            (label, run.seed): [
                row.better
                for row in run.rows
                if row.wall_seconds <= seconds and row.better is not None
            ]
            for label, runs in found[task.title].items()
            for run in runs
        }
        chosen = [
            max(([*made[one]][-2:] for one in group), key=lambda last: last[0])[-1]
            for group in groups
        ]
        tasks.append((np.array(chosen) - task.random) / (task.best - task.random))
    return f"{float(iqm(tasks)):.2f}"


def test_what_else_eight_ranks_can_do():
    eight = sorted(Path(RECORDS / "aggregate").glob("*.csv"))
    four = [RECORDS / f"aggregate/{name}.csv" for name in CARRIERS] + sorted(
        (RECORDS / "carriers").glob("*.csv")
    )
    halves = [[(name, seed) for name in ("ES", "SAC")] for seed in range(5)]
    all_four = [[(name, seed) for name in ("ES", "SAC", "TD3", "PPO")] for seed in range(5)]
    both, whole, sacs = (
        best_of(eight, 90, g) for g in (halves, all_four, [[("SAC", seed) for seed in range(5)]])
    )
    page = said("docs/results/eight-tasks.md")
    assert (
        f"| an ES and a SAC run of a seed | {both} | | a seed's ES, SAC, TD3 and PPO | {whole} |"
        f" | five seeds of SAC | {sacs} |" in page
    )
    beside = best_of(four, 45, halves)
    assert f"| the better of an ES and a SAC run of a seed | {beside} |" in page
