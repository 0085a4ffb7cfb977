"""esac-mpi plot, and tables of scaling: what is drawn of runs."""

from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest
from clocked_runs import erl_run_of
from commands import command
from figure_runs import check_pictures, make, opened, trained

from esac_mpi.analysis import curves, figures, grids, groups, plots, sensitivity, timeline, times
from esac_mpi.analysis.colours import COLOURS, SHADES, shade
from esac_mpi.config import Config, updated
from esac_mpi.record import Run

pytestmark = pytest.mark.slow

plot, table = map(command, ("plot", "table"))
SENSITIVITY = ("--what", "sensitivity", "--field")


# ---- sensitivity, updates, scaling


def test_sensitivity_averages_the_seeds_of_a_value(tmp_path, capsys):
    paths = []
    for sigma, value in ((0.5, 10), (0.01, 40), (0.1, 100)):
        for seed in range(2):
            place = tmp_path / f"{sigma}-{seed}"
            paths.append(make(place, (value + 10 * seed,), seed=seed, **{"es.sigma": sigma}))
    found = sensitivity.of_runs(opened(*paths), "sigma")
    assert {value: sorted(m) for value, m in found["A-v0"]["ES"].items()} == {
        0.01: [40, 50],
        0.1: [100, 110],
        0.5: [10, 20],
    }
    out = tmp_path / "s"
    line = [*map(str, paths), *SENSITIVITY, "es.sigma"]
    assert plot.main([*line, "--seeds", "--out", str(out)]) == 0
    check_pictures(capsys, out)
    assert table.main([*line, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "task,run,es.sigma,mean,std,seeds",
        f"A-v0,ES,0.01,45.0,{np.sqrt(50)},2",
    ]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("es.lr_es", "is 0.01 in every run: a sweep needs two values"),
        ("sigme", "did you mean"),
        ("budget.generations", "no setting"),
    ],
)
def test_sensitivity_needs_a_field_that_varies(tmp_path, capsys, field, said):
    paths = [make(tmp_path / "a"), make(tmp_path / "b", **{"es.sigma": 0.5})]
    assert plot.main([*map(str, paths), *SENSITIVITY, field]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("task.kwargs.a", "no setting of es that results depend on"),
        ("task.kwargs.c", "no setting of es that results depend on"),
    ],
)
def test_sensitivity_names_the_runs_that_have_not_set_an_argument_of_their_task(
    tmp_path, capsys, field, said
):
    given = {"a": {"a": 1.0}, "b": {"b": 2}, "c": {"a": 2.0}, "d": {}}
    paths = [make(tmp_path / name, **{"task.kwargs": kwargs}) for name, kwargs in given.items()]
    assert plot.main([*map(str, paths), *SENSITIVITY, field]) == 2
    assert said in capsys.readouterr().err
    found = sensitivity.of_runs(opened(paths[0], paths[2]), "task.kwargs.a")
    assert list(found["A-v0"]["ES"]) == [1.0, 2.0]


