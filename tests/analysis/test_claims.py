"""Sentences and tables of the pages of results, worked out from the records beside them."""

import csv
import re
import shlex
from collections import defaultdict
from glob import glob
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from esac_mpi.analysis.intervals import interval, iqm
from esac_mpi.analysis.results import scores, traces
from esac_mpi.analysis.results.rows import read_rows
from esac_mpi.analysis.results.standings import difference

RECORDS = ROOT / "docs/results"
RANDOM = scores.random_returns(ROOT / "configs/experiments/random.toml")
SEEDS = range(5)
AES = "AES-RL"


def said(page):
    return " ".join((RECORDS / page).read_text().split())


def section(page, title):
    """Return what stands below a heading of a page, up to the next such heading."""
    return (RECORDS / page).read_text().split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def table_with_head(text):
    """Return the head of a text's first table, and the lines below it, as cells."""
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()
    head, _, *below = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return head, below


def table(text):
    return table_with_head(text)[1]


def short_name(task):
    return task.split("/")[-1].removesuffix("-v0")


def whole(value):
    """Return a return as the pages write large ones."""
    return f"{value:,.0f}"


def figure(value):
    """Return a return as the pages write it."""
    return whole(value) if value > 1000 else f"{value:.1f}"


def wholes(values):
    return ", ".join(map(whole, values))


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


def test_what_window_and_baseline_do_to_aes_rl_on_hopper():
    page = section("aes-rl.md", "Hopper: trained individuals, window and baseline")
    parts, last, updates = defaultdict(list), {}, {}
    for row in csv.DictReader((RECORDS / "aes-window/individuals.csv").open()):
        key = f"{float(row['relative_baseline']):g}", row["actor_updates_window"]
        parts[key].append([float(row[name]) for name in ("trained", "drawn")])
    for labels in traces.sections(read_rows([RECORDS / "aes-window.csv"])).values():
        for label, runs in labels.items():
            key = tuple(label.removeprefix("f_b ").split())
            last[key] = np.array([run.curve("env_steps", "better").y[-1] for run in runs])
            updates[key] = np.mean([run.rows[-1].gradient_updates for run in runs])
    assert len(last) == len(parts) == 6
    for key, found in last.items():
        spread = f"{found.mean():.0f} ± {found.std(ddof=1):.0f}"
        means = [f"{mean:.0f}" for mean in np.mean(parts[key], axis=0)]
        (line,) = re.findall(rf"^\| {key[0]} \| {key[1]}\b.*$", page, re.MULTILINE)
        cells = line.replace("*", "").strip("| ").split(" | ")
        assert cells[2:] == [spread, *means, f"{updates[key]:,.0f}"]
    for baseline in ("70", "200"):
        ratios = [a / b for key in parts for a, b in parts[key] if key[0] == baseline]
        assert len(ratios) == 15
        assert re.search(rf"\b{min(ratios):.2f} to {max(ratios):.2f} of\s", page)
    every = [np.concatenate([last[key] for key in last if key[0] == f_b]) for f_b in ("70", "200")]
    for (ours, theirs), words in (
        (every, "of 200 by {:.0f} (interval {:.0f} to {:.0f}"),
        ((last["70", "10"], last["70", "2"]), "of 2 by {:.0f} ({:.0f} to {:.0f})"),
    ):
        assert words.format(ours.mean() - theirs.mean(), *difference(ours, theirs)) in page
    level = [("70", "5 10"), ("200", "2 5"), ("200", "2 10"), ("200", "5 10")]
    for baseline, (one, other) in ((f_b, pair.split()) for f_b, pair in level):
        low, high = difference(last[baseline, one], last[baseline, other])
        assert low < 0 < high


