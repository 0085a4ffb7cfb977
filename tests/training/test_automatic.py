"""What is "auto" is resolved at a run's first start, by its ranks and updates there, and kept."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import in_process
import numpy as np
import pytest
from conftest import CYCLIC_ES, LEARNER, ROUTINE, TASK
from gradients import Line
from toy_experiments import TOY, planned
from whole_runs import assert_same_run
from words import of_table, words, written

from esac_mpi import config
from esac_mpi.analysis.messages import Unusable
from esac_mpi.config import Config, ConfigError, automatic, load, resolve_on_ranks
from esac_mpi.play.params import make_params
from esac_mpi.record import Run
from esac_mpi.studies.experiments.running import take_automatic
from esac_mpi.studies.search.study import check, read
from esac_mpi.training.forecast import automatic as first
from esac_mpi.training.forecast.automatic import round_digits
from esac_mpi.training.task_set_up import describe_task, resolve_by_task

pytestmark = pytest.mark.slow

RANK_0 = SimpleNamespace(rank=0, size=2)
ALL = ["esac.population_size", "esac.workers", "esac.update_cost"]
SHORT = ["--esac.sac_min_steps", 30, "--esac.sigma", 0.3, *LEARNER, *ROUTINE]
CHOSEN = [*TASK, *SHORT]  # ESAC with its defaults where the machine decides
AES = ["--algorithm", "aes_rl", *TASK, *ROUTINE]
AES += of_table("aes_rl", start_steps=100, batch_size=16)
COSTS = of_table("aes_rl", workers="auto", update_cost="auto", critic_cost="auto")
FOUR = "--aes_rl.arrivals_per_generation", "4"


def settings(path) -> dict[str, object]:
    """Return what the fields that were "auto" are in a run's config.toml."""
    saved = config.read_toml(path / "config.toml")
    return {name: value for name, value in saved.items() if name in ALL}


@pytest.fixture(scope="module")
def of_three(tmp_path_factory, together):
    """Make a run on three ranks; return it and what it said."""
    path = tmp_path_factory.mktemp("three") / "run"
    return path, together(3, *CHOSEN, "--budget.generations", 6, "--run-dir", path).stdout


@pytest.mark.parametrize(
    ("ranks", "workers", "members"),
    [(1, 1, 28), (2, 1, 28), (3, 2, 28), (5, 4, 32), (8, 7, 28), (16, 15, 30), (64, 63, 126)],
)
def test_workers_are_the_ranks_but_one(ranks, workers, members):
    assert automatic(Config()) == ALL
    found = {"esac.workers": workers, "esac.population_size": members}
    assert resolve_on_ranks(Config(), ranks) == found
    es = load(["--algorithm", "es"])[0]
    assert resolve_on_ranks(es, ranks) == {"es.population_size": members}
    cem = load(["--algorithm", "cem_rl", "--cem_rl.population_size", "auto"])[0]
    assert resolve_on_ranks(cem, ranks) == {"cem_rl.population_size": members}


def test_what_is_named_stays_and_what_is_not_read_is_not_chosen():
    named = load(["--esac.workers", "3"])[0]
    assert resolve_on_ranks(named, 8) == {"esac.population_size": 30}  # of twice three workers
    assert automatic(load(["--esac.phase_timing", "interval"])[0]) == ["esac.population_size"]
    assert not automatic(load(["--algorithm", "sac"])[0])
    for preset in ("corrected", "paper", "reference-code"):
        assert not automatic(load(["--esac.preset", preset])[0])


def test_a_row_of_aes_rl_has_no_fewer_arrivals_than_workers():
    chosen = load(["--algorithm", "aes_rl", *map(str, COSTS)])[0]
    for ranks, workers, arrivals in ((3, 2, 10), (13, 12, 12)):
        found = {"aes_rl.workers": workers, "aes_rl.arrivals_per_generation": arrivals}
        assert resolve_on_ranks(chosen, ranks) == found
    went_on = config.amend(chosen, {"aes_rl.workers": 4, "aes_rl.update_cost": 7.0})
    kept = {"aes_rl.workers": 4, "aes_rl.update_cost": 7.0, "aes_rl.arrivals_per_generation": 10}
    assert resolve_on_ranks(chosen, 13, went_on) == kept
    named = load(["--algorithm", "aes_rl", *map(str, COSTS), *FOUR])[0]
    assert resolve_on_ranks(named, 13) == {"aes_rl.workers": 12}


