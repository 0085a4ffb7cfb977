"""Pages that are made from the code: a Sphinx extension with one directive for each."""

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


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    return {"parallel_read_safe": True}
