"""The system packages for a virtual environment with mysqlclient, and for MariaDB."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .interpreters import Interpreter
from .system_packages import Need, program


def for_building(python: Interpreter) -> list[Need]:
    """Return the packages that build mysqlclient: a compiler, the client library and Python's headers."""
    return [
        Need("a C compiler", "gcc", lambda: bool(shutil.which("gcc") or shutil.which("cc"))),
        Need("the C library's headers", "libc6-dev", lambda: Path("/usr/include/stdio.h").exists()),
        Need("pkg-config", "pkg-config", lambda: bool(shutil.which("pkg-config"))),
        Need("the MySQL client library", "default-libmysqlclient-dev", _has_client_library),
        Need("Python's headers", f"python{python.minor}-dev", lambda: python.has_headers),
        Need("Python's venv", f"python{python.minor}-venv", lambda: python.has_venv),
    ]


def for_mariadb() -> list[Need]:
    """Return the packages of the server, without the package that runs it as a service."""
    return [
        Need("the MariaDB server", "mariadb-server-core", lambda: bool(program("mariadbd"))),
        Need("MariaDB's installer", "mariadb-server-core", lambda: bool(program("mariadb-install-db"))),
        Need("MariaDB's helpers", "mariadb-client-core", lambda: bool(program("my_print_defaults"))),
    ]


def _has_client_library() -> bool:
    """Search for the library as mysqlclient's own build does."""
    if not shutil.which("pkg-config"):
        return False
    return any(
        subprocess.run(["pkg-config", "--exists", name], capture_output=True).returncode == 0
        for name in ("mysqlclient", "mariadb", "libmariadb", "perconaserverclient")
    )
