"""Scores between random actions and the best, and their aggregate over tasks and seeds, by numbers worked out by hand."""

import dataclasses
from itertools import chain

import numpy as np
import pytest
from commands import command
from result_rows import history, stored

from esac_mpi.analysis.figures import plt
from esac_mpi.analysis.intervals import stratified
from esac_mpi.analysis.messages import Unusable
from esac_mpi.analysis.results import aggregate_page, aggregate_picture, aggregates, aims
from esac_mpi.analysis.results.aggregates import estimate
from esac_mpi.analysis.results.scores import by_task, random_returns, study
from esac_mpi.analysis.results.traces import MEASURED, Wall, sections
from esac_mpi.experiments import design, random_actions

results = command("results")
RANDOM = {"A-v0": {"mean": 2.0}, "B-v0": {"mean": -100.0}}
SIX = Wall(None, 6.0)


def run(variant, seed, points, task="A-v0", done=True, **more):
    """Return the rows of a run: (seconds, return) each, of theta_es for ES, of the learner for others."""
    own = variant.startswith("ES") and not variant.startswith("ESAC")
    made = [(10 * g, seconds, value if own else None, None if own else value) for g, (seconds, value) in enumerate(points, 1)]
    rows = history(variant, seed, made, task=task, **more)
    return [*rows[:-1], dataclasses.replace(rows[-1], complete=done)]


def scored(rows, wall=SIX, left_out=()):
    return study(sections(chain.from_iterable(rows)), RANDOM, wall, list(left_out))


def finals(returns, task="A-v0", start=0):
    """Return runs that end at 6 s with these returns: {variant: one a seed}."""
    return [
        run(variant, seed, [(6, value)], task) for variant, values in returns.items() for seed, value in enumerate(values, start)
    ]


# ---- scores


def test_zero_is_random_and_one_the_best_within_the_time():
    found = scored([
        run("ES", 0, [(2, 12.0), (5, 7.0), (9, 100.0)]),  # the best is 12, at 2 s; 100 came too late
        run("ES", 1, [(6, 0.0), (7, 50.0)]),  # at the limit counts
        history("ESAC", 0, [(10, 1, 3.0, 4.0), (20, 6, 9.0, 8.0)]),  # the better of its two policies
    ])  # fmt: skip
    (task,) = found.whole
    assert (task.random, task.best) == (2, 12)
    assert task.normalised("ES").tolist() == [0.5, -0.2]
    assert task.normalised("ESAC").tolist() == [0.7]
    assert (found.variants, found.seeds, found.absent, found.unfinished, found.short) == (["ESAC", "ES"], 2, {}, [], [])


def test_a_run_that_goes_on_has_no_score_before_the_time_and_one_that_is_done_stands_as_it_ended():
    found = scored([
        run("ES", 0, [(3, 5.0)], done=False),
        run("ES", 1, [(3, 7.0)]),
        run("ES", 2, [(6.5, 9.0)], done=False),  # there, but its only evaluation came too late
        run("ES", 3, [(2, 6.0), (7, 8.0)], done=False),  # there
        run("SAC", 0, [(6, 12.0)]),
    ])  # fmt: skip
    assert found.whole[0].returns["ES"].tolist() == [7, 6]
    assert found.unfinished == ["A-v0, ES, seed 0", "A-v0, ES, seed 2"]
    assert found.short == ["A-v0, ES, seed 1"]
    (task,) = scored([run("ES", 0, [(3, 20.0)], done=False), run("ES", 1, [(6, 7.0)])]).whole
    assert task.best == 20  # what any run reached


