"""Sphinx settings: Markdown through MyST, API from docstrings, nothing fetched from the network."""

import sys
from importlib.metadata import version as _version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from results_pages import write_results_pages

write_results_pages()

project = "bayesin"
author = "The bayesin authors"
copyright = "The bayesin authors, Apache-2.0"
release = version = _version("bayesin")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"bayesin {release}"
html_static_path = ["_static"]
html_css_files = ["bayesin.css"]
html_js_files = ["accessible.js"]
pygments_style, pygments_dark_style = "default", "github-dark"
html_copy_source = False
_FONTS = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"
# The colours of the page that bayesin writes: blue is what alignment gave.
_LIGHT = {"color-brand-primary": "#00639c", "color-brand-content": "#00639c", "color-brand-visited": "#00639c"}
_DARK = {"color-brand-primary": "#6cc0ef", "color-brand-content": "#6cc0ef", "color-brand-visited": "#6cc0ef"}
html_theme_options = {
    "light_css_variables": _LIGHT | {"font-stack": _FONTS},
    "dark_css_variables": _DARK,
    "navigation_with_keys": True,
}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
