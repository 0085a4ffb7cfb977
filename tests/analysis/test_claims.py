"""Sentences of the pages of results, worked out from the records beside them."""

import csv
import re
import tomllib
from collections import defaultdict
from itertools import product

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi.analysis.intervals import iqm
from esac_mpi.analysis.results import scores, traces
from esac_mpi.analysis.results.rows import read_rows
from esac_mpi.analysis.results.standings import difference

RECORDS = ROOT / "docs/results"
SEEDS = range(5)
AES = "AES-RL"


def said(page):
    return " ".join((RECORDS / page).read_text().split())


def short_name(task):
    return task.split("/")[-1].removesuffix("-v0")


def figure(value):
    """Return a return as the pages write it."""
    return f"{value:,.0f}" if value > 1000 else f"{value:.1f}"


def evaluations(name):
    """Return the rows of a record that have a return of the better policy."""
    return [row for row in read_rows([RECORDS / name]) if row.better is not None]


def ended(name):
    """Return {(task, variant): last rows of its runs}."""
    found = traces.sections(read_rows([RECORDS / name])).values()
    every = [(label, runs) for labels in found for label, runs in labels.items()]
    return {(runs[0].rows[0].task, label): [run.rows[-1] for run in runs] for label, runs in every}


def test_steps_and_updates_of_aes_rl_stand_beside_its_times():
    table, page = ended("aes-table1.csv"), said("aes-rl.md")
    variants = ("CEM-RL", "P-CEM-RL", "AES-RL", "AES-RL, 9 workers")
    shares = {name: [] for name in variants}
    for task in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5"):
        updates = [np.mean([row.gradient_updates for row in table[task, name]]) for name in shares]
        told = " | ".join(f"{value:,.0f}" for value in updates)
        assert f"| its critic's updates | {told} |" in page
        for name, found in shares.items():
            found += [row.gradient_updates / row.nominal_steps for row in table[task, name]]
    five, nine = (f"{min(shares[name]):.2f} to {max(shares[name]):.2f}" for name in variants[2:])
    assert f"AES-RL {five} with 5 workers and {nine} with 9" in page
    rivals = shares["CEM-RL"] + shares["P-CEM-RL"]
    assert f"CEM-RL and P-CEM-RL made {min(rivals):.2f} to {max(rivals):.2f} of these" in page
    steps = {key: [row.env_steps for row in rows] for key, rows in ended("aes-table3.csv").items()}
    assert {*steps["HalfCheetah-v5", "AES-RL"], *steps["Swimmer-v5", "AES-RL"]} == {612_000}
    own, others = steps["Hopper-v5", "AES-RL"], []
    for (_, name), counts in steps.items():
        others += counts if name != "AES-RL" else []
    assert f"on Hopper, where the others have {min(others):,} to {max(others):,}" in page
    told = f"612,000 true steps on HalfCheetah and Swimmer and {min(own):,} to {max(own):,} on"
    assert f"{told} Hopper" in page


def test_who_is_ahead_at_which_second_of_figure_3_of_aes_rl():
    """Differences to AES-RL: + or - where the interval of their means says so."""
    rows, signs = read_rows([RECORDS / "aes-fig3.csv"]), defaultdict(str)
    for task, runs in traces.sections(traces.on_ranks(rows, 8)).items():
        for name in ("CEM-RL", "P-CEM-RL"):
            for second in range(9, 15):
                at = (traces.values(runs[n], traces.WALL, second, "better") for n in (name, AES))
                low, high = difference(*at)
                signs[task, name] += "+" if low > 0 else "-" if high < 0 else " "
    assert signs["Hopper-v5", "CEM-RL"] == signs["Hopper-v5", "P-CEM-RL"] == "++++++"
    cheetah = signs["HalfCheetah-v5", "CEM-RL"], signs["HalfCheetah-v5", "P-CEM-RL"]
    assert cheetah == ("------", "  ++  ")
    page = said("aes-rl.md")
    assert "are ahead of AES-RL, by verdict, at each second from 9 to 14" in page
    assert "P-CEM-RL is ahead of it at 11 and 12 s, and not separated at 9, 10, 13 and 14" in page


