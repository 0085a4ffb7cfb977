"""The site's settings: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "esac_mpi"
author = "the developers of esac_mpi"
extensions = ["myst_parser", "sphinx.ext.autodoc", "made", "linked"]  # the last two are beside this
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "example"]
highlight_language = "none"  # what a fence without a name has
smartquotes = False  # options begin with two dashes
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!esac_mpi).*|esac_mpi\.analysis\..*")]  # not described here
html_theme = "furo"
html_title = "esac_mpi"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_static/scorer.js")
html_show_copyright = False
html_copy_source = False
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
default_role = "code"  # of docstrings
