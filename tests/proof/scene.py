"""The targets of the faults: the processes, the server and its database."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import MySQLdb

from example_project.environment.server import PrivateServer
from tests.proof.crew import Crew
from tests.proof.disk import Disk
from tests.proof.history import Fault, Writer, now
from tests.support.waiting import PATIENCE


@dataclass
class Scene:
    """``server`` is None if the run does not own the server, and ``disk`` if there is no disk to fill.

    ``parameters`` are the arguments for a connection.
    """

    crew: Crew
    history: Writer
    dice: random.Random
    parameters: dict[str, Any]
    server: PrivateServer | None
    disk: Disk | None
    lease: float

    def note(self, kind: str, target: str = "") -> None:
        self.history.write(Fault(now(), kind, target))

    def tend_server(self) -> None:
        """Start the server again if it has died."""
        if self.server is not None and not Path(f"/proc/{self.server.pid}").exists():
            self.note("server down", "died")
            self.server.restart()
            self.note("server up")

    def connect(self) -> Any:
        """Open a connection outside Django. Raises ``MySQLdb.Error`` while the server is down."""
        connection = MySQLdb.connect(**self.parameters, connect_timeout=int(PATIENCE))
        connection.autocommit(True)
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")  # A stopped process keeps its locks.
        return connection

    def query(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters or None)
                return list(cursor.fetchall() or ())
        finally:
            connection.close()