def scored(files, ranks, seconds):
    """Score the runs of the files as they stood at a time computed for so many ranks."""
    found = traces.sections(traces.on_ranks(scores.merge_experiments(read_rows(files)), ranks))
    random = scores.random_returns(ROOT / "configs/experiments/random.toml")
    return found, scores.score_study(found, random, traces.Wall(ranks, seconds), [])


def carried():
    """List the records of the four tasks of which variants were run."""
    carriers = sorted((RECORDS / "carriers").glob("*.csv"))
    return [RECORDS / "aggregate" / path.name for path in carriers] + carriers


def test_how_many_ranks_there_must_be():
    page, advice = said("eight-tasks.md"), (ROOT / "docs/how-to/tune.md").read_text()
    for ranks in (1, 2, 4, 8, 64):
        _, study = scored(carried(), ranks, 45)
        esac, waiting, *parts = (
            f"{float(iqm(study.scores(name))):.2f}"
            for name in ("ESAC", "ESAC, waiting", "ES", "SAC")
        )
        line = rf"\| {ranks} \| {esac} \([^|]*\| {waiting} \([^|]*\| {' .. '.join(parts)} \|"
        assert re.search(line.replace("..", r"\|"), page), ranks
        shown = re.findall(rf"^\| {ranks}\b.*\| (\S+) \| (\S+) \| (\S+) \|$", advice, re.MULTILINE)
        assert shown[0] == (esac, *parts)


def test_what_all_mechanisms_of_transfer_add():
    page = said("eight-tasks.md")
    _, study = scored(carried(), 8, 45)
    for task in study.tasks:
        pair = task.scores("ESAC"), task.scores("ESAC, no transfer")
        low, high = difference(*pair)
        gain = f"{pair[0].mean() - pair[1].mean():.2f}"
        if "cheetah-run" in task.title:
            assert f"gain {gain} ({low:.2f} to {high:.2f}) on cheetah-run" in page
        elif "HalfCheetah" in task.title:
            assert f"the gain of {gain} is not separated ({low:.2f} to {high:.2f})" in page


def best_of(files, seconds, *kinds):
    """Return, of each kind, the IQM of the last returns of each group's best run by then."""
    found, study = scored(files, 8, seconds)
    told = []
    for groups in kinds:
        tasks = []
        for task in study.tasks:
            last = {}  # two returns of each run
            for label, runs in found[task.title].items():
                for run in runs:
                    rows = [row for row in run.rows if row.wall_seconds <= seconds]
                    values = [row.better for row in rows if row.better is not None]
                    last[label, run.rows[0].seed] = values[-2:]
            chosen = [max((last[one] for one in group), key=lambda two: two[0]) for group in groups]
            returns = np.array([two[-1] for two in chosen])
            tasks.append((returns - task.random) / (task.best - task.random))
        told.append(f"{float(iqm(tasks)):.2f}")
    return told


def test_what_else_eight_ranks_can_do():
    page, eight = said("eight-tasks.md"), sorted((RECORDS / "aggregate").glob("*.csv"))
    halves = [[(name, seed) for name in ("ES", "SAC")] for seed in SEEDS]
    four = [[(name, seed) for name in ("ES", "SAC", "TD3", "PPO")] for seed in SEEDS]
    both, whole, sacs = best_of(eight, 90, halves, four, [[("SAC", seed) for seed in SEEDS]])
    assert (
        f"| an ES and a SAC run of a seed | {both} | | a seed's ES, SAC, TD3 and PPO | {whole} |"
        f" | five seeds of SAC | {sacs} |" in page
    )
    (beside,) = best_of(carried(), 45, halves)
    assert f"| the better of an ES and a SAC run of a seed | {beside} |" in page