def test_it_is_a_word_in_files_and_lines_and_no_other_word_is(tmp_path):
    text = '[esac]\nworkers = "auto"\nupdate_cost = 8\npopulation_size = 1e2\n'
    esac = load([written(tmp_path / "c.toml", text), "--esac.population_size", "auto"])[0].esac
    assert (esac.workers, esac.update_cost, esac.population_size) == ("auto", 8.0, "auto")
    assert config.from_table({"esac.workers": "auto"}, "") == {"esac.workers": "auto"}
    wrong = ("esac.workers", "many"), ("esac.sac_copies", "auto"), ("esac.workers", 1.5)
    for name, value in wrong:
        with pytest.raises(ConfigError, match=f"{name} = .*: expected an integer"):
            config.from_table({name: value}, "")


def test_a_step_of_an_individual_is_measured_with_its_transition(monkeypatch):
    monkeypatch.delattr(first.measured, "play")  # by which members alone are played
    chosen = config.amend(Config(), {"algorithm": "aes_rl", "policy.hidden": (8,)})
    assert first.step_seconds(make_params(chosen, Line()), Line()) > 0


@pytest.mark.parametrize(("long", "cost"), [(10.0, 2.0), (0.0, 1.0)])
def test_slow_steps_are_measured_in_fewer_rounds(monkeypatch, long, cost):
    steps = iter([3.0, 2.0, 4.0, 5.0, 6.0])
    monkeypatch.setattr(first, "step_seconds", lambda params, env: next(steps))
    monkeypatch.setattr(first.measured, "prepare", lambda params, env: None)
    monkeypatch.setattr(first.measured, "measure", lambda ready, limit: (0.0, 6.0))
    monkeypatch.setattr(first.measured, "LONG", long)
    chosen = config.amend(Config(), {"policy.hidden": (8,)})
    assert first.measure_costs(chosen, Line())[0] == {"esac.update_cost": cost}


def test_costs_have_two_digits():
    rounded = {123.4: 120.0, 26.49: 26.0, 0.08765: 0.088, 0.0: 0.0}
    assert {cost: round_digits(cost) for cost in rounded} == rounded


def test_what_was_chosen_is_said_and_has_the_bits_of_its_names(of_three, tmp_path, alone):
    begun, said = of_three
    found = settings(begun)
    assert (found["esac.workers"], found["esac.population_size"]) == (2, 28)
    named = [word for name, value in found.items() for word in (f"--{name}", f"{value:g}")]
    (chosen,) = [line for line in said.splitlines() if "chosen for 3 rank(s)" in line]
    assert all(word in chosen for word in named)
    cost = Run.open(begun).config.esac.update_cost  # in the run's file, too
    assert cost == found["esac.update_cost"] > 0
    alone(*CHOSEN, *named, "--budget.generations", 6, "--run-dir", tmp_path)
    assert_same_run(begun, tmp_path)


def test_the_directory_of_a_run_that_left_it_open_is_refused(tmp_path, alone):
    alone(*CYCLIC_ES, "--budget.generations", 1, "--run-dir", tmp_path)
    for more in ([], ["--check"]):
        done = alone(*CHOSEN, "--run-dir", tmp_path, *more, code=2)
        assert "holds a run of other settings:\n" in done.stdout + done.stderr
        assert "algorithm: es -> esac\n" in done.stdout + done.stderr


def test_a_run_begun_on_three_ranks_has_their_bits_on_others(of_three, tmp_path, alone, together):
    begun, _ = of_three
    for ranks in (3, 1, 2):
        path = tmp_path / str(ranks)
        shutil.copytree(begun, path)
        line = (*CHOSEN, "--budget.generations", 12, "--run-dir", path)
        done = alone(*line) if ranks == 1 else together(ranks, *line)
        assert "as the run began: --esac.population_size 28 --esac.workers 2" in done.stdout
        assert settings(path) == settings(begun)
        assert_same_run(tmp_path / "3", path)
    assert Run.open(tmp_path / "3").columns["metrics/gradient_updates"][-1] > 0


def test_a_run_is_one_of_a_plan_that_left_to_it_what_it_resolved(of_three):
    run = Run.open(of_three[0])
    plan = config.amend(run.config, {"esac.workers": "auto", "learner.kernels": "auto"})
    assert take_automatic(plan, run) == run.config
    assert take_automatic(config.amend(plan, {"esac.workers": 5}), run).esac.workers == 5


