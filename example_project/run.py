#!/usr/bin/env python3
"""Runs the example end to end: ``python3 example_project/run.py [argument…]``.

It provides what is missing (system packages, a virtual environment, a private MariaDB), migrates, and runs
``manage.py shop``, and then ``manage.py flights`` with the arguments. ``open`` as the first argument runs ``manage.py
open_shop`` instead, with the admin to look at. With ``DATABASE_URL`` set it uses that database and starts none.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    from example_project.environment.database import database
    from example_project.environment.interpreters import running
    from example_project.environment.processes import forward, with_database
    from example_project.environment.say import step
    from example_project.environment.venv import VirtualEnvironment

    python = VirtualEnvironment(running(), django="5.2", extras=("example",)).ensure()
    with database() as url:
        variables = with_database(url)
        step("creating the tables")
        code = forward([python, ROOT / "manage.py", "migrate", "--verbosity=0"], env=variables)
        if code:
            return code
        if arguments[:1] == ["open"]:
            step("manage.py open_shop")
            return forward([python, ROOT / "manage.py", "open_shop", *arguments[1:]], env=variables)
        step("manage.py shop")
        code = forward([python, ROOT / "manage.py", "shop"], env=variables)
        if code:
            return code
        step(f"manage.py flights {' '.join(arguments)}".rstrip())
        return forward([python, ROOT / "manage.py", "flights", *arguments], env=variables)


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036
        sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")
    sys.path[0] = str(ROOT)
    from example_project.environment.launch import launch

    launch(main)
