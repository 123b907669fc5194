"""The private servers of the tests and the example."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from django.db import connections
from django.db.utils import OperationalError

from tests.own_server import OwnServer

pytestmark = pytest.mark.timeout(120)


def scalar(server: OwnServer, statement: str) -> object:
    with connections[server.alias].cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    return row and row[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_restart_keeps_what_was_committed(own_server: OwnServer, number: signal.Signals) -> None:
    before = own_server.server.pid
    scalar(own_server, "CREATE TABLE kept (id INT PRIMARY KEY)")
    scalar(own_server, "INSERT INTO kept VALUES (7)")
    own_server.restart(number)
    with pytest.raises(OperationalError):
        scalar(own_server, "SELECT id FROM kept")
    connections[own_server.alias].close()
    assert scalar(own_server, "SELECT id FROM kept") == 7
    assert own_server.server.pid != before


@pytest.mark.parametrize("end", [OwnServer.stop, OwnServer.kill], ids=["stop", "kill"])
def test_a_server_that_ended_serves_nobody(own_server: OwnServer, end: Callable[[OwnServer], None]) -> None:
    end(own_server)
    end(own_server)
    with pytest.raises(OperationalError):
        scalar(own_server, "SELECT 1")
    own_server.start()
    connections[own_server.alias].close()
    assert scalar(own_server, "SELECT 1") == 1