def runs_of(name):
    """Return {(task, variant, seed): its rows with a return of the better policy} of a record."""
    runs = defaultdict(list)
    for row in evaluations(name):
        runs[short_name(row.task), row.variant, row.seed].append(row)
    return runs


def side_by_side():
    """Return {(task, variant): rows} of side-by-side.csv; what is not there has none."""
    return defaultdict(list) | {run[:2]: rows for run, rows in runs_of("side-by-side.csv").items()}


def later_half(rows, ahead_before=False):
    """Return evaluations of the second half, of the better policy or the one ahead before."""
    found = [row.better for row in rows]
    if ahead_before:
        pairs = np.array([[row.return_theta_es, row.return_learner] for row in rows], float)
        found[1:] = np.where(pairs[:-1, 0] >= pairs[:-1, 1], pairs[1:, 0], pairs[1:, 1])
    ends = [row.wall_seconds for row in rows]
    return np.array([value for value, end in zip(found, ends, strict=True) if 2 * end > ends[-1]])


def last_of_phases():
    return {run: rows[-1].better for run, rows in runs_of("phases.csv").items()}


def test_what_continuous_phases_are_worth_is_in_its_record():
    page = (RECORDS / "choices.md").read_text().split("## Phases")[1]
    last = last_of_phases()
    line = r"^\| (\S+) \| \d+, (\d\d)(.*?) \| (.*) \| (.*) \| (.*) \|$"
    lines = re.findall(line, page, re.MULTILINE)
    assert len(lines) == 3
    for number, (name, first, more, *cells) in enumerate(lines):
        seeds = range(int(first), int(more[-2:] or first) + 1)
        short, long, ours = "virtual", "continuous", "alternating"
        if number:
            short, ours = f"{short}, by gain", f"{ours}, by gain"
        for variant, cell in zip((short, long, ours), cells, strict=True):
            if cell != "-":
                found = [f"{last[name, variant, seed]:,.0f}" for seed in seeds]
                assert cell == ", ".join(found), (name, variant)


