"""tools/operators.py: what crossover and mutation do to a run's policies, and where these go."""

import csv

import numpy as np
import pytest
from figure_runs import make
from small_runs import arguments

from esac_mpi.config import ERL
from esac_mpi.operators import genetics
from esac_mpi.operators.noise import Purpose, generator
from tools import operators
from tools.operators import CELLS, Grid, Played, density, difference, divergence, load_newest


def test_the_divergence_of_two_kernels_is_that_of_two_normals():
    # of cells that are a sixteenth wide
    cells = Grid(np.array([np.linspace(-4, 4, 129)] * 2), np.array([0.5, 1.0]))
    here, there = (density(np.array([[x, 0.5]]), cells) for x in (0.0, 1.0))
    assert here.sum() == pytest.approx(1)
    # (a - b)^2 / (2 h^2), of a - b = 1 and h = 0.5
    assert divergence(here, there) == pytest.approx(2, rel=0.01)
    assert divergence(here, here) == 0
    assert np.unravel_index(there.argmax(), there.shape) == (80, 72)


def test_divergence_and_difference_of_two_cells():
    p, q = np.array([[0.75, 0.25]]), np.array([[0.5, 0.5]])
    assert divergence(p, q) == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5), rel=1e-5)
    assert (difference(p, q), difference(np.eye(2)[:1], np.eye(2)[1:])) == (0.25, 1)
    assert np.isfinite(divergence(np.eye(2)[:1], np.eye(2)[1:]))  # an empty cell has a little


def test_bandwidths_are_scotts_and_outliers_count_at_the_edge():
    first = np.tile([[0.0, 0.0], [1.0, 4.0]], (32, 1))  # 64 states: 64 ** (-1 / 6) is a half
    cells = operators.grid([first, np.array([[9.0, 0.0]] * 5)])
    np.testing.assert_allclose(cells.bandwidth, [0.25, 1.0])
    np.testing.assert_allclose(cells.edges[:, [0, -1]], [[-0.75, 9.75], [-3, 7]])
    outlying = density(np.array([[1e6, 0.5]]), cells)
    assert outlying.sum() == pytest.approx(1)
    assert outlying.sum(axis=1).argmax() == CELLS - 1


def test_a_row_compares_with_the_parents():
    here = np.tile([[0.0, 0.0], [1.0, 1.0]], (32, 1))
    there = here + np.array([50.0, 0.0])
    both = np.concatenate([here, there])
    given = {
        "parent 1": ([100, 300], here),
        "parent 2": ([50, 50], there),
        "like one": ([-100, 20], here),
        "like both": ([7, np.nan], both),
    }
    group = [Played(0, n, (0, 3), np.array(r, float), s) for n, (r, s) in given.items()]
    rows = list(operators.rows(group))
    np.testing.assert_allclose([row["normalised"] for row in rows], [1, 0.25, -0.2, np.nan])
    assert (rows[2]["mean"], rows[2]["std"], rows[3]["unstable"]) == (-40, 84.8528, 1)
    # half of the parents' visits are elsewhere
    assert rows[2]["difference"] == pytest.approx(0.5, abs=1e-3)
    assert (rows[3]["kl"], rows[3]["difference"]) == pytest.approx((0, 0), abs=1e-9)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, alone):
    """A run whose members have memories, and one whose have none."""
    paths = {name: tmp_path_factory.mktemp(name) / "run" for name in ("pderl", "erl")}
    for name, path in paths.items():
        alone(*arguments(name), "--budget.generations", 3, "--run-dir", path)
    return paths


def asked(capsys, run, *words):
    """Return the lines of the table, by group."""
    assert operators.main([str(run), "--episodes", "2", *map(str, words)]) == 0
    table, *pictures = capsys.readouterr().out.splitlines()
    for picture in pictures:
        assert (run / picture).read_bytes().startswith(b"\x89PNG")
    with (run / table).open() as file:
        lines = list(csv.DictReader(file))
    groups = dict.fromkeys(one["group"] for one in lines)
    return [[one for one in lines if one["group"] == i] for i in groups]


