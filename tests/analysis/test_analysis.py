"""esac_mpi.analysis as a notebook has it; runs of an algorithm and a policy unheard of here."""

import dataclasses
import importlib
import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from clocked_runs import erl_run_of
from conftest import ROOT
from figure_runs import make
from random_search_table import RandomSearch
from result_rows import drawn
from run_files import leave

from esac_mpi import analysis
from esac_mpi.algorithms import ALGORITHMS, es
from esac_mpi.analysis import names, plots, sensitivity, times, views
from esac_mpi.analysis.results.rows import rows_of
from esac_mpi.analysis.run_tables import caption
from esac_mpi.config import Config, reads


@dataclass(frozen=True)
class Wider(Config):
    """A configuration with one more algorithm, which is not there."""

    algorithm: str = "stroll"
    stroll: RandomSearch = field(default_factory=RandomSearch)


@pytest.fixture(autouse=True)
def wider(monkeypatch):
    """Let the configuration have that table, and the algorithm declare itself as ES does."""
    monkeypatch.setattr(reads, "Config", Wider)
    monkeypatch.setitem(ALGORITHMS, "stroll", es)


def stroll(path, returns=(10.0, 20.0, 30.0), seed=0, radius=0.5):
    """Leave a run of the policies feet and shoes, shoes one better; return its files as read."""
    rows = []
    for g, value in enumerate(returns, 1):
        row = {
            "generation": g, "env_steps_population": 100 * g, "nominal_steps": 1000 * g,
            "gradient_updates": 0, "fitness": value - np.arange(1.0, 5),
            "stroll_critic_loss": float(g), "best_return": value + 1,
            "evaluation_feet": np.array([value - 1, value + 1]),
            "evaluation_shoes": np.array([value, value + 2]),
        }  # fmt: skip
        spent = {"busy_seconds": np.array([0.9, 0.5]), "seconds_evaluate": 1.0}
        rows.append((row, {"wall_seconds": 2.0 * g, **spent}))
    leave(path, rows, {"algorithm": "es", "seed": seed, "task.id": "A-v0"}, {"ranks": 2})
    (found,) = analysis.opened([path])
    fields = {f.name: getattr(found.config, f.name) for f in dataclasses.fields(Config)}
    del fields["algorithm"]
    return dataclasses.replace(found, config=Wider(**fields, stroll=RandomSearch(radius=radius)))


def test_an_unknown_policy_is_shown_everywhere(tmp_path):
    run = stroll(tmp_path / "a")
    assert analysis.policies(run) == ["feet", "shoes"]
    assert analysis.evaluated(run)[1].tolist() == [11, 21, 31]  # shoes
    assert analysis.evaluated(run, "feet")[1].tolist() == [10, 20, 30]
    said = analysis.summary(run)
    assert (said["algorithm"], said["best_return"], said["final_return"]) == ("stroll", 31, 31)
    last = {"generation": 3, "theta_es": None, "sac": None, "feet": 30, "shoes": 31}
    assert said["last_evaluation"] == last
    assert views.row(run)["return"] == "31.0"
    shown = [str(cell) for column in views.show_run(run).columns for cell in column.cells]
    assert "feet 30.0, shoes 31.0" in shown


def test_tables_and_figures_of_an_unknown_algorithm(tmp_path):
    runs = [stroll(tmp_path / "a"), stroll(tmp_path / "b", seed=1)]
    assert list(analysis.table_of(runs)["A-v0"]) == ["STROLL"]
    assert analysis.table_of(runs, policy="feet")["A-v0"]["STROLL"].mean == 30
    said = "mean return of the last evaluation, the better of feet and shoes. Mean"
    assert said in caption(runs, "final")
    (axes,) = plots.figure(runs, "return", "generation").axes
    assert [line.get_ydata()[[0, -1]].tolist() for line in axes.lines] == [[11, 31]]
    (losses,) = [axes for axes in plots.figure(runs, "losses", "generation").axes if axes.lines]
    assert (losses.get_ylabel(), losses.lines[0].get_ydata()[-1]) == ("critic loss", 3)
    alone = plots.figure(runs[:1], "return", "generation")
    texts = {text.get_text() for text in alone.axes[0].texts}
    assert texts == {"population, mean", "population, maximum", "feet", "shoes"}
    # it has a population
    np.testing.assert_allclose(times.activities(runs[0])["members"], [1.4, 1.4, 1.4])


