"""Updates as a GPU makes them, on one that is none: their bits, what is captured, what waits."""

from types import SimpleNamespace

import numpy as np
import pytest
import test_cem_learner as cem
from fake_gpu import FakeGpu
from gradients import Line, same
from small_learners import learner as rival
from small_learners import played, sac

from esac_mpi.algorithms import aes_work
from esac_mpi.host import cooperative
from esac_mpi.host.cooperative import ON_DEVICE
from esac_mpi.learners import chunks, training
from esac_mpi.learners.chunks import Chunks
from esac_mpi.play.learner_phases import Flight

pytestmark = pytest.mark.slow

NORMED = {"policy__layer_norm": True, "sac__critic_layer_norm": True}
FORMS = {
    "sac": lambda: sac(sac__value_network=True, sac__automatic_temperature=True),
    "interleaved": lambda: sac(sac__interleaved=True, sac__updates_per_step=2.0),
    "normalised critics": lambda: sac(sac__critic_layer_norm=True),
    "bf16": lambda: sac(learner__precision="bf16", policy__linear=True, **NORMED),
    "small replay": lambda: sac(sac__replay_capacity=41),
    "td3": lambda: rival("td3", policy_delay=3),
    "td3 at the end": lambda: rival("td3", policy_delay=3, interleaved=False),
    "td3, normalised critics": lambda: rival("td3", policy_delay=3, critic_layer_norm=True),
    "ddpg": lambda: rival("ddpg", critic_weight_decay=0.01, policy__linear=True),
    "erl": lambda: rival("erl", critic_hidden=(8, 8), replay_capacity=300),
}
SUMS = np.array([[9.0], [1.0], [4.0]])  # over nine observations


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Let a phase have many chunks of slices; the last chunk and the last slice are not whole."""
    monkeypatch.setattr(chunks, "CHUNK", 7)
    monkeypatch.setattr(chunks, "SLICE", 3)


def captured(learner, **how):
    learner.chunks = Chunks(learner, FakeGpu(**how))
    return learner


def graphs(learner) -> int:
    return len(learner.chunks._gpu.graphs)


def phase(learner, k, sums=None):
    return played(learner, k, 61, sums)


@pytest.mark.parametrize(
    ("form", "early"),
    [*((form, False) for form in FORMS), *((form, True) for form in ("sac", "bf16", "td3"))],
)
def test_captured_updates_have_the_bits_of_those_made_one_by_one(form, early):
    """In three phases, the second of which standardises; copies come at once or late."""
    plain, fast = FORMS[form](), captured(FORMS[form](), early=early)
    for k, sums in enumerate((None, SUMS, None)):
        phases = [phase(learner, k, sums) for learner in (plain, fast)]
        assert phases[0].gradient_updates > 20
        assert phases[0].vector().tobytes() == phases[1].vector().tobytes()
        assert same(plain.arrays(), fast.arrays())
        assert np.array_equal(plain.theta, fast.theta)


def test_the_critic_of_individuals_has_them_from_a_former_ring():
    rows = cem.transitions(90)
    config = cem.settings(tau=0.1, replay_capacity=50)
    plain, fast = cem.learner(config, rows, 120), captured(cem.learner(config, rows, 120))
    actors = [cem.perturbed(plain.actor.layout, number) for number in (1, 2)]
    for k in (1, 2):
        means = [cooperative.run(made.teach(actors, 10, k, 110)) for made in (plain, fast)]
        assert means[0].vector().tobytes() == means[1].vector().tobytes()
        assert same(plain.arrays(), fast.arrays())
        assert np.array_equal(plain.taught, fast.taught)
    assert graphs(fast) == 2  # of a slice, and of one update


def test_it_moves_between_the_two_ways_and_over_a_checkpoint():
    """A phase one by one, one captured by another learner, one by one again: as never captured."""
    straight, first, second = sac(), sac(), captured(sac())
    for k in range(3):
        phase(straight, k)
    phase(first, 0)
    phase(second, 7)  # what it did before leaves no trace, nor do its rows on the device
    second.replay.restore(0, first.replay.rows(0, first.replay.added))
    second.load(first.arrays())
    phase(second, 1)
    third = sac()
    third.replay.restore(0, second.replay.rows(0, second.replay.added))
    third.load(second.arrays())
    phase(third, 2)
    assert same(straight.arrays(), third.arrays())


@pytest.mark.parametrize(
    ("form", "kinds"), [("sac", 2), ("ddpg", 1), ("td3", 2), ("td3 at the end", 5)]
)
def test_a_graph_is_captured_once_for_each_sequence(form, kinds):
    """TD3's are of two kinds, in three orders; all again for standardised rows."""
    learner = captured(FORMS[form]())
    sequence = [(None, 1), (None, 1), (SUMS, 2), (2 * SUMS, 2), (None, 2)]
    for k, (sums, expected) in enumerate(sequence):
        phase(learner, k, sums)
        assert graphs(learner) == expected * kinds


