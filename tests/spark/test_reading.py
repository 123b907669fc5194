"""A task reads its range with few statements, and waits for a server that restarts. Needs PySpark, but no JVM."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest
from django.db import connection, connections
from django.test import override_settings

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.spark.launching import settings_options
from django_mqueue.spark.processes import keep_memory
from django_mqueue.spark.reader import reading
from django_mqueue.spark.reader.options import ReadOptions, read_options
from django_mqueue.spark.reader.planning import batch
from tests.own_server import OwnServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

pytestmark = pytest.mark.spark


def pages_of(using: str, wanted: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Plan the read now. Each page is read when it is requested."""
    from django_mqueue.spark.reader.columns import schema_of

    (planned,) = batch(using, wanted)
    return reading.read(planned, schema_of(wanted), wanted)


def payloads(page: pa.RecordBatch) -> list[bytes]:
    return [bytes(payload) for payload in page.column("payload").to_pylist()]


def statements() -> int:
    """Return the server's count of SELECT statements."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
        return int(cursor.fetchone()[1])


def test_a_page_beyond_its_budget_costs_the_next_ones_nothing(options: dict[str, str]) -> None:
    """The task drops its connection. The new connection must also allow long values."""
    sizes = [400_000] * 60 + [10] * 3000
    publish_many("orders", [OutgoingMessage(b"x" * size, key="k") for size in sizes])
    pages = pages_of("default", read_options({**options, "topic": "orders"}))
    before = statements()
    assert [len(payload) for page in pages for payload in payloads(page)] == sizes
    assert statements() - before < 20


def test_a_server_that_is_started_again_is_waited_for(own_server: OwnServer) -> None:
    """The server refuses connections while it restarts."""
    using, count = own_server.alias, reading.FIRST_ROWS + 300
    publish_many("orders", range(count), using=using)
    pages = pages_of(using, read_options({**settings_options(using), "topic": "orders"}))
    found = payloads(next(pages))
    assert len(found) == reading.FIRST_ROWS
    connections[using].close()
    own_server.stop()
    starting = Thread(target=own_server.start)
    starting.start()
    try:
        found += [payload for page in pages for payload in payloads(page)]
    finally:
        starting.join()
    assert sorted(map(int, found)) == list(range(count))


def connected() -> set[int]:
    """Return the ids of all connections to the database, also of other processes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DATABASE()")
        (database,) = cursor.fetchone()
        cursor.execute("SHOW PROCESSLIST")
        return {row[0] for row in cursor.fetchall() if row[3] == database}


@override_settings(MQUEUE={"WAKE_WORKERS": "never"})  # A waking publisher opens another connection.
def test_a_connection_that_is_killed_between_pages_is_made_again(options: dict[str, str]) -> None:
    count = reading.FIRST_ROWS + 300
    publish_many("orders", range(count))
    pages = pages_of("default", read_options({**options, "topic": "orders"}))
    before = connected()
    found = payloads(next(pages))
    (theirs,) = connected() - before
    with connection.cursor() as cursor:
        cursor.execute(f"KILL {theirs:d}")
    found += [payload for page in pages for payload in payloads(page)]
    assert sorted(map(int, found)) == list(range(count))


def test_who_reads_keeps_the_memory_of_a_page(options: dict[str, str]) -> None:
    publish_many("orders", range(3))
    keep_memory.cache_clear()
    assert list(pages_of("default", read_options({**options, "topic": "orders"})))
    assert keep_memory.cache_info().currsize == 1
