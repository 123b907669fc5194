"""A private database server: started, stopped, killed and started again; never left behind."""

from __future__ import annotations

import os
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
"""Seconds that a server gets."""
_INIT = f"CREATE DATABASE IF NOT EXISTS {DATABASE} CHARACTER SET utf8mb4;\n"


class Flavour(Protocol):
    """How one product is installed and run."""

    @property
    def kind(self) -> str: ...

    def initialise(self, data: Path) -> list[str]:
        """The command that makes a data directory."""

    def serve(self, data: Path) -> list[str]:
        """The command that serves it; socket and the rest are added."""


COMMON = [
    "--skip-networking",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=256M",
    "--innodb-flush-log-at-trx-commit=2",  # handed to the system at each commit: a killed server loses nothing
    "--max-connections=400",
    "--max-allowed-packet=64M",
    "--character-set-server=utf8mb4",
]


@dataclass
class PrivateServer:
    """Reached by its socket alone. ``start`` after ``stop`` or ``kill`` finds the data as they were."""

    flavour: Flavour
    place: Scratch
    further: Sequence[str] = ()
    version: str = ""
    pid: int = 0
    _watchdog: subprocess.Popen[str] | None = field(default=None, repr=False)

    def url(self, name: str = DATABASE) -> str:
        """What ``DATABASE_URL`` has to be."""
        return f"mysql://root@localhost/{name}?unix_socket={quote(str(self.place.socket), safe='/')}"

    def initialise(self) -> None:
        self.place.data.parent.mkdir(parents=True, exist_ok=True)
        run(self.flavour.initialise(self.place.data), cwd=self.place.directory, env=self._environment())

    def _environment(self) -> dict[str, str]:
        """With a place for temporary files of its own: a starting server deletes those that another left there."""
        temporary = self.place.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        return {**os.environ, "TMPDIR": str(temporary)}

    def start(self) -> None:
        """Returns when it serves. Raises ``ServerFailed`` with the end of its log."""
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
                start_new_session=True,  # Ctrl-C is for who runs this, not for the server
            )
        try:
            self.pid = int(self._line(START) or 0)
            self._wait_until_it_serves()
        except BaseException:
            self._end(signal.SIGKILL)
            raise

    def stop(self) -> None:
        """SIGTERM: it finishes what it does. Nothing happens when it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: a crash."""
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
        """The watchdog's next word; None when it says nothing in time. '' when it is gone."""
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
        except BrokenPipeError:  # the server has ended, and its watchdog with it
            pass
        watchdog.wait(STOP)
        assert watchdog.stdout
        watchdog.stdout.close()
        self.pid = 0


@contextmanager
def private_server(
    flavour: Flavour, home: Path = HOME, further: Sequence[str] = ()
) -> Iterator[PrivateServer]:
    """A new, empty server for as long as the block runs. ``further`` options come last, and so before all others."""
    with scratch(flavour.kind, home) as place:
        server = PrivateServer(flavour, place, further)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