def test_a_ring_smaller_than_the_last_places_is_captured_too():
    learner = captured(sac())
    phase(learner, 0)
    learner.chunks._graphs.clear()
    learner.chunks._inputs[0].fill_(499)
    learner.chunks._mirror.rows = learner.chunks._mirror.rows[:20]
    learner.chunks._capture([(learner.due(),)])
    assert graphs(learner) == 3


def test_what_they_take_on_the_device_is_known_from_the_shapes():
    learner = FORMS["td3"]()
    told = Chunks.bytes(learner)
    made = Chunks(learner, FakeGpu())
    assert told == made._mirror.rows.nbytes + sum(tensor.nbytes for tensor in made._inputs)


def test_a_phase_leaves_its_rank_alone_while_the_device_works():
    """Slices end at once, the host draws at most two chunks ahead; time is the phase's."""
    now, plain, fast = 0.0, sac(), captured(sac(), pace=1)
    flight, waits = Flight(fast.begin(Line(), 0, 2, 61), 0, lambda: now, "SAC"), 0
    while not flight.done:
        # the clock stands still in it: only the phase's own word or its end can end a slice
        flight.advance()
        # two chunks' graphs, copies and marks of slices, counter
        assert len(fast.chunks._gpu.queue) <= 2 * (3 + 3 * (3 + 1) + 1)
        waits += flight.waits
        now += 2.0 * flight.waits
    assert waits > 20
    assert flight.seconds == flight.updating == 2.0 * waits
    assert flight.finish().vector().tobytes() == phase(plain, 0).vector().tobytes()


def test_no_more_than_a_slice_is_launched_without_a_break():
    """However fast the device is; what rank 0 asks for ends with the slice that ends its time."""
    fast, other = (captured(sac(), pace=1000) for _ in range(2))
    for learner in (fast, other):
        learner.replay.add_rows(np.zeros((50, learner.replay.width), np.float32))
    parts = []
    for part in fast.chunks.make(7 + 7 + 5, training.streams(0, 0)):
        parts.append(part)
        fast.chunks._gpu.queue.clear() if part == ON_DEVICE else None
    assert [part for part in parts if part != ON_DEVICE] == [3, 3, 1, 3, 3, 1, 3, 2]

    now = iter(np.arange(0.0, 10.0, 1e-3))  # each look at the clock takes a millisecond
    updates = other.chunks.make(70, training.streams(0, 0))
    flight = Flight(updates, 0, lambda: float(next(now)), "SAC")
    flight.advance(0.002)
    assert flight.updating == pytest.approx(0.002)


def test_the_end_of_a_phase_is_waited_for_without_a_core(monkeypatch):
    slept = []
    monkeypatch.setattr("esac_mpi.play.learner_phases.time.sleep", slept.append)
    flight = Flight(captured(sac(), pace=1).begin(Line(), 0, 2, 61), 0, lambda: 0.0, "SAC")
    assert flight.finish().gradient_updates > 20
    assert len(slept) > 20


def test_a_critics_turn_tells_aes_rls_clock_what_has_begun():
    """Of 30 updates at half a step each: never more than 15, less at first, and 15 at the end."""
    params = SimpleNamespace(config=SimpleNamespace(aes_rl=SimpleNamespace(of_critic=0.5)))
    plain, fast = (cem.learner(cem.settings(), cem.transitions(90)) for _ in range(2))
    captured(fast, pace=1)
    order = aes_work.Order(0, 3, 30, 90, None, cem.perturbed(plain.actor.layout, 1), None)
    ended = []

    def times(learner):
        ended.append((yield from aes_work.teach(params, learner, order)))

    list(times(plain))
    told = list(times(fast))
    assert told == sorted(told)
    assert told[0] < told[-1] == 15
    (steps, (taught, *rest)), (its_steps, (its, *others)) = ended
    assert steps == its_steps == 15
    assert np.array_equal(taught, its)
    assert rest[0] == others[0]
