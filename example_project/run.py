#!/usr/bin/env python3
"""Runs the example end to end: ``python3 example_project/run.py [argument…]``.

It provides what is missing (system packages, a virtual environment, a private MariaDB), migrates, and runs
``manage.py shop``, and then ``manage.py flights`` with the arguments. ``open`` as the first argument runs ``manage.py
open_shop`` instead, with the admin to look at; ``pipeline`` runs ``manage.py pipeline``, in an environment that has
Spark. With ``DATABASE_URL`` set it uses that database and starts none.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {"open": "open_shop", "pipeline": "pipeline"}
"""By the first argument."""


def main(arguments: list[str]) -> int:
    from example_project.environment.database import database
    from example_project.environment.interpreters import running
    from example_project.environment.layout import LOCAL
    from example_project.environment.processes import forward, with_database
    from example_project.environment.say import step
    from example_project.environment.venv import VirtualEnvironment

    command = COMMANDS.get(arguments[0]) if arguments else None
    if command == "pipeline":
        environment = VirtualEnvironment(running(), "5.2", ("example", "spark"), LOCAL / "spark-venvs")
    else:
        environment = VirtualEnvironment(running(), "5.2", ("example",))
    python = environment.ensure()
    with database() as url:
        variables = with_database(url)
        step("creating the tables")
        code = forward([python, ROOT / "manage.py", "migrate", "--verbosity=0"], env=variables)
        if code:
            return code
        if command is not None:
            step(f"manage.py {command}")
            return forward([python, ROOT / "manage.py", command, *arguments[1:]], env=variables)
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
