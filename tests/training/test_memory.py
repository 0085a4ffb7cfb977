"""Memory: what networks and replay come to take, what this machine has, a refusal before."""

import math
from types import SimpleNamespace

import pytest
from conftest import CORRECTED, TASK
from in_process import checked, refused
from words import named

from esac_mpi.algorithms import ALGORITHMS
from esac_mpi.config import Config, amend, load, table_of
from esac_mpi.host import ram
from esac_mpi.host.errors import WrongUsage
from esac_mpi.play.params import Params, make_layout
from esac_mpi.training import check, memory

HUMANOID = SimpleNamespace(observation_size=348, action_size=17, horizon=1000)
ROW = 4 * (2 * 348 + 17 + 2)  # [bytes]


def settings(algorithm: str, **changes) -> Config:
    """Return settings without a limit; `changes` are fields of the algorithm's table or others'."""
    unlimited = {**CORRECTED, "algorithm": algorithm, "budget.nominal_steps": 0}
    return amend(Config(), unlimited | named(table_of(algorithm), **changes))


def for_generations(count: int, algorithm: str, **changes) -> Config:
    return settings(algorithm, budget__generations=count, **changes)


SAMPLE = {"resimulated": "sample", "resimulated_members": 99, "fitness_episodes": 3}
ON_RANKS = {"episodes_on": "ranks", "episodes_per_generation": 2, "budget__env_steps": 9_000}
# ESAC on eight ranks; of 28 members with whole episodes
EIGHT = {"esac.phase_timing": "continuous", "esac.population_size": 28}
EIGHT |= {"esac.workers": 7, "esac.update_cost": 30.0}
VIRTUAL = {"phase_timing": "virtual", "sac_min_steps": 300}
REPLAYED = {"phase_timing": "virtual", "resimulated": "winners", "budget__env_steps": 10**6}


@pytest.mark.parametrize(
    ("config", "most"),
    [
        (for_generations(3, "sac"), 3 * 1000),
        (settings("td3", budget__nominal_steps=50_000), 50_000 + 1000),
        (settings("td3", **ON_RANKS), 9_000 + 2 * 1000),
        (for_generations(2, "ddpg", budget__env_steps=10**6), 2 * 1000),
        (for_generations(3, "cem_rl", fitness_episodes=2), 3 * 10 * 2 * 1000),
        (settings("cem_rl", budget__nominal_steps=10**6), 10**6 + 10 * 1000),
        (for_generations(3, "pderl"), 3 * (10 + 1) * 1000),
        (for_generations(3, "perl", learner="td3", fitness_episodes=2), 3 * (10 * 2 + 1) * 1000),
        # five episodes of 1000 steps, every five generations
        (for_generations(100, "esac"), 100 / 5 * 5000),
        (settings("esac", budget__nominal_steps=10**6), 1001 / 5 * 5000),
        (settings("esac", budget__env_steps=10**6), 10**6 + 2 * 5000),
        (for_generations(100, "esac", sac_phases=False), 0),
        (for_generations(100, "esac", resimulated="winners"), 100 / 5 * (5000 + 2 * 1000)),
        (for_generations(100, "esac", **SAMPLE), 100 / 5 * (5000 + 50 * 3 * 1000)),  # of 50 members
        (for_generations(100, "esac", resimulated="sample", sac_phases=False), 0),
        (for_generations(100, "esac", **VIRTUAL), 100 * 300),
        # a phase of exactly 1,000 own steps, and two members again
        (settings("esac", **REPLAYED), 10**6 + 2 * (1000 + 2 * 1000)),
    ],
)
def test_the_most_that_a_budget_adds(config, most):
    assert memory.most_added(config, 1000) == most


def test_what_a_run_never_writes_takes_no_memory():
    config = for_generations(3, "sac", replay_capacity=10**9)
    assert memory.replay_bytes(config, HUMANOID) == 3000 * ROW
    memory.refuse_replay(config, HUMANOID, 3000 * ROW)
    whole = settings("sac", replay_capacity=5000, budget__env_steps=10**9)
    assert memory.replay_bytes(whole, HUMANOID) == (5000 + 1000) * ROW  # and the reserve of a phase
    assert memory.replay_bytes(for_generations(3, "es"), HUMANOID) == 0
    assert memory.replay_bytes(for_generations(3, "ppo"), HUMANOID) == 0


