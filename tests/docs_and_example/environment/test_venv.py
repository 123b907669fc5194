"""The conditions under which a virtual environment is created again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from example_project.environment import venv
from example_project.environment.interpreters import Interpreter
from example_project.environment.venv import Pins, VirtualEnvironment


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VirtualEnvironment:
    """A fake environment that is marked as installed, in a separate project."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(venv, "ROOT", tmp_path)
    environment = VirtualEnvironment(
        Interpreter(Path("/usr/bin/python3"), (3, 11, 2)), "5.2", ("example", "test"), tmp_path
    )
    environment.python.parent.mkdir(parents=True)
    environment.python.touch()
    environment._stamp.write_text(environment._wanted())
    return environment


def test_the_second_time_nothing_is_installed(installed: VirtualEnvironment) -> None:
    assert installed._is_current()


def test_a_changed_pyproject_installs_again(installed: VirtualEnvironment, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    assert not installed._is_current()


def test_another_python_installs_again(installed: VirtualEnvironment) -> None:
    newer = Interpreter(installed.interpreter.path, (3, 11, 9))
    assert not replace(installed, interpreter=newer)._is_current()


def test_fewer_extras_are_there_already_and_more_are_not(installed: VirtualEnvironment) -> None:
    assert replace(installed, extras=("example",))._is_current()
    more = replace(installed, extras=("dev", "example"))
    assert not more._is_current()
    assert more._extras_with_earlier() == ["dev", "example", "test"]


def test_an_interrupted_installation_is_not_taken_for_one(installed: VirtualEnvironment) -> None:
    installed._stamp.unlink()
    assert not installed._is_current()


def test_each_python_and_django_has_its_own(installed: VirtualEnvironment) -> None:
    assert installed.name == "python3.11-django5.2"
    assert replace(installed, django="6.1").directory != installed.directory


def test_older_versions_of_what_it_holds_are_in_one_of_their_own(installed: VirtualEnvironment) -> None:
    older = replace(installed, pins=Pins("lib1", ("lib==1.*",)))
    assert older.name == "python3.11-django5.2-lib1"
    other = replace(installed, pins=Pins("lib1", ("lib==1.2",)))
    assert other.directory == older.directory
    assert other._wanted() != older._wanted()