def test_pairs_have_the_fitter_first_and_a_child_of_each_kind(runs, capsys, tmp_path):
    found = asked(capsys, runs["pderl"], "--number", 3, "--out", tmp_path / "fig5")
    for pair in found:
        kinds = ["parent 1", "parent 2", "n-point child", "distilled child"]
        assert [line["policy"] for line in pair] == kinds
        assert float(pair[0]["mean"]) >= float(pair[1]["mean"])
        assert pair[2]["slots"] == pair[3]["slots"] == f"{pair[0]['slots']} {pair[1]['slots']}"
        assert pair[0]["normalised"] == ""  # the pendulum's returns are negative
    assert len({pair[2]["slots"] for pair in found}) == 3


def test_children_of_as_many_epochs_as_the_runs_are_its_own(runs, capsys, tmp_path):
    own = load_newest(runs["pderl"]).params.config.erl.distillation_epochs
    words = ["--number", 2, "--out", tmp_path / "epochs"]
    known = asked(capsys, runs["pderl"], *words)
    several = asked(capsys, runs["pderl"], *words, "--epochs", own, 9 * own)
    for usual, group in zip(known, several, strict=True):
        *same, longer = group
        assert [one["policy"] for one in group[3:]] == [
            f"distilled child, {n} epochs" for n in (own, 9 * own)
        ]
        assert [one["mean"] for one in same] == [one["mean"] for one in usual]
        assert longer["mean"] != same[-1]["mean"]


@pytest.mark.parametrize(("words", "why"), [
    ("--what mutation --epochs 4", "goes with --what"), ("--magnitude 0.1", "goes with --what"),
    ("--epochs 4 0", "--epochs: 0: must be at least 1"),
    ("--number 0", "--number: 0: must be at least 1"),
    ("--episodes=-1", "--episodes: -1: must be at least 1"),
    ("--dimensions 0 -1", "--dimensions: -1: must be at least 0"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(runs, capsys, words, why):
    with pytest.raises(SystemExit) as end:
        operators.main([str(runs["pderl"]), *words.split()])
    assert end.value.code == 2
    assert why in capsys.readouterr().err


def test_a_dimension_that_no_observation_has_is_refused(runs, capsys):
    assert operators.main([str(runs["pderl"]), "--dimensions", "0", "3"]) == 2
    assert "0 to 2" in capsys.readouterr().err


def test_a_mutant_of_magnitude_0_goes_where_its_parent_goes(runs, capsys, tmp_path):
    words = ["--what", "magnitude", "--number", 2, "--magnitude", 0, 5, "--out", tmp_path / "fig9"]
    for parent, gaussian, still, moved in asked(capsys, runs["pderl"], *words):
        names = [one["policy"] for one in (gaussian, still, moved)]
        assert names == ["Gaussian", "proximal 0", "proximal 5"]
        assert (still["mean"], float(still["kl"])) == (parent["mean"], 0)
        assert float(moved["kl"]) > 0


def test_what_is_studied_is_what_training_does(runs):
    population = load_newest(runs["pderl"])
    layout, members = population.params.layout, population.state.population
    pairs, n_point = np.array([[2, 1], [0, 4]]), {"seed": 7, "erl.crossover": "n_point"}
    children = operators.breed(population, pairs, n_point)
    random = generator(7, Purpose.CROSSOVER, 0, 1)  # of the second pair
    expected = genetics.n_point(members[0], members[4], layout, random)[0]
    np.testing.assert_array_equal(children[1], expected)
    gaussian = {"seed": 7, "erl.mutation": "gaussian"}
    mutants = operators.breed(population, np.array([[3]]), gaussian)
    expected = genetics.gaussian(members[3], layout, ERL(), generator(7, Purpose.GENETIC))
    np.testing.assert_array_equal(mutants[0], expected)
    distilled = {"seed": 7, "erl.crossover": "distillation"}
    assert not np.array_equal(operators.breed(population, pairs, distilled), children)
    assert (population.state.next_ages.max(axis=1) >= 0).all()


def test_a_run_without_memories_has_two_operators(runs, capsys, tmp_path):
    words = ["--what", "mutation", "--number", 2, "--out", tmp_path / "fig7"]
    for group in asked(capsys, runs["erl"], *words):
        assert [line["policy"] for line in group] == ["parent", "Gaussian"]


def test_a_run_without_such_operators_is_refused(capsys, tmp_path):
    assert operators.main([str(make(tmp_path / "es"))]) == 2
    assert "a run of es, which has no genetic operators" in capsys.readouterr().err
    assert operators.main([str(tmp_path)]) == 2