def test_on_seeds_that_did_not_choose_it_the_sigmoid_is_not_separated_from_cem_rl():
    page = section("aes-rl.md", "HalfCheetah: the sigmoid against CEM-RL")
    (labels,) = traces.sections(read_rows([RECORDS / "aes-sigmoid.csv"])).values()
    last = {}
    for label, runs in labels.items():
        assert sorted(run.rows[0].seed for run in runs) == [*range(5, 20)]
        last[label] = np.array([run.curve("env_steps", "better").y[-1] for run in runs])
        spread = f"{last[label].mean():,.0f} ± {last[label].std(ddof=1):.0f}"
        (steps,) = {run.rows[-1].env_steps for run in runs}
        updates = np.mean([run.rows[-1].gradient_updates for run in runs])
        assert f" | {spread} | {steps:,} | {updates:,.0f} |" in page
    ours, theirs = last[AES], last["CEM-RL"]
    low, high = difference(ours, theirs)
    told = f"difference is {ours.mean() - theirs.mean():.0f} (interval {low:.0f} to {high:.0f})"
    assert told in page
    low, high = interval([ours])
    assert f"mean of {iqm([ours]):,.0f} [{low:,.0f}, {high:,.0f}], not 1,291" in page
    early = (
        traces.values(labels[name], "env_steps", 102_000, "better") for name in (AES, "CEM-RL")
    )
    low, high = difference(*early)
    assert f"by {-high:.0f} to {-low:,.0f} after 102,000" in page


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
    return found, scores.score_study(found, RANDOM, traces.Wall(ranks, seconds), [])


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


def until(rows, seconds):
    """Return the last return within so many seconds."""
    return [row.better for row in rows if row.wall_seconds <= seconds][-1]


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
    last = last_of_phases()
    lines = table(section("choices.md", "Phases"))
    assert len(lines) == 3
    for number, (name, about, *cells) in enumerate(lines):
        _, first, *more = map(int, re.findall(r"\d+", about))  # "180, 70 to 72": seconds, seeds
        seeds = range(first, max([first, *more]) + 1)
        short, long, ours = "virtual", "continuous", "alternating"
        if number:
            short, ours = f"{short}, by gain", f"{ours}, by gain"
        for variant, cell in zip((short, long, ours), cells, strict=True):
            if cell != "-":
                assert cell == wholes(last[name, variant, seed] for seed in seeds), (name, variant)


def test_what_a_condition_of_transfer_is_worth_is_in_its_record():
    last, page = last_of_phases(), section("choices.md", "Transfer at once")
    ((task, seeds, *cells),) = table(page.partition("The second condition")[2])
    for variant, cell in zip(("alternating", "alternating, by gain"), cells, strict=True):
        assert cell == wholes(last[task, variant, int(seed)] for seed in seeds.split(", "))


def test_swimmer_in_five_seeds_is_in_its_record():
    last = last_of_phases()
    found = wholes(last["Swimmer-v5", "defaults", seed] for seed in range(80, 85))
    assert f"Swimmer came to {found} in two minutes" in (RECORDS / "choices.md").read_text()


def test_what_ant_resimulates_is_in_its_record():
    found = {
        tuple(run): (whole(own[-1].better), whole(later_half(own).mean()))
        for (task, *run), own in runs_of("phases.csv").items()
        if task == "Ant-v5"
    }
    page = section("two-cores.md", "Ant")
    assert table(page) == [
        [str(seed), *found["earning", seed], *found["better", seed]] for seed in (30, 31, 32)
    ]
    last, mean = found["earning, 30 minutes", 30]
    assert f"and {last} after 30, {mean} in the mean of its second half" in page


def test_the_table_of_eight_minutes_is_in_its_record():
    """Last evaluations, of the better policy, between two times."""
    page = (RECORDS / "two-cores.md").read_text()
    rows = evaluations("two-cores.csv")
    lines = {name: [cell.strip("*") for cell in cells] for name, _, *cells in table(page)}
    assert lines.keys() == {short_name(row.task) for row in rows}
    for name, told in lines.items():
        cells = []
        for variant, least, most in (
            ("2 ranks", 400, 999), ("2 ranks", 0, 114.5),
            ("2 ranks, batches of 256", 400, 999), ("2 ranks, batches of 256", 0, 114.5),
            ("4 ranks", 0, 999), ("8 ranks", 0, 999),
        ):  # fmt: skip
            own = (row for row in rows if (short_name(row.task), row.variant) == (name, variant))
            by_then = [row.better for row in own if least < row.wall_seconds <= most]
            cells.append(figure(by_then[-1]) if by_then else "")
        assert told == cells
    best = defaultdict(list)
    with (RECORDS / "two-cores/members.csv").open() as file:
        for row in csv.DictReader(file):
            best[short_name(row["task"])].append(float(row["best_member"]))
    counted = table(page.partition("three tasks look different")[2])
    assert len(counted) == 3
    for name, _, member, evaluation in counted:
        assert member == f"{np.mean(best[name]):.{1 if name == 'Reacher-v5' else 0}f}"
        assert evaluation in lines[name]


