"""Every algorithm of the registry solves a task of one dimension."""

import numpy as np
import pytest
from gradients import Line
from small_runs import begun

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, amend, check
from esac_mpi.config.genetic import FORMS
from esac_mpi.play.params import make_policy

pytestmark = pytest.mark.slow

SOLVED = 0.06  # rms error of the best policy over [-1, 1]; of what they begin with 0.08-0.43
STEPS = {  # about 1.5 times what the slowest of ten seeds took
    **{"es": 13_000, "esac": 3500, "sac": 1000, "td3": 1000, "ddpg": 2300, "ppo": 900},
    **{"erl": 3800, "perl": 2000, "derl": 3800, "pderl": 2000},
    **{"cem": 9000, "cem_rl": 1500, "aes_rl": 4200},
}
EVOLUTION = {"population_size": 20, "sigma": 0.1, "lr_es": 0.03, "start_states": "pair"}
REPLAYED = {"gamma": 0.5, "batch_size": 64, "replay_capacity": 2000, "start_steps": 100}
RATES = {"lr_actor": 3e-3, "lr_critic": 3e-3}
PHASE = {"steps_per_generation": 100}
TAUGHT = {**REPLAYED, **RATES, "start_steps": 200, "variance_init": 0.003}
TABLES: dict[str, dict] = {  # what the line needs beside defaults
    "es": EVOLUTION,
    "esac": {**EVOLUTION, "sac_min_steps": 300, "workers": 1, "update_cost": 0.5},
    "sac": {**REPLAYED, **PHASE, "temperature": 0.01, "lr_sac": 3e-3},
    "td3": {**REPLAYED, **PHASE, "lr_td3": 3e-3},
    "ddpg": {**REPLAYED, **PHASE, **RATES, "tau": 0.005, "critic_weight_decay": 0.0},
    "ppo": {**PHASE, "gamma": 0.5, "batch_size": 100, "epochs": 20, "initial_std": 0.3}
    | {"lr_ppo": 1e-2},
    "erl": {**REPLAYED, **RATES, "start_steps": 0, "tau": 0.005, "critic_hidden": (32, 32)}
    | {"population_size": 8, "sync_interval": 1, "updates_per_step": 0.5}
    | {"memory_size": 200, "distillation_batch": 32, "mutation_batch": 64},
    "cem": {"population_size": 20, "variance_init": 0.03, "damp": 0.01, "damp_limit": 1e-3},
    "cem_rl": {**TAUGHT, "critic_updates_per_step": 1.0, "actor_updates_per_step": 0.3},
    "aes_rl": {**TAUGHT, "workers": 3, "critic_chunk": 50, "mean_episodes": 1}
    | {"actor_updates_window": 3, "relative_baseline": 1.0, "update_cost": 0.5, "critic_cost": 1.0},
}
PLAIN = {
    **{"policy.linear": False, "policy.hidden": (16, 16), "learner.kernels": "torch"},
    **{"esac.sigma_rule": "grow", "es.reward_shift": 0.0, "esac.reward_shift": 0.0},
    **{f"{table}.observation_normalisation": False for table in ("es", "esac", "sac")},
    **{"sac.automatic_temperature": False, "sac.temperature": 0.2, "sac.lr_sac": 3e-4},
}


def settings(name: str) -> Config:
    tables = {"esac": ("esac", "sac")}.get(name, ("erl" if name in FORMS else name,))
    changes = {f"{table}.{key}": value for table in tables for key, value in TABLES[table].items()}
    names = "erl.crossover", "erl.mutation"
    form = dict(zip(names, FORMS[name], strict=True)) if name in FORMS else {}
    config = amend(Config(), {"algorithm": name, **PLAIN, **form, **changes})
    check(config)
    return config


def solved_after(name: str, world, most: int) -> int:
    """Return after how many steps the best of an algorithm's policies has learned a = x/2."""
    # Environment steps; `most` or more: never.
    run = begun(world, settings(name), Line(), Line())
    policy = make_policy(run.params, run.env, output=ALGORITHMS[name].DECLARES.output)
    x = np.linspace(-1, 1, 41, dtype=np.float32)[:, None]

    def error(theta: np.ndarray) -> float:
        actor = policy.set(theta)
        return float(np.sqrt(np.mean([((actor(one)[0] + 1) / 2 - one[0] / 2) ** 2 for one in x])))

    assert min(error(theta) for theta in run.state.policies.values()) > SOLVED
    while run.state.counters.env_steps < most:
        run.generation()
        if min(error(theta) for theta in run.state.policies.values()) < SOLVED:
            break
    world.end_background()
    return run.state.counters.env_steps


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_solves_the_line(name, world):
    assert solved_after(name, world, STEPS[name]) < STEPS[name]
