"""One generation of ESAC against the plain formulas of Algorithm 1 over whole vectors."""

from types import SimpleNamespace

import numpy as np
import pytest
from esac_by_hand import LAYOUT, OWN, Before, Fragile, advance, epsilon, make, make_es, returns
from small_runs import Ending

from esac_mpi import config
from esac_mpi.algorithms import es, esac
from esac_mpi.config import ESAC
from esac_mpi.operators import evolution, noise
from esac_mpi.operators.noise import Purpose
from esac_mpi.play.params import make_policy
from esac_mpi.play.rollout import ThetaNotFinite, play


def stepped(before, ranks, weight_decay=0.0):
    """Return line 11: plain sum over members, Adam, weight decay."""
    gradient = (before.gradient(ranks) - weight_decay * before.theta).astype(np.float32)
    return before.theta + evolution.adam_step(gradient, before.m, before.v, before.k, 0.05)


@pytest.mark.parametrize("crossover", ["row", "element", "off"])
@pytest.mark.parametrize("sampling", ["mirrored", "onesided"])
def test_a_generation_is_algorithm_1(world, crossover, sampling):
    pairs, copies = sampling == "mirrored", {"mirrored": 1, "onesided": 2}[sampling]
    settings = {"crossover": crossover, "sampling": sampling, "sac_copies": copies}
    params, state, env = make(world, **settings, weight_decay=0.01)
    state.theta_sac[:] += 0.1
    assert set(advance(world, params, state, env)["parent"].tolist()) == {0, 1}  # no child yet
    advance(world, params, state, env)  # so that children exist, and Adam has moments
    before = Before(state, pairs)
    offspring = before.offspring()
    row = advance(world, params, state, env)

    # lines 5-8
    fitness = returns(params, env, 3, offspring)
    np.testing.assert_array_equal(row["fitness"], fitness)
    assert np.unique(fitness).size == 10
    # lines 9, 10
    ranks = evolution.centered_ranks(fitness)
    winners = evolution.select_winners(fitness, 4)
    np.testing.assert_array_equal(row["winners"], winners)
    won = row["parent"][winners]
    counts = [int(of.sum()) for of in (won == 0, won == 1, won >= 2)]
    assert [row[f"wins_{name}"] for name in ("centre", "sac", "children")] == counts
    # line 11, then the pull
    pulled = 0.9 * stepped(before, ranks, 0.01)
    pulled += 0.1 * np.mean([offspring[i] for i in winners], axis=0)
    np.testing.assert_allclose(state.theta_es, pulled, atol=2e-5)
    change = (state.theta_es - before.theta).astype(float)
    towards = (before.sac - before.theta).astype(float)
    assert row["update_norm"] == pytest.approx(np.linalg.norm(change), rel=1e-5)
    cosine = change @ towards / np.linalg.norm(change) / np.linalg.norm(towards)
    assert row["cosine_to_sac"] == pytest.approx(cosine, rel=1e-4)
    # lines 26, 27: a child is the new theta_es but where it has its winner's values
    children = {"off": 0, "row": 2 if pairs else 4, "element": 2 if pairs else 4}[crossover]
    expected = [esac.CHILD + c for c in range(children)] + [esac.SAC_COPY] * copies
    expected += [esac.CENTRE] * ((5 if pairs else 10) - len(expected))
    assert state.parents.tolist() == expected
    for child in range(children):
        winner = offspring[winners[child]]
        taken = state.children[child] != state.theta_es
        np.testing.assert_array_equal(state.children[child][taken], winner[taken])
        if crossover == "row":
            rows, shapes = np.split(taken, LAYOUT.rows()[1:-1]), [t.shape for t in LAYOUT.tensors]
            random = noise.generator(0, Purpose.CROSSOVER, 3, child)
            expected_rows = evolution.exchanged_rows(random, shapes).tolist()
            assert [bool(r.all()) for r in rows] == expected_rows
            assert [bool(r.any()) for r in rows] == expected_rows
        else:
            assert taken.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("selection", ["soft", "uniform"])
@pytest.mark.parametrize(
    ("crossover", "finite"), [("row", [2, 7]), ("element", [6]), ("off", [2, 7])]
)
def test_a_generation_with_few_finite_members_goes_on_with_fewer(
    world, crossover, selection, finite
):
    options = {"crossover": crossover, "winner_selection": selection, "sac_copies": 1}
    params, state, _ = make(world, **options, population_size=20)
    env, slots = Fragile(), 10
    advance(world, params, state, env, 2)
    assert crossover == "off" or (state.children != 0).any(axis=1).all()
    before = Before(state)
    members = before.offspring()
    offspring = [members[i] for i in finite]
    env.whole = frozenset(noise.integer(0, Purpose.EPISODE, 3, i) for i in finite)
    row = advance(world, params, state, env)

    assert np.flatnonzero(np.isfinite(row["fitness"])).tolist() == finite
    order = sorted(range(len(finite)), key=lambda j: -row["fitness"][finite[j]])
    winners = [finite[j] for j in order]
    assert row["winners"].tolist() == winners + [-1] * (8 - len(winners))
    assert row["wins_centre"] + row["wins_sac"] + row["wins_children"] == len(winners)
    moved = stepped(before, evolution.centered_ranks(row["fitness"]))
    pulled = 0.9 * moved + 0.1 * np.mean(offspring, axis=0)
    np.testing.assert_allclose(state.theta_es, pulled, atol=2e-5)
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