def test_esac_beside_its_parts_is_in_its_record():
    """Means of the second half of a run."""
    runs = side_by_side()
    found = table(section("side-by-side.md", "Eight minutes, one seed"))
    assert len(found) == len({name for name, _ in runs})
    for name, _, *cells in found:
        halves = [runs[name, variant] for variant in ("ESAC", "ES", "SAC")]
        values = [later_half(rows).mean() if rows else -np.inf for rows in halves]
        told = [figure(each).replace("-inf", "-") for each in values]
        assert [cell.strip("*") for cell in cells] == told
        assert cells[np.argmax(values)].startswith("**")


def test_three_seeds_of_esac_beside_its_parts_are_in_their_record():
    """Last evaluations within two minutes, those of the second; over those of the better part."""
    runs, page = runs_of("side-by-side-seeds.csv"), said("side-by-side.md")
    shares, leads = defaultdict(list), {}
    for name, *cells, ratio, later in table(section("side-by-side.md", "Two minutes, three seeds")):
        means, halves = [], []
        for variant, cell in zip(("ESAC", "ES", "SAC"), cells, strict=True):
            rows = [runs.pop((name, variant, seed)) for seed in (101, 102, 103)]
            last = [each[-1] for each in rows]
            halves.append(np.mean([later_half(each).mean() for each in rows]))
            values = [row.better for row in last]
            told = [whole(each) if abs(each) >= 10 else f"{each:.1f}" for each in values]
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
    rows = evaluations("two-cores.csv")
    papers = table((RECORDS / "two-cores.md").read_text())
    there, early = set(), set()
    for name, paper, *_ in papers:
        own = [r for r in rows if short_name(r.task) == name and r.variant == "2 ranks"]
        goal = float(paper.replace(",", ""))
        there |= {name} if own[-1].better >= goal else set()
        by_then = [row.better for row in own if row.wall_seconds < 121]
        early |= {name} if by_then and by_then[-1] >= goal else set()
    assert (len(papers), len(there), len(early & there)) == (11, 7, 4)
    levels = table(section("two-cores.md", "More ranks"))
    assert len(levels) == 4
    for goal, *cells in levels:
        level, name = goal.replace(",", "").split(" on ")
        for variant, cell in zip(("2 ranks, virtual", "4 ranks", "8 ranks"), cells, strict=True):
            own = [r for r in rows if (short_name(r.task), r.variant) == (f"{name}-v5", variant)]
            times = [r.wall_seconds for r in own if r.better >= float(level)]
            assert cell == "".join(f"{each:.0f}" for each in times[:1])


CHANGES = {
    "none": "defaults",
    "--esac.sigma_rule grow": "sigma_rule grow",
    "--policy.linear false": "no linear path",
    "--esac.phase_timing virtual": "virtual phases",
    "--learner.kernels torch": "torch kernels",
    "all of these together": "all five",
}


def test_what_one_changed_default_comes_to_is_in_its_record():
    runs, found, ratios = runs_of("levers.csv"), set(), []
    (_, *tasks), lines = table_with_head(section("choices.md", "One default changed at a time"))
    for change, *cells in lines:
        for task, cell in zip(tasks, cells, strict=True):
            for seed, told in enumerate(re.findall(r"\d[\d,]*\d", cell), 90):
                run = f"{task}-v5", CHANGES[change.strip("`")], seed
                assert told == whole(runs[run][-1].better)
                found.add(run)
    batches, page = ("defaults", "batches of 64"), section("choices.md", "Batches")
    for name, seeds, *cells in table(page):
        numbers = [int(seed) for seed in seeds.split(",")]
        for cell, (end, batch) in zip(cells, product((30, 60, 999), batches), strict=True):
            assert cell == wholes(until(runs[name, batch, n], end) for n in numbers)
        for n in numbers:
            ends = [runs[name, batch, n][-1] for batch in batches]
            many, few = (end.gradient_updates / end.wall_seconds for end in reversed(ends))
            ratios.append(many / few)
            found |= {(name, batch, n) for batch in batches}
    assert found == runs.keys()
    least, most = min(ratios), max(ratios)
    assert f"give SAC {least:.1f} to {most:.1f} times the updates of 256" in page


