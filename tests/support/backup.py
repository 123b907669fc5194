"""Back up and restore a database with the server's own tools, as the how-to says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connections

from example_project.environment.errors import EnvironmentProblem
from example_project.environment.mysql import mysql
from example_project.environment.system_packages import Need, program, provide
from example_project.environment.unpacked import unpacked
from tests.servers import kind_of_run

DUMP_OPTIONS = ["--single-transaction", "--no-tablespaces"]


def _need(name: str, package: str) -> Need:
    return Need(name, package, lambda: bool(program(name)))


@dataclass(frozen=True)
class Tools:
    """The first words of the commands. ``position``: the option of ``dump`` that notes the binary log's position."""

    dump: list[str]
    client: list[str]
    binary_log: list[str]
    position: str


def _tools() -> Tools:
    """Return the tools of the server's kind. Skip the test if they cannot be installed."""
    try:
        if kind_of_run() == "mariadb":
            names = ("mariadb-dump", "mariadb", "mariadb-binlog")
            packages = ("mariadb-client", "mariadb-client-core", "mariadb-client")
            provide(list(map(_need, names, packages)))
            dump, client, binary_log = ([str(program(name))] for name in names)
            return Tools(dump, client, binary_log, "--master-data=2")
        clients, server = unpacked("mysql-client") / "usr", mysql().root / "usr"
    except EnvironmentProblem as problem:
        pytest.skip(f"no tool for backups: {problem}")
    return Tools(
        [*_loaded(clients, "mysqldump"), "--no-defaults", "--set-gtid-purged=OFF"],
        [*_loaded(clients, "mysql"), "--no-defaults"],
        [*_loaded(server, "mysqlbinlog"), "--no-defaults"],
        "--source-data=2",
    )


def _loaded(usr: Path, name: str) -> list[str]:
    """Return the command of an unpacked program, with the loader and the libraries beside it."""
    loader = next(usr.glob("lib/*/ld-linux*.so*"))
    return [
        str(loader),
        "--library-path",
        f"{loader.parent}:{usr / 'lib/mysql/private'}",
        str(usr / "bin" / name),
    ]


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


def dump(path: Path, using: str = "default", *, notes_position: bool = False) -> None:
    """Write a consistent backup of the whole database, while others work."""
    tools = _tools()
    options = [*DUMP_OPTIONS, *([tools.position] if notes_position else [])]
    with path.open("wb") as file:
        _run([*tools.dump, *options, *_connection(using)], stdout=file)


def restore(path: Path, using: str = "default") -> None:
    """Replace all tables of the database with the tables of the backup."""
    with path.open("rb") as file:
        _run([*_tools().client, *_connection(using)], stdin=file)
    connections[using].close()


def position_now(using: str) -> int:
    """Return the end of the server's binary log."""
    statement = "SHOW MASTER STATUS" if kind_of_run() == "mariadb" else "SHOW BINARY LOG STATUS"
    with connections[using].cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[1])


def apply_binary_log(backup: Path, directory: Path, stop: int, using: str) -> None:
    """Apply a server's binary log after its backup, from the position that the backup notes up to ``stop``."""
    head = backup.read_text(errors="replace")[:20_000]
    found = re.search(r"_LOG_FILE='([^']+)', (?:MASTER|SOURCE)_LOG_POS=(\d+)", head)
    assert found, "the backup notes no position"
    tools, text = _tools(), backup.with_suffix(".binlog")
    with text.open("wb") as file:
        database = f"--database={_connection(using)[-1]}"
        words = [
            database,
            f"--start-position={found[2]}",
            f"--stop-position={stop}",
            str(directory / found[1]),
        ]
        _run([*tools.binary_log, *words], stdout=file)
    restore(text, using)


def _run(command: list[str], **files: object) -> None:
    found = subprocess.run(command, stderr=subprocess.PIPE, **files)  # type: ignore[call-overload]
    assert found.returncode == 0, found.stderr.decode(errors="replace")
