"""Pages that are made from the code: a Sphinx extension.

The directives {settings}, {commands}, {notebook} and {hdf5-schema} put Markdown in their place.
"""

import argparse
import json
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from esac_mpi.commands import GROUPS
from esac_mpi.commands.__main__ import command_line
from esac_mpi.config import Config, as_words, flatten
from esac_mpi.config.bounds import COUNT, INT64, Bound
from esac_mpi.config.command_line import docstrings, values_of
from esac_mpi.config.fields import as_text, marks, value_of
from esac_mpi.config.reads import conditions, in_words
from esac_mpi.config.table import HIDDEN, OnlyIn

SCRIPT = "esac-mpi"
HUGE = COUNT, INT64  # bounds that nobody needs to read
HERE = Path(__file__).parent
SCHEMA = HERE / "reference/hdf5.toml"
HEADS = {  # of the tables of the schema, by their columns
    2: ("size", "meaning"),
    3: ("attribute", "type", "meaning"),
    5: ("dataset", "type", "unit", "algorithms", "meaning"),
}
ONLY_IN = "Only in tasks of {} actions"
PAGE = re.compile(r"\bdocs/([\w/-]+)\.md")
ROW = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")  # of a help: a name, blanks, what it is
TOPIC = re.compile(r"[\w-]+: ")  # begins a paragraph of a help


def prose(text: str) -> str:
    """Write plain text as Markdown; link the pages that it names."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([\\*_<>\[\]|${}#~])", r"\\\1", part) for part in parts[::2]]
    return PAGE.sub(r"[\1](../\1.md)", "".join(parts))


def code(text: str) -> str:
    """Write a text as code, an empty one in a word."""
    return f"`{text}`" if text else "empty"


def settings() -> Iterator[str]:
    """Yield a section for every table with its fields, from what `--help` is made of."""
    tables = set[str]()
    for name, default in flatten(Config()):
        table, _, key = name.rpartition(".")
        kind: type = type(value_of(Config(), table)) if table else Config
        if table not in tables:
            tables.add(table)
            yield rf"## \[{table}\]" if table else "## Without a table"
            yield prose(" ".join((kind.__doc__ or "").split())) if table else ""
        about = prose(docstrings(kind)[key])
        usual = code(" ".join(as_words(default)))
        yield f":::{{setting}} {name}\n{facts(name)}Default: {usual}.\n\n{about}\n:::"


def as_code(value: Any) -> str:
    """Write a setting's value as code."""
    return code(as_text(value))


def facts(name: str) -> str:
    """Say what values a field takes, within what bounds, and beside what it is read."""
    bounds = [mark.words for mark in marks(name) if isinstance(mark, Bound) and mark not in HUGE]
    words = [each.removeprefix("must be ").replace(" and finite", "") for each in bounds]
    values = " | ".join(map(code, values_of(name).split("|")))
    said = ["; ".join([values, *map(prose, words)])]
    if HIDDEN in marks(name):
        said.append("Only with hidden layers")
    for needed in conditions(name):
        each = (f"`{n}` = {in_words(allowed, as_code)}" for n, allowed in needed.items())
        said.append(f"Only with {' or '.join(each)}")
    kinds = ["discrete" if m.discrete else "continuous" for m in marks(name) if type(m) is OnlyIn]
    return "".join(f"{words}. " for words in (*said, *map(ONLY_IN.format, kinds)))


def commands() -> Iterator[str]:
    """Yield a section for every command: its help, and its options."""
    for title, names in GROUPS.items():
        yield f"## {title.capitalize()}"
        for name in names:
            command = import_module(f"esac_mpi.commands.{name}")
            yield f"({SCRIPT}-{name})=\n### {SCRIPT} {name}"
            yield from described(command.__doc__ or "")
            if name != "run":
                yield from options(f"{SCRIPT} {name}", command_line(name))


def described(text: str) -> Iterator[str]:
    """Yield the blocks of a help: code where it is indented, lists where it has columns."""
    for block in text.strip("\n").split("\n\n"):
        if block.startswith("Examples:\n"):
            yield "Examples:"
            block = block.partition("\n")[2]
        if block.startswith("    "):
            yield f"```\n{textwrap.dedent(block)}\n```"
            continue
        found = [""]  # paragraphs, and entries of a list
        for line in block.splitlines():
            if row := ROW.fullmatch(line):
                found.append(f"{code(row[1])}\n: {prose(row[2])}")
            elif line[0] != " " and (TOPIC.match(line) or "\n: " in found[-1]):
                found.append(prose(line))
            else:
                found[-1] = f"{found[-1]} {prose(line.strip())}".lstrip()
        yield from filter(None, found)


def options(program: str, line: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what follows a command on its line, then the commands below it."""
    yield f"```{{program}} {program}\n```"
    for action in line._actions:  # argparse has no public list of them
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield f"#### {program} {name}\n\n{prose(helps.get(name, '').capitalize())}"
                yield from options(f"{program} {name}", below)
        elif action.dest != "help":
            yield f":::{{option}} {spelt(action)}\n{meaning(line, action)}\n:::"


def spelt(action: argparse.Action) -> str:
    """Write an option with its value, or the word that stands for an argument."""
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    value = " ".join(value) if isinstance(value, tuple) else value
    many = {"+": f"{value} [{value} ...]", "*": f"[{value} ...]", "?": f"[{value}]", 0: ""}
    words = value if action.nargs is None else many.get(action.nargs, value)
    return " ".join([*action.option_strings[:1], words]).strip()


def meaning(line: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Say what an option is: its help, its values, its default where the help has none."""
    text = line._get_formatter()._expand_help(action) if action.help else ""
    named = TOPIC.match(text) and not text.startswith("default")
    said = [prose(text if named else text[:1].upper() + text[1:])] if text else []
    if action.choices:
        said.append(f"One of {', '.join(map(code, action.choices))}")
    usual = f"{action.default or ''}"
    if usual and "default" not in text and f"({usual})" not in text and usual[0] not in "/[":
        said.append(f"Default: `{usual}`")
    return "".join(f"{sentence.removesuffix('.')}. " for sentence in said)


def hdf5_schema(name: str) -> Iterator[str]:
    """Yield a table of reference/hdf5.toml: `metrics`, `attributes/policy.h5` or another."""
    table = reduce(getitem, name.split("/"), tomllib.loads(SCHEMA.read_text(encoding="utf-8")))
    rows = [(f"`{key}`", *row) for key, row in table.items()]
    head = HEADS[len(rows[0])]
    yield "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def notebook(name: str) -> Iterator[str]:
    """Yield the cells of a notebook with what they showed; name: its path in docs/."""
    for cell in json.loads((HERE / name).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", []):
            seen = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in seen:
                picture = "".join(seen["image/png"].split())
                yield f"![What the cell drew](data:image/png;base64,{picture})"
            else:
                yield f"```text\n{''.join(seen['text/plain']).rstrip()}\n```"


MAKES: dict[str, Callable[..., Iterator[str]]] = {
    "settings": settings,
    "commands": commands,
    "notebook": notebook,
    "hdf5-schema": hdf5_schema,
}


class Made(SphinxDirective):
    """Put Markdown in the directive's place."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Parse what is made, headings too."""
        return self.parse_text_to_nodes(
            "\n\n".join(MAKES[self.name](*self.arguments)), allow_section_headings=True
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives, and settings as what is looked up and linked by name."""
    app.add_object_type("setting", "setting", indextemplate="pair: %s; setting")
    for name in MAKES:
        app.add_directive(name, Made)
    return {"parallel_read_safe": True}