def test_a_task_without_a_run_of_every_variant_is_left_out_for_all():
    rows = finals({"ES": (4, 6), "SAC": (12, 8), "TD3": (7,)})
    rows += [*finals({"ES": (50,), "SAC": (0,)}, "B-v0"), run("TD3", 0, [(1, 9.0)], "B-v0", done=False)]
    found = scored(rows)
    assert [task.title for task in found.whole] == ["A-v0"]
    assert found.absent == {"B-v0": "no run is that far of TD3"}
    assert [len(scores) for scores in found.scores("ES")] == [2]
    two = scored(rows, left_out=["TD3"])
    assert [task.title for task in two.whole] == ["A-v0", "B-v0"]
    assert two.variants == ["ES", "SAC"]
    one = scored(rows, left_out=["TD3", "A-v0"])
    assert [task.title for task in one.whole] == ["B-v0"]
    assert one.absent == {"A-v0": "left out, as asked"}
    with pytest.raises(Unusable, match="no run is that far of TD3"):
        scored(rows, left_out=["A-v0"])
    with pytest.raises(Unusable, match="'PPO': no task or variant of these files; there are A-v0; B-v0; ES; SAC; TD3"):
        scored(rows, left_out=["PPO"])


def test_budgets_of_an_experiment_are_one_table_unless_both_have_a_run():
    one, two = finals({"ES": (7,)}), [[dataclasses.replace(row, budget="carriers") for row in finals({"SAC": (12,)})[0]]]
    (task,) = scored([by_task(chain(*one, *two))]).whole
    assert task.title == "A-v0"
    assert {label: returns.tolist() for label, returns in task.returns.items()} == {"ES": [7], "SAC": [12]}
    again = [dataclasses.replace(row, budget="carriers") for row in one[0]]
    with pytest.raises(Unusable, match="A-v0, ES, seed 0: in two experiments or budgets"):
        by_task([*one[0], *again])


def test_what_a_variant_that_is_left_out_reached_is_still_the_best():
    rows = finals({"ES": (7,), "SAC": (12,)})
    assert scored(rows, left_out=["SAC"]).whole[0].normalised("ES").tolist() == [0.5]


def test_a_task_on_which_nobody_is_ahead_of_random_actions_is_not_normalised():
    found = scored([*finals({"ES": (7,)}), *finals({"ES": (-100,)}, "B-v0")])
    assert found.absent == {"B-v0": "no run is ahead of random actions yet"}
    with pytest.raises(Unusable, match=r"C-v0: .*python tools/experiment\.py random C-v0"):
        scored(finals({"ES": (7,)}, "C-v0"))


def test_without_a_time_all_are_compared_where_all_have_come():
    rows = [run("ES", 0, [(2, 4.0), (4, 12.0)]), run("SAC", 0, [(3, 7.0)]), run("SAC", 1, [(2.5, 5.0)])]
    (task,) = scored(rows, MEASURED).whole  # 2.5 s
    assert {label: returns.tolist() for label, returns in task.returns.items()} == {"ES": [4], "SAC": [5]}
    assert task.best == 5


# ---- statistics


def test_statistics_over_tasks_of_unequal_seeds():
    tasks = [np.array([0.0, 0, 0, 8]), np.array([4.0]), np.array([1.0, 3])]
    assert aggregates.iqm(tasks) == 1.6  # of 0 0 0 1 3 4 8 one is cut on each side
    assert aggregates.median(tasks) == 2  # of 2, 4, 2
    assert aggregates.mean(tasks) == pytest.approx(8 / 3)


def test_probability_of_improvement_counts_ties_as_halves():
    ours, theirs = [np.array([1.0, 2]), np.array([5.0])], [np.array([1.0, 3]), np.array([4.0])]
    assert aggregates.improvement([*ours, *theirs]) == 0.6875  # (1/2 + 0 + 1 + 0) / 4 and 1
    assert aggregates.improvement([*theirs, *ours]) == 0.3125
    assert aggregates.improvement([*ours, *ours]) == (0.5 + 0.5) / 2
    assert aggregates.ahead([*ours, *theirs]) == 0  # 8/3 and 8/3


