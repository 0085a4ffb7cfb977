"""esac-mpi plot, and tables of scaling: what is drawn of runs."""

import re
from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest
from clocked_runs import erl_run_of
from figure_runs import lines, make, opened, trained
from matplotlib.text import Text
from run_files import leave, young

from esac_mpi.analysis import (
    figures,
    grids,
    groups,
    plots,
    scaling,
    sensitivity,
    timeline,
    times,
)
from esac_mpi.analysis.colours import COLOURS, SHADES, shade
from esac_mpi.analysis.messages import Unusable
from esac_mpi.commands import plot
from esac_mpi.commands.__main__ import command_line

pytestmark = pytest.mark.slow


def test_sensitivity_averages_the_seeds_of_a_value(tmp_path, call):
    paths = []
    for sigma, value in ((0.5, 10), (0.01, 40), (0.1, 100)):
        for seed in range(2):
            place = tmp_path / f"{sigma}-{seed}"
            paths.append(make(place, (value + 10 * seed,), seed=seed, **{"es.sigma": sigma}))
    found = sensitivity.measure_sweep(opened(*paths), "sigma")
    found = {value: sorted(returns) for value, returns in found["A-v0"]["ES"].items()}
    assert found == {0.01: [40, 50], 0.1: [100, 110], 0.5: [10, 20]}
    line = [*paths, "--what", "sensitivity", "--field", "es.sigma"]
    call("plot", *line, "--seeds", "--out", tmp_path / "s.png")
    for policy, said in (("better", "Return of the best policy"), ("theta_es", "which flatters")):
        words = [*map(str, line), "--measure", "best", "--policy", policy]
        drawn = plot.plot_runs(command_line("plot").parse_args(words))
        assert said in drawn.get_suptitle().replace("\n", " ")
        figures.plt.close(drawn)


KWARGS = [{"task.kwargs": kwargs} for kwargs in ({"a": 1.0}, {"b": 2}, {"a": 2.0}, {})]


@pytest.mark.parametrize(
    ("settings", "field", "said"),
    [
        ([{}, {"es.sigma": 0.5}], "es.lr_es", "is 0.01 in every run"),
        ([{}, {"es.sigma": 0.5}], "sigme", "did you mean"),
        ([{}, {"es.sigma": 0.5}], "budget.generations", "no setting"),
        (KWARGS, "task.kwargs.a", "no setting"),
    ],
)
def test_sensitivity_needs_a_field_that_every_run_has_and_varies(
    tmp_path, call, settings, field, said
):
    runs = [make(tmp_path / str(n), seed=n, **more) for n, more in enumerate(settings)]
    assert said in call("plot --what sensitivity --field", field, *runs, code=2).err


def test_updates_of_members_have_a_panel_of_their_own(tmp_path):
    """As has each loss of a shared critic."""
    row = {"gradient_updates": 100, "member_updates": 500, "critic_loss": 3.0, "mean_q": 5.0}
    rows = [{name: g * value for name, value in row.items()} for g in (1, 2)]
    found = trained(tmp_path / "a", "cem_rl", rows)
    drawn = {
        axes.get_ylabel(): axes.lines[0].get_ydata().tolist()
        for what in ("updates", "losses")
        for axes in plots.figure([found], what).axes
        if axes.lines
    }
    losses = {"critic loss": [3, 6], "mean Q": [5, 10]}
    updates = {"gradient updates": [100, 200], "gradient updates of members": [500, 1000]}
    assert drawn == updates | losses


def test_scaling_of_generations(tmp_path, call):
    one, two = make(tmp_path / "one", ranks=1), make(tmp_path / "two", ranks=2, scale=0.6)
    line = [one, two, make(tmp_path / "four", ranks=4, scale=0.5, n=8), "--what", "scaling"]
    call("plot", *line, "--out", tmp_path / "s.png")
    told = call("table --format text", *line).out.splitlines()
    assert [row.split() for row in told[1:]] == [
        ["ES", "8", "4", "0.875", "0.1094", "1", "measured"],
        # 2 s without the evaluation's 0.25 s; 0.6 of it on two
        ["ES", "4", "1", "1.75", "0.4375", "1", "measured"],
        ["ES", "4", "2", "1.05", "0.2625", "0.8333", "measured"],
    ]