def endless(**options):
    return settings("aes_rl", budget__env_steps=10**9, **options)


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        # the critic's 1,000 updates last 180 each, a sixth is individuals'
        (endless(), 200_000 + 5 * (180_000 // 6 + 8 * 1000)),
        (endless(update_cost=0.0), 200_000 + 5 * 8 * 1000),
        (endless(critic_cost=20.0), 200_000 + 5 * (333_334 + 8 * 1000)),
        (endless(critic_cost=0.0), 200_000 + 5 * (4 * 2 * 1000 + 8 * 1000)),  # a half is trained
        # 50.5 of 51 are
        (endless(critic_cost=0.0, rl_share=1.0), 200_000 + 5 * (4 * 102_000 // 101 + 1 + 8000)),
        # 10,000 updates of an individual
        (endless(critic_cost=0.0, update_cost=0.6), 200_000 + 5 * (6000 // 6 + 8 * 1000)),
        # no more than can come in
        (endless(mean_episodes=1, update_cost=0.0), 200_000 + 5 * (4 * 1000 + 1)),
        (settings("cem_rl", budget__env_steps=10**9), 10**6),
    ],
)
def test_of_a_replay_that_ranks_share_the_memory_is_what_is_made(config, rows):
    env = SimpleNamespace(observation_size=1, action_size=1, horizon=1000)
    assert memory.replay_bytes(config, env) == rows * 4 * (2 + 1 + 2)
    params = Params(config, make_layout(config, env), 1000, None, SimpleNamespace(critic_size=1))
    assert len(ALGORITHMS[config.algorithm].init(params, memory.Counter(1)).replay) == rows


def test_of_tasks_at_work_a_budget_needs_no_more_than_it_adds():
    config = settings("aes_rl", budget__nominal_steps=10**5)
    assert memory.replay_bytes(config, HUMANOID) == (10**5 + 10 * 1000) * ROW  # a generation more


def test_what_comes_in_meanwhile_and_does_not_fit_is_named():
    with pytest.raises(WrongUsage, match="what comes in while tasks or a phase are at work"):
        memory.refuse_replay(endless(), HUMANOID, 2**29)


@pytest.mark.parametrize("learner", ["ddpg", "td3", "sac"])
def test_the_capacity_of_a_shared_replay_is_that_of_its_learner(learner):
    table = "erl" if learner == "ddpg" else learner
    capacity = {f"{table}__replay_capacity": 5000}
    config = settings("derl", learner=learner, budget__env_steps=10**9, **capacity)
    assert (memory.table(config), memory.capacity(config)) == (table, 5000)
    assert memory.replay_bytes(config, HUMANOID) == (5000 + 11 * 1000) * ROW


@pytest.mark.parametrize(
    ("algorithm", "table"),
    [("esac", "sac"), ("sac", "sac"), ("td3", "td3"), ("ddpg", "ddpg"), ("cem_rl", "cem_rl")],
)
def test_what_cannot_fit_is_refused_with_what_would(algorithm, table):
    field = f"{table}.replay_capacity"
    config = amend(settings(algorithm, budget__env_steps=10**12), {field: 10**8})
    with pytest.raises(WrongUsage) as refusal:
        memory.refuse_replay(config, HUMANOID, 2**33)
    said = f"{field} = 100000000: of 348 observations the replay comes to take 266.4 GiB"
    assert str(refusal.value).startswith(said)
    # 2**33 / ROW is 3,003,495; a phase's reserve is 5,000 or 1,000
    fits = 2_900_000 if algorithm == "esac" else 3_000_000
    assert f"the machine of rank 0 has 8.0 GiB: set it to {fits} or less" in str(refusal.value)
    memory.refuse_replay(amend(config, {field: fits}), HUMANOID, 2**33)


@pytest.mark.parametrize("algorithm", ["sac", "cem_rl"])
def test_a_replay_that_cannot_fit_is_2_before_it_is_made(tmp_path, algorithm):
    """Also one that ranks share. 44 TB."""
    line = [*TASK, "--algorithm", algorithm, f"--{algorithm}.replay_capacity", 10**12]
    said = refused(*line, "--budget.env_steps", 10**12, "--run-dir", tmp_path / "run")
    capacity = f"esac_mpi: {algorithm}.replay_capacity = 1000000000000: "
    assert said.startswith(f"{capacity}of 3 observations the replay comes to take 409")
    assert not list(tmp_path.iterdir())


def test_check_tells_what_the_replay_takes(monkeypatch):
    monkeypatch.setattr(check.memory.ram, "total", lambda: 3 * 2**30)
    monkeypatch.setattr(check.memory.ram, "free", lambda: 2**30)
    config = settings("sac", replay_capacity=10**6, budget__env_steps=10**9)
    (line,) = check.memory.replay(config, HUMANOID)
    assert line.found.startswith("comes to take 2.7 GiB on rank 0's node")
    assert line.found.endswith("has 3.0 GiB of memory, 1.0 GiB free")
    assert line.remedy == "more than is free now"
    assert not line.fatal
    (line,) = check.memory.replay(settings("cem_rl", budget__env_steps=10**9), HUMANOID)
    assert line.found.startswith("comes to take 2.7 GiB on each node")
    (line,) = check.memory.replay(amend(config, {"sac.replay_capacity": 10**7}), HUMANOID)
    assert line.fatal
    assert "set it to 1100000 or less" in line.remedy
    assert check.memory.replay(settings("es"), HUMANOID) == []


def machine(root, groups: str, place: str = "", **files: str):
    """Make a /proc of 8 GiB, half of it free, and files of a control group; return both numbers."""
    memory = "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"
    whole = {"proc/meminfo": memory, "proc/self/cgroup": groups}
    whole |= {f"sys/fs/cgroup/{place}/{name}": text for name, text in files.items()}
    for name, text in whole.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return ram.total(root), ram.free(root)


def test_memory_is_the_machines_or_what_a_control_group_leaves(tmp_path):
    assert machine(tmp_path / "alone", "0::/\n") == (2**33, 2**32)
    step = {"memory.max": "max", "memory.current": "5", "memory.stat": "anon 5\n"}
    job = {"memory.max": str(2**31), "memory.current": str(2**30)}
    job["memory.stat"] = f"inactive_file {2**29}\n"
    files = {f"step_0/{name}": text for name, text in step.items()} | job
    limited = machine(tmp_path / "v2", "0::/slurm/job_7/step_0\n", "slurm/job_7", **files)
    assert limited == (2**31, 2**31 - 2**29)
    old = {"memory.limit_in_bytes": str(2**63 - 4096), "memory.usage_in_bytes": "9"}
    old["memory.stat"] = "total_inactive_file 0"
    groups = "5:devices:/\n4:memory:/job\n0::/\n"
    assert machine(tmp_path / "v1", groups, "memory/job", **old) == (2**33, 2**32)


def test_memory_without_proc_is_what_the_system_says(tmp_path):
    assert ram.total(tmp_path) == ram.free(tmp_path) > 2**20
    assert ram.size(1.5 * 2**30) == "1.5 GiB"
    assert not math.isinf(ram.total())


@pytest.mark.parametrize(
    ("settings", "horizon", "said"),
    [
        ({"algorithm": "sac"}, 1600, "of 1,600: in a new run --sac.steps_per_generation 1600"),
        ({"algorithm": "sac"}, 1000, ""),
        ({"algorithm": "td3"}, 2000, "--td3.steps_per_generation 2000"),
        ({"algorithm": "ddpg", "ddpg.episodes_on": "ranks"}, 2000, ""),
        ({**EIGHT, "esac.phase_timing": "virtual"}, 2000, "--esac.sac_min_steps 2000"),
        (EIGHT, 2000, "first 1,000 steps of an episode at most, of 2,000: in a new run --esac.sac"),
        ({**EIGHT, "esac.workers": 1, "esac.update_cost": 1.0}, 2000, ""),  # 34,200 a phase
        ({"esac.phase_timing": "interval"}, 2000, ""),  # whole episodes
        ({"algorithm": "ppo"}, 9000, ""),  # its episodes go on in the next generation
        ({"algorithm": "es"}, 9000, ""),
    ],
)
def test_a_learner_whose_phases_cut_its_episodes_says_so(settings, horizon, said):
    found = memory.cut_episodes(amend(Config(), settings), horizon)
    assert said in found
    assert bool(found) == bool(said)


FEW = {"budget.nominal_steps": 20_000}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"algorithm": "td3", **FEW}, "td3.start_steps is 25,000"),
        ({"algorithm": "td3", **FEW, "td3.start_steps": 20_000}, ""),
        ({"algorithm": "ddpg"}, ""),  # a million steps
        ({"algorithm": "ddpg", "budget.nominal_steps": 0, "budget.minutes": 1.0}, ""),
        ({"algorithm": "sac", **FEW, "sac.start_steps": 50_000}, ""),  # it learns from these
        ({"algorithm": "sac", **FEW, "sac.batch_size": 30_000}, "sac.batch_size is 30,000"),
        ({"algorithm": "erl", "erl.learner": "td3", **FEW}, ""),  # its generations have 11,000
        ({"algorithm": "cem_rl", **FEW, "cem_rl.start_steps": 40_000}, "cem_rl.start_steps is"),
        ({"algorithm": "aes_rl", **FEW, "aes_rl.start_steps": 40_000}, "aes_rl.start_steps is"),
        ({"esac.sac_phases": False, "esac.sac_copies": 0, "esac.transfer": "off"}, ""),
        ({"algorithm": "ppo", **FEW}, ""),
        ({"algorithm": "es", **FEW}, ""),
    ],
)
def test_a_learner_that_the_budget_leaves_no_update_says_so(settings, said):
    found = memory.never_learns(amend(Config(), settings), 1000)
    assert said in found
    assert bool(found) == bool(said)


