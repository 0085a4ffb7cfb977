"""esac-mpi operators: what crossover and mutation do to a run's policies, and where these go."""

import csv
import subprocess
import sys

import numpy as np
import pytest
from commands import command
from conftest import ROOT, environment
from figure_runs import make
from small_erl import arguments

from esac_mpi.analysis import densities, relatives
from esac_mpi.analysis.densities import CELLS, Grid, density, difference, divergence
from esac_mpi.analysis.relatives import Relative, normalised
from esac_mpi.analysis.tables import rendered
from esac_mpi.comm.command_ranks import Alone
from esac_mpi.operators import genetics
from esac_mpi.operators.genetics import Spread
from esac_mpi.operators.noise import Purpose, generator
from esac_mpi.policies import offspring
from esac_mpi.policies.population import restored

operators = command("operators")

# ---- densities


def test_the_divergence_of_two_kernels_is_that_of_two_normal_distributions():
    cells = Grid(
        np.array([np.linspace(-4, 4, 129)] * 2), np.array([0.5, 1.0])
    )  # of cells that are a sixteenth wide
    here, there = (density(np.array([[x, 0.5]]), cells) for x in (0.0, 1.0))
    assert here.sum() == pytest.approx(1)
    assert divergence(here, there) == pytest.approx(
        2, rel=0.01
    )  # (a - b)^2 / (2 h^2), of a - b = 1 and h = 0.5
    assert divergence(here, here) == 0
    assert np.unravel_index(there.argmax(), there.shape) == (80, 72)


def test_divergence_and_difference_of_two_cells():
    p, q = np.array([[0.75, 0.25]]), np.array([[0.5, 0.5]])
    assert divergence(p, q) == pytest.approx(0.75 * np.log(1.5) + 0.25 * np.log(0.5), rel=1e-5)
    assert (difference(p, q), difference(np.eye(2)[:1], np.eye(2)[1:])) == (0.25, 1)
    assert np.isfinite(divergence(np.eye(2)[:1], np.eye(2)[1:]))  # an empty cell has a little


def test_bandwidths_are_scotts_and_what_lies_far_out_counts_at_the_edge():
    first = np.tile([[0.0, 0.0], [1.0, 4.0]], (32, 1))  # 64 states: 64 ** (-1 / 6) is a half
    cells = densities.grid([first, np.array([[9.0, 0.0]] * 5)])
    np.testing.assert_allclose(cells.bandwidth, [0.25, 1.0])
    np.testing.assert_allclose(cells.edges[:, [0, -1]], [[-0.75, 9.75], [-3, 7]])
    outlying = density(np.array([[1e6, 0.5]]), cells)
    assert outlying.sum() == pytest.approx(1)
    assert outlying.sum(axis=1).argmax() == CELLS - 1


# ---- relatives


def relative(group, name, returns, slots=(0,)):
    return Relative(group, name, slots, np.array(returns, float), np.zeros((0, 2)))


def test_returns_are_parts_of_the_first_parents_where_that_is_positive(tmp_path, capsys):
    found = [
        relative(0, "parent 1", [100, 300]), relative(0, "parent 2", [50, 50]),
        relative(0, "n-point child", [-100, 20], (0, 3)),
        relative(1, "parent 1", [-1, 0]), relative(1, "n-point child", [7, np.nan]),
    ]  # fmt: skip
    np.testing.assert_allclose(normalised(found), [1, 0.25, -0.2, np.nan, np.nan])
    relatives.tell_not_positive(found)
    assert capsys.readouterr().err.endswith("is not positive: 1\n")
    lines = rendered(relatives.rows(found), "csv").splitlines()
    assert lines[3] == "0,n-point child,0 3,2,0,-40.0,84.8528,-0.2,,"
    assert lines[5] == "1,n-point child,0,2,1,,,,,"


def test_a_childs_divergence_is_from_the_mean_of_its_parents():
    here, there = (
        np.tile([[0.0, 0.0], [1.0, 1.0]], (32, 1)),
        np.tile([[50.0, 0.0], [51.0, 1.0]], (32, 1)),
    )
    states = {
        "parent 1": here,
        "parent 2": there,
        "like one": here,
        "like both": np.concatenate([here, there]),
    }
    seen = relatives.visits(
        [Relative(0, name, (0,), np.zeros(1), where) for name, where in states.items()]
    )
    assert seen[2].difference == pytest.approx(
        0.5, abs=1e-3
    )  # half of the parents' visits are elsewhere
    assert (seen[3].kl, seen[3].difference) == (
        pytest.approx(0, abs=1e-9),
        pytest.approx(0, abs=1e-9),
    )


# ---- a run


@pytest.fixture(scope="module")
def runs(tmp_path_factory, alone):
    """A run whose members have memories, and one whose have none."""
    paths = {name: tmp_path_factory.mktemp(name) / "run" for name in ("pderl", "erl")}
    for name, path in paths.items():
        alone(*arguments(name), "--budget.generations", 3, "--run-dir", path)
    return paths


def asked(capsys, run, *words, code=0):
    """Return the lines of the table, or what the tool said."""
    assert operators.main([str(run), "--episodes", "2", *map(str, words)], Alone()) == code
    said = capsys.readouterr()
    if code:
        return said.err
    picture, table = said.out.splitlines()
    assert (run / picture).read_bytes().startswith(b"\x89PNG")
    with (run / table).open() as file:
        return list(csv.DictReader(file))