def test_what_a_condition_of_transfer_is_worth_is_in_its_record():
    page = (RECORDS / "choices.md").read_text().split("## Transfer at once")[1]
    seeds, *cells = re.findall(r"^\| Swimmer-v5 \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)[0]
    last = last_of_phases()
    for variant, cell in zip(("alternating", "alternating, by gain"), cells, strict=True):
        found = [last["Swimmer-v5", variant, int(seed)] for seed in seeds.split(", ")]
        assert cell == ", ".join(f"{each:,.0f}" for each in found)


def test_swimmer_in_five_seeds_is_in_its_record():
    last = last_of_phases()
    found = ", ".join(f"{last['Swimmer-v5', 'defaults', seed]:,.0f}" for seed in range(80, 85))
    assert f"Swimmer came to {found} in two minutes" in (RECORDS / "choices.md").read_text()


def test_what_ant_resimulates_is_in_its_record():
    found = {
        tuple(run): (own[-1].better, later_half(own).mean())
        for (task, *run), own in runs_of("phases.csv").items()
        if task == "Ant-v5"
    }
    page = (RECORDS / "two-cores.md").read_text().split("## Ant", 1)[1]
    for seed in (30, 31, 32):
        told = [each for name in ("earning", "better") for each in found[name, seed]]
        assert f"| {seed} | {' | '.join(f'{each:,.0f}' for each in told)} |" in page
    last, mean = found["earning, 30 minutes", 30]
    assert f"and {last:,.0f} after 30, {mean:,.0f} in the mean of its second half" in page


def test_the_table_of_eight_minutes_is_in_its_record():
    """Last evaluations, of the better policy, between two times."""
    page = (RECORDS / "two-cores.md").read_text()
    rows = evaluations("two-cores.csv")
    for task in {row.task for row in rows}:
        cells = []
        for variant, least, most in (
            ("2 ranks", 400, 999), ("2 ranks", 0, 114.5),
            ("2 ranks, batches of 256", 400, 999), ("2 ranks, batches of 256", 0, 114.5),
            ("4 ranks", 0, 999), ("8 ranks", 0, 999),
        ):  # fmt: skip
            own = (row for row in rows if (row.task, row.variant) == (task, variant))
            by_then = [row.better for row in own if least < row.wall_seconds <= most]
            cells.append(figure(by_then[-1]) if by_then else "")
        name = short_name(task)
        line = re.findall(rf"^\| {name} \| [-\d,.]+ \|(.*)\|$", page, re.MULTILINE)[0]
        assert [cell.strip(" *") for cell in line.split("|")] == cells
    best = defaultdict(list)
    with (RECORDS / "two-cores/members.csv").open() as file:
        for row in csv.DictReader(file):
            best[short_name(row["task"])].append(float(row["best_member"]))
    line = r"^\| (walker-walk|fish-upright|Reacher-v5) \| [-\d.]+ \| (\S+) \| (\S+) \|$"
    counted = re.findall(line, page, re.MULTILINE)
    assert len(counted) == 3
    for name, said, evaluation in counted:
        assert said == f"{np.mean(best[name]):.{1 if name == 'Reacher-v5' else 0}f}"
        assert f"| {name} | " in page.split("looks different", 1)[0]
        assert re.search(rf"^\| {name} \|.* \| {evaluation} \|", page, re.MULTILINE)


def test_esac_beside_its_parts_is_in_its_record():
    """Means of the second half of a run."""
    runs = side_by_side()
    table = (RECORDS / "side-by-side.md").read_text().split("## Eight minutes", 1)[1]
    found = re.findall(r"^\| (\S+) \| [\d.]+ \| (.+) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert len(found) == len({name for name, _ in runs})
    for name, *cells in found:
        halves = [runs[name, variant] for variant in ("ESAC", "ES", "SAC")]
        values = [later_half(rows).mean() if rows else -np.inf for rows in halves]
        told = [figure(each).replace("-inf", "-") for each in values]
        assert [cell.strip("*") for cell in cells] == told
        assert cells[np.argmax(values)].startswith("**")


def test_three_seeds_of_esac_beside_its_parts_are_in_their_record():
    """Last evaluations within two minutes, those of the second; over those of the better part."""
    runs, page = runs_of("side-by-side-seeds.csv"), said("side-by-side.md")
    table = (RECORDS / "side-by-side.md").read_text().split("\n## ", 2)[1]
    line = r"^\| (\S+) \| (.+) \| (.+) \| (.+) \| ([\d.]+) \| ([\d.]+) \|$"
    found = re.findall(line, table, re.MULTILINE)
    shares, leads = defaultdict(list), {}
    for name, *cells, ratio, later in found:
        means, halves = [], []
        for variant, cell in zip(("ESAC", "ES", "SAC"), cells, strict=True):
            rows = [runs.pop((name, variant, seed)) for seed in (101, 102, 103)]
            last = [each[-1] for each in rows]
            halves.append(np.mean([later_half(each).mean() for each in rows]))
            values = [row.better for row in last]
            told = [f"{each:,.0f}" if abs(each) >= 10 else f"{each:.1f}" for each in values]
            assert cell.strip("*") == ", ".join(told)
            means.append(np.mean(values))
            for made in ("env_steps", "gradient_updates"):
                shares[variant, made].append([getattr(r, made) / r.wall_seconds for r in last])
        assert cells[np.argmax(means)].startswith("**")
        leads[name] = means[0] / max(means[1:])
        assert ratio == f"{leads[name]:.2f}"
        assert later == f"{halves[0] / max(halves[1:]):.2f}"
    assert not runs
    first, second, third, fourth, behind = (
        f"{round(100 * abs(lead - 1))} %" for lead in sorted(leads.values(), reverse=True)
    )
    assert f"by {first} on cheetah-run, {second} on HalfCheetah, {third} on Hopper and" in page
    assert f"and {fourth} on the lunar lander, and {behind} behind SAC on Walker2d" in page
    for part, made, words in (("ES", "env_steps", "steps"), ("SAC", "gradient_updates", "updates")):
        share = np.divide(shares["ESAC", made], shares[part, made])
        assert f"{share.min():.2f} to {share.max():.2f} of the {words} of {part}" in page


def test_what_esac_has_over_its_parts_is_worked_out():
    """Leads [%] over the better part; level: within two standard errors of the evaluations."""
    runs, page = side_by_side(), said("side-by-side.md")
    leads, fair, level, shares = {}, {}, set(), defaultdict(list)
    for name in {name for name, _ in runs}:
        rows = runs[name, "ESAC"]
        parts = []
        for variant, made in (("ES", "env_steps"), ("SAC", "gradient_updates")):
            if others := runs[name, variant]:
                parts.append(later_half(others))
                ours, theirs = (getattr(r[-1], made) / r[-1].wall_seconds for r in (rows, others))
                shares[variant].append(ours / theirs)
        best = max(parts, key=np.mean)
        gap = later_half(rows).mean() - best.mean()
        leads[name] = round(100 * gap / abs(best.mean()))
        fair[name] = round(100 * (later_half(rows, True).mean() / best.mean() - 1))
        errors = [np.var(one, ddof=1) / len(one) for one in (later_half(rows), best)]
        if abs(gap) < 2 * sum(errors) ** 0.5:
            level.add(name)
    assert level == {"Swimmer-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Ant-v5"}
    first, second, *four, behind = sorted({*leads} - level, key=leads.__getitem__, reverse=True)
    assert (first, second, behind) == ("Walker2d-v5", "HalfCheetah-v5", "LunarLanderContinuous-v3")
    span = "{} to {} %".format(*np.quantile([leads[name] for name in four], (0, 1)).astype(int))
    told = f"by {leads[first]} % on Walker2d, {leads[second]} % on HalfCheetah and {span} on four"
    assert told in page
    assert f"On the lunar lander ES is ahead by {-leads[behind]} %" in page
    span = "{} to {} %".format(*np.quantile([fair[name] for name in four], (0, 1)).astype(int))
    assert f"the leads are {fair[first]} %, {fair[second]} % and {span}. On Ant it is" in page
    assert f"it is {-fair['Ant-v5']} % behind SAC" in page
    both = shares["ES"], shares["SAC"]
    steps, updates = (f"{min(each):.2f} to {max(each):.2f}" for each in both)
    assert f"made {steps} of the steps of ES and {updates} of the updates of SAC" in page


def test_what_two_minutes_and_more_ranks_come_to():
    rows, page = evaluations("two-cores.csv"), (RECORDS / "two-cores.md").read_text()
    page = page.split("\n## Another seed", 1)[0]
    papers = re.findall(r"^\| (\S+) \| (-?[\d,.]+) \|.*\|.*\|.*\|.*\|.*\|$", page, re.MULTILINE)
    there, early = set(), set()
    for name, paper in papers:
        own = [r for r in rows if short_name(r.task) == name and r.variant == "2 ranks"]
        goal = float(paper.replace(",", ""))
        there |= {name} if own[-1].better >= goal else set()
        by_then = [row.better for row in own if row.wall_seconds < 121]
        early |= {name} if by_then and by_then[-1] >= goal else set()
    assert (len(papers), len(there), len(early & there)) == (11, 7, 4)
    levels = re.findall(r"^\| ([\d,]+) on (\w+) \|(.*)\|$", page, re.MULTILINE)
    assert len(levels) == 4
    for level, name, cells in levels:
        variants = ("2 ranks, virtual", "4 ranks", "8 ranks")
        for variant, cell in zip(variants, cells.split("|"), strict=True):
            own = [r for r in rows if (short_name(r.task), r.variant) == (f"{name}-v5", variant)]
            times = [r.wall_seconds for r in own if r.better >= float(level.replace(",", ""))]
            assert cell.strip() == "".join(f"{each:.0f}" for each in times[:1])


def test_what_one_changed_default_comes_to_is_in_its_record():
    runs = runs_of("levers.csv")
    page = (RECORDS / "choices.md").read_text()
    head, *lines = re.search(r"\n(\| change .*?)\n\n", page, re.DOTALL)[1].splitlines()
    tasks = [cell.strip() for cell in head.split("|")[2:-1]]
    told = {
        (f"{task}-v5", change.strip(" `"), 90 + place): number
        for change, *cells in (line.split("|")[1:-1] for line in lines[1:])
        for task, cell in zip(tasks, cells, strict=True)
        for place, number in enumerate(re.findall(r"\d[\d,]*\d", cell))
    }
    names = {
        "none": "defaults",
        "--esac.sigma_rule grow": "sigma_rule grow",
        "--policy.linear false": "no linear path",
        "--esac.phase_timing virtual": "virtual phases",
        "--learner.kernels torch": "torch kernels",
        "all of these together": "all five",
    }
    compared = {(task, names[change], seed): value for (task, change, seed), value in told.items()}
    for run, value in compared.items():
        assert f"{runs[run][-1].better:,.0f}" == value
    batches, ratios, paired = ("defaults", "batches of 64"), [], set()
    for name, seeds, cells in re.findall(r"^\| (\S+) \| (9[\d, ]+) \|(.*)\|$", page, re.MULTILINE):
        numbers = [int(seed) for seed in seeds.split(",")]
        kinds = product((30, 60, 999), batches)
        for cell, (end, batch) in zip(cells.split("|"), kinds, strict=True):
            by_then = [[r for r in runs[name, batch, n] if r.wall_seconds <= end] for n in numbers]
            assert cell.strip() == ", ".join(f"{own[-1].better:,.0f}" for own in by_then)
        for n in numbers:
            ends = [runs[name, batch, n][-1] for batch in batches]
            many, few = (end.gradient_updates / end.wall_seconds for end in reversed(ends))
            ratios.append(many / few)
            paired |= {(name, batch, n) for batch in batches}
    assert compared.keys() | paired == runs.keys()
    least, most = min(ratios), max(ratios)
    assert f"give SAC {least:.1f} to {most:.1f} times the updates of 256" in page


def test_what_larger_networks_come_to_is_in_its_record():
    runs, page = runs_of("networks.csv"), (RECORDS / "choices.md").read_text()
    table = re.search(r"\n(\| task \| observations .*?)\n\n", page, re.DOTALL)[1]
    head, *lines = table.splitlines()
    minutes = [int(number) for number in re.findall(r"\| (\d+)", head.replace(" min", ""))]
    name, found = "", set()
    for line in lines[1:]:
        task, _, units, *cells, half, speed = (cell.strip() for cell in line.split("|")[1:-1])
        name = task or name
        rows = runs[name, units, 33]
        end = rows[-1].wall_seconds
        told = [number for number in cells if number]
        until = [60 * number for number in minutes[: len(told) - 1]] + [end]
        stood = [[r.better for r in rows if r.wall_seconds <= each][-1] for each in until]
        assert told == [f"{value:,.0f}" for value in stood]
        assert half == f"{np.mean([r.better for r in rows if r.wall_seconds >= end / 2]):,.0f}"
        assert speed == f"{rows[-1].gradient_updates / end:,.0f}"
        found.add((name, units, 33))
    assert found == runs.keys()


def test_what_two_slower_cores_come_to_is_in_its_record():
    runs, page = runs_of("drawn.csv"), (RECORDS / "two-cores.md").read_text()
    section = page.split("## Slower cores", 1)[1].split("\n## ", 1)[0]
    long = {key for key, rows in runs.items() if rows[-1].wall_seconds > 200}
    found = set()
    line = r"^\| (\S+) \|[^|]*\| (\d) \|(.*)\|(.*)\|(.*)\|$"
    for name, minutes, *cells in re.findall(line, section, re.M):
        returns, median, after_six = (cell.strip() for cell in cells)
        keys = sorted(key for key in runs if key[0] == name)
        evaluated = {key: [r for r in runs[key] if r.better is not None] for key in keys}
        stood = [
            [r.better for r in evaluated[key] if r.wall_seconds < 60 * int(minutes) + 8][-1]
            for key in keys
        ]
        ends = [evaluated[key][-1].better for key in keys if key in long]
        assert returns == ", ".join(f"{value:,.0f}" for value in stood)
        assert median == (f"{np.median(stood):,.0f}" if len(stood) > 1 else "")
        assert after_six == ", ".join(f"{value:,.0f}" for value in ends)
        found |= set(keys)
    assert found == runs.keys()


@pytest.mark.parametrize(
    ("name", "title"),
    [("another-seed.csv", "Another seed"), ("other-tasks.csv", "Other tasks of Gymnasium")],
)
def test_what_one_seed_comes_to_is_in_its_record(name, title):
    runs, page = runs_of(name), (RECORDS / "two-cores.md").read_text()
    section = page.split(f"## {title}", 1)[1].split("\n## ", 1)[0]
    sentences = " ".join(section.split())
    for key in [key for key in runs if key[1] != "ESAC"]:
        end = runs.pop(key)[-1]
        assert f"with `{key[1]}` the same minute ends at {end.better:.1f}" in sentences
    line = r"^\| (\S+) \| ([\d,.-]*) ?\| ([\d.]+) \| (\**)([\d,.-]+)\**(?: \|[^|]*){3}\|$"
    found = set()
    for task, asked, minutes, bold, told in re.findall(line, section, re.M):
        key = short_name(task), "ESAC", 93
        end = runs[key][-1]
        assert 60 * float(minutes) - 15 < end.wall_seconds < 60 * float(minutes) + 15
        assert told == (f"{end.better:,.0f}" if end.better > 1000 else f"{end.better:.1f}")
        least = float(asked.replace(",", "") or "inf")
        assert bool(bold) == (float(told.replace(",", "")) >= least)
        found.add(key)
    assert found == runs.keys()


def test_what_large_tasks_come_to_on_slower_cores_is_in_its_record():
    runs, page = runs_of("large.csv"), (RECORDS / "two-cores.md").read_text()
    section = page.split("## Large tasks on slower cores", 1)[1].split("\n## ", 1)[0]
    name, found = "", set()
    line = r"^\| (\S+-v5|) ?\|([^|]*)\| (plain|scaled) \|" + r"([^|]*)\|" * 7 + "$"
    for task, _, noise, *told in re.findall(line, section, re.M):
        name = task or name
        rows = runs[name, f"{noise} noise", 93]
        end = rows[-1].wall_seconds
        stood = [rows[-1].gradient_updates / end]
        for minutes in (5, 10, 20, 30, 40):
            if 60 * minutes < end:
                stood.append([r.better for r in rows if r.wall_seconds <= 60 * minutes][-1])
        stood.append(np.mean([r.better for r in rows if r.wall_seconds >= end / 2]))
        assert [cell.strip() for cell in told if cell.strip()] == [f"{x:,.0f}" for x in stood]
        found.add((name, f"{noise} noise", 93))
    assert found == runs.keys()
    last = runs["Ant-v5", "scaled noise", 93][-1].better
    assert f"ends with {last:,.0f}" in section


def test_what_ant_comes_to_with_shrunk_observations_is_in_its_record():
    page, runs = (RECORDS / "choices.md").read_text(), runs_of("shrink.csv")
    line = r"^\| (false|shrink)[^|]* \| (1e-3|3e-4) \|" + r" (-|[\d,]+) \|" * 4 + "$"
    found = set()
    for seen, rate, *told in re.findall(line, page, re.M):
        keys = [("Ant-v5", f"{seen}, {rate}", seed) for seed in range(4)]
        assert told == [f"{runs[key][-1].better:,.0f}" if key in runs else "-" for key in keys]
        for seed, key in enumerate(keys):
            least, most = (600, 630) if seed > 1 else (240, 265)
            assert key not in runs or least < runs[key][-1].wall_seconds < most
        found |= set(keys) & runs.keys()
    assert found == runs.keys()


def test_what_suite_tasks_come_to_is_in_its_record():
    page, runs = (RECORDS / "suite.md").read_text(), runs_of("suite.csv")
    random = tomllib.loads((ROOT / "configs/experiments/random.toml").read_text())
    line = r"^\| ([a-z]\S+-\S+) \|" + r" (\S+) \|" * 5 + "$"
    found = set()
    for name, *told in re.findall(line, page, re.M):
        row = runs[name, "ESAC", 93][-1]
        both = row.return_theta_es, row.return_learner
        cells = [f"**{x:,.0f}**" if x == row.better else f"{x:,.0f}" for x in both]
        spent = f"{row.env_steps / 1e6:.1f}M", f"{row.gradient_updates / 1e3:.0f}k"
        assert told == [f"{random[row.task]['mean']:,.0f}", *cells, *spent]
        found.add((name, "ESAC", 93))
    best = [runs[key][-1].better for key in found]
    assert sum(x >= 850 for x in best) == 7
    assert sum(x < 200 for x in best) == 10
    assert f"with {runs['reacher-easy', 'not standardised', 93][-1].better:.0f} in place of" in page
    assert runs["pendulum-swingup", "SAC", 93][-1].better == 0
    assert len(found) == len(runs) - 2 == 25


def test_what_humanoid_comes_to_is_in_its_record():
    page = (RECORDS / "two-cores.md").read_text()
    section = page.split("\n## Humanoid\n", 1)[1].split("\n## ", 1)[0]
    runs = runs_of("humanoid.csv")
    rows, second = (runs["Humanoid-v5", "ESAC", seed] for seed in (93, 94))
    shrunk, third = (runs["Humanoid-v5", "shrink", seed] for seed in (94, 95))
    for run, last in ((rows, 100), (second, 55), (shrunk, 50), (third, 100)):
        told = []
        for start in range(0, last, 20):  # of the last evaluation the run's end is over its budget
            end = min(start + 20, last)
            there = [r for r in run if 60 * start < r.wall_seconds <= (60 * end, 1e9)[end == last]]
            means = (
                np.mean([getattr(r, f"return_{p}") for r in there]) for p in ("theta_es", "learner")
            )
            made = f"{there[-1].env_steps / 1e6:.1f}M | {there[-1].gradient_updates / 1e3:.0f}k"
            cells = [f"{value:,.0f}" for value in (*means, max(row.better for row in there))]
            told.append(f"| {start} to {end} | {' | '.join(cells)} | {made} |")
        assert "\n".join(told) in section
    assert f"has {third[-1].better:,.0f} in its last evaluation,\nafter 100 minutes" in section
    assert f"with {shrunk[-1].better:,.0f} in its last evaluation" in section
    assert f"The run has {rows[-1].better:,.0f} at the end" in section
    assert f"had {second[-1].better:,.0f} after 55 minutes" in section
    for page in (ROOT / "README.md", RECORDS / "index.md"):
        for there in (f"{third[-1].better:,.0f} after 100", f"{shrunk[-1].better:,.0f} after 50"):
            assert there in page.read_text()
    late = [row for row in third if row.wall_seconds > 40 * 60]
    ahead = sum(row.return_theta_es > row.return_learner for row in late)
    assert f"ahead of SAC in {ahead} of the\n{len(late)} evaluations from minute 40 on" in section
    rate = third[-1].gradient_updates / third[-1].wall_seconds
    assert f"The learner makes {rate:.0f} updates/s" in section
