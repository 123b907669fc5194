#!/usr/bin/env python3
"""Run the proof by hand: ``python3 tests/prove.py [--minutes N] [--server …]``.

The proof kills processes at random moments, and then checks that no message is lost.

``--help`` lists all options. The command creates the environment and the server that it needs, as ``run.py`` does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    from example_project.environment.interpreters import running
    from example_project.environment.processes import forward
    from example_project.environment.venv import VirtualEnvironment

    python = VirtualEnvironment(running(), django="5.2", extras=("dev", "example", "test")).ensure()
    return forward([python, "-m", "tests.proof", *arguments], env=dict(os.environ))


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    sys.path[0] = str(ROOT)
    from example_project.environment.launch import launch

    launch(main)
