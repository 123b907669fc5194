"""The checks that run no test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from example_project.environment.processes import forward, with_database
from example_project.environment.say import step
from tests.runner.outcome import Outcome


def static_checks(python: Path, url: str) -> Iterator[Outcome]:
    """Each one, whatever became of those before."""
    for name, argv in {
        "ruff check": ["ruff", "check", "."],
        "ruff format": ["ruff", "format", "--check", "."],
        "mypy": ["mypy"],
        "migrations": ["django", "makemigrations", "--check", "--dry-run", "--settings=tests.settings"],
    }.items():
        step(name)
        begun = time.monotonic()
        code = forward([python, "-m", *argv], env=with_database(url))
        yield Outcome(name, "", code == 0, seconds=time.monotonic() - begun)
