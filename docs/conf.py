"""Sphinx settings: plain Markdown through MyST, API from docstrings, nothing fetched from the network."""

from importlib.metadata import version as _version
from pathlib import Path as _Path

project = "bayesin"
author = "The bayesin authors"
copyright = "The bayesin authors, Apache-2.0"
release = version = _version("bayesin")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_gallery.md"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Bayesian posteriors in one basin",
    "page_width": "1240px",
    "font_family": "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif",
    "head_font_family": "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif",
    "font_size": "16px",
    "code_font_size": "0.82em",
}
html_static_path: list[str] = []
autodoc_member_order = "bysource"
autodoc_typehints = "description"
suppress_warnings = ["myst.xref_missing"]

# The gallery shows every figure below results/ that its README does not, so that a new result needs no edit here.
_here = _Path(__file__).resolve().parent
_results = _here.parent / "results"
_shown = (_results / "README.md").read_text(encoding="utf-8")
_found = [figure.relative_to(_results) for figure in sorted(_results.rglob("*.svg"))]
_names = [name for name in _found if str(name.with_suffix("")) not in _shown]
_entries = [f"**{name.with_suffix('')}**\n\n![{name.stem}](../results/{name})\n" for name in _names]
(_here / "_gallery.md").write_text("\n".join(["## More figures\n", *_entries] if _entries else []), encoding="utf-8")