def test_what_the_survival_bonus_does_is_in_its_record():
    runs, ends = runs_of("survival.csv"), {}
    for task, algorithm, seconds, seeds, *told in table(
        section("choices.md", "The survival bonus")
    ):
        for cell, form in zip(told, ("bonus taken off", "with the bonus"), strict=True):
            variant = form if algorithm == "ESAC" else f"ES, {form}"
            found = [runs.pop((task, variant, int(seed))) for seed in seeds.split(",")]
            assert cell == wholes(rows[-1].better for rows in found)
            assert all(0 < rows[-1].wall_seconds - int(seconds) < 6 for rows in found)
            ends.setdefault(form, []).extend(rows[-1].better for rows in found)
    assert not runs
    assert len(ends["bonus taken off"]) == 8
    low = [sum(end < 2000 for end in each) for each in ends.values()]
    assert low == [0, 3]


def test_what_larger_networks_come_to_is_in_its_record():
    runs, name = runs_of("networks.csv"), ""
    head, lines = table_with_head(section("choices.md", "Sizes of networks"))
    minutes = [int(cell.removesuffix(" min")) for cell in head[3:-2]]
    for task, _, units, *cells, half, speed in lines:
        name = task or name
        rows = runs.pop((name, units, 33))
        end = rows[-1].wall_seconds
        told = [cell for cell in cells if cell]
        ends = [60 * each for each in minutes[: len(told) - 1]] + [end]
        assert told == [whole(until(rows, each)) for each in ends]
        assert half == whole(later_half(rows).mean())
        assert speed == whole(rows[-1].gradient_updates / end)
    assert not runs


def test_what_two_slower_cores_come_to_is_in_its_record():
    runs = runs_of("drawn.csv")
    for name, _, minutes, *told in table(section("two-cores.md", "Slower cores")):
        own = [runs.pop(run) for run in sorted(runs) if run[0] == name]
        values = [until(rows, 60 * int(minutes) + 8) for rows in own]
        median = whole(np.median(values)) if len(values) > 1 else ""
        after_six = wholes(rows[-1].better for rows in own if rows[-1].wall_seconds > 200)
        assert told == [wholes(values), median, after_six]
    assert not runs


@pytest.mark.parametrize(
    ("name", "title"),
    [("another-seed.csv", "Another seed"), ("other-tasks.csv", "Other tasks of Gymnasium")],
)
def test_what_one_seed_comes_to_is_in_its_record(name, title):
    runs, page = runs_of(name), section("two-cores.md", title)
    sentences = " ".join(page.split())
    for key in [key for key in runs if key[1] != "ESAC"]:
        end = runs.pop(key)[-1]
        assert f"with `{key[1]}` the same minute ends at {end.better:.1f}" in sentences
    for task, asked, minutes, told, *_ in table(page):
        end = runs.pop((short_name(task), "ESAC", 93))[-1]
        assert abs(end.wall_seconds - 60 * float(minutes)) < 15
        shown = told.strip("*")
        assert shown == figure(end.better)
        least = float(asked.replace(",", "") or "inf")
        assert told.startswith("*") == (float(shown.replace(",", "")) >= least)
    assert not runs


def test_what_large_tasks_come_to_on_slower_cores_is_in_its_record():
    runs, page = runs_of("large.csv"), section("two-cores.md", "Large tasks on slower cores")
    assert f"ends with {whole(runs['Ant-v5', 'scaled noise', 93][-1].better)}" in page
    name = ""
    for task, _, noise, *told in table(page):
        name = task or name
        rows = runs.pop((name, f"{noise} noise", 93))
        end = rows[-1].wall_seconds
        values = [until(rows, 60 * m) for m in (5, 10, 20, 30, 40) if 60 * m < end]
        shown = [rows[-1].gradient_updates / end, *values, later_half(rows).mean()]
        assert [cell for cell in told if cell] == list(map(whole, shown))
    assert not runs


