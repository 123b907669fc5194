"""The documentation's site builds without a warning, and its index leads to each page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import DOCUMENTS, ROOT

pytestmark = [pytest.mark.once, pytest.mark.always("docs/", "README.md"), pytest.mark.timeout(900)]

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site with the command of docs/contributing.md, but into a temporary directory."""
    pytest.importorskip("sphinx", reason="needs the extra docs")
    target = tmp_path_factory.mktemp("site")
    (line,) = re.findall(
        r"^ *\$ python (-m sphinx .*)$", (DOCS / "contributing.md").read_text(), re.MULTILINE
    )
    command = [sys.executable, *line.split()[:-1], "-q", "-d", str(target / "doctrees"), str(target / "html")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return target / "html"


def reachable(page: Path, seen: set[Path]) -> set[Path]:
    """Return the page and all pages to which its links lead."""
    if page not in seen:
        seen.add(page)
        for link in re.findall(r'href="([^"#:]+\.html)', page.read_text()):
            reachable((page.parent / link).resolve(), seen)
    return seen


def test_the_index_leads_to_each_page(site: Path) -> None:
    pages = {
        (site / path.relative_to(DOCS)).with_suffix(".html") for path in DOCUMENTS if DOCS in path.parents
    }
    assert pages
    assert pages <= reachable(site / "index.html", set())


def test_the_site_has_public_names_and_a_search(site: Path) -> None:
    api = (site / "reference" / "api.html").read_text()
    shown = (
        "publish",
        "Subscription.poll",
        "inspect.messages",
        "signals.TopicSignal",
        "testing.drain",
        "tasks.Unique",
    )
    for name in (*shown, "worklists.find"):
        assert f'id="django_mqueue.{name}"' in api, name
    assert "django_mqueue.publish" in (site / "genindex.html").read_text()
    assert (site / "search.html").exists()
    assert "redrive" in (site / "searchindex.js").read_text()


def test_links_out_of_the_documentation_lead_to_the_repository(site: Path) -> None:
    text = (site / "contributing.html").read_text()
    assert 'href="https://github.com/django-mqueue/django-mqueue/blob/main/tests/README.md"' in text
    assert 'href="https://github.com/django-mqueue/django-mqueue/tree/main/example_project"' in text
