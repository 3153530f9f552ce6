"""How `make docs` builds the site: Sphinx reads the pages as they are, and a warning is an error.

The pages are written to be read as files too, so nothing of the generator stands in them: the contents of the
site are the pages that the index links, in its order. A page that it does not name is such a warning.
"""

from __future__ import annotations

import re

from pygments.lexers import TextLexer
from sphinx.application import Sphinx

from scheduler import __version__

project = "schedulerd"
author = project_copyright = "The schedulerd authors"
version = release = __version__

extensions = ["myst_parser"]
root_doc = "index"
nitpicky = True
myst_heading_anchors = 4  # links to headings are checked, too

html_theme = "alabaster"
html_theme_options = {"page_width": "70rem", "sidebar_width": "14rem", "fixed_sidebar": True}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_copy_source = False
html_show_sphinx = False

_LINK = re.compile(r"\]\(([\w/.-]+)\.md[^)]*\)")


def setup(app: Sphinx) -> None:
    """The contents come from the index; a picture in mermaid's language is shown as it is written."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", _add_contents)


def _add_contents(_: Sphinx, page: str, source: list[str]) -> None:
    if page == root_doc:
        linked = dict.fromkeys(_LINK.findall(source[0]))
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *linked, "```", ""])