def test_what_ant_comes_to_with_shrunk_observations_is_in_its_record():
    runs, found = runs_of("shrink.csv"), set()
    for seen, rate, *told in table(section("choices.md", "Standardised observations")):
        keys = [("Ant-v5", f"{seen.split(',')[0]}, {rate}", seed) for seed in range(4)]
        assert told == [whole(runs[key][-1].better) if key in runs else "-" for key in keys]
        for seed, key in enumerate(keys):
            least, most = (600, 630) if seed > 1 else (240, 265)
            assert key not in runs or least < runs[key][-1].wall_seconds < most
        found |= set(keys) & runs.keys()
    assert found == runs.keys()


def test_what_suite_tasks_come_to_is_in_its_record():
    page, runs = (RECORDS / "suite.md").read_text(), runs_of("suite.csv")
    best = []
    for name, *told in table(page):
        row = runs.pop((name, "ESAC", 93))[-1]
        both = row.return_theta_es, row.return_learner
        cells = [f"**{whole(x)}**" if x == row.better else whole(x) for x in both]
        spent = f"{row.env_steps / 1e6:.1f}M", f"{row.gradient_updates / 1e3:.0f}k"
        assert told == [whole(RANDOM[row.task]["mean"]), *cells, *spent]
        best.append(row.better)
    assert len(best) == 25
    assert sum(x >= 850 for x in best) == 7
    assert sum(x < 200 for x in best) == 10
    other = runs.pop(("reacher-easy", "not standardised", 93))[-1].better
    assert f"with {other:.0f} in place of" in page
    assert runs.pop(("pendulum-swingup", "SAC", 93))[-1].better == 0
    assert not runs


def test_what_humanoid_comes_to_is_in_its_record():
    page, runs = section("two-cores.md", "Humanoid"), runs_of("humanoid.csv")
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
            cells = map(whole, (*means, max(row.better for row in there)))
            told.append(f"| {start} to {end} | {' | '.join(cells)} | {made} |")
        assert "\n".join(told) in page
    ends = (run[-1].better for run in (third, shrunk, rows, second))
    longest, shorter, former, stopped = map(whole, ends)
    assert f"has {longest} in its last evaluation,\nafter 100 minutes" in page
    assert f"with {shorter} in its last evaluation" in page
    assert f"The run has {former} at the end" in page
    assert f"had {stopped} after 55 minutes" in page
    for other in (ROOT / "README.md", RECORDS / "index.md"):
        for there in (f"{longest} after 100", f"{shorter} after 50"):
            assert there in other.read_text()
    late = [row for row in third if row.wall_seconds > 40 * 60]
    ahead = sum(row.return_theta_es > row.return_learner for row in late)
    assert f"ahead of SAC in {ahead} of the\n{len(late)} evaluations from minute 40 on" in page
    rate = third[-1].gradient_updates / third[-1].wall_seconds
    assert f"The learner makes {rate:.0f} updates/s" in page


COMMAND = re.compile(r"^esac-mpi results (?:table|aggregate).*\.md$", re.MULTILINE)
TABLES = []
for page in ("index", "two-cores", "eight-tasks", "pderl", "aes-rl"):
    TABLES += COMMAND.findall((RECORDS / f"{page}.md").read_text())


