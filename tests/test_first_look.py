"""docs/first-look.ipynb: its cells run one after another, and show what they say."""

import json

import numpy as np
import pytest
from conftest import ROOT, environment

NOTEBOOK = json.loads((ROOT / "docs/first-look.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_it_is_kept_without_outputs():
    assert NOTEBOOK["nbformat"] == 4
    assert all(cell["outputs"] == [] for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code")


def test_its_cells_run_and_show_runs_curves_and_an_episode(tmp_path, monkeypatch, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    pyplot.switch_backend("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    names: dict = {"__name__": "__main__"}
    for text in CODE:
        exec(compile(text, "first-look.ipynb", "exec"), names)
    assert names["run"].status["status"] == "complete"
    assert names["fitness"].shape == (names["run"].generation, 16)
    assert names["returns"].shape == (len(names["generations"]), 5)
    for figure in (names["alone"], names["together"], names["played"]):
        (lines, *_) = [axes.get_lines() for axes in figure.axes]
        assert len(lines) >= 1
    assert len(names["seen"]) == names["total"] >= 1  # 1 a step
    assert np.isfinite(names["seen"]).all()
    assert f"return {names['total']:.0f} after" in capsys.readouterr().out
    pyplot.close("all")