def test_pairs_have_the_fitter_first_and_a_child_of_each_kind(runs, capsys, tmp_path):
    found = asked(
        capsys, runs["pderl"], "--what", "crossover", "--number", 3, "--out", tmp_path / "fig5.png"
    )
    assert [line["policy"] for line in found] == [
        "parent 1",
        "parent 2",
        "n-point child",
        "distilled child",
    ] * 3
    for pair in (found[i : i + 4] for i in (0, 4, 8)):
        assert float(pair[0]["mean"]) >= float(pair[1]["mean"])
        assert pair[2]["slots"] == pair[3]["slots"] == f"{pair[0]['slots']} {pair[1]['slots']}"
        assert pair[0]["normalised"] == ""  # the pendulum's returns are negative
    assert len({line["slots"] for line in found if line["policy"] == "n-point child"}) == 3


def test_a_mutant_of_magnitude_0_goes_where_its_parent_goes(runs, capsys, tmp_path):
    found = asked(
        capsys,
        runs["pderl"],
        "--what",
        "magnitude",
        "--number",
        2,
        "--magnitude",
        0,
        5,
        "--out",
        tmp_path / "fig9.png",
    )
    assert [line["policy"] for line in found[:4]] == [
        "parent",
        "Gaussian",
        "proximal 0",
        "proximal 5",
    ]
    for parent, _, still, moved in (found[:4], found[4:]):
        assert (still["mean"], float(still["kl"]), float(still["difference"])) == (
            parent["mean"],
            0,
            0,
        )
        assert float(moved["kl"]) > 0


def test_what_is_studied_is_what_training_does(runs):
    population = restored(runs["pderl"])
    layout, members = population.params.layout, population.state.population
    couples = np.array([[2, 1], [0, 4]])
    random = generator(7, Purpose.CROSSOVER, 0, 1)  # of the second pair
    children = offspring.children(population, couples, "n_point", 7)
    np.testing.assert_array_equal(
        children[1], genetics.n_point(members[0], members[4], layout, random)[0]
    )
    mutants = offspring.mutants(population, np.array([3]), "gaussian", 7)
    spread = Spread(0.1, 0.1, 10.0, 0.05, 0.05)
    np.testing.assert_array_equal(
        mutants[0], genetics.gaussian(members[3], layout, spread, generator(7, Purpose.GENETIC))
    )
    assert not np.array_equal(offspring.children(population, couples, "distillation", 7), children)
    assert population.state.critic.shape == (population.params.operators.critic_size,)
    assert (population.state.next_ages.max(axis=1) >= 0).all()


def test_the_numbers_do_not_depend_on_the_ranks(runs, tmp_path, capsys):
    line = ["--what", "visits", "--of", "mutation", "--magnitude", "0.3", "--episodes", "3"]
    assert (
        operators.main([str(runs["pderl"]), *line, "--out", str(tmp_path / "one.png")], Alone())
        == 0
    )
    mpirun = ROOT / ".venv/bin/mpirun"
    words = [
        mpirun if mpirun.exists() else "mpirun",
        "-n",
        2,
        sys.executable,
        "-m",
        "esac_mpi.commands",
        "operators",
        runs["pderl"],
        *line,
    ]
    whole = [*map(str, words), "--out", str(tmp_path / "two.png")]
    done = subprocess.run(
        whole, env=environment(), capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout == f"{tmp_path / 'two.png'}\n{tmp_path / 'two.csv'}\n"
    assert (tmp_path / "two.csv").read_text() == (tmp_path / "one.csv").read_text()
    assert (tmp_path / "two.csv").read_text().count("\n") == 4


def test_a_run_without_memories_has_two_operators(runs, capsys, tmp_path):
    found = asked(
        capsys, runs["erl"], "--what", "mutation", "--number", 2, "--out", tmp_path / "fig7.png"
    )
    assert [line["policy"] for line in found] == ["parent", "Gaussian"] * 2
    assert (
        operators.main(
            [
                str(runs["erl"]),
                "--episodes",
                "1",
                "--number",
                "1",
                "--out",
                str(tmp_path / "fig5.png"),
            ],
            Alone(),
        )
        == 0
    )
    assert (
        "note: a run of erl keeps no memories, without which there is nothing distilled\n"
        in capsys.readouterr().err
    )
    assert "keeps no memories, which proximal mutation looks at" in asked(
        capsys, runs["erl"], "--what", "magnitude", code=2
    )


def test_what_cannot_be_studied_is_said_in_a_sentence(runs, capsys, tmp_path):
    es = make(tmp_path / "es")
    assert (
        asked(capsys, es, code=2)
        == f"{es}: a run of es, which has no genetic operators; the ERL family has them\n"
    )
    assert asked(capsys, tmp_path, code=2) == f"{tmp_path}: not a run directory of esac_mpi\n"
    wrong = asked(capsys, runs["pderl"], "--what", "visits", "--dimensions", 0, 3, code=2)
    assert wrong == "--dimensions 0 3: must be two different ones of the 3 of a state, 0 to 2\n"
    assert asked(capsys, runs["pderl"], "--of", "mutation", code=2).startswith(
        "--what crossover does not read --of"
    )
    assert asked(capsys, runs["pderl"], "--number", -1, code=2).startswith(
        "--number and --episodes must be"
    )
    assert "--magnitude takes one number" in asked(
        capsys, runs["pderl"], "--what", "visits", "--magnitude", 1, code=2
    )