@pytest.mark.parametrize("line", TABLES)
def test_the_tables_of_the_docs_come_from_their_records(tmp_path, call, monkeypatch, line):
    monkeypatch.chdir(ROOT)
    _, kind, table, *words = shlex.split(line)
    assert words[-2] == "--out"
    words = [found for word in words for found in (sorted(glob(word)) or [word])]
    expected = Path(words.pop()).read_text()
    call(f"{kind} {table}", *words, tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == expected


FOLDERS = ("", "aes-table2", "aggregate", "carriers")
FILES = [path for name in FOLDERS for path in (RECORDS / name).glob("*.csv")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_records_of_the_docs_are_small_and_whole(path):
    rows = read_rows([path])
    ended = [row.run for row in rows if row.complete]
    assert sorted(ended) == sorted({row.run for row in rows})
    assert path.stat().st_size < 23_000 * len(ended)  # a run is some sixty rows


OPERATED = {
    "crossover": ("parent 1", "n-point child", "distilled child"),
    "mutation": ("parent", "Gaussian", "proximal"),
}


@pytest.mark.parametrize("task", ["HalfCheetah", "Hopper", "Swimmer", "cartpole-swingup"])
def test_what_operators_do_to_returns_is_in_their_records(task):
    said = []
    for what, names in OPERATED.items():
        groups: dict[tuple[Path, str], dict[str, float]] = {}
        for path in (RECORDS / "operators").glob(f"{what}-{task.lower()}-seed*.csv"):
            for row in csv.DictReader(path.open()):
                groups.setdefault((path, row["group"]), {})[row["policy"]] = float(row["mean"])
        parts = [
            np.array([one[name] / one[names[0]] for one in groups.values()]) for name in names[1:]
        ]
        said += [f"{np.median(part):.3f} ({(part < 0.5).sum()})" for part in parts]
        said.append(f"{(parts[1] > parts[0]).sum()} of {len(groups)}")
    assert f"| {task} | {' | '.join(said)} |" in (RECORDS / "pderl.md").read_text()


EARLY = "Figures 5 and 7: children and mutants beside their parents"


@pytest.mark.parametrize("rate", ["5e-5", "1e-3"])
def test_what_operators_do_to_early_populations_is_in_their_records(rate):
    parts = defaultdict(list)
    for path in sorted((RECORDS / "operators").glob(f"early-*-{rate}-seed*.csv")):
        for row in csv.DictReader(path.open()):
            if row["normalised"] and not row["policy"].startswith("parent"):
                parts[row["policy"]].append(float(row["normalised"]))
    made = ["n-point child", *(f"distilled child, {n} epochs" for n in (4, 12, 36))]
    assert [*parts] == [*made, "Gaussian", "proximal"]
    head, below = table_with_head(section("pderl.md", EARLY).split("### Early populations")[1])
    assert head[1:] == ["n-point child", "distilled, 4 epochs", "12 (the paper's)", "36",
                        "Gaussian mutant", "proximal mutant"]  # fmt: skip
    said = [f"{np.median(v):.3f} ({(np.array(v) < 0.5).sum()} of {len(v)})" for v in parts.values()]
    assert [rate, *said] in below


FATE = "it became an elite, was selected, discarded [%]"


def test_what_a_million_steps_of_pderl_give_is_in_the_record():
    head, below = table_with_head(section("pderl.md", "A million steps"))
    said = {line[0]: line[1:] for line in below}
    ends = defaultdict(list)
    for row in read_rows([RECORDS / "pderl-million.csv"]):
        if row.complete:
            ends[row.variant].append(row.return_learner)
    champions = [ends[name] for name in head[1:]]
    means = [whole(np.mean(each)) for each in champions]
    assert [mean.strip("*") for mean in said["champion (TD3: its actor)"]] == means
    assert said["of each seed"] == [", ".join(map(whole, each)) for each in champions]
    gaps = [difference(np.array(ends[name]), np.array(ends["TD3"])) for name in head[1:5]]
    assert all(low > 0 for low, _ in gaps)
    sentences = " ".join(section("pderl.md", "A million steps").split())
    for ours, theirs, where in (head[1], head[2], "ahead"), (head[3], head[4], "behind"):
        gap = np.mean(ends[ours]) - np.mean(ends[theirs])
        low, high = difference(np.array(ends[ours]), np.array(ends[theirs]))
        assert (gap > 0) == (where == "ahead")
        assert f"{where} by {abs(gap):.0f} [{low:.0f}, {high:.0f}]" in sentences
    leads = [np.mean(each) - np.mean(ends["TD3"]) for each in champions[:4]]
    assert f"ahead of TD3, by {min(leads):.0f} to {max(leads):.0f}" in sentences
    for kind, line in (("learner", "learner's actor"), ("fates", FATE)):
        names, (values,) = table_with_head((RECORDS / f"pderl-million-{kind}.md").read_text())
        groups = defaultdict(list)
        for name, cell in zip(names[1:], values[1:], strict=True):
            algorithm, rate = name.replace(",", "").split()[:2]
            slow = " 5e-5" if rate == "lr_actor=5e-05" else ""
            mean = float(cell.split()[0].strip("*").replace(",", ""))
            groups[algorithm + slow].append(whole(mean))
        assert said[line][:4] == [", ".join(groups[name]) for name in head[1:5]]
