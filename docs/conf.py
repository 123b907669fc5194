"""Settings of Sphinx for the documentation's site. docs/contributing.md names the command that builds it.

The Markdown files are written for GitHub: README.md is the index, and its tables are the table of contents.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import django
from django.conf import settings

DOCS = Path(__file__).resolve().parent
PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.mysql"}},
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django_mqueue",
        "django_mqueue.worklists",
    ],
)
django.setup()

from django_mqueue import __version__  # noqa: E402 (after settings)

project = PROJECT["name"]
release = version = __version__
copyright = "the contributors of django_mqueue"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
root_doc = "README"
exclude_patterns = ["benchmarks/*.json"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["misc.highlighting_failure"]  # SQL with "…". Tests run the blocks that are complete.
html_theme = "furo"
html_title = f"{project} {release}"
html_show_sourcelink = False
highlight_language = "text"

autodoc_default_options = {"members": True, "member-order": "groupwise"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
PUBLIC = r"django_mqueue\.((inspect|signals|exceptions|testing|tasks|worklists)\.)?\w+$"
nitpick_ignore_regex = [
    (r"py:.*", rf"(?!{PUBLIC}).*")
]  # Annotations also name classes of Python, Django and other modules.

LINK = re.compile(r"(\]\()((?:\.\./)+[^)\s#]*)")
ROW = re.compile(r"^\| (?P<first>[^|]+) \| (?P<second>[^|]+) \|$", re.MULTILINE)
PAGE = re.compile(r"\]\(([\w/.-]+)\.md\)")


def with_links_to_the_repository(text: str, folder: Path) -> str:
    """Replace relative links to files outside of docs/ by links to the repository."""

    def absolute(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"{link[1]}{PROJECT['urls']['Repository']}/{kind}/main/{target.relative_to(DOCS.parent)}"

    return LINK.sub(absolute, text)


def tables_of_contents(index: str) -> str:
    """Return the side bar's lists: one for each row of the index's tables, and one for the rows that begin with a page.

    A page is in the first list that names it.
    """
    lists: dict[str, dict[str, None]] = {"": {"tutorial": None}}
    seen = {"tutorial"}
    for row in ROW.finditer(index):
        begins_with_page = PAGE.findall(row["first"])
        pages = lists.setdefault("Explanation" if begins_with_page else row["first"], {})
        pages.update(
            dict.fromkeys(
                page for page in begins_with_page or PAGE.findall(row["second"]) if page not in seen
            )
        )
        seen.update(pages)
    return "\n\n".join(
        "\n".join(
            ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "", *pages, "```"]
        )
        for caption, pages in lists.items()
        if pages
    )


def prepare(app: Any, page: str, source: list[str]) -> None:
    source[0] = with_links_to_the_repository(source[0], (DOCS / page).parent)
    if page == root_doc:
        source[0] += f"\n\n{tables_of_contents(source[0])}\n"


def copy_index(app: Any, error: Exception | None) -> None:
    """Servers of static files look for index.html."""
    if error is None and app.builder.name == "html":
        shutil.copy(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Any) -> None:
    app.connect("source-read", prepare)
    app.connect("build-finished", copy_index)
