"""What python -m tools.bench clock makes of pairs of runs."""

from clocked_runs import FOUR, run_of

from tools.bench import clock


def test_either_run_of_a_pair_tells_the_time_of_the_other(tmp_path):
    rows = [(FOUR, True, (5.0, 3.0, 300), (0.5, 0.5))] * 6
    pair = [run_of(tmp_path / "one", rows), run_of(tmp_path / "two", rows, ranks=2)]
    found = {(m.case, m.figure): m for m in clock.compared("ESAC", [pair, pair])}
    assert round(found["ESAC ranks=1", "generations"].median, 6) == 2 * 10.6
    assert round(found["ESAC ranks=1", "processor time / that"].median, 6) == 1.0
    for (_, figure), measurement in found.items():
        if "computed" in figure:
            assert measurement.simulation
            assert measurement.rounds == 2
    assert abs(found["ESAC ranks=1", "computed from 2 / measured"].median - 1) < 1e-3
    assert abs(found["ESAC ranks=1", "computed from itself / measured"].median - 1) < 1e-9
