#!/usr/bin/env python3
"""Run the example end to end: ``python3 example_project/run.py [argument…]``.

It installs missing parts (system packages, a virtual environment, a private MariaDB) and migrates. Then it runs
``manage.py shop``, and ``manage.py flights`` with the arguments.

The first argument ``open`` runs ``manage.py open_shop`` instead, which serves the admin. The first argument
``pipeline`` runs ``manage.py pipeline`` in an environment with Spark. With ``DATABASE_URL`` set, it uses that database
and starts no server.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {"open": "open_shop", "pipeline": "pipeline"}
"""Commands by the first argument."""


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
