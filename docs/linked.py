"""What is linked by itself, in pages and in docstrings: a Sphinx extension."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from made import PAGE
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

from esac_mpi.commands import NAMES as COMMANDS
from esac_mpi.config import NAMES as SETTINGS

SHORT = 30  # characters of code that stay on one line
CALL = re.compile(rf"(esac-mpi) ({'|'.join(COMMANDS)})\b")
# of a docstring: "name: what it is", where a sentence may begin
NAMED = re.compile(r"(?:^|(?<=[.;] ))([a-z_]+): ")


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link a setting or a command that a page names as `code` to its description."""
    for word in list(document.findall(nodes.literal)):
        text = word.astext()
        if len(text) < SHORT:
            word["classes"].append("short")
        if isinstance(word.parent, nodes.title | nodes.reference | pending_xref):
            continue
        if found := CALL.match(text):
            to = {"refdomain": None, "reftype": "myst", "reftarget": "-".join(found.groups())}
        elif text in SETTINGS and "." in text:
            to = {"refdomain": "std", "reftype": "setting", "reftarget": text}
        else:
            continue
        link = pending_xref("", word.deepcopy(), refdoc=app.env.docname, refexplicit=True, **to)
        word.replace_self(link)


def unlink(app: Sphinx, document: nodes.document) -> None:
    """Keep the words alone of a link to what is outside docs/, such as README.md, or a folder."""
    page = Path(document["source"]).parent
    for link in list(document.findall(pending_xref)):
        target = link["reftarget"].partition("#")[0]
        outside = link.get("refdomain") == "doc" and target not in app.env.found_docs
        if outside or (link.get("reftype") == "myst" and target and (page / target).is_dir()):
            link.replace_self(link.children)


def mark_up(app: Sphinx, what: str, name: str, thing: Any, how: Any, lines: list[str]) -> None:
    """Make a list of a docstring's "name: what it is", and links of the pages that it names."""
    kind = "ivar" if what in ("class", "exception") else "param"
    found = []
    for paragraph in PAGE.sub(r":doc:`/\1`", "\n".join(lines)).split("\n\n"):
        before, *rest = NAMED.split(" ".join(paragraph.split("\n")).strip())
        found += [before, "", *map(f":{kind} {{}}: {{}}".format, rest[::2], rest[1::2]), ""]
    lines[:] = found


def setup(app: Sphinx) -> dict[str, bool]:
    """Let Sphinx call these."""
    app.connect("doctree-read", link_code)
    app.connect("doctree-read", unlink)
    app.connect("autodoc-process-docstring", mark_up)
    return {"parallel_read_safe": True}