def test_draws_keep_the_tasks():
    tasks = [np.array([0.0, 2]), np.array([10.0, 10])]
    assert estimate(tasks, aggregates.mean) == (5.5, 5, 6)  # the first task's mean is 0, 1 or 2; never two of the second
    assert estimate(tasks, aggregates.median) == (5.5, 5, 6)
    both = [*tasks, np.array([1.0, 1]), np.array([10.0, 10])]
    assert estimate(both, aggregates.improvement) == (0.5, 0.25, 0.75)  # 0, 1/2 or 1 on the first, 1/2 on the second
    assert estimate(both, aggregates.ahead) == (0.5, -0.5, 0.5)  # of 0 2 10 10 it is 6, drawn 5, 6 or 6; theirs 5.5
    seen = []
    stratified(tasks, lambda drawn: seen.append(drawn) or aggregates.mean(drawn), draws=50)
    for first, second in seen:
        assert (first.shape, second.shape) == ((2, 50), (2, 50))
        assert (set(first.flat), set(second.flat)) == ({0.0, 2.0}, {10.0})
    value, low, high = estimate([np.array([1.0]), np.array([3.0, 5])], aggregates.mean)
    assert value == 2.5
    assert np.isnan([low, high]).all()  # one seed has no interval


def test_draws_agree_with_draws_run_by_run():
    random = np.random.default_rng(0)
    tasks = [random.standard_normal(5) + place for place in range(4)]
    drawn = [
        np.sort(np.concatenate([random.choice(task, len(task)) for task in tasks]))[5:15].mean() for _ in range(4000)
    ]  # of 20 runs the middle 10
    _, low, high = estimate(tasks, aggregates.iqm)
    np.testing.assert_allclose([low, high], np.quantile(drawn, [0.025, 0.975]), atol=0.05)


# ---- verdicts


@pytest.mark.parametrize(
    ("ours", "es", "sac", "better", "behind", "ahead"),
    [
        ((7, 7), (3, 3), (8, 8), "SAC", "no", "no"),  # a tenth behind is not more than a tenth
        ((6.9, 6.9), (8, 8), (3, 3), "ES", "yes", "no"),
        ((2, 11), (8, 8), (3, 3), "ES", "in the mean", "no"),  # 1.5 of 10
        ((9, 9), (8, 8), (3, 3), "ES", "no", "yes"),
        ((9, 9), (4, 12), (3, 3), "ES", "no", "in the mean"),
        ((9,), (8,), (3,), "ES", "no", "in the mean"),  # one seed has no interval
    ],
)
def test_a_verdict_compares_with_the_better_half(ours, es, sac, better, behind, ahead):
    found = scored(finals({"ESAC": ours, "ES": es, "SAC": sac, "TD3": (12, 12)}))
    (verdict,) = aims.verdicts(found, "ESAC")
    assert (verdict.better, verdict.behind, verdict.ahead) == (better, behind, ahead)
    assert verdict.gap == pytest.approx((np.mean(ours) - max(np.mean(es), np.mean(sac))) / 10)


def test_verdicts_need_both_halves_and_count_the_tasks_of_the_aggregate():
    rows = finals({"ESAC": (9, 9), "ES": (8, 8), "SAC": (12, 12)})
    assert aims.verdicts(scored(rows, left_out=["SAC"]), "ESAC") == []
    rows += finals({"ESAC": (100, 100), "ES": (0, 0), "SAC": (0, 0)}, "B-v0")
    both, one = scored(rows), scored(rows, left_out=["B-v0"])
    assert aims.counted(aims.verdicts(both, "ESAC"), "ESAC") == (
        "Of 2 tasks of the aggregate, ESAC is behind its better half by more than a tenth of the range on 1 (1 with the whole"
        " interval), and ahead of both on 1 (1 with the whole interval)."
    )
    assert len(aims.verdicts(one, "ESAC")) == 2
    assert aims.counted(aims.verdicts(one, "ESAC"), "ESAC").endswith("ahead of both on 0 (0 with the whole interval).")


# ---- the page and the picture


ROWS = [
    *finals({"ESAC": (12, 12), "ES": (7, 7), "SAC": (4, 4)}),
    *finals({"ESAC": (-50, -50), "ES": (100, 100), "SAC": (-100,)}, "B-v0"),
]


