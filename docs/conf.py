"""Sphinx: the pages are MyST Markdown; what can be read from the code is read from it while the site is built."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ragtrace

project = "ragtrace"
author = "the ragtrace authors"
project_copyright = "the ragtrace authors; Apache-2.0"
version = release = ragtrace.__version__
extensions = ["myst_parser", "sphinx_design", "sphinx.ext.autodoc", "from_code"]
exclude_patterns = ["_build", "from_code"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "ragtrace"
html_static_path = ["_static"]
html_css_files = ["ragtrace.css"]
html_copy_source = False
html_show_sphinx = False
html_use_index = False
html_show_search_summary = False  # it would fetch the pages, which a site on disk cannot
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
