"""The wheel and the source archive of a release. ``docs/test_tutorial.py`` installs and uses the wheel."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import django_mqueue
from example_project.environment.layout import ROOT

pytestmark = pytest.mark.once

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES_OF_THE_PACKAGE = {".py", ".html", ".css", ".js", ".po", ".mo", ".txt", ".typed"}
"""Suffixes of files in the repository that belong to the package."""


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: set[str]) -> Message:
    (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    with ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(name).decode())


def tracked(folder: str) -> set[str]:
    """Return the files of a folder that git knows."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(listed.stdout.splitlines())


def test_the_wheel_holds_the_whole_package(names: set[str]) -> None:
    tree = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "django_mqueue").rglob("*") if path.is_file()
    }
    tree = {name for name in tree if Path(name).suffix in FILES_OF_THE_PACKAGE}
    assert tree - {"django_mqueue/spark/default_source.py"} <= names, "that one is there under another name"
    for name in (
        "py.typed",
        "locale/de/LC_MESSAGES/django.mo",
        "migrations/0001_initial.py",
        "worklists/migrations/0001_initial.py",
        "management/commands/runconsumer.py",
        "management/commands/mqueue.py",
        "static/django_mqueue/admin.css",
    ):
        assert f"django_mqueue/{name}" in names
    assert any(name.startswith("django_mqueue/templates/admin/") for name in names)


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "django_mqueue",
        "pyspark_mqueue.py",
    }
    assert not [name for name in names if "/tests/" in name or name.endswith((".pyc", ".orig"))]


def test_the_source_archive_can_be_built_and_tested(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        (top,) = {name.partition("/")[0] for name in archive.getnames()}
        found = {name.removeprefix(f"{top}/") for name in archive.getnames()}
    assert top == f"django_mqueue-{django_mqueue.__version__}"
    single = {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "manage.py", "PKG-INFO"}
    assert single <= found
    folders = {"django_mqueue", "docs", "tests", "example_project"}
    assert {name.partition("/")[0] for name in found} - single <= {*folders, ".gitignore"}
    if (ROOT / ".git").exists():
        assert {name for folder in folders for name in tracked(folder) if (ROOT / name).exists()} <= found


def test_spark_finds_the_source_by_the_name_of_its_module(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        text = archive.read("pyspark_mqueue.py").decode()
    assert text == (ROOT / "django_mqueue" / "spark" / "default_source.py").read_text()
    assert "as DefaultSource" in text


def test_the_license_is_in_the_wheel(names: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_metadata_say_what_is_supported(metadata: Message) -> None:
    assert metadata["Name"] == "django-mqueue"
    assert metadata["Version"] == django_mqueue.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    requirements = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert sorted(requirements) == ["django<6.2,>=5.2", "mysqlclient<3,>=2.2", "rich<16,>=13"]
    assert "Development Status :: 5 - Production/Stable" in metadata.get_all("Classifier", [])
    links = dict(each.split(", ") for each in metadata.get_all("Project-URL", []))
    assert links == PROJECT["urls"]


def test_the_package_index_accepts_the_metadata_and_the_readme(wheel: Path, sdist: Path) -> None:
    pytest.importorskip("twine", reason="needs the extra test")
    check = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    checked = subprocess.run(check, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_changelog_describes_this_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0] == "## Unreleased"
    assert headings[1].startswith(f"## {django_mqueue.__version__} - ")


def test_every_requirement_has_a_range() -> None:
    extras = PROJECT["optional-dependencies"].values()
    requirements = [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]
    assert [each for each in requirements if ">=" not in each or "<" not in each] == []