def test_updates_counts_them(tmp_path, capsys):
    paths = [make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", algorithm="esac", seed=1)]
    options = ["--what", "updates", "--x", "nominal_steps", "--out", str(tmp_path / "u")]
    assert plot.main([*map(str, paths), *options]) == 0
    check_pictures(capsys, tmp_path / "u")
    assert curves.column(opened(paths[0])[0], "metrics/gradient_updates").tolist() == [10, 20, 30]


def test_updates_of_members_have_a_panel_of_their_own(tmp_path):
    run = trained(
        tmp_path / "a",
        "cem_rl",
        [{"gradient_updates": 100 * g, "member_updates": 500 * g} for g in (1, 2)],
    )
    drawing = plots.figure([run], "updates")
    drawn = {
        axes.get_ylabel(): axes.lines[0].get_ydata().tolist() for axes in drawing.axes if axes.lines
    }
    assert drawn == {"gradient updates": [100, 200], "gradient updates of members": [500, 1000]}


def test_scaling_of_generations(tmp_path, capsys):
    one, two = make(tmp_path / "one", ranks=1), make(tmp_path / "two", ranks=2, scale=0.6)
    four = make(tmp_path / "four", ranks=4, scale=0.5, n=8)
    found = times.times_of(opened(one, two, four), last=10)
    assert list(found) == [("ES", 8), ("ES", 4)]
    assert times.per_generation(found["ES", 4][1]) == pytest.approx(
        [1.75]
    )  # 2 s without the evaluation's 0.25 s
    assert times.per_episode(found["ES", 8][4]) == pytest.approx([0.5 * 1.75 / 8])
    assert times.efficiency(found["ES", 4]) == pytest.approx(
        {1: 1.0, 2: 1 / 1.2}
    )  # 2 * 0.6 of the work of one
    line = [str(one), str(two), str(four), "--what", "scaling"]
    assert plot.main([*line, "--out", str(tmp_path / "s")]) == 0
    check_pictures(capsys, tmp_path / "s")
    assert table.main([*line, "--format", "text"]) == 0
    assert [row.split() for row in capsys.readouterr().out.splitlines()[-2:]] == [
        ["ES", "4", "1", "1.75", "0.4375", "1", "measured"],
        ["ES", "4", "2", "1.05", "0.2625", "0.8333", "measured"],
    ]


def test_scaling_averages_one_generation_or_more(tmp_path, capsys):
    assert plot.main([str(make(tmp_path / "a")), "--what", "scaling", "--last", "0"]) == 2
    assert "must be 1 or more" in capsys.readouterr().err


def test_scaling_draws_one_task_at_a_time(tmp_path, capsys):
    paths = [str(make(tmp_path / "a")), str(make(tmp_path / "b", task="B-v0"))]
    assert plot.main([*paths, "--what", "scaling"]) == 2
    assert capsys.readouterr().err.startswith("mixed tasks: A-v0, B-v0; ")


# ---- timeline


def test_timeline_has_offspring_beside_the_learner(tmp_path):
    three = erl_run_of(tmp_path / "three", 2, 3, 1.9, 2.0, 1.0, 0.2, (2.0, 4.0, 3.0))
    found = {name: seconds[1] for name, seconds in times.activities(three).items()}
    expected = {
        "members": 4,
        "offspring": 4,
        "learner": 3,
        "update": 0.6,
        "writing": 0.1,
        "idle": 3 * 5.6 - 11.7,
    }
    assert {name: seconds for name, seconds in found.items() if seconds} == pytest.approx(expected)
    bars = {
        (bar.lane, bar.activity): (bar.start, bar.length) for bar in timeline.segments(three, 0)
    }
    assert bars[0, "learner"] == pytest.approx(
        (2.25, 3.0)
    )  # after 0.1 of writing, 1.9 of episodes, 0.25 of plan
    assert bars[0, "members"] == pytest.approx((0.1, 1.0))
    assert bars[0, "offspring"][1] == 0.0
    assert bars[2, "members"] == pytest.approx(
        (0.0, 1.5)
    )  # half of its 3 s: members and offspring took as long
    assert bars[2, "offspring"] == pytest.approx((2.25, 1.5))
    one = {
        (bar.lane, bar.activity): (bar.start, bar.length)
        for bar in timeline.segments(erl_run_of(tmp_path / "one", 1), 0)
    }
    assert one[0, "members"] == pytest.approx((0.1, 4.0))
    assert one[0, "offspring"] == pytest.approx((4.35, 4.0))
    assert one[0, "learner"] == pytest.approx((8.35, 3.0))


def test_who_plays_a_learners_episodes_does_not_wait(tmp_path):
    run = Run.begin(
        tmp_path / "a",
        updated(Config(), {"algorithm": "td3", "td3.episodes_on": "ranks", "task.id": "A-v0"}),
        {},
    )
    for g in (1, 2):  # 10 s of episodes, then 2 s of updates on rank 0
        spent = {"busy_seconds": np.array([12.0, 10.0]), "seconds_learn": 12.0}
        run.append(
            {"generation": g, "env_steps_learner": 100 * g}, {"wall_seconds": 12.0 * g, **spent}
        )
    run.checkpoint(2, {"theta": np.ones(3, np.float32)}, {}, theta=np.ones(3, np.float32))
    run.close()
    (found,) = opened(tmp_path / "a")
    assert times.idle(found, slice(-1, None)) == pytest.approx(2 / 24)
    assert times.activities(found)["episodes"].tolist() == [10, 10]
    assert [bar[2:4] for bar in timeline.segments(found, 1) if bar[:2] == (1, "episodes")] == [
        (12, 10)
    ]


def test_timeline_adds_up_to_all_the_time(tmp_path):
    (run,) = opened(make(tmp_path / "a", algorithm="esac"))
    found = times.activities(run)
    np.testing.assert_allclose(sum(found.values()), [4, 4, 4])  # 2 ranks, 2 s
    alone = {name: seconds[1] for name, seconds in found.items()}
    expected = {
        "members": 1.4,
        "learner": 0.4,
        "update": 0.2,
        "noise-free evaluation": 0.5,
        "writing": 0.05,
        "idle": 1.45,
    }
    assert alone == pytest.approx(expected)
    np.testing.assert_allclose(times.idle_share(run), 1.45 / 4)
    bars = {(bar.lane, bar.activity): (bar.start, bar.length) for bar in timeline.segments(run, 1)}
    assert bars[1, "members"] == pytest.approx(
        (2.0, 0.5)
    )  # generation 2 begins at 2 s; rank 0 writes first
    assert bars[0, "members"] == pytest.approx((2.05, 0.9))
    assert bars[0, "learner"] == pytest.approx(
        (3.05, 0.4)
    )  # after 1 s of evaluation; the update follows


def test_under_a_lag_rank_0_learns_beside_the_evaluation(tmp_path):
    (run,) = opened(make(tmp_path / "a", (1, 2, 3, 4), "esac", **{"esac.learner_lag": 1}))
    assert times.running(run).tolist() == [
        False,
        True,
        False,
        True,
    ]  # phases begin in generations 1 and 3
    assert times.activities(run)["learner"].tolist() == pytest.approx(
        [0.4, 0.5, 0.4, 0.5]
    )  # 1 s less 0.9 s busy


# ---- plot


@pytest.mark.parametrize("what", ["return", "timeline"])
def test_plot_of_one_run(tmp_path, capsys, what):
    run = make(tmp_path / "läufe ü", algorithm="esac")
    assert plot.main([str(run), "--what", what]) == 0
    check_pictures(capsys, run / {"return": "learning_curve"}.get(what, what))


def test_one_run_is_drawn_as_several_are_where_that_is_asked_for(tmp_path):
    """A policy of its own, and the idle share against another axis than wall time."""
    runs = opened(make(tmp_path / "a", algorithm="esac"))
    (line,) = plots.figure(runs, "return", "generation", "sac").axes[0].lines
    assert line.get_ydata().tolist() == [5, 10, 15]
    (line,) = plots.figure(runs, "waiting", "generation").axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [0.3625] * 3)


