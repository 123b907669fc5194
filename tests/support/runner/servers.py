"""The servers of the lanes. Each process of pytest starts its own, unless ``DATABASE_URL`` names a server."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from example_project.environment.database import FLAVOURS
from example_project.environment.processes import run, with_database

_ASK = "import django; django.setup(); from tests.servers import version_of_run; print(version_of_run())"


@dataclass(frozen=True)
class Server:
    """``kind`` is "mariadb" or "mysql", or "DATABASE_URL" for a given server. ``name`` includes the version."""

    kind: str
    name: str

    @property
    def given(self) -> bool:
        return self.kind == "DATABASE_URL"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables for a pytest on this server."""
        if self.given:
            return with_database(os.environ[self.kind])
        return {**os.environ, "MQUEUE_TEST_SERVER": self.kind}


def server(kind: str, python: Path) -> Server:
    """Return the server, and install it if it is missing. Raises ``EnvironmentProblem`` if that fails."""
    if kind == "DATABASE_URL":
        variables = {**with_database(os.environ[kind]), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        return Server(kind, f"given: {run([python, '-c', _ASK], env=variables).strip()}")
    told = run([*FLAVOURS[kind]().serve(Path("unused")), "--version"], env=os.environ)
    found = re.search(r"Ver (\S+)", told)
    return Server(kind, f"{kind} {found[1] if found else told.strip()}")
