"""The static checks: style, types and migrations."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from example_project.environment.processes import forward
from example_project.environment.say import step
from tests.support.runner.outcome import Outcome

_MIGRATIONS = ["django", "makemigrations", "--check", "--dry-run", "--settings=tests.settings_types"]


def static_checks(python: Path) -> Iterator[Outcome]:
    """Run each check, even after a failure. No check needs a server.

    Without a server, the migrations' check only gives a warning.
    """
    for name, argv in {
        "ruff check": ["-m", "ruff", "check", "."],
        "ruff format": ["-m", "ruff", "format", "--check", "."],
        "mypy": ["-m", "mypy"],
        "migrations": ["-W", "ignore::RuntimeWarning", "-m", *_MIGRATIONS],
    }.items():
        step(name)
        begun = time.monotonic()
        code = forward([python, *argv], env=os.environ)
        yield Outcome(name, "", code == 0, seconds=time.monotonic() - begun)
