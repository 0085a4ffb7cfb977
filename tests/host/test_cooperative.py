"""Turns of work: so many parts or so much time long, and what comes of the work is the same."""

import math

import numpy as np
import pytest
from gradients import Line

from esac_mpi.host import cooperative
from esac_mpi.play.rollout import exploring, playing


def test_a_turn_is_over_after_its_parts_or_its_time():
    now = [0.0]
    turn, found = cooperative.Turn(3, lambda: now[0]), []
    for lasts in (0.0, 0.0, 0.0, cooperative.LONGEST, 0.04, 0.04, 0.0):  # [s]
        now[0] += lasts
        found.append(turn.over())
        if found[-1]:
            now[0] += 9.0  # others' turns, which do not count
            turn.begin()
    assert found == [False, False, True, True, False, False, True]


def turns_and_result(work):
    told = []
    while True:
        try:
            told.append(next(work))
        except StopIteration as end:
            return told, end.value


@pytest.mark.parametrize(("longest", "after"), [(math.inf, 64), (0.0, 1)])
def test_slow_steps_let_others_have_their_turn_after_each(monkeypatch, longest, after):
    monkeypatch.setattr(cooperative, "LONGEST", longest)
    monkeypatch.setattr(Line, "horizon", 150)
    expected = list(range(after, 151, after))

    def act(observation):
        return np.zeros(1, np.float32)

    told, (rows, episode) = turns_and_result(exploring(Line(), act, 0))
    assert (told, len(rows), episode.episodic_length) == (expected, 150, 150)
    told, episode = turns_and_result(playing(Line(), act, 0))
    assert (len(told), episode.episodic_length) == (len(expected), 150)


def test_what_is_told_of_slow_parts_is_told_of_each(monkeypatch):
    def work():
        yield from "abcdef"
        return "all"

    def told():
        return turns_and_result(cooperative.report(work(), lambda *part: part, every=4))

    monkeypatch.setattr(cooperative, "LONGEST", math.inf)
    assert told() == ([("d", 4)], "all")
    monkeypatch.setattr(cooperative, "LONGEST", 0.0)
    assert len(told()[0]) == 6
