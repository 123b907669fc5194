"""The lock rule checks all statements of the tests, and finds a statement that locks rows but names no index."""

from __future__ import annotations

import pytest
from django.db import connection

from django_mqueue import publish, subscribe
from django_mqueue.store import offsets
from tests.support import lock_hygiene

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_statement_of_the_package_that_names_no_index_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_hygiene, "PACKAGE", __file__)
    with connection.cursor() as cursor:
        cursor.execute("SELECT topic FROM queue_offsets WHERE topic = 'none' LIMIT 1 FOR UPDATE")
    (found,) = lock_hygiene.violations()
    assert found.startswith("SELECT topic FROM queue_offsets")


def test_statements_of_a_test_are_its_own_affair() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT partition_key FROM queue_offsets WHERE topic = 'none' LIMIT 1 FOR UPDATE")
    assert lock_hygiene.violations() == []


def test_what_the_package_sends_is_looked_at() -> None:
    subscribe("t", "g")
    publish("t", 1)
    assert any("queue_offsets" in sql for sql in lock_hygiene.looked_at())
    assert offsets.__file__.startswith(lock_hygiene.PACKAGE)