CHEETAH = SimpleNamespace(observation_size=17, action_size=6, horizon=1000)
WIDE = "--policy.hidden 20000 20000 --algorithm".split()
# vectors of State, thrice with a checkpoint's two images; of actor and critic values, gradient
# and two moments, all but the gradient copied and in two images
ES, SAC = 3 * 3, 3 * 1 + 2 * (4 + 3 * 3)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(memory, "GPUS", ())


@pytest.mark.parametrize(("algorithm", "vectors"), [("es", ES), ("sac", SAC)])
def test_what_large_networks_hold_is_counted_in_small_ones(algorithm, vectors, no_gpu):
    config = load([*WIDE, algorithm])[0]
    d = make_layout(config, CHEETAH).d
    assert memory.network_bytes(config, CHEETAH) == pytest.approx(4 * vectors * d, rel=1e-4)


def test_networks_that_cannot_fit_are_refused_with_what_would(no_gpu):
    config = load([*WIDE, "es"])[0]
    memory.refuse_networks(config, CHEETAH, 14 * 2**30)
    with pytest.raises(WrongUsage) as refusal:
        memory.refuse_networks(config, CHEETAH, 2**30)
    said = "policy.hidden = 20000 20000: 400,500,108 parameters, of which es comes to hold 13.4 GiB"
    assert str(refusal.value).startswith(said)
    assert "of rank 0 has 1.0 GiB: choose layers of 29,000,000 " in str(refusal.value)
    memory.refuse_networks(load(["--policy.hidden", "512", "512"])[0], CHEETAH, 1)


def test_networks_that_cannot_fit_are_2_before_they_are_made(no_gpu, tmp_path, capfd):
    line = [*TASK, "--policy.hidden", 10**6, 10**6, "--run-dir", tmp_path / "run"]
    assert "policy.hidden = 1000000 1000000: 1,000,0" in refused(*line)
    assert checked(*line) == 2
    assert "too large" in capfd.readouterr().out
    assert not list(tmp_path.iterdir())
