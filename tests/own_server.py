"""Start a server for one test, which may stop or damage it."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from django.core.management import call_command
from django.db import connections

from example_project.environment.database import FLAVOURS
from example_project.environment.errors import EnvironmentProblem
from example_project.environment.server import PrivateServer, private_server
from tests.databases import databases


@dataclass(frozen=True)
class OwnServer:
    """``alias`` is for ``using=``, and ``url`` for the ``DATABASE_URL`` of a process. Both survive a restart."""

    server: PrivateServer
    alias: str

    @property
    def url(self) -> str:
        return self.server.url()

    def stop(self) -> None:
        """Send SIGTERM, and wait until the server ends."""
        self.server.stop()

    def kill(self) -> None:
        """Send SIGKILL."""
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.server.restart(number)


@contextmanager
def own_server_of_kind(
    kind: str, alias: str = "own", further: Sequence[str] = (), *, is_migrated: bool = True
) -> Iterator[OwnServer]:
    """Start a server with the options in ``further``, and migrate its database."""
    try:
        flavour = FLAVOURS[kind]()
    except EnvironmentProblem as problem:
        pytest.skip(f"no {kind} for this test alone: {problem}")
    with private_server(flavour, further=further) as server:
        connections.settings[alias] = connections.configure_settings(databases(server.url()))["default"]
        try:
            if is_migrated:
                call_command("migrate", database=alias, verbosity=0)
            yield OwnServer(server, alias)
        finally:
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]
