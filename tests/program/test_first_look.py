"""docs/start/first-look.ipynb runs as a notebook does and is kept with what it showed."""

from itertools import chain

import pytest
from conftest import ROOT, environment

from esac_mpi import Run

nbformat, nbclient, *_ = map(
    pytest.importorskip, ("nbformat", "nbclient", "ipykernel", "matplotlib", "pandas")
)
NOTEBOOK = ROOT / "docs/start/first-look.ipynb"
DRAW = ("c8", "c9", "c12")  # cells


def shown(notebook):
    """Return the types of the outputs of each cell of code, in order, and their text."""
    types, texts = {}, {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kinds = (output.get("data", ["text"]) for output in cell.outputs)
            types[cell.id] = sorted(chain.from_iterable(kinds))
            texts[cell.id] = "".join(output.get("text", "") for output in cell.outputs)
    return types, texts


def test_it_is_kept_with_small_outputs_of_no_machine():
    types, _ = shown(nbformat.read(NOTEBOOK, 4))
    assert [name for name, found in types.items() if not found] == ["c1"]  # it trains, quietly
    assert NOTEBOOK.stat().st_size < 150_000
    text = NOTEBOOK.read_text(encoding="utf-8")
    words = ("/home/", "/root/", "/tmp/", "Traceback", " at 0x")
    assert not [word for word in words if word in text]


@pytest.mark.slow
def test_it_runs_and_shows_each_figure_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # a notebook has its own
    notebook = nbformat.read(NOTEBOOK, 4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(
        notebook, timeout=300, startup_timeout=300, kernel_name="python3", resources=place
    ).execute()
    types, texts = shown(notebook)
    drawn = {name: found for name, found in types.items() if "image/png" in found}
    assert drawn == {name: ["image/png", "text/plain"] for name in DRAW}
    assert types == shown(nbformat.read(NOTEBOOK, 4))[0]  # what is kept was shown by these cells
    run = Run.open(tmp_path / "runs/first-look-0")
    assert run.status["status"] == "complete"
    evaluations = -(-run.generation // 4)  # the last one at the end
    assert f"({run.generation}, 16) ({evaluations}, 5)" in texts["c6"]
    assert "return " in texts["c11"]
