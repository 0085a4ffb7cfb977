"""One generation of ESAC against the plain formulas of Algorithm 1 over whole vectors."""

import numpy as np
import pytest
from mpi4py import MPI

from esac_mpi import config, evolution, noise
from esac_mpi.algorithms import es, esac
from esac_mpi.comm import World
from esac_mpi.epsilon import Philox
from esac_mpi.epsilon import make as make_epsilon
from esac_mpi.learning import Phase
from esac_mpi.noise import Purpose
from esac_mpi.params import Params, make_policy
from esac_mpi.policy import Layout
from esac_mpi.rollout import ThetaNotFinite, evaluate_policies, play

SETTINGS = {"esac.population_size": 10, "esac.sigma": 0.3, "esac.lr_es": 0.05, "policy.hidden": (140, 140)}
LAYOUT = Layout((3, 140, 140, 3))  # two blocks of parameters


class Track:
    """Observe [3], act [3]: the reward is -|action - observation|^2, so that no two members have the same return."""

    id, observation_size, action_size, horizon, unstable = "Track", 3, 3, 10, False
    low, high = -np.ones(3, np.float32), np.ones(3, np.float32)

    def reset(self, seed):
        self.random, self.left, self.steps = np.random.default_rng(seed), 10, getattr(self, "steps", 0)
        self.observation = self.random.uniform(-1, 1, 3).astype(np.float32)
        return self.observation

    def step(self, action):
        reward = -float(np.square(action - self.observation).sum())
        self.observation = self.random.uniform(-1, 1, 3).astype(np.float32)
        self.left -= 1
        self.steps += 1
        return self.observation, reward, False, self.left == 0


class Teacher:
    """A learner whose phases move theta to where the test wants it."""

    NAME = "SAC"

    def __init__(self, theta):
        self.theta, self.phases = theta, []

    def begin(self, env, k, episodes, steps, cut=False):
        yield
        self.phases.append(k)
        return Phase(env_steps=steps, episodes=episodes, gradient_updates=7)

    def hold(self):
        self.held = True

    def release(self):
        self.held = False


@pytest.fixture
def world():
    alone = World(MPI.COMM_SELF)
    yield alone
    alone.free()


def make(world, **settings):
    options = config.updated(
        config.Config(), {**SETTINGS, **{name.replace("__", "."): value for name, value in settings.items()}}
    )
    config.check(options)
    params = Params(options, LAYOUT, 10, make_epsilon(options.esac, options.seed, LAYOUT, world))
    return params, esac.init(params, world), Track()


def epsilon(k, slot):
    return np.concatenate([noise.normal(0, Purpose.MUTATION, k, slot, b, p.stop - p.start) for b, p in noise.blocks(LAYOUT.d)])


def advance(world, params, state, env, generations=1, learner=None):
    for _ in range(generations):
        row, _ = esac.generation(params, state, world, env, learner)
    return row


