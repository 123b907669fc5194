"""The HTTP server of ``runconsumer --metrics-port``.

The command opens the port before it forks. Each worker process accepts connections of this port in a thread, and
answers for all workers of the command: their measurements are in files of one directory. So any running child answers,
and a child that ends takes no counters with it. The supervisor has no thread, because it forks.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from django.db import connections
from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

from ..instruments import sending_to
from .database import DatabaseCollector
from .workers import WorkerCounts

BACKLOG = 128
REQUESTS_MAX = 32
"""The maximum number of requests at a time. Each has a thread and a file, and the port has no password."""
LINGER = 2.0
"""Seconds that a stopping worker waits for its last requests. It has already left its groups."""
POLL_INTERVAL = 0.2
"""Seconds until the server notices that the worker stops."""
WRITES_FILES = "PROMETHEUS_MULTIPROC_DIR"
"""If this environment variable is set, the project's own metrics are in files of this directory."""


@dataclass(frozen=True)
class Endpoint:
    """An open port, and the directory of the measurements.

    ``using``: the database whose metrics are served also; None: none. ``pairs``: (topic, group) of the handlers.
    """

    socket: socket.socket
    directory: Path
    using: str | None
    pairs: Sequence[tuple[str, str]]

    @property
    def url(self) -> str:
        host, port, *_ = self.socket.getsockname()
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    @contextmanager
    def serving(self, worker: str) -> Iterator[None]:
        """Record the measurements of this process under the worker's name, and serve those of all workers."""
        counts = WorkerCounts(self.directory, worker, self.pairs)
        server = _Server(self.socket, self._application())
        thread = threading.Thread(
            target=server.serve_forever, args=(POLL_INTERVAL,), name="mqueue-metrics", daemon=True
        )
        thread.start()
        try:
            with sending_to(counts):
                yield
        finally:
            server.shutdown()
            thread.join()
            server.finish_requests()
            server.server_close()
            counts.close()

    def _application(self) -> Callable[..., Any]:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self.directory))
        if WRITES_FILES in os.environ:
            MultiProcessCollector(registry)
        else:
            registry.register(REGISTRY)
        if self.using is not None:
            registry.register(DatabaseCollector(self.using))
        application = make_wsgi_app(registry)

        def respond(environ: dict[str, Any], start_response: Any) -> Any:
            try:
                return application(environ, start_response)
            finally:  # Each request has a thread, and so connections, of its own.
                connections.close_all()

        return respond


@contextmanager
def listening(
    address: str, port: int, using: str | None, pairs: Sequence[tuple[str, str]]
) -> Iterator[Endpoint]:
    """Open a port for the workers that start in this block. Raise ``OSError`` if it is not free."""
    family, _, _, _, place = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with (
        tempfile.TemporaryDirectory(prefix="mqueue-metrics-", ignore_cleanup_errors=True) as directory,
        socket.socket(family, socket.SOCK_STREAM) as listener,
    ):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
        listener.setblocking(False)  # Another process may accept the connection that both have seen.
        yield Endpoint(listener, Path(directory), using, pairs)


class _Handler(WSGIRequestHandler):
    timeout = 30.0

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a scrape comes every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers requests of a port that is open already."""

    def __init__(self, listener: socket.socket, application: Callable[..., Any]) -> None:
        host, port, *_ = listener.getsockname()
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener.dup()
        self.server_name, self.server_port = host, port
        self.setup_environ()
        self.set_app(application)
        self._requests: list[threading.Thread] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in a thread of its own. Close the connection if there are too many."""
        self._requests = [one for one in self._requests if one.is_alive()]
        if len(self._requests) >= REQUESTS_MAX:
            self.shutdown_request(request)
            return
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self._requests.append(thread)
        thread.start()

    def finish_requests(self) -> None:
        """Wait up to ``LINGER`` seconds for requests that are being answered."""
        deadline = time.monotonic() + LINGER
        for thread in self._requests:
            thread.join(max(deadline - time.monotonic(), 0))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has closed its connection."""
        with suppress(OSError):
            request.close()
