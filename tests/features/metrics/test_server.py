"""The HTTP server of a worker: several processes share its port, and a worker that stops finishes its requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.request import urlopen

import pytest

from django_mqueue.metrics.server import REQUESTS_MAX, Endpoint, _Server, listening
from tests.support.waiting import PATIENCE, wait_until

from .scraping import scraped

pytestmark = pytest.mark.once


def test_of_servers_that_see_the_same_connection_one_accepts_it_and_all_can_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both servers have seen the connection before one of them accepts it. The other must not wait for the next one."""
    both_have_seen_it, accept = threading.Barrier(2), _Server.get_request

    def get_request(server: _Server) -> Any:
        both_have_seen_it.wait(PATIENCE)
        return accept(server)

    monkeypatch.setattr(_Server, "get_request", get_request)
    with (
        listening("127.0.0.1", 0, None, [("orders", "billing")]) as endpoint,
        endpoint.serving("a"),
        endpoint.serving("b"),
    ):
        found = scraped(endpoint.url)
    assert found("mqueue_messages_finished_total", topic="orders", group="billing") == 0
    assert "mqueue_database_up" not in found.names


def test_a_request_is_answered_before_its_worker_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, leave, ended = threading.Event(), threading.Event(), threading.Event()

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        begun.set()
        leave.wait(PATIENCE)
        start_response("200 OK", [("Content-Type", "text/plain")])
        ended.set()
        return [b"done"]

    monkeypatch.setattr(Endpoint, "_application", lambda self: respond)
    monkeypatch.setattr("django_mqueue.metrics.server.LINGER", PATIENCE)
    with listening("127.0.0.1", 0, None, []) as endpoint:
        with endpoint.serving("w"):
            client = threading.Thread(target=lambda: urlopen(endpoint.url, timeout=PATIENCE).close())
            client.start()
            assert begun.wait(PATIENCE)
            threading.Timer(0.5, leave.set).start()
        assert ended.is_set()
        client.join()


def test_a_client_that_sends_nothing_does_not_stop_the_others() -> None:
    with (
        listening("127.0.0.1", 0, None, []) as endpoint,
        endpoint.serving("w"),
        socket.create_connection(endpoint.socket.getsockname()),
    ):
        assert "mqueue_poll_seconds_count" in scraped(endpoint.url).names


def test_clients_that_send_nothing_get_no_more_than_some_threads() -> None:
    """The port has no password. Many connections must not take all files and threads of the worker."""
    with (
        listening("127.0.0.1", 0, None, []) as endpoint,
        endpoint.serving("w"),
        ExitStack() as clients,
    ):
        place, before = endpoint.socket.getsockname(), threading.active_count()
        connected = [clients.enter_context(socket.create_connection(place)) for _ in range(2 * REQUESTS_MAX)]
        refused = connected[REQUESTS_MAX:]
        assert [client.recv(1) for client in refused] == [b""] * len(refused)
        assert threading.active_count() - before == REQUESTS_MAX
        clients.close()
        wait_until(lambda: threading.active_count() == before, "the threads have ended")
        assert "mqueue_poll_seconds_count" in scraped(endpoint.url).names
