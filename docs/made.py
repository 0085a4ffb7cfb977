"""Pages that are made from the code: a Sphinx extension with one directive for each."""

import tomllib
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Made(SphinxDirective):
    """Put Markdown that a function makes in the directive's place."""

    def make(self) -> str:
        """Make the Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse what was made, headings included."""
        return self.parse_text_to_nodes(self.make(), allow_section_headings=True)


class Hdf5Schema(Made):
    """A table of esac_mpi/record/schema.toml: `metrics`, `attributes/policy.h5` or another."""

    required_arguments = 1

    def make(self) -> str:
        """Make the table."""
        path = Path(__file__).parents[1] / "esac_mpi/record/schema.toml"
        self.env.note_dependency(str(path))
        schema = tomllib.loads(path.read_text(encoding="utf-8"))
        table = reduce(getitem, self.arguments[0].split("/"), schema)
        rows = [(f"`{name}`", *row) for name, row in table.items()]
        heads = {
            2: ("size", "meaning"),
            3: ("attribute", "type", "meaning"),
            5: ("dataset", "type", "unit", "algorithms", "meaning"),
        }
        head = heads[len(rows[0])]
        return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("hdf5-schema", Hdf5Schema)
    return {"parallel_read_safe": True}
