"""The README is one screen, and the links of all pages lead somewhere."""

import re

import pytest
from conftest import ROOT

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")),
]
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    found = [link for link, _ in LINK.findall((ROOT / page).read_text())]
    missing = [link for link in found if not ((ROOT / page).parent / link).exists()]
    assert not missing
    assert page != "README.md" or len(found) >= 25


def test_the_first_command_comes_early_and_the_readme_is_short():
    text = (ROOT / "README.md").read_text()
    assert len(text.partition("```")[0].split()) <= 120
    prose = re.sub(r"```.*?```|^\|.*?$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(prose.split()) <= 1000
