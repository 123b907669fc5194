#!/usr/bin/env python3
"""Take the pictures of the documentation: ``python3 tests/pictures.py [argument of pytest …]``.

The command writes them to ``docs/images``. It creates the environment and the server that it needs, as ``run.py`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ("tests/admin/test_pictures.py", "tests/spark/test_report_page.py")


def main(arguments: list[str]) -> int:
    from example_project.environment.database import database
    from example_project.environment.interpreters import running
    from example_project.environment.processes import forward, with_database
    from example_project.environment.venv import VirtualEnvironment

    python = VirtualEnvironment(running(), django="5.2", extras=("dev", "example", "test")).ensure()
    with database() as url:
        variables = {**with_database(url), "MQUEUE_PICTURES": str(ROOT / "docs" / "images")}
        return forward([python, "-m", "pytest", *PICTURES, *arguments], env=variables)


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    sys.path[0] = str(ROOT)
    from example_project.environment.launch import launch

    launch(main)