@pytest.mark.parametrize("crossover", ["row", "element", "off"])
@pytest.mark.parametrize("sampling", ["mirrored", "onesided"])
def test_a_generation_is_algorithm_1(world, crossover, sampling):
    copies = {"mirrored": 1, "onesided": 2}[sampling]
    params, state, env = make(
        world, esac__crossover=crossover, esac__sampling=sampling, esac__sac_copies=copies, esac__weight_decay=0.01
    )
    state.theta_sac[:] += 0.1
    advance(world, params, state, env, 2)  # so that children exist, and Adam has moments
    vectors = [state.theta_es.copy(), state.theta_sac.copy(), *state.children.copy()]
    parents = [vectors[kind] for kind in state.parents]
    theta, sac, m, v, sigma = state.theta_es.copy(), state.theta_sac.copy(), state.adam_m.copy(), state.adam_v.copy(), state.sigma
    row = advance(world, params, state, env)

    # lines 5-8
    pairs = sampling == "mirrored"
    members = [(i // 2, 1 - 2 * (i % 2)) if pairs else (i, 1) for i in range(10)]
    offspring = [parents[slot] + np.float32(sign * sigma) * epsilon(3, slot) for slot, sign in members]
    policy = make_policy(params, env)
    starts = [noise.integer(0, Purpose.EPISODE, 3, i) for i in range(10)]
    fitness = np.array([play(env, policy.set(o), s).episodic_return for o, s in zip(offspring, starts, strict=True)])
    np.testing.assert_array_equal(row["fitness"], fitness)
    assert np.unique(fitness).size == 10
    # lines 9, 10
    ranks = evolution.centered_ranks(fitness)
    winners = evolution.select_winners(fitness, 4)
    np.testing.assert_array_equal(row["winners"], winners)
    # line 11: plain sum over members, Adam, weight decay; then the pull
    gradient = sum(r * sign * epsilon(3, slot) for r, (slot, sign) in zip(ranks, members, strict=True)) / (10 * sigma)
    stepped = theta + evolution.adam_step((gradient - 0.01 * theta).astype(np.float32), m, v, 3, 0.05)
    pulled = 0.9 * stepped + 0.1 * np.mean([offspring[i] for i in winners], axis=0)
    np.testing.assert_allclose(state.theta_es, pulled, atol=2e-5)
    np.testing.assert_allclose(row["update_norm"], np.linalg.norm(state.theta_es - theta), rtol=1e-5)
    change, towards = (state.theta_es - theta).astype(float), (sac - theta).astype(float)
    np.testing.assert_allclose(
        row["cosine_to_sac"], change @ towards / np.linalg.norm(change) / np.linalg.norm(towards), rtol=1e-4
    )
    # lines 26, 27: a child is the new theta_es but where it has its winner's values
    children = {"off": 0, "row": 2 if pairs else 4, "element": 2 if pairs else 4}[crossover]
    expected = [esac.CHILD + c for c in range(children)] + [esac.SAC_COPY] * copies
    assert state.parents.tolist() == expected + [esac.CENTRE] * ((5 if pairs else 10) - len(expected))
    for child in range(children):
        winner = offspring[winners[child]]
        taken = state.children[child] != state.theta_es
        np.testing.assert_array_equal(state.children[child][taken], winner[taken])
        if crossover == "row":
            rows = np.split(taken, LAYOUT.rows()[1:-1])
            expected_rows = evolution.exchanged_rows(noise.generator(0, Purpose.CROSSOVER, 3, child), [140, 140, 140, 140, 3, 3])
            assert [bool(r.all()) for r in rows] == expected_rows.tolist()
            assert [bool(r.any()) for r in rows] == expected_rows.tolist()
        else:
            assert taken.mean() == pytest.approx(0.5, abs=0.02)


def test_in_the_first_generation_children_slots_have_theta_es(world):
    params, state, env = make(world)
    row = advance(world, params, state, env)
    assert row["parent"].tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0]
    assert advance(world, params, state, env)["parent"].tolist() == [2, 2, 3, 3, 1, 1, 0, 0, 0, 0]


def test_winners_are_counted_by_their_parents(world):
    params, state, env = make(world)
    for _ in range(4):
        row = advance(world, params, state, env)
        kinds = row["parent"][row["winners"]]
        assert row["wins_centre"] == (kinds == 0).sum()
        assert row["wins_sac"] == (kinds == 1).sum()
        assert row["wins_children"] == (kinds >= 2).sum()


class Fragile(Track):
    """Track whose rewards are `broken` in the episodes of all but a few seeds, while `whole` names some."""

    broken = np.nan
    whole: frozenset[int] | None = None

    def reset(self, seed):
        self.breaks = self.whole is not None and seed not in self.whole
        return super().reset(seed)

    def step(self, action):
        observation, reward, terminated, truncated = super().step(action)
        return observation, self.broken if self.breaks else reward, terminated, truncated


@pytest.mark.parametrize("selection", ["soft", "uniform"])
@pytest.mark.parametrize(("crossover", "finite"), [("row", [2, 7]), ("element", [6]), ("off", [2, 7])])
def test_only_finite_members_win_and_a_generation_with_fewer_goes_on_with_fewer(world, crossover, selection, finite):
    options = {"esac__crossover": crossover, "esac__winner_selection": selection, "esac__sac_copies": 1}
    params, state, _ = make(world, **options, esac__population_size=20)
    env, slots = Fragile(), 10
    advance(world, params, state, env, 2)
    assert crossover == "off" or (state.children != 0).any(axis=1).all()
    before = [state.theta_es.copy(), state.theta_sac.copy(), *state.children.copy()]
    offspring = [before[state.parents[i // 2]] + np.float32((1 - 2 * (i % 2)) * 0.3) * epsilon(3, i // 2) for i in finite]
    m, v, theta = state.adam_m.copy(), state.adam_v.copy(), before[0]
    env.whole = frozenset(noise.integer(0, Purpose.EPISODE, 3, i) for i in finite)
    row = advance(world, params, state, env)

    assert np.flatnonzero(np.isfinite(row["fitness"])).tolist() == finite
    order = sorted(range(len(finite)), key=lambda j: -row["fitness"][finite[j]])
    winners = [finite[j] for j in order]
    assert row["winners"].tolist() == winners + [-1] * (8 - len(winners))
    assert row["wins_centre"] + row["wins_sac"] + row["wins_children"] == len(winners)
    ranks = evolution.centered_ranks(row["fitness"])
    gradient = sum(r * (1 - 2 * (i % 2)) * epsilon(3, i // 2) for i, r in enumerate(ranks)) / (20 * 0.3)
    stepped = theta + evolution.adam_step(gradient.astype(np.float32), m, v, 3, 0.05)
    np.testing.assert_allclose(state.theta_es, 0.9 * stepped + 0.1 * np.mean(offspring, axis=0), atol=2e-5)
    born = 0 if crossover == "off" else len(winners)
    free = 0 if crossover == "off" else 4
    kinds = [esac.CHILD + c for c in range(born)] + [esac.CENTRE] * (free - born) + [esac.SAC_COPY]
    assert state.parents.tolist() == kinds + [esac.CENTRE] * (slots - len(kinds))
    for child, j in enumerate(order[:born]):
        taken = state.children[child] != state.theta_es
        np.testing.assert_array_equal(state.children[child][taken], offspring[j][taken])
    assert not state.children[born:].any()
    env.whole = None
    row = advance(world, params, state, env)
    assert row["winners"].min() >= 0
    assert np.isfinite(state.theta_es).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("part", ["theta_sac", "children"])
def test_winners_that_pull_theta_beyond_what_is_finite_end_the_run(world, part):
    """theta_es and its winners are finite, and as far apart as float32 cannot hold."""
    params, state, env = make(world, esac__winner_fraction=0.8, esac__sac_copies=1)
    advance(world, params, state, env)
    getattr(state, part)[..., :] = np.finfo(np.float32).max
    state.theta_es[:] = -np.finfo(np.float32).max
    with pytest.raises(ThetaNotFinite, match="generation 2: theta_es is no longer finite"):
        advance(world, params, state, env)


def test_phases_run_every_g_generations_and_tune_sigma_by_equation_6(world):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__amt_clip=0.01)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    sigma, multiplier = 0.3, 1.0
    for k in range(1, 8):
        row = advance(world, params, state, env, learner=learner)
        assert row["sigma"] == sigma
        if k % 3 == 0:
            returns = row["fitness"]
            gap = returns.max() - returns.mean()
            step = min(0.05 / (10 * sigma) * (gap - 0.5 if gap >= 1 else gap * gap / 2), 0.01)
            sigma, multiplier = sigma + step, multiplier * (1 + step / sigma)
            assert step > 0
        assert state.sigma == pytest.approx(sigma, rel=1e-12)
        assert state.tuning_multiplier == pytest.approx(multiplier, rel=1e-12)
        assert (state.theta_sac == 0.5).all() == (k >= 3)
    assert learner.phases == [3, 6]
    assert state.tuning_multiplier == pytest.approx(state.sigma / 0.3)
    assert (state.counters.gradient_updates, state.counters.env_steps_learner) == (14, 2 * params.config.esac.sac_min_steps)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_the_result_of_a_phase_enters_lag_generations_later(world, lag):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=lag, esac__amt_clip=0.01)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    for k in range(1, 9):
        row = advance(world, params, state, env, learner=learner)
        assert row["sac_phase"] == (k % 3 == 0)
        assert (state.theta_sac == 0.5).all() == (k >= 3 + lag)
        assert state.phase_begun == (k // 3 * 3 if k >= 3 and k - k // 3 * 3 < lag else 0)
        assert getattr(learner, "held", False) == bool(state.phase_begun)
        assert np.isfinite(row["sac_episodes"])
        assert row["sac_episodes"] == (params.config.esac.sac_episodes if k >= 3 + lag and (k - lag) % 3 == 0 else 0)
        assert state.counters.learner_phases == max(k - lag, 0) // 3
        assert (state.sigma > 0.3) == (k >= 3)  # AMT is part of the plan: it does not wait


def test_what_a_phase_raises_is_raised_where_its_result_was_due(world):
    class Failing(Teacher):
        def begin(self, env, k, episodes, steps, cut=False):
            yield
            raise FloatingPointError("the learner diverged")

    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=2)
    learner = Failing(state.theta_sac.copy())
    advance(world, params, state, env, 4, learner)
    world.background.advance()  # as where other ranks evaluate
    assert world.background.done
    with pytest.raises(FloatingPointError, match="diverged") as error:
        advance(world, params, state, env, 1, learner)
    assert "in the SAC phase of generation 3" in error.value.__notes__


def test_a_phase_in_flight_is_begun_again_after_a_restart(world):
    params, state, env = make(world, esac__gradient_interval=3, esac__p_sac_final=1.0, esac__learner_lag=2)
    learner = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    advance(world, params, state, env, 4, learner)
    assert (state.phase_begun, learner.phases) == (3, [])
    world.end_background()  # as in a new process
    again = Teacher(np.full(LAYOUT.d, 0.5, np.float32))
    advance(world, params, state, env, 1, again)
    assert (again.phases, again.held, state.phase_begun) == ([3], False, 0)


def test_the_length_cap_truncates_at_a_multiple_of_the_running_mean(world):
    class Fading(Track):
        def reset(self, seed):
            observation = super().reset(seed)
            self.left = 2 + seed % 9
            return observation

    params, state, _ = make(world, esac__length_cap=1.2, esac__p_sac_initial=0.0, esac__p_sac_final=0.0)
    mean = 0.0
    for k in range(1, 6):
        cap = int(np.ceil(1.2 * mean))
        row = advance(world, params, state, Fading())
        whole = [2 + noise.integer(0, Purpose.EPISODE, k, i) % 9 for i in range(10)]
        assert row["length_cap"] == cap
        assert row["length"].tolist() == [min(length, cap or 99) for length in whole]
        new = np.mean(row["length"])
        mean = mean + 0.1 * (new - mean) if mean else new
        assert state.mean_length == pytest.approx(mean, rel=1e-12)


def test_no_phase_runs_where_p_sac_is_zero(world):
    params, state, env = make(world, esac__gradient_interval=1, esac__p_sac_initial=0.0, esac__p_sac_final=0.0)
    advance(world, params, state, env, 5)
    assert state.counters.learner_phases == 0
    assert state.sigma == 0.3


def test_members_of_a_slot_share_a_start_state_if_told(world):
    seeds = []

    class Seen(Track):
        def reset(self, seed):
            seeds.append(seed)
            return super().reset(seed)

    for start_states, distinct in (("slot", 5), ("member", 10)):
        seeds.clear()
        params, state, _ = make(world, esac__start_states=start_states)
        advance(world, params, state, Seen())
        assert len(set(seeds)) == distinct


def test_only_centre_members_enter_the_gradient_if_told(world):
    params, state, env = make(world, esac__gradient_members="centre", esac__winner_pull=0.0, esac__optimiser="sgd")
    theta = state.theta_es.copy()
    row = advance(world, params, state, env)
    ranks = evolution.centered_ranks(row["fitness"])
    centre = [0, 1, 3, 4]  # in the first generation; slot 2 is the SAC copy
    gradient = sum((ranks[2 * j] - ranks[2 * j + 1]) * epsilon(1, j) for j in centre) / (8 * 0.3)
    assert np.abs(gradient).max() > 0.1
    np.testing.assert_allclose(state.theta_es, theta + 0.05 * gradient, atol=1e-6)


def test_the_pull_is_off_in_the_papers_reading(world):
    params, state, env = make(world, esac__winner_pull=0.0)
    row = advance(world, params, state, env)
    assert row["update_norm"] == pytest.approx(row["es_step_norm"], rel=1e-6)
    params, state, env = make(world)
    row = advance(world, params, state, env)
    assert row["update_norm"] != pytest.approx(row["es_step_norm"], rel=1e-3)


def test_every_step_of_the_population_and_of_an_evaluation_is_counted(world):
    params, state, env = make(world, esac__fitness_episodes=2)
    row = advance(world, params, state, env)
    assert state.counters.env_steps_population == env.steps == row["length"].sum() == 10 * 2 * 10
    _, steps, unstable = evaluate_policies(world, env, make_policy(params, env), state.policies, 3, 0, 1)
    assert (steps, unstable) == (env.steps - 200, 0) == (2 * 3 * 10, 0)


def test_a_pair_is_a_slot_of_the_public_code_and_its_sigma_never_reaches_the_noise(world):
    repo = config.READINGS["repo"]
    settings = {name.replace(".", "__"): value for name, value in repo.items() if not name.startswith("policy")}
    params, state, env = make(world, **settings, esac__amt_interval=1, esac__amt_clip=1.0)
    theta = state.theta_es.copy()
    ranks = evolution.centered_ranks(np.arange(20.0))
    for k in (1, 2):
        sigma = state.sigma
        parents = [[theta, state.theta_sac][kind].copy() for kind in state.parents]
        row = advance(world, params, state, env)
        assert row["fitness"].shape == (20,)
        policy, start = make_policy(params, env), noise.integer(0, Purpose.EPISODE, k, 7)
        offspring = parents[3] - np.float32(0.3) * epsilon(k, 3)  # member 7 of slot 3
        assert row["fitness"][7] == play(env, policy.set(offspring), start).episodic_return
        gap = ranks.max() - ranks.mean()  # centred ranks of distinct returns: always the same
        assert state.sigma == pytest.approx(sigma + 0.05 / (10 * sigma) * gap**2 / 2, rel=1e-12)
    assert state.sigma > 0.3


def test_start_states_and_learning_differ_by_seed(world):
    rows = [advance(world, *make(world, seed=seed)) for seed in (0, 1)]
    assert not np.isin(rows[0]["fitness"], rows[1]["fitness"]).any()


def test_with_its_own_parts_off_esac_is_es_bit_for_bit(world):
    off = {"esac__sac_copies": 0, "esac__crossover": "off", "esac__winner_pull": 0.0, "esac__p_sac_initial": 0.0}
    params, state, env = make(world, **off, esac__p_sac_final=0.0)
    table = {name.replace("esac", "es"): value for name, value in SETTINGS.items()}
    plain = Params(config.updated(config.Config(), table), LAYOUT, 10, Philox(0))
    alone = es.init(plain, world)
    for _ in range(3):
        advance(world, params, state, env)
        es.generation(plain, alone, world, env)
    np.testing.assert_array_equal(state.theta_es, alone.theta_es)
    np.testing.assert_array_equal(state.adam_v, alone.adam_v)
