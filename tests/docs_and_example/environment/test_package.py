"""The wheel that users install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from email.message import Message
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import django_mqueue
from example_project.environment.layout import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    (found,) = target.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: set[str]) -> Message:
    (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    with ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_whole_package(names: set[str]) -> None:
    tree = {path.relative_to(ROOT).as_posix() for path in (ROOT / "django_mqueue").rglob("*.py")}
    assert tree - {"django_mqueue/spark/default_source.py"} <= names, "that one is there under another name"
    assert "django_mqueue/py.typed" in names
    assert "django_mqueue/locale/de/LC_MESSAGES/django.mo" in names
    assert "django_mqueue/migrations/0001_initial.py" in names


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "django_mqueue",
        "pyspark_mqueue.py",
    }


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
    assert sorted(requirements) == ["django<6.2,>=5.2", "mysqlclient<3,>=2.2"]


def test_every_requirement_has_a_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(each for extra in extras for each in extra)]
    assert [each for each in requirements if ">=" not in each or "<" not in each] == []
