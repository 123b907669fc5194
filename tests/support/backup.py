"""Back up and restore a database with the server's own tools, as the how-to says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from django.db import connections

from example_project.environment.errors import EnvironmentProblem
from example_project.environment.system_packages import Need, program, provide
from example_project.environment.unpacked import unpacked
from tests.servers import kind_of_run

DUMP_OPTIONS = ["--single-transaction", "--no-tablespaces"]


def _need(name: str, package: str) -> Need:
    return Need(name, package, lambda: bool(program(name)))


def _tools() -> tuple[list[str], list[str]]:
    """Return the commands that dump and that restore. Skip the test if they cannot be installed."""
    try:
        if kind_of_run() == "mariadb":
            provide([_need("mariadb-dump", "mariadb-client"), _need("mariadb", "mariadb-client-core")])
            return [str(program("mariadb-dump"))], [str(program("mariadb"))]
        usr = unpacked("mysql-client") / "usr"
    except EnvironmentProblem as problem:
        pytest.skip(f"no tool for backups: {problem}")
    loader = next(usr.glob("lib/*/ld-linux*.so*"))
    command = [str(loader), "--library-path", f"{loader.parent}:{usr / 'lib/mysql/private'}"]
    return [*command, str(usr / "bin/mysqldump"), "--no-defaults", "--set-gtid-purged=OFF"], [
        *command, str(usr / "bin/mysql"), "--no-defaults",
    ]  # fmt: skip


def _connection(using: str) -> list[str]:
    found = connections[using].get_connection_params()
    options = {
        "user": "user",
        "password": "password",
        "host": "host",
        "port": "port",
        "unix_socket": "socket",
    }
    given = [f"--{option}={found[name]}" for name, option in options.items() if found.get(name)]
    return [*given, str(found.get("database") or found["db"])]


def dump(path: Path, using: str = "default") -> None:
    """Write a consistent backup of the whole database, while others work."""
    command, _ = _tools()
    with path.open("wb") as file:
        _run([*command, *DUMP_OPTIONS, *_connection(using)], stdout=file)


def restore(path: Path, using: str = "default") -> None:
    """Replace all tables of the database by those of the backup."""
    _, command = _tools()
    with path.open("rb") as file:
        _run([*command, *_connection(using)], stdin=file)
    connections[using].close()


def _run(command: list[str], **files: object) -> None:
    found = subprocess.run(command, stderr=subprocess.PIPE, **files)  # type: ignore[call-overload]
    assert found.returncode == 0, found.stderr.decode(errors="replace")
