"""The race's records: read as they were written, and whose of them count."""

import math
from dataclasses import replace

import pytest
from racing import row

from esac_mpi.analysis.messages import Unusable
from tools.bench.race import rows, standings


def test_rows_are_read_as_they_were_written_and_a_line_that_was_cut_is_left_out(tmp_path):
    path = tmp_path / "race.csv"
    first, second = row("A", "ESAC", 0, 12.5), row("A", "SB3 SAC, 4 envs", 1, 190.0, best=-math.inf)
    assert rows.read(path) == []
    rows.append(path, first)
    for cut in ("k,A,100,ES", 'k,A,100,"SB3 SAC, 4 en'):  # the second within quotes
        path.write_text(path.read_text() + f"{cut}\n")
    path.write_text(path.read_text()[:-1])
    rows.append(path, second)
    assert rows.read(path) == [first, second]
    former = [line.rpartition(",")[0] for line in path.read_text().splitlines()]
    path.write_text("\n".join(former) + "\n")  # of a version that had no reasons
    assert rows.read(path) == [first, second]
    rows.append(path, replace(first, outcome=rows.FAILED, why='exit code 1: "a", b'))
    assert rows.read(path) == [
        first,
        second,
        replace(first, outcome=rows.FAILED, why='exit code 1: "a", b'),
    ]
    rows.append(path, replace(first, outcome="won"))
    for content, said in (
        (path.read_bytes(), "a damaged row"),
        (b"generation,return\n1,2\n", "no rows"),
        (b"\xff", "no rows"),
    ):
        path.write_bytes(content)
        with pytest.raises(Unusable, match=said) as raised:
            rows.read(path)
        assert raised.value.code == 65


def test_a_heat_is_of_one_machine():
    wanted = {("a", 0): ("A", 0), ("b", 0): ("A", 0), ("a", 1): ("A", 1), ("b", 1): ("A", 1)}

    def made(key: str, seed: int, cpu: str, **changes) -> rows.Row:
        return row("A", key, seed, 9.0, made_with=key, cpu=cpu, **changes)

    here, there = [made("a", 0, "here")], [made("a", 0, "there"), made("b", 0, "there")]
    assert rows.counted([*there[:1], *here], wanted, "here") == {
        ("a", 0): here[0]
    }  # begun on both: goes on here
    assert rows.counted([*here, *there], wanted, "here") == {
        ("a", 0): there[0],
        ("b", 0): there[1],
    }  # whole there
    whole = [*here, made("b", 0, "here")]
    assert rows.counted([*there, *whole], wanted, "here") == {
        ("a", 0): whole[0],
        ("b", 0): whole[1],
    }  # whole on both
    assert rows.counted([*there, *whole], wanted, "elsewhere") == {
        ("a", 0): there[0],
        ("b", 0): there[1],
    }
    failed = made("b", 0, "there", outcome=rows.FAILED)
    assert (
        rows.counted([there[0], failed], wanted, "here") == {}
    )  # to be made again, here with the others
    assert rows.counted([there[0], failed, there[1]], wanted, "here") == {
        ("a", 0): there[0],
        ("b", 0): there[1],
    }
    later = [made("a", 1, "there"), made("b", 1, "there")]
    assert list(rows.counted([*whole, *later], wanted, "here")) == list(
        wanted
    )  # the next seed's heat, on another one
    assert rows.counted([made("c", 0, "here")], wanted, "here") == {}


def test_a_seed_that_not_everyone_has_run_yet_does_not_count():
    made = [row("A", "ESAC", 0, 20.0), row("A", "ESAC", 1, 50.0), row("A", "SB3 PPO", 0, 40.0)]
    found = standings.Standings(made)
    assert (found.first("A"), found.medians("A"), found.ratio("A")) == (
        "ESAC",
        {"ESAC": 20.0, "SB3 PPO": 40.0},
        (2.0, "2"),
    )
    assert "one seed" in found.markdown()
    apart = standings.Standings(made[1:])  # no seed in common
    assert apart.medians("A") == {"ESAC": 50.0, "SB3 PPO": 40.0}
    both = standings.Standings([*made, row("A", "SB3 PPO", 1, 30.0)])
    assert both.medians("A") == {"ESAC": 50.0, "SB3 PPO": 40.0}
    assert "the later of 2 seeds (least to most)" in both.markdown()


def test_of_peers_whose_median_is_late_the_best_is_who_came_in():
    late = [row("A", "ESAC", seed, time) for seed, time in enumerate((40.0, 30.0))]
    late += [
        row("A", name, seed, time)
        for name, first in (("SB3 SAC", 190.0), ("SB3 PPO", 44.0))
        for seed, time in ((0, first), (1, 190.0))
    ]
    found = standings.Standings(late)
    assert found.best_peer("A") == ("SB3 PPO", math.inf)
    assert found.ratio("A") == (1.1, "1.1")


def test_numbers_are_rounded_once():
    assert [
        standings.shown(value, "") for value in (9.876, 9.96, 11.497, 16.538, 999.4, 179_713)
    ] == [
        "9.9",
        "10",
        "11",
        "17",
        "999",
        "180,000",
    ]
