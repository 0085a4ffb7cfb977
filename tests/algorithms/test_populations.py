"""What holds for all whose members have parameters of their own: CEM, CEM-RL, ERL's forms."""

from contextlib import nullcontext

import numpy as np
import pytest
from conftest import TIMED
from small_runs import PENDULUM, Ending, arguments, begun, made, raising, shared_bytes
from whole_runs import assert_same_run, killed_at
from words import words

from esac_mpi.algorithms import erl_births, erl_play
from esac_mpi.config import load
from esac_mpi.config.genetic import FORMS
from esac_mpi.envs import TaskError, make
from esac_mpi.host.stop import Abandoned, GivenUp
from esac_mpi.learners import deterministic as learner
from esac_mpi.learners import individuals
from esac_mpi.play import experience
from esac_mpi.play.rollout import NoFiniteReturn
from esac_mpi.record import read
from esac_mpi.training import set_up
from esac_mpi.training.check import memory

NAMES = ["cem", "cem_rl", *FORMS]


LESSONS = [  # parts of a generation: a function, and which call of it
    (experience, "explore", 2),
    (learner.DeterministicUpdate, "learn_actor", 3),
    (individuals.Individuals, "trained", 2),
    (experience, "explore", 6),  # of a trained one
]
BIRTHS = [
    (experience, "explore", 4),
    (erl_play, "play_learner", 1),
    (erl_births, "make_child", 1),
    (erl_births, "mutate", 2),
    (learner.DeterministicUpdate, "learn_actor", 3),
]
SHORT = "--cem_rl.start_steps 40 --cem_rl.replay_capacity 60 --cem_rl.critic"
SOME = "--erl.replay_capacity 60 --erl.fitness_episodes 2"
GIVEN_UP = {  # options, generations before, and in which parts one is given up
    "cem": ([], 1, [(experience, "explore", 4)]),
    "cem_rl serial": (words(SHORT, "serial"), 3, LESSONS),
    "cem_rl parallel": (words(SHORT, "parallel"), 3, LESSONS),
    "erl": (words(SOME), 1, BIRTHS),
    "pderl": (words(SOME, "--erl.memory_size", 20), 1, BIRTHS),
}


@pytest.mark.parametrize("case", GIVEN_UP)
def test_a_generation_given_up_anywhere_is_made_again(case, world, monkeypatch):
    """Given up in each part in turn, saved, and gone on with elsewhere; memories outlast a ring."""
    more, before, parts = GIVEN_UP[case]
    name = case.split()[0]
    straight, lost = made(world, name, *more), []
    for _ in range(before + len(parts)):
        straight.generation()
    expected = straight.saved()
    small = made(world, name, *more)
    for _ in range(before):
        small.generation()
    for where, function, call in parts:
        saved = small.saved()
        with monkeypatch.context() as patch:
            patch.setattr(where, function, raising(getattr(where, function), call, GivenUp))
            with pytest.raises(Abandoned):
                small.generation()
        np.testing.assert_equal(small.saved(), saved)
        world.end_background()  # as in a new process
        small = made(world, name, *more)
        small.load(saved)
        assert small.generation().get("trained", True), function
        lost.append(len(saved.get("state.memories.lost", ())))
    np.testing.assert_equal(small.saved(), expected)
    for array in ("replay", "memories"):
        found, there = (getattr(made.state, array, 0) for made in (small, straight))
        np.testing.assert_array_equal(found, there)
    assert any(lost) == (name == "pderl")
    if name == "cem_rl":
        assert small.learner.replay.added > 2 * 60


@pytest.mark.parametrize(("name", "before"), [("cem", 1), ("cem_rl", 3), ("derl", 1)])
def test_without_a_finite_return_the_run_ends_as_it_was(name, before, world):
    env = Ending()
    small = made(world, name, *words(f"--{name}.start_steps 40" * (name == "cem_rl")), env=env)
    for _ in range(before):
        small.generation()
    saved, env.breaking = small.saved(), 1
    with pytest.raises(NoFiniteReturn, match=f"generation {before + 1}: the return of no"):
        small.generation()
    np.testing.assert_equal(small.saved(), saved)


class Priced(Ending):
    """Ending that pays `price` at each step, too; its own rewards are from -12 to 0."""

    price = 0.0

    def step(self, action):
        observation, reward, *ends = super().step(action)
        return observation, reward + self.price, *ends


