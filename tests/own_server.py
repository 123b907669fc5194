"""A server for one test, to do things to that other tests would not survive."""

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
    """``alias`` is for ``using=``, ``url`` for the ``DATABASE_URL`` of a process. Both outlive a restart."""

    server: PrivateServer
    alias: str

    @property
    def url(self) -> str:
        return self.server.url()

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self.server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.server.restart(number)


@contextmanager
def own_server_of_kind(kind: str, alias: str = "own", further: Sequence[str] = ()) -> Iterator[OwnServer]:
    """Started, with ``further`` options, and migrated."""
    try:
        flavour = FLAVOURS[kind]()
    except EnvironmentProblem as problem:
        pytest.skip(f"no {kind} for this test alone: {problem}")
    with private_server(flavour, further=further) as server:
        connections.settings[alias] = connections.configure_settings(databases(server.url()))["default"]
        try:
            call_command("migrate", database=alias, verbosity=0)
            yield OwnServer(server, alias)
        finally:
            connections[alias].close()
            del connections[alias]
            del connections.settings[alias]
