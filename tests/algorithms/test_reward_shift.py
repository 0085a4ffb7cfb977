"""reward_shift selects by return - reward_shift * length; AES-RL's is in test_aes_arrival.py."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import own_envs
import pytest
from conftest import LEARNER, POPULATION, ROUTINE
from esac_by_hand import LAYOUT, Teacher, advance, make
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.registration import EnvSpec
from in_process import checked, started
from small_learners import run_phase
from small_runs import OPTIONS, begun
from words import words

from esac_mpi import envs
from esac_mpi.algorithms import esac_phase, esac_transfer
from esac_mpi.config import ESAC, Config, ConfigError, amend, from_table, load
from esac_mpi.envs.survival import survival_bonus, survival_shift
from esac_mpi.host import log
from esac_mpi.operators import evolution, selection
from esac_mpi.play import population
from esac_mpi.play.learner_phases import Phase
from esac_mpi.record import Run
from esac_mpi.studies.experiments.running import take_automatic
from esac_mpi.training.task_set_up import describe_task, resolve_by_task

IDLING = words("--task.id own_envs:Idling-v0", *ROUTINE)
RESTS, GOES = (10.0, 10), (9.0, 4)  # a rest returns 10 in 10 steps, a walk 9 in 4
WAITS = words("--esac.sac_min_steps 30 --esac.workers 2 --esac.update_cost 1 --sac.lr_sac 1e-3")
LINES = {
    "es": words("--es.population_size 12 --es.sigma 0.5"),
    "esac": [*POPULATION, *LEARNER, *WAITS],
    "cem": [*OPTIONS["cem"], "--cem.importance_mixing", "true"],
    "cem_rl": OPTIONS["cem_rl"],
    "pderl": OPTIONS["pderl"],
}


def line(name, *more, shift: object = 1.0):
    table = "erl" if name == "pderl" else name
    return ["--algorithm", name, *IDLING, *LINES[name], f"--{table}.reward_shift", shift, *more]


def idling(world, name, *more, shift: object = 1.0):
    return begun(world, line(name, *more, shift=shift), envs.make("own_envs:Idling-v0"))


def walks_first(row, chosen):
    """Return whether those chosen, best first, walk as far as there are walks."""
    lengths = row["length"][chosen]
    walks = int((row["length"] == GOES[1]).sum())
    assert 0 < walks < row["length"].size
    return (lengths[:walks] == GOES[1]).all() and bool((np.diff(lengths) >= 0).all())


def kinds(row):
    return set(zip(row["fitness"].tolist(), row["length"].tolist(), strict=True))


def test_a_fitness_by_hand():
    returns, lengths = np.array([1000.0, 950.0, np.nan, -5.0]), np.array([1000, 200, 10, 10.0])
    fitness = evolution.shifted(returns, lengths, 1.0)
    np.testing.assert_array_equal(fitness, [0, 750, np.nan, -15])
    assert evolution.select_winners(fitness, 4).tolist() == [1, 0, 3]
    assert evolution.shifted(returns, np.array(np.nan), 0.0) is returns


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("name", ["esac", "cem", "cem_rl"])
def test_the_best_by_fitness_win_and_rows_have_returns(name, shift, world):
    row = idling(world, name, shift=shift).generation()
    world.end_background()
    assert kinds(row) == {RESTS, GOES}
    assert walks_first(row, row["winners" if name == "esac" else "elites"]) == bool(shift)


def test_who_stays_keeps_the_fitness_of_its_own_episode(world):
    """It plays nothing, so that its length here is 0."""
    # Counted as that, a rest of 10 steps would be the best of all.
    small, stayed, lengths = idling(world, "cem", "--cem.fitness_episodes", 2), 0, np.zeros(6)
    for _ in range(6):
        kept = small.state.kept
        row = small.generation()
        whole = row["length"].astype(float)
        whole[: len(kept)] = lengths[kept]
        fitness = row["fitness"] - whole / 2
        assert row["elites"].tolist() == np.argsort(-fitness, kind="stable")[:3].tolist()
        assert (row["length"][: len(kept)] == 0).all()
        lengths, stayed = whole, stayed + len(kept)
    assert stayed > 0


@pytest.mark.parametrize("shaping", ["centered_ranks", "standardised", "sign", "sign_ranks"])
def test_the_gradient_of_es_is_that_of_the_fitness(shaping, world):
    """By signs each reward is less the shift: 0 for a step of a rest, 1 for each of 4 of a walk."""
    options = words("--es.optimiser sgd --es.lr_es 0.1 --es.fitness_shaping", shaping)
    small = idling(world, "es", *options)
    before = small.state.theta_es.copy()
    walks = small.generation()["length"] == GOES[1]
    fitness = np.where(walks, 4.0 if "sign" in shaping else 9.0 - 4, 10.0 - 10)
    if "ranks" in shaping:
        fitness = evolution.centered_ranks(fitness)
    elif shaping == "standardised":
        fitness = (fitness - fitness.mean()) / fitness.std()
    whole = slice(0, before.size)
    eps = np.array([small.params.epsilon.block(1, slot, 0, whole) for slot in range(6)])
    gradient = (fitness[0::2] - fitness[1::2]) @ eps / (12 * 0.5)
    assert 0 < walks.sum() < 12
    np.testing.assert_allclose(small.state.theta_es - before, 0.1 * gradient, atol=1e-5)


def test_mutation_tuning_goes_by_the_fitness(world):
    options = "--esac.sigma_rule grow --esac.amt_clip 10 --esac.amt_trigger interval"
    small = idling(world, "esac", *words(options), "--esac.amt_interval", 1)
    row = small.generation()
    world.end_background()
    gap = 5.0 - np.where(row["length"] == GOES[1], 5.0, 0.0).mean()
    loss = gap - 0.5 if gap >= 1 else gap**2 / 2  # smooth L1
    assert small.state.sigma == pytest.approx(0.3 + 0.05 / (10 * 0.3) * loss)


def test_tests_of_transfer_know_the_return_alone():
    """Copies of SAC rest, 10 each; others walk, 9 each: a shift of 1 would turn it round."""
    found = SimpleNamespace(returns=np.array([10.0, 10, 9, 9]), fitness=np.array([0.0, 0, 5, 5]))
    transfer = SimpleNamespace(start_return=np.nan)
    state = SimpleNamespace(parents=np.array([1, 0]), transfer=transfer)
    table = amend(Config(), {"esac.transfer": "means", "esac.reward_shift": 1.0}).esac
    assert esac_transfer.judge(table, state, found).transfers


class Lasting(Teacher):
    """A teacher whose own episodes return -2 in 1 or in 10 steps."""

    replay = SimpleNamespace(add_rows=lambda rows: None)

    def begin(self, env, k, *arguments):
        phase = yield from super().begin(env, k, *arguments)
        return Phase(phase.env_steps, 1, 0, 7, episodic_return=-2.0, episodic_length=self.length)


@pytest.mark.parametrize(("length", "better"), [(1.0, False), (1000.0, True)])
def test_members_are_compared_with_the_learner_by_fitness(length, better, world, monkeypatch):
    """Members last ten steps; the shift is 1."""
    # They are better than who lasts a thousand, not than who lasts one.
    settings = {"reward_shift": 1.0, "resimulated": "better", "phase_timing": "interval"}
    settings |= {"p_sac_annealed": False, "gradient_interval": 1}
    params, state, env = make(world, **settings)
    learner, seen, choose = Lasting(np.full(LAYOUT.d, 0.01, np.float32)), [], esac_phase.choose
    learner.length = length

    def chosen(*arguments):
        seen.append((choose(*arguments), arguments[1]))
        return seen[-1][0]

    monkeypatch.setattr(esac_phase, "choose", chosen)
    advance(world, params, state, env, 2, learner)
    assert state.learner_return == -2.0 - length
    again, found = seen[1]
    assert bool(again.members.size) == better
    assert (found.returns - 10 == found.fitness).all()
    assert again.returns.tolist() == found.returns[again.members].tolist()  # to which they are held


def test_who_earns_more_than_the_bonus_that_is_in_a_fitness():
    found = SimpleNamespace(fitness=np.array([10.0, 9.0, -3.0]), length=np.array([10, 4, 1]))
    for bonus, shift, episodes, earning in (
        (1.0, 0.0, 1, [False, True, False]),
        (1.0, 0.0, 2, [True, True, False]),  # of 5, 2 and a half step each
        (1.0, 0.1, 1, [True, True, False]),
        (1.0, 1.0, 1, [True] * 3),  # all of it is taken out
        (0.0, 0.5, 1, [True] * 3),  # none is known
    ):
        env = SimpleNamespace(layers=[SimpleNamespace(healthy_reward=bonus)])
        table = ESAC(reward_shift=shift, fitness_episodes=episodes)
        assert population.earns(env, table, found).tolist() == earning


def test_members_that_only_survive_are_not_resimulated(world, monkeypatch):
    def replayed(resimulated, bonus):
        monkeypatch.setattr(own_envs.Idling, "healthy_reward", bonus)
        more = words("--esac.observation_normalisation false")
        small = idling(world, "esac", *more, "--esac.resimulated", resimulated, shift=0.0)
        for _ in range(6):
            best = np.sort(small.generation()["fitness"])[-2:]
            assert best.tolist() == [RESTS[0]] * 2
        return small.state.counters.env_steps_replayed

    assert replayed("better", 1.0) >= 2 * RESTS[1]
    assert replayed("earning", 0.9) == replayed("better", 1.0)
    assert replayed("earning", 1.0) == 0


def test_the_learner_says_how_long_its_own_episodes_last(world):
    small = idling(world, "esac")
    phase = run_phase(small.learner, small.env, 9, 6, 1)
    assert phase.episodes == 6
    rests = round(phase.episodic_return * 6 - 6 * 9)
    assert phase.episodic_length == pytest.approx((10 * rests + 4 * (6 - rests)) / 6)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_champion_parents_and_the_learners_place_go_by_fitness(shift, world):
    public = words("--erl.preset reference-code --erl.sync_interval 1")
    small = idling(world, "pderl", *public, shift=shift)
    before = small.state.population.copy()
    row = small.generation()
    fitness = row["fitness"] - shift * row["length"]
    assert kinds(row) == {RESTS, GOES}
    best, worst = int(selection.order(fitness)[0]), int(np.argmin(fitness))
    np.testing.assert_array_equal(small.state.champion, before[best])
    assert row["length"][best] == (GOES if shift else RESTS)[1]
    assert row["injected"] in (worst, worst + 1)


@pytest.mark.slow
def test_the_start_says_the_number_and_goes_on_with_no_other(tmp_path, monkeypatch, capfd):
    def begin(generations, shift: object = "survival", check=False):
        more = "--run-dir", tmp_path / "run", "--budget.generations", generations
        return (checked if check else started)(*line("es", *more, shift=shift))

    said = []
    monkeypatch.setattr(log, "say", said.append)
    assert [begin(1), begin(2), begin(3, 1.0)] == [0, 0, 0]
    assert "  reward_shift 1: the bonus for survival" in said
    assert begin(4, 2) == 2
    assert "\n  es.reward_shift: 1.0 -> 2.0\n" in capfd.readouterr().err
    monkeypatch.setattr(own_envs.Idling, "healthy_reward", 2.0)  # as if somebody edited it
    cause = "es.reward_shift: 1.0 -> 2.0, as the task's healthy_reward, or what this version"
    assert begin(4) == 2
    assert cause in capfd.readouterr().err
    assert begin(4, check=True) == 2
    assert cause in capfd.readouterr().out
    found = Run.open(tmp_path / "run")
    open_one = amend(found.config, {"es.reward_shift": "survival"})
    assert take_automatic(open_one, found) == found.config
    assert (
        take_automatic(amend(found.config, {"es.reward_shift": 3.0}), found).es.reward_shift == 3.0
    )


@pytest.mark.parametrize(
    ("task", "kwargs", "bonus"),
    [
        ("Hopper-v5", {}, 1.0),
        ("Hopper-v5", {"healthy_reward": 2.5}, 2.5),
        ("Hopper-v5", {"forward_reward_weight": 0.0}, 0.0),
        ("Walker2d-v5", {}, 1.0),
        ("Ant-v5", {}, 1.0),
        ("Humanoid-v5", {}, 5.0),
        ("HalfCheetah-v5", {}, 0.0),
        ("InvertedPendulum-v5", {}, 0.0),
        ("InvertedDoublePendulum-v5", {}, 0.0),
        ("CyclicMDP-v0", {}, 0.0),
        ("dm_control/cartpole-balance-v0", {}, 0.0),
    ],
)
def test_the_bonus_for_survival_is_the_tasks(task, kwargs, bonus):
    assert survival_bonus(envs.make(task, 0, kwargs)) == (bonus, "")


class Calm(HopperEnv):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, -float(np.square(action).sum()), *rest


class Paid(Calm):
    healthy_reward = 0.5


class Tall(HopperEnv):
    def reset_model(self):
        return super().reset_model()


@pytest.mark.parametrize(
    ("robot", "found"),
    [(Calm, (0.0, "Calm may change what a step pays")), (Paid, (0.5, "")), (Tall, (1.0, ""))],
)
def test_a_robot_with_another_reward_names_its_own_bonus(robot, found, monkeypatch):
    spec = EnvSpec("Own-v0", robot, max_episode_steps=9)
    monkeypatch.setitem(gymnasium.registry, "Own-v0", spec)
    assert survival_bonus(envs.make("Own-v0")) == found


class Twice(gymnasium.Wrapper):
    """Repeat each action."""


def test_a_bonus_that_cannot_be_told_is_0_and_that_is_said():
    negative = envs.make("Hopper-v5", 0, {"healthy_reward": -1.0})
    wrapped = envs.make("Hopper-v5")
    wrapped._env = Twice(wrapped._env)
    for env, why in (
        (negative, "healthy_reward is -1.0"),
        (wrapped, "its wrapper Twice"),
        (envs.make("Ant-v5"), "an action costs up to 4"),
    ):
        config, names = resolve_by_task(Config(), env)
        assert config.esac.reward_shift == 0
        (said,) = (line for line in describe_task(config, names, env) if "shift" in line)
        assert "reward_shift 0" in said
        assert why in said
    sac = amend(Config(), {"algorithm": "sac"})
    assert resolve_by_task(sac, negative)[0].esac.reward_shift == "survival"


class Robot(gymnasium.Env):
    """A robot of a user's own; the weight of its actions' cost may be no number."""

    _healthy_reward = 1.0

    def __init__(self, weight, discrete=False):
        self.weight = weight
        box = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gymnasium.spaces.Discrete(2) if discrete else box

    @property
    def _ctrl_cost_weight(self):
        return self.weight / 1


@pytest.mark.parametrize(
    ("weight", "discrete", "shift", "why"),
    [
        (0.5, False, 1.0, ""),
        (0.6, False, 0.0, "an action costs up to 1.2, which a fall would save"),
        (np.array([0.3, 0.6]), False, 1.0, ""),
        (np.array([0.6, 0.6]), False, 0.0, "an action costs up to 1.2, which a fall would save"),
        (0.6, True, 1.0, ""),  # choices have no size
        ("much", False, 0.0, "its _ctrl_cost_weight raises TypeError"),
    ],
)
def test_an_own_robots_actions_may_cost_as_much_as_survival_pays(weight, discrete, shift, why):
    env = SimpleNamespace(layers=[Robot(weight, discrete)])
    assert survival_shift(env) == (shift, why)
    assert survival_bonus(env) == (1.0, "")


@pytest.mark.parametrize(
    ("weight", "bonus", "found"),
    [
        (np.array([1.0, 0.5]), 1.0, (1.0, "")),
        (np.zeros(2), 1.0, (0.0, "")),
        (1.0, np.ones(2), (0.0, "its healthy_reward is array([1., 1.])")),
    ],
)
def test_an_own_robots_weight_and_bonus_may_be_arrays(weight, bonus, found):
    own = SimpleNamespace(_forward_reward_weight=weight, healthy_reward=bonus)
    assert survival_bonus(SimpleNamespace(layers=[own])) == found


def test_what_a_shift_may_be():
    for given, kept in ((2, 2.0), (0.5, 0.5), ("survival", "survival")):
        found = from_table({"es": {"reward_shift": given}}, "x.toml")["es.reward_shift"]
        assert (found, type(found)) == (kept, type(kept))
    for wrong in (True, "alive", [1.0]):
        with pytest.raises(ConfigError, match=r"es\.reward_shift = .*: expected a number"):
            from_table({"es": {"reward_shift": wrong}}, "x.toml")
    for refused in ("es --es.reward_shift -1", "es --es.reward_shift inf"):
        with pytest.raises(ConfigError, match="must be at least 0 and finite"):
            load(words(f"--algorithm {refused}"))
    with pytest.raises(ConfigError, match="algorithm = sac does not read it"):
        load(words("--algorithm sac --esac.reward_shift 1"))
    assert load(["--algorithm", "es"])[0].es.reward_shift == "survival"
