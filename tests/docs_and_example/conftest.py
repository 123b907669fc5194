"""Build the package once for the tests that look at it or install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from example_project.environment.layout import ROOT


def built(target: str, directory: Path) -> Path:
    """Build the ``wheel`` or the ``sdist`` with the installed hatchling, without a download."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    (found,) = directory.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", tmp_path_factory.mktemp("sdist"))
