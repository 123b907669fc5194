"""Create the tutorial's Django project as the tutorial describes, with its own database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import MySQLdb
from django.db import connection

from example_project.environment.lineage import die_with_parent
from tests.support import waiting

from .blocks import ROOT, Block, blocks

TUTORIAL = ROOT / "docs" / "tutorial.md"
PATIENCE = 4 * waiting.PATIENCE


class Project:
    """A directory with ``manage.py``. Commands run in it as if a reader typed them."""

    def __init__(self, directory: Path, database: dict[str, Any]) -> None:
        self.directory, self.database = directory, database
        self.run("django-admin", "startproject", "config", ".")
        self.run("python", "manage.py", "startapp", "shop")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": f"{self.directory}{os.pathsep}{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "DJANGO_SETTINGS_MODULE": "config.settings",
        }

    def write(self, block: Block) -> None:
        """Write a block into its file, as the tutorial says. Append if the file exists."""
        assert block.file is not None
        path = self.directory / block.file
        fresh = path.read_text() if path.exists() else ""
        if block.file == "shop/models.py":
            fresh = ""
        path.write_text(f"{fresh}\n\n{block.text}" if fresh else block.text)
        if block.file == "config/settings.py":
            own = "import json\n\nDATABASES['default'].update(json.loads({!r}))\n"
            more = "INSTALLED_APPS += ['django_mqueue.worklists']\n"  # For the how-to about worklists.
            path.write_text(path.read_text() + "\n\n" + own.format(json.dumps(self.database)) + more)

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        program = {
            "python": [sys.executable, "-W", "error::RuntimeWarning"],
            "django-admin": [sys.executable, "-m", "django"],
        }
        return subprocess.Popen(
            [*program[words[0]], *words[1:]],
            cwd=self.directory,
            env={**self.environment, **variables} if (self.directory / "manage.py").exists() else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )

    def run(self, *words: str, timeout: float = PATIENCE, **variables: str) -> str:
        """Return the output. Fail with it unless the program succeeds. ``variables`` are environment variables."""
        process = self.start(*words, **variables)
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        assert process.returncode == 0, f"{' '.join(words)} ended with {process.returncode}:\n{output}"
        return output


@contextmanager
def project_in(directory: Path, suffix: str) -> Iterator[Project]:
    """Create a project with an empty database, and drop the database at the end."""
    found = connection.settings_dict
    name = f"test_{found['NAME'].removeprefix('test_')[:40]}_{suffix}"
    _execute(f"DROP DATABASE IF EXISTS `{name}`", f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    database = {key: found[key] for key in ("USER", "PASSWORD", "HOST", "PORT", "OPTIONS")}
    try:
        yield Project(directory, {**database, "NAME": name})
    finally:
        _execute(f"DROP DATABASE IF EXISTS `{name}`")


def _execute(*statements: str) -> None:
    parameters = connection.get_connection_params()
    server = MySQLdb.connect(**{k: v for k, v in parameters.items() if k not in ("db", "database")})
    try:
        with server.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        server.close()


def with_tutorial_files(project: Project) -> None:
    """Write all files of the tutorial, and create its tables."""
    for block in blocks(TUTORIAL):
        if block.file is not None:
            project.write(block)
    project.run("python", "manage.py", "makemigrations", "--verbosity=0", "shop")
    project.run("python", "manage.py", "migrate", "--verbosity=0")