def test_the_page():
    text = aggregate_page.document(scored(ROWS), "esac", Wall(None, 6.0)).splitlines()
    assert text[0].startswith("Normalised returns at 6 s of wall time, as measured. ")
    assert text[2] == "Tasks: 2; runs of a variant on a task: 1 to 2."
    assert "Mean score over seeds, in round brackets the mean return; n: seeds where there are fewer than 2." in text
    tables = [line for line in text if line.startswith("| ") and "---" not in line]
    assert tables == [
        "| variant | runs | IQM | median of the tasks' means | mean |",
        "| ESAC | 4 | 0.62 [0.62, 0.62] | 0.62 [0.62, 0.62] | 0.62 [0.62, 0.62] |",
        "| ES | 4 | **0.75** [0.75, 0.75] | **0.75** [0.75, 0.75] | **0.75** [0.75, 0.75] |",
        "| SAC | 3 | 0.13 | 0.10 | 0.10 |",  # of three runs nothing is cut
        "| other | P(ESAC > other) | difference of the IQMs | their intervals are apart |",
        "| ES | 0.50 [0.50, 0.50] | -0.12 [-0.12, -0.12] | behind |",
        "| SAC | 1.00 | +0.49 | - |",
        "| task | random | best | ESAC | ES | SAC |",
        "| A-v0 | 2.00 | 12.00 | **1.00** (12.00) | 0.50 (7.00) | 0.20 (4.00) |",
        "| B-v0 | -100.0 | 100.0 | 0.25 (-50.00) | **1.00** (100.0) | 0.00 (-100.0, n=1) |",
        "| task | better half | ESAC to it | behind by more than 0.1 | ahead of both |",
        "| A-v0 | ES | +0.50 [+0.50, +0.50] | no | yes |",
        "| B-v0 | ES | -0.75 [-0.75, -0.75] | yes | no |",
    ]


def test_the_page_says_what_is_missing():
    rows = [*ROWS, run("TD3", 0, [(3, 5.0)]), run("TD3", 1, [(3, 5.0)], done=False)]
    text = aggregate_page.document(scored(rows), "TD3", Wall(None, 6.0))
    assert "Not in the aggregate: B-v0 (no run is that far of TD3)." in text
    assert "Runs without a score yet: 1." in text
    assert "Runs that had ended before, and stand as they ended: 1." in text
    assert "| B-v0 (not in the aggregate) | -100.0 | 100.0 | 0.25 (-50.00) | **1.00** (100.0) | 0.00 (-100.0, n=1) | - |" in text


def test_without_the_variant_that_is_asked_for_none_is_compared(capsys):
    text = aggregate_page.document(scored(ROWS), "PPO", SIX)
    assert [line for line in text.splitlines() if line.startswith("#")] == ["### All tasks together", "### Task by task"]
    assert (
        "--of 'PPO': no such variant, so that none is compared with the others; there are ESAC; ES; SAC"
        in capsys.readouterr().err
    )


def test_the_picture_has_the_best_on_top_and_a_panel_a_task():
    drawing = aggregate_picture.figure(scored([*ROWS, *finals({"SAC": (-900,)}, "B-v0", start=1)]), "ESAC", SIX)
    whole, *tasks = drawing.axes
    assert [text.get_text() for text in whole.get_yticklabels()] == ["ES", "ESAC", "SAC"]
    assert [text.get_fontweight() for text in whole.get_yticklabels()] == ["normal", "bold", "normal"]
    assert [line.get_xdata()[0] for line in whole.lines] == pytest.approx([0.75, 0.625, 0.1])  # SAC: 0.2 0.2 of 0 and -4 cut
    assert [panel.get_title() for panel in tasks] == ["A-v0", "B-v0"]
    dots = [line.get_xdata().tolist() for line in tasks[1].lines if line.get_marker() == "o"]
    assert dots == [[1, 1], [0.25, 0.25], [0]]
    assert [len(line.get_xdata()) for line in tasks[1].lines if line.get_marker() == "<"] == [0, 0, 1]  # -4
    assert "6 s of wall time, as measured" in drawing.get_suptitle().replace("\n", " ")
    assert drawing.get_suptitle().endswith("arrows: below -0.25")
    plt.close(drawing)


