"""The picture of the race that docs/ has."""

import pytest
from conftest import ROOT

from esac_mpi.analysis.colours import COLOURS
from tools.bench.race import field, rows, standings


def test_it_names_its_rows_and_has_the_algorithms_colours(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from esac_mpi.analysis.figures import save
    from tools.bench.race import picture

    kept = []
    monkeypatch.setattr(
        picture, "save", lambda drawing, out: kept.append(drawing) or save(drawing, out)
    )
    found = standings.Standings(list(rows.read(ROOT / "docs/results/race/race.csv")))
    picture.draw(found, tmp_path / "race.png")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
    panels = [axes for axes in kept[0].axes if axes.axison]
    titles = [axes.get_title().partition(":")[0] for axes in panels]
    assert titles == [task.removeprefix("dm_control/") for task in found.tasks]
    for task, axes in zip(found.tasks, panels, strict=True):
        named = [text.get_text() for text in axes.get_yticklabels()]
        assert named == [name for name in found.names if found.of(task, name)]
    look = picture.looks_of([entry.name for entry in field.ENTRIES])
    assert [look[name] for name in ("ESAC", "SAC", "SB3 SAC", "EvoTorch PGPE")] == [
        (COLOURS["esac"], "o"), (COLOURS["sac"], "o"), (COLOURS["sac"], "s"), (COLOURS["pgpe"], "D"),
    ]  # fmt: skip
    assert len(set(look.values())) == len(look)
