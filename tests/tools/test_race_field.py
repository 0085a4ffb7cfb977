"""The race's competitors: their settings, their own processes, and the tasks in which they train and are evaluated."""

import time

import numpy as np
import pytest
from conftest import ROOT
from racing import plan_of

from esac_mpi import envs
from esac_mpi.operators.policy import Layout, Policy
from esac_mpi.play import rollout
from tools.bench.race import field, ours, places, processes, rows, running, standings
from tools.bench.race.field import Course, Task
from tools.bench.race.running import Teller


def test_episodes_side_by_side_are_those_that_are_played_alone():
    env = envs.make("Pendulum-v1")
    layout = Layout((env.observation_size, 8, env.action_size))
    policy = Policy(layout, "relu", "tanh", env.low, env.high).set(layout.initial(0, 0))
    found = running.returns(
        [envs.make("Pendulum-v1") for _ in range(3)],
        lambda o: np.stack([policy(x).copy() for x in o]),
        [1, 2, 3],
    )
    np.testing.assert_array_equal(
        found, [rollout.play(env, policy, seed).episodic_return for seed in (1, 2, 3)]
    )


@pytest.mark.parametrize(
    ("cores", "workers", "esac", "es"),
    [(1, 1, 28, 32), (2, 1, 28, 32), (8, 7, 28, 32), (16, 15, 30, 32)],
)
def test_ours_run_as_the_aggregate_has_them_on_so_many_cores(cores, workers, esac, es):
    course = Course(field.tasks()[0], field.hidden(), 180.0, 10, cores)
    assert course.hidden == (64, 64)
    found = field.ours("ESAC", course)
    assert (found["esac.workers"], found["esac.population_size"], found["esac.update_cost"]) == (
        workers,
        esac,
        14.0,
    )
    assert (found["esac.reading"], found["esac.sigma"]) == ("recommended", 0.02)
    assert not [name for name in found if name.startswith(("es.", "td3.", "ppo."))]
    assert field.ours("ES", course)["es.population_size"] == es


def test_peers_have_their_zoo_s_settings():
    def on(id: str, name: str) -> dict | None:
        entry = next(entry for entry in field.ENTRIES if entry.name == name)
        return entry.settings(Course(Task(id, 0.0), (64, 64), 180.0, 10, 2))

    assert on("Swimmer-v5", "SB3 SAC") == {
        "n_timesteps": 1_000_000,
        "learning_starts": 10_000,
        "gamma": 0.999,
    }
    assert on("dm_control/cheetah-run-v0", "SB3 SAC, 4 envs") == {
        "n_timesteps": 1_000_000, "n_envs": 4, "train_freq": 1, "gradient_steps": 2,
    }  # fmt: skip
    assert (
        on("Hopper-v5", "SB3 PPO, 8 envs")["n_steps"],
        on("dm_control/cheetah-run-v0", "SB3 PPO, 8 envs")["n_steps"],
    ) == (
        64,
        256,
    )
    assert on("Swimmer-v5", "SB3 PPO, 8 envs") is None  # the zoo has four there
    assert on("LunarLanderContinuous-v3", "SB3 TD3, 4 envs") == on("LunarLanderContinuous-v3", "SB3 TD3") | {
        "n_envs": 4, "gradient_steps": 2,
    }  # fmt: skip
    assert on("Hopper-v5", "EvoTorch PGPE")["decrease_rewards_by"] == 1.0
    assert {on(task.id, "EvoTorch PGPE")["network"].count("Linear") for task in field.tasks()} == {
        1
    }


def test_one_of_ours_in_its_own_process_is_looked_at_after_a_generation(tmp_path):
    settings = {
        "algorithm": "es", "task.id": "Pendulum-v1", "policy.hidden": [8], "es.population_size": 4, "budget.env_steps": 10**12,
        "evaluation.every": 10**12, "evaluation.episodes": 1,
    }  # fmt: skip
    plan = plan_of(tmp_path, goal=-1e9, settings=settings, started=time.monotonic() - 2.0)
    ours.run(plan, Teller(plan))
    found = processes.looked_at(plan.looks)
    assert found.start_up > 2.0
    assert [(look.env_steps, look.policy, look.reached(-1e9)) for look in found.looks] == [
        (4 * 200, "theta_es", True)
    ]


def test_a_task_of_ours_in_gymnasium_s_terms_is_the_same_task():
    env, same, random = (
        places.adapted(envs.make("Pendulum-v1")),
        envs.make("Pendulum-v1"),
        np.random.default_rng(3),
    )
    np.testing.assert_array_equal(env.reset(seed=3)[0], same.reset(int(random.integers(2**31))))
    taken, action = env.step(np.array([0.5], np.float32)), same.step(np.array([0.5], np.float32))
    np.testing.assert_array_equal(taken[0], action[0])
    assert taken[1:4] == action[1:]
    np.testing.assert_array_equal(
        env.reset()[0], same.reset(int(random.integers(2**31)))
    )  # another episode
    assert (env.observation_space.shape, env.action_space.high.tolist()) == ((3,), [2.0])


def test_a_learner_of_sb3_is_looked_at_with_its_own_normalisation(tmp_path):
    pytest.importorskip("stable_baselines3")
    from tools.bench.race import sb3

    settings = {
        "n_envs": 2,
        "n_steps": 8,
        "batch_size": 8,
        "normalize": True,
        "gamma": 0.9,
        "learning_rate": "lin_1e-3",
    }
    asked = {"n_timesteps": 100, **settings}
    plan = plan_of(
        tmp_path,
        program="sb3",
        algorithm="PPO",
        goal=-1e9,
        settings=asked,
        started=time.monotonic() - 2.0,
    )
    sb3.run(plan, Teller(plan))
    assert [look.env_steps for look in processes.looked_at(plan.looks).looks] == [2]
    model = sb3.made(plan, settings)
    assert (model.lr_schedule(0.5), model.n_envs, model.policy.net_arch) == (5e-4, 2, [8])
    assert model.get_vec_normalize_env().gamma == 0.9


def test_the_table_of_the_docs_comes_from_its_rows():
    folder = ROOT / "docs/results/race"
    assert (
        standings.Standings(rows.read(folder / "race.csv")).markdown() + "\n"
        == (folder / "race.md").read_text()
    )


def test_the_steps_of_our_learners_and_the_zoo_s_are_those_of_the_rows():
    found = {
        (row.task, row.competitor): row
        for row in rows.read(ROOT / "docs/results/race/race.csv")
        if row.seed == 0
    }

    def cell(row: rows.Row) -> str:
        return (
            f"{row.env_steps:,}"
            if row.outcome == "reached"
            else f"- ({round(row.best):,} by {row.env_steps:,})"
        )

    page = (ROOT / "docs/results.md").read_text()
    for task in dict.fromkeys(task for task, _ in found):
        names = ("SAC", "SB3 SAC", "SB3 SAC, 4 envs", "TD3", "SB3 TD3", "SB3 TD3, 4 envs")
        assert (
            f", {found[task, 'SAC'].goal:,g} | {' | '.join(cell(found[task, name]) for name in names)} |\n"
            in page
        )