def test_a_run_that_names_its_workers_goes_on_without_the_names(tmp_path, alone):
    a, b, named = tmp_path / "a", tmp_path / "b", of_table("esac", workers=3, update_cost=1.5)
    named += ["--esac.population_size", 8]
    for path in (a, b):
        alone(*CHOSEN, *named, "--budget.generations", 3, "--run-dir", path)
    alone(*CHOSEN, *named, "--budget.generations", 6, "--run-dir", a)
    (b / "config.toml").unlink()  # the checkpoint has them too
    alone(*CHOSEN, "--budget.generations", 6, "--run-dir", b)
    assert_same_run(a, b)
    other = ["--esac.workers", 4, "--budget.generations", 9]
    assert "esac.workers: 3 -> 4" in alone(*CHOSEN, *other, "--run-dir", a, code=2).stderr


def test_the_check_says_what_a_start_would_choose(tmp_path, of_three, capfd):
    hopper = ["--algorithm", "es", "--task.id", "Hopper-v5"]
    for line, path, said in (
        (CHOSEN, tmp_path / "run", " updates/s of this core: --esac.workers 1 "),
        (CHOSEN, of_three[0], "as the run began: --esac.population_size 28 --esac.workers 2"),
        (hopper, tmp_path / "run", "reward_shift 1: the bonus for survival"),
    ):
        assert in_process.checked(*line, "--budget.generations", 9, "--run-dir", path) == 0
        assert said in capfd.readouterr().out
    assert not (tmp_path / "run").exists()


def test_a_number_that_does_not_go_with_the_others_is_2(tmp_path, alone):
    done = alone(*CHOSEN, "--esac.sac_copies", 20, "--run-dir", tmp_path / "run", code=2)
    # of the 28 members of a rank
    assert "5 crossover children + 20 SAC copies > 14 slots" in done.stderr
    assert not (tmp_path / "run").exists()


def test_without_sac_phases_a_run_needs_no_workers(tmp_path, alone):
    off = {"sac_phases": "false", "transfer": "off", "sigma_rule": "grow"}
    line = of_table("esac", **off, amt_trigger="interval")
    alone(*TASK, *line, *ROUTINE, "--budget.generations", 2, "--run-dir", tmp_path)
    assert load([str(tmp_path / "config.toml")])[0].esac.workers == "auto"
    assert Run.open(tmp_path).columns["metrics/generation"].tolist() == [1, 2]


def test_aes_rl_and_cem_rl_are_resolved_as_well(tmp_path, together):
    together(3, *AES, *COSTS, "--budget.generations", 2, "--run-dir", tmp_path / "a")
    aes = Run.open(tmp_path / "a").config.aes_rl
    assert (aes.workers, aes.arrivals_per_generation) == (2, 10)
    assert min(aes.update_cost, aes.critic_cost) > 0
    costs = {"update_cost": aes.update_cost, "critic_cost": aes.critic_cost}
    named = of_table("aes_rl", workers=2, **costs)
    together(2, *AES, *named, "--budget.generations", 2, "--run-dir", tmp_path / "b")
    assert_same_run(tmp_path / "a", tmp_path / "b")
    cem = ["--algorithm", "cem_rl", *TASK, *ROUTINE]
    cem += of_table("cem_rl", start_steps=5000, population_size="auto")
    together(3, *cem, "--budget.generations", 1, "--run-dir", tmp_path / "c")
    assert Run.open(tmp_path / "c").config.cem_rl.population_size == 28
    assert np.isfinite(Run.open(tmp_path / "c").columns["metrics/fitness"]).all()


STUDY = """
trials = 2
settings = {algorithm = "es", task.id = "T-v0"}
search = {es.sigma = [0.1, 0.2]}
"""


def test_experiments_and_searches_have_numbers(tmp_path):
    word = TOY.replace("es.population_size = 10", 'es.population_size = "auto"')
    with pytest.raises(Unusable, match=r'es\.population_size = "auto" would be chosen'):
        planned(tmp_path / "toy.toml", word)
    with pytest.raises(Unusable, match=r'es\.population_size = "auto" would be chosen'):
        check(read(Path(written(tmp_path / "study.toml", STUDY))))


