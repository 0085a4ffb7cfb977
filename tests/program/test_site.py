"""The site of `make docs`: built without a warning, every page in its sidebar, settings found."""

import json
import re
import signal
import subprocess
import sys

import pytest
from conftest import ROOT, environment

from esac_mpi.config import NAMES
from esac_mpi.host.errors import KINDS
from esac_mpi.host.stop import SIGNALS, WARNINGS

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    line = ["-m", "sphinx", "-E", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", out]
    done = subprocess.run(
        [sys.executable, *line], env=environment(), capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    return out


@pytest.fixture(scope="module")
def index(site):
    text = (site / "searchindex.js").read_text()
    return json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))


def test_the_sidebar_leads_to_every_page(site, index):
    sidebar = (site / "index.html").read_text().partition('<div class="sidebar-tree">')[2]
    shown = set(re.findall(r'href="([^"#]+)\.html"', sidebar.partition("</aside>")[0]))
    assert shown == {*index["docnames"]} - {"index"}
    assert len(shown) > 40


def test_search_finds_every_setting_and_option(index):
    setting = next(key for key, kind in index["objtypes"].items() if kind == "std:setting")
    found = {
        f"{table}.{entry[-1]}" if table else entry[-1]
        for table, entries in index["objects"].items()
        for entry in entries
        if str(entry[1]) == setting
    }
    assert found == {*NAMES}
    assert "--resume" in [entry[-1] for entry in index["objects"]["esac-mpi-summary"]]


def test_a_setting_has_its_values_default_condition_and_text(site):
    page = (site / "reference/settings.html").read_text()
    words = re.sub(r"<[^>]+>", "", page.partition('id="setting-esac.sac_copies"')[2])
    assert re.match(r"[^¶]*¶\s*int; at least 0\. Default: 1\.\s*Slots whose parent is", words)
    words = re.sub(r"<[^>]+>", "", page.partition('id="setting-esac.noise_rank"')[2])
    only = r"int; positive; at most 1000\. Only with esac\.noise = lowrank\. Default: 1\."
    assert re.match(rf"[^¶]*¶\s*{only}", words)


def test_code_on_any_page_links_to_its_description(site):
    page = (site / "reference/exit-codes.html").read_text()
    assert 'href="settings.html#setting-stop.grace_seconds"' in page
    assert 'href="commands.html#esac-mpi-summary"' in page


def test_the_page_of_exit_codes_has_all_codes_and_signals():
    page = (ROOT / "docs/reference/exit-codes.md").read_text()
    training, commands, signals = re.findall(r"(?:^\|.*\n)+", page, re.M)
    rows = dict(re.findall(r"^\| (\d+) \|.*\| ([^|]*) \|$", training, re.M))
    assert {int(code) for code in rows} == {0, *KINDS}
    assert all(f"`{kind.__name__}`" in rows[str(code)] for code, kind in KINDS.items())
    assert {int(code) for code in re.findall(r"^\| (\d+)", commands, re.M)} == {0, 130, *KINDS}
    heard = {signal.Signals(number).name for number in (*SIGNALS, *WARNINGS)}
    assert {*re.findall(r"^\| `(\w+)`", signals, re.M)} == heard