@pytest.mark.parametrize(
    ("what", "drawn"),
    [
        ("sigma", [0.1, 0.3]),
        ("fitness", [7.5, 27.5, 9, 29, 1.25**0.5, 1.25**0.5]),
        ("losses", [1, 3] * 4),
        ("waiting", [0.3625] * 2),
    ],
)
def test_what_is_drawn_of_several_runs(tmp_path, what, drawn):
    paths = [make(tmp_path / str(seed), algorithm="esac", seed=seed) for seed in range(3)]
    drawing = plots.figure(opened(*paths), what, "generation", seeds=True)
    summaries = [axes.lines[-1] for axes in drawing.axes if axes.lines]  # after each seed's own
    assert [len(axes.lines) for axes in drawing.axes if axes.lines] == [4] * len(summaries)
    np.testing.assert_allclose(
        [line.get_ydata()[end] for line in summaries for end in (0, -1)], drawn
    )


def test_plot_of_two_tasks_and_algorithms(tmp_path, capsys):
    paths = [
        make(tmp_path / f"{algorithm}{seed}{task}", algorithm=algorithm, seed=seed, task=task)
        for algorithm, seed, task in (
            ("esac", 0, "A-v0"),
            ("esac", 1, "A-v0"),
            ("es", 0, "A-v0"),
            ("esac", 0, "B-v0"),
        )
    ]
    assert plot.main([*map(str, paths), "--out", str(tmp_path / "x.y")]) == 0
    check_pictures(capsys, tmp_path / "x.y")


