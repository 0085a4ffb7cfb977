"""Random kills, in small."""

import re

import numpy as np
import pytest

from tools import torture

pytestmark = pytest.mark.slow


def test_killed_at_random_moments_nothing_is_lost(monkeypatch, capsys):
    monkeypatch.setattr(
        torture, "PARTS", {name: torture.PARTS[name] for name in ("ES", "ESAC beside")}
    )
    code = torture.main(["--kills", "4", "--seed", "1"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert sum(map(int, re.findall(r"^ +(\d+)  \w", printed, re.M))) == 4


def test_what_differs_is_seen():
    straight = {
        "metrics/sigma": np.array([0.1, 0.2, 0.3]),
        "theta_sha256": np.array("ab"),
        "metrics/nan": np.full(3, np.nan),
    }
    torture.compare(straight, straight, whole=True)
    torture.compare({"metrics/sigma": straight["metrics/sigma"][:2]}, straight, whole=False)
    for wrong in (
        {**straight, "metrics/sigma": np.array([0.1, 0.2, np.nextafter(0.3, 1)])},
        {**straight, "metrics/sigma": straight["metrics/sigma"][:2]},
        {**straight, "theta_sha256": np.array("ac")},
        {"metrics/sigma": straight["metrics/sigma"]},
    ):
        with pytest.raises(torture.Broken):
            torture.compare(wrong, straight, whole=True)
    with pytest.raises(torture.Broken):
        torture.compare({"metrics/sigma": np.array([0.2])}, straight, whole=False)


def test_a_run_that_is_stuck_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(torture, "PATIENCE", 0.3)
    monkeypatch.setattr(torture, "PROGRAM", "import time; time.sleep(600)")
    stuck = torture.Part("ES", tmp_path, None)
    with pytest.raises(torture.Broken, match="neither ended nor published"):
        stuck.finish(tmp_path, 1)
    assert stuck.process.poll() is not None
