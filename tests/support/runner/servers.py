"""The servers that lanes run on. Each process of pytest starts one of its own, unless ``DATABASE_URL`` names one."""

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
    """``kind``: "mariadb" or "mysql"; "DATABASE_URL" for the one that is ``given``. ``name``: with its version."""

    kind: str
    name: str

    @property
    def given(self) -> bool:
        return self.kind == "DATABASE_URL"

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a pytest that is to use it."""
        if self.given:
            return with_database(os.environ[self.kind])
        return {**os.environ, "MQUEUE_TEST_SERVER": self.kind}


def server(kind: str, python: Path) -> Server:
    """Return the server, installed if it was missing. Raises ``EnvironmentProblem`` where that is impossible."""
    if kind == "DATABASE_URL":
        variables = {**with_database(os.environ[kind]), "DJANGO_SETTINGS_MODULE": "tests.settings"}
        return Server(kind, f"given: {run([python, '-c', _ASK], env=variables).strip()}")
    told = run([*FLAVOURS[kind]().serve(Path("unused")), "--version"], env=os.environ)
    found = re.search(r"Ver (\S+)", told)
    return Server(kind, f"{kind} {found[1] if found else told.strip()}")
