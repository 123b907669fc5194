"""A private database server: it can be stopped, killed and started again, and never outlives its run."""

from __future__ import annotations

import os
import pwd
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from .errors import ServerFailed
from .greeting import version
from .layout import ROOT
from .processes import run
from .scratch import HOME, Scratch, scratch

DATABASE = "mqueue"
START, STOP = 90.0, 90.0
"""Seconds in which a server must start, and stop."""
_INIT = f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"


def user_option() -> list[str]:
    """Return the option that names the user of a server: as root, servers refuse to run without it."""
    return [f"--user={pwd.getpwuid(os.geteuid()).pw_name}"] if os.geteuid() == 0 else []


class Flavour(Protocol):
    """The commands that install and run one database product."""

    @property
    def kind(self) -> str: ...

    def initialise(self, data: Path) -> list[str]:
        """Return the command that creates a data directory."""

    def serve(self, data: Path) -> list[str]:
        """Return the command that serves it. The caller adds the socket and other options."""


COMMON = [
    "--skip-networking",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=256M",
    "--innodb-flush-log-at-trx-commit=2",  # A commit reaches the operating system: a killed server loses nothing.
    "--max-connections=400",
    "--max-allowed-packet=64M",
    "--character-set-server=utf8mb4",
]


@dataclass
class PrivateServer:
    """A server that is reachable only by its socket. ``start`` after ``stop`` or ``kill`` finds the same data."""

    flavour: Flavour
    place: Scratch
    further: Sequence[str] = ()
    version: str = ""
    pid: int = 0
    _watchdog: subprocess.Popen[str] | None = field(default=None, repr=False)

    def url(self, name: str = DATABASE) -> str:
        """Return the value for ``DATABASE_URL``."""
        return f"mysql://root@localhost/{name}?unix_socket={quote(str(self.place.socket), safe='/')}"

    def initialise(self) -> None:
        self.place.data.parent.mkdir(parents=True, exist_ok=True)
        run(self.flavour.initialise(self.place.data), cwd=self.place.directory, env=self._environment())

    def _environment(self) -> dict[str, str]:
        """Return the environment, with a private directory for temporary files.

        A starting server deletes the temporary files of other servers in a shared directory.
        """
        temporary = self.place.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**os.environ, "TMPDIR": str(temporary)}

    def start(self) -> None:
        """Start the server, and return when it serves. Raises ``ServerFailed`` with the end of its log."""
        if self._watchdog:
            raise ServerFailed(f"this {self.flavour.kind} was started already")
        for stale in ("s", "s.lock"):
            (self.place.sockets / stale).unlink(missing_ok=True)
        init = self.place.directory / "init.sql"
        init.write_text(_INIT)
        arguments = [
            *self.flavour.serve(self.place.data),
            *COMMON,
            f"--socket={self.place.socket}",
            f"--pid-file={self.place.directory / 'pid'}",
            f"--init-file={init}",
            *self.further,
        ]
        with self._log.open("a") as log:
            self._watchdog = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.watchdog", str(self.place.lock), *arguments],
                cwd=ROOT,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=(self.place.lock,),
                start_new_session=True,  # Ctrl-C must not reach the server.
            )
        try:
            self.pid = int(self._line(START) or 0)
            self._wait_until_it_serves()
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def stop(self) -> None:
        """Send SIGTERM: the server shuts down in order. Do nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        self._end(signal.SIGKILL)

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._end(number)
        self.start()

    @property
    def _log(self) -> Path:
        return self.place.directory / "log"

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START
        while not (found := version(self.place.socket)):
            if self._line(0.05) is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
                raise ServerFailed(f"{self.flavour.kind} does not serve; its log ends:\n{tail}")
        self.version = found

    def _line(self, seconds: float) -> str | None:
        """Return the watchdog's next line, None if it writes none in time, or '' if it has ended."""
        assert self._watchdog is not None
        assert self._watchdog.stdout is not None
        if not select.select([self._watchdog.stdout], [], [], seconds)[0]:
            return None
        return self._watchdog.stdout.readline().strip()

    def _end(self, number: signal.Signals) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        assert watchdog.stdin
        try:
            watchdog.stdin.write(f"{number.name}\n")
            watchdog.stdin.close()
        except BrokenPipeError:  # The server and its watchdog have ended.
            pass
        watchdog.wait(STOP)
        assert watchdog.stdout
        watchdog.stdout.close()
        self.pid = 0


@contextmanager
def private_server(
    flavour: Flavour, home: Path = HOME, further: Sequence[str] = ()
) -> Iterator[PrivateServer]:
    """Run a new, empty server during the block.

    ``further``: options that come last, so they override all others.
    """
    with scratch(flavour.kind, home) as place:
        server = PrivateServer(flavour, place, further)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
