"""Sphinx configuration: `sphinx-build -W --keep-going -b html docs docs/_build/html`.

Two things are made while the site is built: the pages of experiments, from the docstrings of their
modules (`experiment_pages.py`), and the API reference, from docstrings in plain text
(`plain_docstrings.py`).
"""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext import autosummary

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT / "src"), str(DOCS)]

import experiment_pages  # noqa: E402
import plain_docstrings  # noqa: E402

project = "rankscope"
author = "the rankscope developers"
copyright = f"2026, {author}, Apache-2.0"
VERSION = re.compile(r'^__version__ = "(.+)"', re.MULTILINE)
version = release = VERSION.search((ROOT / "src/rankscope/__init__.py").read_text())[1]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "Thumbs.db", ".DS_Store"]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence"]
myst_heading_anchors = 3
myst_heading_slug_func = "experiment_pages.heading_slug"

autosummary_generate = False
# Summaries end at the first full stop that does not belong to one of these.
autosummary.WELL_KNOWN_ABBREVIATIONS += ("App.", "app.", "Def.", "Eq.", "fig.", "figs.")
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "rankscope"
html_static_path = ["_static"]
html_css_files = ["rankscope.css"]
html_favicon = "pictures/logo.svg"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
WITHOUT_SIDEBAR = ("index", "getting-started", "benchmarks", "contributing", "changelog")
html_sidebars = {"**": ["sidebar-nav-bs"], **{page: [] for page in WITHOUT_SIDEBAR}}
html_theme_options = {
    "logo": {
        "text": "rankscope",
        "image_light": "pictures/logo.svg",
        "image_dark": "pictures/logo-dark.svg",
    },
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "show_prev_next": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# Pages whose text is a file at the root of the repository.
ROOT_FILES = {
    "benchmarks": "benchmarks/README.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
}
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?![a-z]+:|#)([^)\s]+)\)")


def include_root_file(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace a page by the file of the repository that it stands for.

    Links into docs/ stay links. Other files are not part of the site, so their links become text.
    """
    if page not in ROOT_FILES:
        return
    file = ROOT / ROOT_FILES[page]

    def relink(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, _, anchor = target.partition("#")
        goal = (file.parent / path).resolve()
        if goal.is_relative_to(DOCS) and goal.suffix == ".md":
            return f"[{text}]({goal.relative_to(DOCS)}{'#' * bool(anchor)}{anchor})"
        return text

    source[0] = LINK.sub(relink, file.read_text())


def drop_anchors(app: Sphinx, page: str, source: list[str]) -> None:
    """Remove <a id="y4"></a>, which Markdown readers need; headings have these ids here."""
    source[0] = re.sub(r'^<a id="[\w-]+"></a>\n', "", source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", lambda app: experiment_pages.write(DOCS / "papers/experiments"))
    app.connect("source-read", include_root_file)
    app.connect("source-read", drop_anchors)
    app.connect("autodoc-process-docstring", plain_docstrings.process)
    app.connect("autodoc-process-signature", plain_docstrings.process_signature)