@pytest.mark.parametrize(("kind", "copies"), [(esac.SAC_COPY, 150.0), (esac.CENTRE, 51.4)])
def test_members_are_expected_to_last_as_those_of_their_parent_did(kind, copies):
    """Five pairs; one winner, member 4, has a child, the other child's slot goes to theta_es."""
    table = ESAC(population_size=10, winner_fraction=0.4, sac_copies=1)
    parents = np.array([esac.CHILD, esac.CENTRE, kind, esac.CENTRE, esac.CENTRE])
    found = SimpleNamespace(length=np.array([1, 3, 10, 20, 100, 200, 30, 40, 50, 60]))
    state = SimpleNamespace(parents=parents, children=np.zeros((2, 1)))
    plan = SimpleNamespace(winners=np.array([4]))
    centre = 35.0 if kind == esac.SAC_COPY else 63.75  # (15 + 35 + 55) / 3, and 150 with them
    expected = esac.expected_slots(table, state, found, plan)
    assert expected.tolist() == pytest.approx([100.0, centre, copies, centre, centre])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("part", ["theta_sac", "children"])
def test_a_pull_beyond_what_is_finite_ends_the_run(world, part):
    """theta_es and its winners are finite, and as far apart as float32 cannot hold."""
    params, state, env = make(world, winner_fraction=0.8, sac_copies=1)
    advance(world, params, state, env)
    getattr(state, part)[..., :] = np.finfo(np.float32).max
    state.theta_es[:] = -np.finfo(np.float32).max
    with pytest.raises(ThetaNotFinite, match="generation 2: theta_es is no longer finite"):
        advance(world, params, state, env)


def test_the_length_cap_is_a_multiple_of_the_running_mean(world):
    params, state, _ = make(world, length_cap=1.2, p_sac_initial=0.0, p_sac_final=0.0)
    mean = 0.0
    for k in range(1, 6):
        cap = int(np.ceil(1.2 * mean))
        row = advance(world, params, state, Ending())
        whole = [2 + noise.integer(0, Purpose.EPISODE, k, i) % 9 for i in range(10)]
        assert row["length_cap"] == cap
        assert row["length"].tolist() == [min(length, cap or 99) for length in whole]
        new = np.mean(row["length"])
        mean = mean + 0.1 * (new - mean) if mean else new
        assert state.mean_length == pytest.approx(mean, rel=1e-12)


def test_a_pair_is_a_slot_of_the_public_code(world):
    preset = config.PRESETS["reference-code"].items()
    settings = {name.replace(".", "__"): value for name, value in preset if "policy" not in name}
    settings |= {"esac__sigma": 0.3, "esac__lr_es": 0.05}
    params, state, env = make(world, **settings, amt_interval=1, amt_clip=1.0)
    theta = state.theta_es.copy()
    ranks = evolution.centered_ranks(np.arange(20.0))
    gap = ranks.max() - ranks.mean()  # centred ranks of distinct returns: always the same
    for k in (1, 2):
        sigma = state.sigma
        parent = [theta, state.theta_sac][state.parents[3]].copy()
        row = advance(world, params, state, env)
        assert row["fitness"].shape == (20,)
        policy, start = make_policy(params, env), noise.integer(0, Purpose.EPISODE, k, 7)
        offspring = parent - np.float32(0.3) * epsilon(k, 3)  # member 7 of slot 3
        assert row["fitness"][7] == play(env, policy.set(offspring), start).episodic_return
        assert state.sigma == pytest.approx(sigma + 0.05 / (10 * sigma) * gap**2 / 2, rel=1e-12)
    assert state.sigma > 0.3


def test_start_states_and_learning_differ_by_seed(world):
    rows = [advance(world, *make(world, seed=seed)) for seed in (0, 1)]
    assert not np.isin(rows[0]["fitness"], rows[1]["fitness"]).any()


@pytest.mark.parametrize("scaled", [False, True])
def test_with_its_own_parts_off_esac_is_es_bit_for_bit(world, scaled):
    off = {"sac_copies": 0, "crossover": "off", "winner_pull": 0.0, "p_sac_initial": 0.0}
    params, state, env = make(world, **off, p_sac_final=0.0, scaled_noise=scaled)
    own = {name.removeprefix("esac."): value for name, value in OWN.items()}
    own |= {"start_states": "member", "observation_normalisation": False}
    plain, alone = make_es(world, **own, scaled_noise=scaled)
    for _ in range(3):
        advance(world, params, state, env)
        es.generation(plain, alone, world, env)
    np.testing.assert_array_equal(state.theta_es, alone.theta_es)
    np.testing.assert_array_equal(state.adam_v, alone.adam_v)
