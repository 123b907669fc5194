"""MySQL, unpacked into ``.local``: Debian bookworm has no package of it, but Debian unstable does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .errors import EnvironmentProblem
from .server import user_option
from .unpacked import unpacked

PACKAGE = "mysql-server-core"


@dataclass(frozen=True)
class MySQL:
    """MySQL with its own loader and libraries, which are newer than the system's."""

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
            *user_option(),
        ]

    def _libraries(self) -> Path:
        """Return the directory of the libraries: ``usr/lib/x86_64-linux-gnu``, or its name on this architecture."""
        for loader in (self.root / "usr" / "lib").glob("*/ld-linux*.so*"):
            return loader.parent
        raise EnvironmentProblem(f"no loader in {self.root}: delete that directory and run again")


def mysql() -> MySQL:
    """Return MySQL, and download it if necessary. Raises ``EnvironmentProblem`` with the reason if that fails."""
    return MySQL(unpacked(PACKAGE))