def test_a_field_of_an_unknown_algorithm_can_be_swept(tmp_path):
    runs = [stroll(tmp_path / "a"), stroll(tmp_path / "b", (1.0, 5.0), radius=0.25)]
    swept = sensitivity.measure_sweep(runs, "radius")
    assert swept == {"A-v0": {"STROLL": {0.25: np.array([6.0]), 0.5: np.array([31.0])}}}


def test_a_field_of_a_form_is_found_in_its_table(tmp_path):
    run = erl_run_of(tmp_path / "pderl", 1)
    assert sensitivity.setting_of(run, "population_size") == "erl.population_size"


def test_a_fitness_of_one_number_is_no_populations(tmp_path):
    run = erl_run_of(tmp_path / "pderl", 1)
    assert times.population_of(run) > 1
    run.columns.shapes["metrics/fitness"] = run.columns.shapes["metrics/generation"]
    assert times.population_of(run) == 0


def test_its_rows_have_its_better_policy_as_the_learners(tmp_path):
    last = rows_of(stroll(tmp_path / "a"), "x", "small", "stroll", "", True)[-1]
    assert (last.return_theta_es, last.return_learner, last.better) == (None, 31, 31)
    (axes,) = drawn([last], "return").axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[31]]


def test_known_names_come_first_and_no_other_is_left_out():
    labels = ["stroll", "SAC 0.1", "ant", "ESAC", "ES"]
    assert sorted(labels, key=names.sort_key) == ["ESAC", "ES", "SAC 0.1", "ant", "stroll"]
    policies = ["feet", "sac", "arms", "theta_es", "feet"]
    assert names.policy_order(policies) == ["theta_es", "sac", "arms", "feet"]
    legends = [names.legend(policy, "td3") for policy in ("td3", "feet", "sac")]
    assert legends == ["TD3's actor", "feet", "SAC's mean policy"]
    assert names.describe_better(["sac"]) == "sac"
    assert names.describe_better(["td3", "theta_es"]) == "the better of theta_es and td3"
    several = "the better that a run has of theta_es, champion and td3"
    assert names.describe_better(["td3", "theta_es", "learner", "champion"]) == several
    assert names.describe_better([]) == "the better policy"
    assert names.describe_better(["champion", "learner"]) == "champion"


@pytest.mark.parametrize(
    "line", ["plot", "table", "table --measure final", "plot --what sensitivity --field sigma"]
)
def test_a_policy_that_no_run_has_is_refused(tmp_path, call, line):
    paths = [make(tmp_path / "a", algorithm="esac"), make(tmp_path / "b")]
    told = call(f"{line} --policy feet", *paths, code=2).err
    assert told == "--policy feet: no run given evaluates it; there are better, theta_es, sac\n"


def test_the_example_for_notebooks_runs(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs/how-to/analyse.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for seed in range(4):
        make(tmp_path / f"runs/study/{seed}", (0, 10 + 2 * seed), seed=seed)
    make(tmp_path / "runs/study/other", algorithm="esac")
    make(tmp_path / "runs/study/another", algorithm="esac", seed=1)
    monkeypatch.chdir(tmp_path)
    there: dict = {}
    exec(example, there)
    # of 10 12 14 16 the middle two; three or more of four draws are the least, 10, in 5 % of the
    # cases, so that 2.5 % are 10
    assert capsys.readouterr().out.splitlines() == [
        "A-v0  ESAC: 30.0 [30.0, 30.0]",
        "A-v0  ES: 13.0 [10.0, 16.0]",
    ]
    assert there["curve"].y.tolist() == [0, 10]
    table = page[page.index("| you want | call |") : page.index("[Exit codes]")]
    for call, module in re.findall(r"`([^`]+)` of `(esac_mpi\.analysis[^`]+)`", table):
        for name in re.findall(r"(\w+)\(", call) or [call]:
            assert callable(getattr(importlib.import_module(module), name))


def test_a_name_that_is_none_is_answered_by_those_that_there_are(tmp_path):
    runs = analysis.opened(make(tmp_path / "a"))  # one path, not in a list
    for wrong, said in (
        (lambda: analysis.return_curve(runs[0], "steps"), "axis 'steps': there are env_steps, "),
        (lambda: analysis.training_curve(runs[0], "steps"), "axis 'steps': there are env_steps, "),
        (lambda: plots.figure(runs, "returns"), "figure 'returns': there are return, "),
    ):
        with pytest.raises(analysis.Unusable, match=said):
            wrong()
    for strata in ([], np.ones(3)):
        with pytest.raises(ValueError, match=r"interval\(\[values\]\)"):
            analysis.interval(strata)
    assert analysis.interval([[1, 1]]) == (1, 1)
