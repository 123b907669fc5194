"""Links between the documents: each link resolves, and the index links each document."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from .blocks import DOCUMENTS, ROOT, anchors, links, name_of, prose

OUTSIDE = ("https://", "http://")
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
FILES = (f"{REPOSITORY}/blob/main/", f"{REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/")
"""Beginnings of absolute links to files of this repository."""


def target_of(document: Path, link: str) -> tuple[Path, str]:
    path, _, anchor = link.partition("#")
    for beginning in FILES:
        if path.startswith(beginning):
            return ROOT / path.removeprefix(beginning), anchor
    return (document.parent / path).resolve() if path else document, anchor


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_resolve(document: Path) -> None:
    """A link leads to a file of this repository, and its anchor to one of that file's headings."""
    for link in links(document):
        if link.startswith(OUTSIDE) and not link.startswith(FILES):
            continue
        target, anchor = target_of(document, link)
        assert target.exists(), f"{name_of(document)}: {link}"
        assert target.is_relative_to(ROOT), f"{name_of(document)}: {link} leads out of the repository"
        assert not anchor or anchor in anchors(target), (
            f"{name_of(document)}: {link}; there are {anchors(target)}"
        )


def test_links_of_the_readme_work_on_the_package_index() -> None:
    """The package index shows the README. Links to files are absolute, in definitions at its end."""
    readme = ROOT / "README.md"
    assert [link for link in links(readme) if not link.startswith(OUTSIDE)] == []
    text = re.sub(r"`[^`\n]*`", "", prose(readme))
    used, defined = re.findall(r"\]\[([^\]]+)\]", text), re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)
    assert sorted(set(used)) == sorted(defined)


def test_every_document_is_linked_from_the_index() -> None:
    """``docs/README.md`` is the table of contents."""
    index = ROOT / "docs" / "README.md"
    found = {target_of(index, link)[0] for link in links(index)}
    below = set((ROOT / "docs").rglob("*.md")) - {index}
    assert below <= found, f"not in docs/README.md: {sorted(map(name_of, below - found))}"


def test_code_that_is_named_exists() -> None:
    """``docs/explanation/promises.md`` names modules of the package and directories of tests."""
    promises = (ROOT / "docs" / "explanation" / "promises.md").read_text()
    cells = [line.split("|") for line in promises.splitlines() if line.startswith("| **")]
    assert cells
    for _, _, kept, proved, _ in cells:
        for name in kept.split("`")[1::2]:
            if name.endswith(".py"):
                assert (ROOT / "django_mqueue" / name).exists(), name
        for name in proved.split("`")[1::2]:
            assert (ROOT / "tests" / name).exists(), f"tests/{name}"


def test_functions_on_the_way_of_a_message_exist() -> None:
    """``docs/contributing.md`` names modules of the package, and after each, functions of it."""
    text = (ROOT / "docs" / "contributing.md").read_text()
    table = text.partition("**The way of a message.**")[2].partition("**Language.**")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    module = ""
    for name in " ".join(rows).split("`")[1::2]:
        if name.endswith(".py"):
            module = (ROOT / "django_mqueue" / name).read_text()
        else:
            assert f"def {name.rpartition('.')[2]}(" in module, name
    assert module