@pytest.mark.parametrize(
    ("tasks", "words", "said"),
    [
        ("A", "scaling --last 0", "--last: 0: must be at least 1"),
        ("AB", "scaling", "mixed tasks: A-v0, B-v0"),
        ("AB", "timeline", ""),
        ("A", "timeline --ranks 64", "timeline does not read --ranks"),
        ("A", "timeline --label x", "does not read --label"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, call, tasks, words, said):
    paths = [make(tmp_path / task, task=f"{task}-v0") for task in tasks]
    assert said in call("plot", *paths, "--what", *words.split(), code=2).err


def bars(run, row):
    found = timeline.segments(run, row)
    return {(bar.lane, bar.activity): (bar.start, bar.length) for bar in found}


def test_timeline_has_offspring_beside_the_learner(tmp_path):
    three = erl_run_of(tmp_path / "three", 2, 3, 1.9, 2.0, 1.0, 0.2, (2.0, 4.0, 3.0))
    found = {name: seconds[1] for name, seconds in times.activities(three).items() if seconds[1]}
    expected = {"members": 4, "offspring": 4, "learner": 3, "update": 0.6, "writing": 0.1}
    assert found == pytest.approx({**expected, "idle": 3 * 5.6 - 11.7})
    drawn = bars(three, 0)
    # after 0.1 of writing, 1.9 of episodes, 0.25 of plan
    assert drawn[0, "learner"] == pytest.approx((2.25, 3.0))
    assert drawn[0, "members"] == pytest.approx((0.1, 1.0))
    assert drawn[0, "offspring"][1] == 0.0
    # half of its 3 s: members and offspring took as long
    assert drawn[2, "members"] == pytest.approx((0.0, 1.5))
    assert drawn[2, "offspring"] == pytest.approx((2.25, 1.5))
    one = bars(erl_run_of(tmp_path / "one", 1), 0)
    assert one[0, "members"] == pytest.approx((0.1, 4.0))
    assert one[0, "offspring"] == pytest.approx((4.35, 4.0))
    assert one[0, "learner"] == pytest.approx((8.35, 3.0))


def test_who_plays_a_learners_episodes_does_not_wait(tmp_path):
    # 10 s of episodes, then 2 s of updates on rank 0
    spent = {"busy_seconds": np.array([12.0, 10.0]), "seconds_learn": 12.0}
    rows = [
        ({"generation": g, "env_steps_learner": 100 * g}, {"wall_seconds": 12.0 * g, **spent})
        for g in (1, 2)
    ]
    found = leave(tmp_path / "a", rows, {"algorithm": "td3", "td3.episodes_on": "ranks"})
    assert times.idle(found, slice(-1, None)) == pytest.approx(2 / 24)
    assert times.activities(found)["episodes"].tolist() == [10, 10]
    assert bars(found, 1)[1, "episodes"] == (12, 10)


def test_timeline_adds_up_to_all_the_time(tmp_path):
    (run,) = opened(make(tmp_path / "a", algorithm="esac"))
    found = times.activities(run)
    np.testing.assert_allclose(sum(found.values()), [4, 4, 4])  # 2 ranks, 2 s
    expected = {"members": 1.4, "learner": 0.4, "update": 0.2, "noise-free evaluation": 0.5}
    expected |= {"writing": 0.05, "idle": 1.45}
    assert {name: seconds[1] for name, seconds in found.items()} == pytest.approx(expected)
    np.testing.assert_allclose(times.idle_share(run), 1.45 / 4)
    drawn = bars(run, 1)
    # generation 2 begins at 2 s; rank 0 writes first
    assert drawn[1, "members"] == pytest.approx((2.0, 0.5))
    assert drawn[0, "members"] == pytest.approx((2.05, 0.9))
    # after 1 s of evaluation; the update follows
    assert drawn[0, "learner"] == pytest.approx((3.05, 0.4))


def test_under_a_lag_rank_0_learns_beside_the_evaluation(tmp_path):
    (run,) = opened(make(tmp_path / "a", (1, 2, 3, 4), "esac", **{"esac.learner_lag": 1}))
    # phases begin in generations 1 and 3; of the members' 1 s rank 0 is busy for 0.9
    assert times.recorded.has_phase_beside(run).tolist() == [False, True, False, True]
    assert times.activities(run)["learner"].tolist() == pytest.approx([0.4, 0.5, 0.4, 0.5])


@pytest.mark.parametrize(("what", "name"), [("return", "learning_curve"), ("timeline", "timeline")])
def test_plot_of_one_run(tmp_path, call, what, name):
    run = make(tmp_path / "läufe ü", algorithm="esac")
    assert call("plot --what", what, run).out == f"{run / name}.png\n{run / name}.pdf\n"
    assert (run / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (run / f"{name}.pdf").read_bytes().startswith(b"%PDF")


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
    ends = [line.get_ydata()[end] for line in summaries for end in (0, -1)]
    np.testing.assert_allclose(ends, drawn)


def test_there_is_a_panel_for_each_quantity_and_task(tmp_path):
    runs = (("esac", 0, "A"), ("es", 0, "A"), ("esac", 1, "B"))
    paths = [
        make(tmp_path / f"{algorithm}{seed}{task}", (1, 2), algorithm, seed, f"{task}-v0")
        for algorithm, seed, task in runs
    ]
    drawing = plots.figure(opened(*paths), "fitness", "nominal_steps")
    assert [panel.get_title() for panel in drawing.axes] == ["A-v0", "B-v0"] * 3
    assert [len(panel.lines) for panel in drawing.axes] == [2, 1] * 3


def panel(runs):
    return grids.draw(groups.grouped(runs), plots.quantities("return", "better"), "generation", "")


def named(texts):
    return [text.get_text() for text in texts]


def test_a_group_is_drawn_as_far_as_its_shortest_run(tmp_path, capsys):
    runs = opened(make(tmp_path / "a", (0, 10, 20, 30)), make(tmp_path / "b", (10, 20), seed=1))
    (axes,) = panel(runs).axes
    ((x, y),) = lines(axes).values()
    assert (x[0], x[-1], y[0], y[-1]) == (1, 2, 5, 15)
    assert named(axes.texts) == ["ES, 2 seeds"]
    assert axes.figure.get_suptitle().endswith("interval over seeds")
    assert "shortest run, 50% of its longest; short: b" in capsys.readouterr().err


def test_one_seed_has_a_line_and_no_interval(tmp_path):
    (axes,) = panel(opened(make(tmp_path / "a"), make(tmp_path / "b", algorithm="esac"))).axes
    assert not axes.collections
    assert "interval" not in axes.figure.get_suptitle()
    assert sorted(named(axes.texts)) == ["ES, seed 0", "ESAC, seed 0"]


def test_seeds_without_a_common_place_are_drawn_each(tmp_path, capsys):
    later = make(tmp_path / "b", (None, None, 20, 30), seed=1)
    drawing = panel(opened(make(tmp_path / "a", (0, 10)), later))
    assert [line.get_ydata().tolist() for line in drawing.axes[0].lines] == [[0, 10], [20, 30], []]
    assert named(drawing.legends[0].texts) == ["ES, 2 seeds (nowhere all of them)"]
    assert "is drawn as far" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(200, ["0 s", "100 s", "200 s"]), (600, ["0 min", "2 min", "10 min"]),
     (7200, ["0 h", "1 h", "2 h"])],
)  # fmt: skip
def test_times_stand_at_round_numbers_of_their_unit(seconds, shown):
    drawing, panels = figures.panels(1, 1)
    axes = panels[0, 0]
    axes.plot([0, seconds], [0, 1])
    figures.name_axis(axes, "wall")
    drawing.canvas.draw()
    unit = axes.get_xlabel().removeprefix("wall time [").removesuffix("]")
    ticks = [f"{text} {unit}" for text in named(axes.get_xticklabels())]
    assert {*shown} <= {*ticks}
    assert max(map(len, ticks)) < 9


@pytest.mark.parametrize(("x", "end", "last"), [("generation", 9000, "8000"),
    ("training_episodes", 20_000, "20k"), ("env_steps", 9000, "8k")])  # fmt: skip
def test_long_numbers_of_an_axis_are_short(x, end, last):
    drawing, panels = figures.panels(1, 1)
    panels[0, 0].plot([0, end], [0, 1])
    figures.name_axis(panels[0, 0], x)
    drawing.canvas.draw()
    assert last in named(panels[0, 0].get_xticklabels())


def test_counts_have_no_fractions(tmp_path):
    runs = [trained(tmp_path / "a", "sac", [{"gradient_updates": n} for n in (0, 0)])]
    for x in ("generation", "env_steps"):
        drawing = plots.figure(runs, "updates", x)
        drawing.canvas.draw()
        (axes,) = drawing.axes
        shown = named([*axes.get_xticklabels(), *axes.get_yticklabels()])
        assert {"0", "1" if x == "generation" else "100"} <= {*shown}
        assert not [text for text in shown if not text.lstrip("\N{MINUS SIGN}").isdigit()]


def test_few_lines_are_named_at_their_ends_and_many_in_a_legend(tmp_path):
    runs = opened(*(make(tmp_path / f"{s}", (0, s), **{"es.sigma": s / 100}) for s in range(1, 8)))
    many, few = panel(runs), panel(runs[:6])
    assert (len(many.legends), len(many.axes[0].texts)) == (1, 0)
    few.canvas.draw()
    assert not few.legends
    texts = few.axes[0].texts
    assert named(texts) == [f"ES sigma=0.0{s}, seed 0" for s in range(1, 7)]
    boxes = [text.get_window_extent() for text in texts]
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert all(box.x1 <= few.bbox.x1 and few.axes[0].bbox.x1 < box.x0 for box in boxes)


@pytest.mark.parametrize(
    ("places", "found"),
    [([0, 0.5], [0, 0.5]), ([0.2, 0.2], [0.2, 0.3]), ([0.9, 1, 1], [0.8, 0.9, 1])],
)
def test_names_are_a_step_apart_and_none_is_above_the_panel(places, found):
    np.testing.assert_allclose(figures.spread_out(places, 0.1), found)


@pytest.mark.parametrize("what", ["return", "timeline", "scaling"])
def test_a_figure_has_the_size_and_letters_that_are_asked_for(tmp_path, call, what):
    out = tmp_path / "a.png"
    words = [make(tmp_path / "a"), "--what", what, "--out", out]
    assert call("plot --size 3.3 2.4 --font 8", *words).out == f"{out}\n"
    height, width, _ = matplotlib.image.imread(out).shape
    assert (width, height) == (495, 360)  # 150 dots an inch
    assert matplotlib.rcParams["font.size"] == 10
    assert not (tmp_path / "a.pdf").exists()  # one suffix writes one file


@pytest.mark.parametrize("words", ["--size 0 2", "--size 0.05 2", "--size 800 600", "--font nan"])
def test_a_size_that_no_figure_can_have_is_refused(call, words):
    call(f"plot a {words}", code=2)


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
    texts = named(legend.texts)
    assert len(texts) == 4
    assert max(len(line) for text in texts for line in text.splitlines()) < 60
    assert drawing.axes[0].get_window_extent().height > 150  # the legend takes nothing of the panel


def test_groups_are_named_by_hand(tmp_path, call):
    runs, names = opened(*unlike(tmp_path)), ["all of it", "former", "one more", "as it was"]
    drawn = plots.figure(runs, "return", labels=names).axes[0].lines
    assert [line.get_label().partition(", seed")[0] for line in drawn] == names  # ESAC first
    assert drawn[0].get_color() == COLOURS["esac"]
    shades = {shade(COLOURS["es"], by) for by in SHADES}
    assert drawn[1].get_color() in {COLOURS["es"], *shades}
    for unfit in (names[:2], [*names[:3], "former"], [*names[:3], ""], [*names[:3], "_x"]):
        with pytest.raises(Unusable, match="4 groups in this order: ESAC; ES"):
            plots.figure(runs, "updates", labels=unfit)
    call("plot", runs[0].path, "--label", r"alone $\x$", "--out", tmp_path / "x.png")


def test_the_policies_of_a_run_have_the_colours_of_es_and_sac(tmp_path):
    alone = plots.figure(opened(make(tmp_path / "a", algorithm="esac")), "return")
    drawn = {line.get_label().partition(":")[0]: line.get_color() for line in alone.axes[0].lines}
    assert drawn[r"$\theta_{ES}$"] == COLOURS["es"]
    assert drawn["SAC's mean policy"] == COLOURS["sac"]


@pytest.mark.parametrize("count", [1, 2])
def test_what_has_a_single_place_is_seen(tmp_path, count):
    runs = opened(*(make(tmp_path / str(seed), (seed,), seed=seed) for seed in range(count)))
    axes = plots.figure(runs, "return").axes[0]
    assert {line.get_marker() for line in axes.lines} <= {".", "o"}
    assert all(band.get_linewidth() > 0 for band in axes.collections)
    apart = opened(make(tmp_path / "a", (1,)), make(tmp_path / "b", (None, 1), seed=1))
    assert [line.get_marker() for line in panel(apart).axes[0].lines[:2]] == [".", "."]


def test_policies_of_one_algorithm_have_lines_of_their_own(tmp_path):
    found = {f"evaluation_{name}": np.array([1.0, 3.0]) for name in ("champion", "learner")}
    axes = plots.figure([trained(tmp_path / "a", "erl", [found] * 2)], "return").axes[0]
    assert len({line.get_linestyle() for line in axes.lines}) == 2


def test_an_evaluation_with_an_unstable_episode_hides_no_name(tmp_path):
    rows = [{"evaluation_sac": np.array([low, 3.0])} for low in (1.0, np.nan)]
    axes = plots.figure([trained(tmp_path / "a", "sac", rows)], "return").axes[0]
    assert axes.lines[0].get_ydata().tolist() == [2]
    assert np.isfinite(axes.texts[0].get_position()[1])


def test_no_panel_is_empty(tmp_path, call):
    """Of a task that nothing is known of, or in a figure of nothing at all."""
    runs = [make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b", task="B-v0")]
    drawing = plots.figure(opened(*runs), "losses")
    assert {panel.get_title() for panel in drawing.axes} == {"A-v0"}
    rows = {"C-v0": {"ppo_entropy": 1.0}, "D-v0": {"ppo_critic_loss": 1.0}}
    for task, row in rows.items():
        runs.append(trained(tmp_path / task, "ppo", [row] * 2, **{"task.id": task}).path)
    drawn = [panel for panel in plots.figure(opened(*runs), "losses").axes if panel.axison]
    assert len(drawn) == 6
    assert all(panel.lines for panel in drawn)
    nothing = make(tmp_path / "none", (None, None))
    assert "nothing to draw yet" in call("plot", nothing, code=2).err


def test_names_are_drawn_as_they_are_and_within_the_figure(tmp_path):
    task, text = "m:Pay$2$_for_$a$_very_long_way_of_a_robot_with_many_words-v12", r"$\q$"
    kwargs = [{"task.kwargs": {"scene": text * n}} for n in (1, 2)]
    paths = [make(tmp_path / str(n), task=task, seed=n, **more) for n, more in enumerate(kwargs)]
    runs = opened(*paths)
    swept = sensitivity.measure_sweep(runs, "task.kwargs.scene")
    drawings = [
        plots.figure(runs[:1], "return"), plots.figure(runs, "return"), timeline.draw(runs[0]),
        sensitivity.draw_lines(swept, "scene", "return", ""),
        scaling.draw_scaling(times.scaling(runs, 1), task, {}),
    ]  # fmt: skip
    for drawing in drawings:
        drawing.canvas.draw()
        every = drawing.findobj(Text)
        seen = [text for text in every if re.search(r"Pay|\\q", text.get_text())]
        assert seen
        for text in seen:
            assert text.get_text().count("$") == text.get_text().count(r"\$")
            box = text.get_window_extent()
            assert 0 <= box.x0 < box.x1 <= drawing.bbox.x1


def test_a_young_run_is_left_out_of_a_figure(tmp_path, call):
    unseen = make(tmp_path / "unseen", (None, None), seed=1)
    paths = [make(tmp_path / "a"), unseen, young(tmp_path / "young")]
    told = call("plot", *paths, "--out", tmp_path / "x.svg").err
    assert "no generation is published yet in young" in told
    assert "nothing of this to draw (yet) of unseen" in told
