"""A private server that a JVM can also reach: by TCP, with a password."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import MySQLdb

from example_project.environment.database import FLAVOURS
from example_project.environment.server import private_server

BUFFER_POOL = 1 << 30
"""Bytes. A server of this size gets more memory than the tests' servers."""


@dataclass(frozen=True)
class Served:
    """A private server that accepts TCP connections of one user with a password. ``pid``: its process id."""

    kind: str
    version: str
    port: int
    pid: int
    password: str
    host: str = "127.0.0.1"
    user: str = "reader"
    database: str = "mqueue"

    @property
    def url(self) -> str:
        """Return the URL in the format of ``DATABASE_URL``."""
        return f"mysql://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"


@contextmanager
def served(kind: str) -> Iterator[Served]:
    """Start a private server. ``kind``: mariadb or mysql. Its data need not survive a crash."""
    port = _free_port()
    further = ["--skip-networking=OFF", "--bind-address=127.0.0.1", f"--port={port}"]
    with private_server(FLAVOURS[kind](), further=further) as server:
        found = Served(kind, server.version, port, server.pid, secrets.token_hex(16))
        with MySQLdb.connect(unix_socket=str(server.place.socket), user="root") as connection:
            cursor = connection.cursor()
            cursor.execute(f"SET GLOBAL innodb_buffer_pool_size = {BUFFER_POOL:d}")
            cursor.execute(f"CREATE USER {found.user}@{found.host} IDENTIFIED BY %s", [found.password])
            cursor.execute(f"GRANT ALL ON {found.database}.* TO {found.user}@{found.host}")
        yield found


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
