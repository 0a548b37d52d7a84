"""Sphinx settings: plain Markdown through MyST, API from docstrings, nothing fetched from the network."""

from importlib.metadata import version as _version

project = "bayesin"
author = "The bayesin authors"
copyright = "The bayesin authors, Apache-2.0"
release = version = _version("bayesin")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Bayesian posteriors in one basin", "page_width": "1080px"}
html_static_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["myst.xref_missing"]
