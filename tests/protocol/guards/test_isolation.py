"""The queue's own transactions read committed data at any isolation level that a project sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper

from django_mqueue import publish
from django_mqueue.store.connection import session
from tests.support.transactions import Background

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def repeatable_read() -> Iterator[None]:
    options = connection.settings_dict["OPTIONS"]
    usual = options["isolation_level"]
    options["isolation_level"] = "repeatable read"
    connection.close()
    connection.ensure_connection()
    assert connection.isolation_level == "repeatable read"  # type: ignore[attr-defined]
    yield
    options["isolation_level"] = usual
    connection.close()


@pytest.mark.usefixtures("repeatable_read")
def test_own_transactions_read_what_is_committed() -> None:
    def count(cursor: CursorWrapper) -> int:
        cursor.execute("SELECT COUNT(*) FROM queue_messages")
        return int(cursor.fetchone()[0])

    def work(cursor: CursorWrapper) -> tuple[int, int]:
        before = count(cursor)
        with Background(lambda: publish("t", 1)) as publisher:
            publisher.result()
        return before, count(cursor)

    assert session.run("default", work) == (0, 1)
