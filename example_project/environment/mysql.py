"""MySQL, unpacked into ``.local``: bookworm has no package of it, Debian's unstable suite has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import EnvironmentProblem
from .unpacked import unpacked
from .users import as_me

PACKAGE = "mysql-server-core"


@dataclass(frozen=True)
class MySQL:
    """Started through its own loader with its own libraries, which are newer than the system's."""

    root: Path
    kind: str = "mysql"

    def initialise(self, data: Path) -> list[str]:
        return [*self._command(data), "--initialize-insecure"]

    def serve(self, data: Path) -> list[str]:
        return [*self._command(data), "--mysqlx=OFF", "--skip-log-bin"]

    def _command(self, data: Path) -> list[str]:
        usr = self.root / "usr"
        libraries = self._libraries()
        path = [libraries, usr / "lib" / "mysql" / "private", libraries / "mysql" / "private"]
        return [
            str(next(libraries.glob("ld-linux*.so*"))),
            "--library-path",
            ":".join(map(str, path)),
            str(usr / "sbin" / "mysqld"),
            "--no-defaults",
            f"--basedir={usr}",
            f"--lc-messages-dir={usr / 'share' / 'mysql'}",
            f"--character-sets-dir={usr / 'share' / 'mysql' / 'charsets'}",
            f"--plugin-dir={usr / 'lib' / 'mysql' / 'plugin'}",
            f"--datadir={data}",
            "--secure-file-priv=NULL",
            *as_me(),
        ]

    def _libraries(self) -> Path:
        """``usr/lib/x86_64-linux-gnu``, or whatever the architecture calls it."""
        for loader in (self.root / "usr" / "lib").glob("*/ld-linux*.so*"):
            return loader.parent
        raise EnvironmentProblem(f"no loader in {self.root}: delete that directory and run again")


def mysql() -> MySQL:
    """Downloaded if need be. Raises ``EnvironmentProblem`` with the reason where it cannot be had."""
    return MySQL(unpacked(PACKAGE))
