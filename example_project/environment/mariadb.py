"""MariaDB from the system's package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import EnvironmentProblem
from .needs import for_mariadb
from .server import user_option
from .system_packages import program, provide


@dataclass(frozen=True)
class MariaDB:
    server: str
    installer: str
    kind: str = "mariadb"

    def initialise(self, data: Path) -> list[str]:
        return [
            self.installer,
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--skip-name-resolve",
            f"--datadir={data}",
            *user_option(),
        ]

    def serve(self, data: Path) -> list[str]:
        return [self.server, "--no-defaults", f"--datadir={data}", *user_option()]


def mariadb() -> MariaDB:
    """Return MariaDB, and install it if it is missing. Raises ``EnvironmentProblem`` if that fails."""
    provide(for_mariadb())
    server, installer = program("mariadbd"), program("mariadb-install-db")
    if not server or not installer:
        raise EnvironmentProblem("mariadbd or mariadb-install-db is gone")
    return MariaDB(server, installer)
