"""How `make docs` makes a site of these pages (Sphinx, with pages in Markdown)."""

from __future__ import annotations

from typing import Final

project: Final = "schedulerd"
copyright: Final = "the schedulerd authors"  # noqa: A001 - Sphinx's name for it
extensions: Final = ["myst_parser"]
root_doc: Final = "index"
exclude_patterns: Final[list[str]] = []
html_theme: Final = "alabaster"
html_extra_path: Final = ["grafana-dashboard.json", "alert-rules.yaml"]
myst_heading_anchors: Final = 4
# `index` leads to every page; pictures in mermaid are shown as their text.
suppress_warnings: Final = ["toc.not_included", "misc.highlighting_failure"]