AES = "--aes_rl.workers 3 --aes_rl.start_steps 0 --aes_rl.mean_rule"
PLAIN = "--esac.reward_shift 0 --esac.observation_normalisation false --esac.resimulated better "
PLAIN += "--sac.lr_sac 1e-3"
COMPARED = {  # options, and the columns of a row that have returns which are compared
    "cem": (words("--cem.importance_mixing true --cem.damp 0.1 --cem.damp_limit 0.1"), "fitness"),
    "aes_rl": (words(f"{AES} full_move --aes_rl.variance_rule success"), "mean_return"),
    "aes_rl by ranks": (words(f"{AES} rank_oldest --aes_rl.ring_size 20"), "ring_fitness"),
    "esac": ([*TIMED, *words(PLAIN)], "learner_return"),
}


@pytest.mark.parametrize("case", COMPARED)
def test_in_a_task_that_changed_no_return_of_before_is_compared(case, world):
    more, column = COMPARED[case]
    line = ["--algorithm", case.split()[0], *PENDULUM, *more]
    small = begun(world, line, Priced(), Priced())
    for _ in range(6):
        row = small.generation()
    assert np.nanmax({**vars(small.state), **row}[column]) > -200
    saved = {name: array.copy() for name, array in small.saved().items()}
    world.end_background()  # as in a new process
    world.end_dispatch()
    small = begun(world, line, Priced(), Priced())
    small.load(saved)
    small.state.compare_no_more(another_task=True)
    small.env.price = small.params.own_env.price = -1000.0
    assert np.nanmax({**vars(small.state), **small.generation()}[column]) < -1000
    world.end_background()


# of one process each, in the generations after the checkpoint that it goes on from,
# one every second generation
KILLS = {
    "cem_rl": [
        ("esac_mpi.play.experience:explore", 20),
        ("esac_mpi.learners.deterministic:DeterministicUpdate.learn_actor", 50),
        ("esac_mpi.learners.individuals:Individuals.trained", 4),
        ("esac_mpi.algorithms.cem_rl:remember", 3),
        ("esac_mpi.record.files:_keep", 2),
    ],
    "pderl": [
        ("esac_mpi.algorithms.erl_births:make_child", 5),
        ("esac_mpi.algorithms.erl_births:mutate", 14),
        ("esac_mpi.learners.deterministic:DeterministicUpdate.learn_actor", 60),
        ("esac_mpi.operators.memories:copy", 9),
        ("esac_mpi.record.files:_keep", 2),
    ],
}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("cem_rl", "--cem_rl.replay_capacity 300"),
        ("pderl", "--erl.replay_capacity 300 --erl.updates_per_step 0.1"),
    ],
)
def test_killed_anywhere_it_goes_on_as_if_nothing_had_been(name, more, tmp_path, alone, together):
    more += " --checkpoint.every_generations 2 --budget.generations 12 --run-dir"
    line = arguments(name, *words(more))
    alone(*line, tmp_path / "straight")
    killed_at(KILLS[name], *line, tmp_path / "killed")
    arrays, attributes = read(tmp_path / "killed/checkpoint.h5")
    assert 0 < attributes["generation"] < 12
    assert not {"state/replay", "state/critics", "state/memories"} & arrays.keys()
    assert name == "cem_rl" or len(arrays["state/memories.lost"]) > 0
    together(3, *line, tmp_path / "killed")
    assert_same_run(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.parametrize("name", NAMES)
def test_shared_memory_needed_is_what_a_run_allocates(name, world):
    config, _ = load(list(map(str, arguments(name))))
    env, sizes = make("Pendulum-v1", 30), shared_bytes(world)
    made(world, name, env=env)
    memories = 2 * 7 * 80 * (4 * 4 + 8)  # rows of four float32 and ages, twice
    least = {"cem": 0, "erl": 0, "cem_rl": 1000 * (2 * 3 + 1 + 2) * 4}.get(name, memories)
    assert memory.count_shared(config, env, 1) - 2**20 == sum(sizes) > least


@pytest.mark.parametrize("name", NAMES)
def test_choices_are_for_those_without_gradients(name):
    config, _ = load(["--algorithm", name, "--task.id", "CartPole-v1"])
    refused = pytest.raises(TaskError, match=f"2 discrete actions; {name} needs continuous ones")
    with nullcontext() if name == "cem" else refused:
        set_up.make_task(config)


def test_memories_that_do_not_fit_are_named_with_what_to_lower(tmp_path, monkeypatch, together):
    monkeypatch.setenv("FREE", "300000")  # room for the rest
    more = words("--erl.memory_size 4000 --budget.generations 1 --run-dir", tmp_path / "run")
    done = together(2, *arguments("pderl", *more), code=2)
    need = 7 * 4000 * 4 * 4
    assert f"has 300000 bytes free; the shared arrays need {need} more" in done.stderr
    assert "or lower erl.memory_size = 4000" in done.stderr
    assert done.stderr.count("esac_mpi:") == 1
    assert not list(tmp_path.iterdir())
