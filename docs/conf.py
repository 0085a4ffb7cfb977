"""The site's settings: `make docs` builds it into docs/_build/html."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "esac_mpi"
author = "the developers of esac_mpi"
extensions = ["myst_parser", "sphinx.ext.autodoc", "made"]  # made.py: what is made from the code
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "example"]
html_theme = "furo"
html_title = "esac_mpi"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