@pytest.mark.parametrize(
    ("seconds", "device"),
    [({"cpu": 1e-3, "cuda": 2e-3}, "cpu"), ({"cpu": 2e-3, "cuda": 1e-3}, "cuda")],
)
def test_a_gpu_is_taken_where_it_is_faster_and_the_run_keeps_it(
    seconds, device, monkeypatch, tmp_path
):
    monkeypatch.setattr(first, "sees_a_gpu", lambda config: True)
    monkeypatch.setattr(
        first.measured, "prepare", lambda params, env: (None, params.config.learner.device)
    )
    monkeypatch.setattr(first.measured, "measure", lambda made, limit: (0.0, seconds[made[1]]))
    named = f"--esac.workers 1 --esac.update_cost 3 --esac.population_size 28 --run-dir {tmp_path}"
    chosen = load(words(f"{named} --learner.kernels torch --policy.hidden 8 8"))[0]
    values, (told,) = first.resolve(chosen, Line(), RANK_0, fresh=False)
    assert values == {"learner.device": device}
    assert f"learner on {device}, the faster one" in told
    run = config.amend(chosen, {"learner.device": device})
    monkeypatch.setattr(first, "settings_of", lambda path: run)
    again = first.resolve(chosen, Line(), RANK_0, fresh=False)
    assert again == ({"learner.device": device}, [])
    monkeypatch.setattr(first, "sees_a_gpu", lambda config: False)
    gone = first.resolve(chosen, Line(), RANK_0, fresh=False)[0]
    assert gone.get("learner.device", "auto") == ("cpu" if device == "cpu" else "auto")


def test_a_task_that_is_large_for_small_networks_is_told():
    small, large = Line(), Line()
    large.observation_size = 70
    name = "esac.observation_normalisation"
    chosen = config.amend(Config(), {"policy.hidden": (64, 64), name: True})
    (said,) = describe_task(chosen, "", large)
    assert said.startswith("a large task for networks of 64 units: 70 observations; ")
    assert said.endswith(f"--policy.hidden 256 256 or --{name} shrink")
    td3 = config.amend(chosen, {"algorithm": "td3"})
    assert next(describe_task(td3, "", large)).endswith("--policy.hidden 256 256")
    narrow = config.amend(Config(), {"policy.hidden": (32,)})
    assert [*describe_task(chosen, "", small), *describe_task(narrow, "", large)] == []


def test_a_horizon_beyond_the_tasks_own_limit_is_told():
    for asked, said in ((20, []), (21, ["21: unused, the task's limit is 20"])):
        for name in ("task.horizon", "task.kwargs.max_episode_steps"):
            chosen = load([f"--{name}", str(asked)])[0]
            told = [line for line in describe_task(chosen, "", Line()) if "unused" in line]
            assert told == [f"{name} {line}" for line in said]


@pytest.mark.parametrize("algorithm", ["esac", "sac"])
@pytest.mark.parametrize(
    ("observations", "found", "rate"), [(64, True, 1e-3), (65, "shrink", 3e-4)]
)
def test_many_observations_are_shrunk_and_learned_slowly(algorithm, observations, found, rate):
    task, name = Line(), f"{algorithm}.observation_normalisation"
    task.observation_size = observations
    chosen, names = resolve_by_task(load(["--algorithm", algorithm])[0], task)
    assert {name, "sac.lr_sac"} <= set(names.split())
    assert (config.value_of(chosen, name), chosen.sac.lr_sac) == (found, rate)
    told = {f"{name} shrink: for 65 observations", "sac.lr_sac 0.0003: for 65 observations"}
    assert (told <= set(describe_task(chosen, names, task))) is (observations == 65)
    asked = config.amend(chosen, {name: False, "sac.lr_sac": 0.01})
    kept, names = resolve_by_task(asked, task)
    assert (kept, {name, "sac.lr_sac"} & set(names.split())) == (asked, set())


@pytest.mark.parametrize("algorithm", ["esac", "es", "sac"])
@pytest.mark.parametrize(("observations", "found"), [(64, (64, 64)), (65, (256, 256))])
def test_many_observations_have_larger_networks(algorithm, observations, found):
    task = Line()
    task.observation_size = observations
    chosen, names = resolve_by_task(load(["--algorithm", algorithm])[0], task)
    assert (chosen.policy.hidden, "policy.hidden" in names.split()) == (found, True)
    told = f"policy.hidden 256 256: for {observations} observations"
    assert (told in list(describe_task(chosen, names, task))) is (observations == 65)
    asked = config.amend(chosen, {"policy.hidden": (32,)})
    kept, names = resolve_by_task(asked, task)
    assert (kept, "policy.hidden" in names.split()) == (asked, False)