def test_a_group_is_drawn_as_far_as_its_shortest_run(tmp_path, capsys):
    runs = opened(make(tmp_path / "a", (0, 10, 20, 30)), make(tmp_path / "b", (10, 20), seed=1))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    (line,) = drawing.axes[0].lines
    assert line.get_xdata()[[0, -1]].tolist() == [1, 2]
    np.testing.assert_allclose(line.get_ydata()[[0, -1]], [5, 15])
    assert [text.get_text() for text in drawing.axes[0].texts] == ["ES, 2 seeds"]
    assert "shortest run, 50% of its longest; short: b" in capsys.readouterr().err


def test_one_seed_has_a_line_and_no_interval(tmp_path):
    runs = opened(make(tmp_path / "a"), make(tmp_path / "b", algorithm="esac"))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    assert not drawing.axes[0].collections
    texts = {text.get_text() for text in drawing.axes[0].texts}
    assert texts == {"ESAC, seed 0", "ES, seed 0"}


def test_seeds_without_a_common_place_are_drawn_each(tmp_path):
    runs = opened(make(tmp_path / "a", (0, 10)), make(tmp_path / "b", (None, None, 20, 30), seed=1))
    drawing = grids.grid(groups.grouped(runs), plots.quantities("return", "better"), "generation")
    assert [line.get_ydata().tolist() for line in drawing.axes[0].lines] == [[0, 10], [20, 30], []]
    assert [text.get_text() for text in drawing.legends[0].texts] == [
        "ES, 2 seeds (nowhere all of them)"
    ]


def test_few_lines_are_named_at_their_ends_and_many_in_a_legend(tmp_path):
    runs = opened(*(make(tmp_path / f"{s}", (0, s), **{"es.sigma": s / 100}) for s in range(1, 8)))
    kind = plots.quantities("return", "better")
    many = grids.grid(groups.grouped(runs), kind, "generation")
    assert (len(many.legends), len(many.axes[0].texts)) == (1, 0)
    few = grids.grid(groups.grouped(runs[:6]), kind, "generation")
    few.canvas.draw()
    assert not few.legends
    texts = few.axes[0].texts
    assert [text.get_text() for text in texts] == [f"ES sigma=0.0{s}, seed 0" for s in range(1, 7)]
    boxes = [text.get_window_extent() for text in texts]
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert all(box.x1 <= few.bbox.x1 and few.axes[0].bbox.x1 < box.x0 for box in boxes)


@pytest.mark.parametrize(
    ("places", "found"),
    [([0, 0.5], [0, 0.5]), ([0.2, 0.2], [0.2, 0.3]), ([0.9, 1, 1], [0.8, 0.9, 1])],
)
def test_names_are_a_step_apart_and_none_is_above_the_panel(places, found):
    np.testing.assert_allclose(figures.apart(places, 0.1), found)


@pytest.mark.parametrize("what", ["return", "timeline", "scaling"])
def test_a_figure_has_the_size_and_letters_that_are_asked_for(tmp_path, what):
    words = [str(make(tmp_path / "a")), "--what", what, "--out", str(tmp_path / "a.png")]
    assert plot.main([*words, "--size", "3.3", "2.4", "--font", "8"]) == 0
    height, width, _ = matplotlib.image.imread(tmp_path / "a.png").shape
    assert (width, height) == (495, 360)  # 150 dots an inch
    assert matplotlib.rcParams["font.size"] == 10


@pytest.mark.parametrize("words", ["--size 0 2", "--size 0.05 2", "--size 800 600", "--font nan"])
def test_a_size_that_no_figure_can_have_is_refused(capsys, words):
    with pytest.raises(SystemExit) as end:
        plot.main(["a", *words.split()])
    assert end.value.code == 2
    assert f": must be from 1 to 100 {'inches' if 'size' in words else 'points'}" in (
        capsys.readouterr().err
    )


def unlike(tmp_path):
    """Leave three runs behind whose settings differ in many fields, one a text of 90 letters."""
    many = {"es.lr_es": 0.1, "es.weight_decay": 0.1, "es.fitness_episodes": 2, "es.sigma": 0.1}
    text = {"task.kwargs": {"scene": "a long name " * 8}}
    return [
        make(tmp_path / "a"),
        make(tmp_path / "b", **many, **text),
        make(tmp_path / "c", **many),
        make(tmp_path / "d", algorithm="esac"),
    ]