def test_the_command_compares_at_computed_time_and_marks_it(tmp_path, capsys):
    """SAC stands there after 4 s on any ranks, ES after 8 s on one, 2 on four: it is scored on four alone."""
    book = tmp_path / "random.toml"
    book.write_text('"A-v0" = { mean = 2 }\n')
    rows = [*run("SAC", 0, [(6, 12.0)], clock="own 4;inf 0"), *run("ES", 0, [(6, 7.0)], clock="own 8 4 2")]
    path = stored(tmp_path / "r.csv", rows)
    line = ["aggregate", path, "--seconds", "5", "--of", "ES", "--random", str(book)]
    assert results.main([*line, "--ranks", "1"]) == 2
    assert "nothing to aggregate yet: A-v0: no run is that far of ES" in capsys.readouterr().err
    assert results.main([*line, "--ranks", "4"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("Normalised returns at 5 s of wall time, computed for 4 ranks. ")
    assert "| ES | 1 | 0.50 | 0.50 | 0.50 |" in told.out
    assert "as they ended, they are compared" in told.err
    text, picture = tmp_path / "new" / "a.md", tmp_path / "new" / "a.png"
    assert results.main([*line, "--ranks", "4", "--out", str(text)]) == 0
    assert text.read_text() == told.out
    assert results.main([*line, "--ranks", "4", "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"{text}\n{picture}\n"
    book.write_text('"A-v0" = { average = 2 }\n')
    assert results.main([*line, "--ranks", "4"]) == 65
    assert results.main([*line, "--ranks", "4", "--random", str(tmp_path / "none.toml")]) == 2
    assert "python tools/experiment.py random TASK" in capsys.readouterr().err


# ---- random actions


class Box:
    """An episode of three steps; the reward is the action in [0, 2], and the start state's number for the first."""

    id, observation_size, action_size, horizon, unstable = "Box-v0", 1, 1, 3, False
    low, high = np.zeros(1, np.float32), np.full(1, 2, np.float32)

    def __init__(self):
        self.starts, self.actions = [], []

    def reset(self, seed):
        self.starts.append(seed)
        self.left = 3
        return np.zeros(1, np.float32)

    def step(self, action):
        self.actions.append(float(action[0]))
        self.left -= 1
        return np.zeros(1, np.float32), self.actions[-1], False, self.left == 0


def test_random_actions_are_uniform_within_the_bounds_and_the_same_every_time():
    one, two = Box(), Box()
    found = random_actions.returns(one, 400)
    assert found.tolist() == random_actions.returns(two, 400).tolist()
    assert found == pytest.approx(np.reshape(one.actions, (400, 3)).sum(axis=1))
    assert len(set(one.starts)) == len(one.starts) == 400
    share, _ = np.histogram(one.actions, 4, (0, 2))
    assert min(share) > 300 - 4 * 15  # of 1,200; a standard deviation is 15
    assert sum(share) == 1200


def test_a_file_of_random_returns_keeps_what_it_has_of_other_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr(random_actions.envs, "make", lambda id: Box())
    path = tmp_path / "random.toml"
    path.write_text('"Z-v0" = { mean = 1.5 }\n')
    assert random_actions.write(["Box-v0"], path, episodes=4) == path
    found = random_returns(path)
    returns = random_actions.returns(Box(), 4)
    assert found["Z-v0"] == {"mean": 1.5}
    assert found["Box-v0"] == pytest.approx(
        {"mean": returns.mean(), "error": returns.std(ddof=1) / 2, "worst": returns.min(), "best": returns.max()}, rel=1e-5
    )


def test_an_unknown_task_is_one_sentence(tmp_path, capsys):
    assert command("experiment").main(["random", "Hoper-v5"]) == 2
    assert "Hopper-v5" in capsys.readouterr().err


def test_the_tasks_of_shipped_aggregates_have_a_random_return():
    known = random_returns(random_actions.FILE)
    assert known["dm_control/cheetah-run-v0"]["mean"] < 20 < known["InvertedDoublePendulum-v5"]["mean"]
    for found in map(design.experiment, design.names()):
        budgets = found.budgets if any("aggregate" in product.arguments for product in found.products) else ()
        assert {run.config.task.id for budget in budgets for run in design.runs(found, budget, design.ROOT)} <= set(known)
