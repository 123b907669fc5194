"""A connection to the test database that a test can cut. The database is then unreachable, but the server runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import quote

from django.db import connections

from tests.support.waiting import PATIENCE


class Proxy:
    """Listens on a port and forwards all data to the test's server, until a test cuts it."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._up, self._lock = True, threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The URL of the test database through this proxy."""
        found = connections["default"].settings_dict
        user = quote(found["USER"], safe="")
        if found["PASSWORD"]:
            user += f":{quote(found['PASSWORD'], safe='')}"
        return f"mysql://{user}@127.0.0.1:{self._listening.getsockname()[1]}/{found['NAME']}"

    def cut(self) -> None:
        """Break all connections. New connections are closed at once."""
        with self._lock:
            self._up = False
            for one in self._sockets:
                _end(one)

    def mend(self) -> None:
        with self._lock:
            self._up = True

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        _end(self._listening)
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE)
        for one in [self._listening, *self._sockets]:
            one.close()

    def _start(self, function: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=function, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                if not self._up:
                    near.close()
                    continue
                far = _server()
                self._sockets += [near, far]
                self._start(_pass_on, near, far)
                self._start(_pass_on, far, near)


def _server() -> socket.socket:
    """Connect to the server that Django's connections use, by port or by socket."""
    parameters = connections["default"].get_connection_params()
    path = parameters.get("unix_socket", "")
    if path:
        far = socket.socket(socket.AF_UNIX)
        far.connect(path)
        return far
    return socket.create_connection((parameters.get("host", "127.0.0.1"), int(parameters.get("port", 3306))))


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    _end(one)
    _end(other)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