def test_a_legend_of_runs_that_differ_in_many_fields_is_whole(tmp_path):
    drawing = plots.figure(opened(*unlike(tmp_path)), "return")
    drawing.canvas.draw()
    (legend,), size = drawing.legends, drawing.bbox
    box = legend.get_window_extent()
    assert size.x0 <= box.x0 < box.x1 <= size.x1
    assert size.y0 <= box.y0 < box.y1 <= size.y1
    texts = [text.get_text() for text in legend.texts]
    assert len(texts) == 4
    assert max(len(line) for text in texts for line in text.splitlines()) < 60
    assert drawing.axes[0].get_window_extent().height > 150  # the legend takes nothing of the panel


def test_groups_are_named_by_hand(tmp_path, capsys):
    paths = list(map(str, unlike(tmp_path)))
    names = ["all of it", "former", "one more", "as it was"]
    words = [word for name in names for word in ("--label", name)]
    drawing = plots.figure(opened(*paths), "return", labels=names)
    found = [line.get_label().partition(", seed")[0] for line in drawing.axes[0].lines]
    assert found == names  # ESAC first
    assert drawing.axes[0].lines[0].get_color() == COLOURS["esac"]
    assert drawing.axes[0].lines[1].get_color() in {
        COLOURS["es"],
        *(shade(COLOURS["es"], by) for by in SHADES),
    }
    for what in ("return", "updates"):
        line = [*paths, "--what", what]
        assert plot.main([*line, *words, "--out", str(tmp_path / "x.png")]) == 0
        assert plot.main([*line, *words[:4]]) == 2
        said = capsys.readouterr().err
        assert "--label all of it --label former: give one each" in said
        assert "4 groups in this order: ESAC; ES" in said
        for unfit in ("former", "", "_x"):
            assert plot.main([*line, *words[:6], "--label", unfit]) == 2
    assert plot.main([paths[0], "--what", "timeline", "--label", "x"]) == 2
    assert "does not read --label" in capsys.readouterr().err
    assert plot.main([paths[0], "--label", r"alone $\x$", "--out", str(tmp_path / "x.png")]) == 0


def test_the_policies_of_a_run_have_the_colours_of_es_and_sac(tmp_path):
    alone = plots.figure(opened(make(tmp_path / "a", algorithm="esac")), "return")
    drawn = {line.get_label().partition(":")[0]: line.get_color() for line in alone.axes[0].lines}
    assert drawn[r"$\theta_{ES}$"] == COLOURS["es"]
    assert drawn["SAC's mean policy"] == COLOURS["sac"]


def test_the_losses_of_a_shared_critic_are_drawn(tmp_path):
    found = trained(
        tmp_path / "a", "cem_rl", [{"critic_loss": 3.0 * g, "mean_q": 5.0 * g} for g in (1, 2)]
    )
    drawn = {
        name: quantity(found, "env_steps").y.tolist()
        for name, quantity in plots.quantities("losses").items()
    }
    assert {name: values for name, values in drawn.items() if values} == {
        "critic loss": [3, 6],
        "mean Q": [5, 10],
    }


def test_a_timeline_is_of_one_run_and_has_no_other_ranks(tmp_path, capsys):
    paths = [str(make(tmp_path / "a")), str(make(tmp_path / "b", seed=1))]
    assert plot.main([*paths, "--what", "timeline"]) == 2
    assert plot.main([paths[0], "--what", "timeline", "--ranks", "64"]) == 2
    assert "--what timeline does not read --ranks: leave it out" in capsys.readouterr().err


def test_one_suffix_writes_one_file(tmp_path, capsys):
    assert plot.main([str(make(tmp_path / "a")), "--out", str(tmp_path / "x.pdf")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'x.pdf'}\n"
    assert not (tmp_path / "x.png").exists()


def test_a_young_run_is_left_out_of_a_figure(tmp_path, capsys):
    Run.begin(tmp_path / "young", Config(), {}).close()
    make(tmp_path / "unseen", (None, None), seed=1)
    paths = [make(tmp_path / "a"), tmp_path / "unseen", tmp_path / "young"]
    assert plot.main([*map(str, paths), "--out", str(tmp_path / "x")]) == 0
    told = capsys.readouterr().err
    assert "no generation is published yet in young" in told
    assert "nothing of this to draw (yet) of unseen" in told
