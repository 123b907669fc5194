"""The statements that a publish costs. None of them commits on its own."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_mqueue import DuplicateMessage, OutgoingMessage, publish, publish_many
from tests.support.subscribers import in_log
from tests.support.transactions import statements

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
MEBIBYTE = 1_048_576


def with_ids(count: int, first: int = 0) -> list[OutgoingMessage]:
    return [OutgoingMessage(n, key="k", id=f"id-{n}") for n in range(first, first + count)]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(
    "given", [{}, {"key": "k"}, {"id": "mine"}, {"key": "k", "id": "mine", "headers": {"a": 1}}]
)
def test_publish_is_one_statement(given: dict[str, object], in_transaction: bool) -> None:
    """This holds with and without an id, and also for a duplicate."""
    for _ in range(2):
        if in_transaction:
            with transaction.atomic(), statements() as seen:
                publish(TOPIC, 1, **given)  # type: ignore[arg-type]
        else:
            with statements() as seen:
                publish(TOPIC, 1, **given)  # type: ignore[arg-type]
        assert len(seen) == 1
        assert seen[0].startswith("INSERT INTO queue_messages")


def test_a_refused_duplicate_costs_one_statement_as_well() -> None:
    publish(TOPIC, 1, id="mine")
    with statements() as seen, pytest.raises(DuplicateMessage):
        publish(TOPIC, 1, id="mine", on_duplicate="error")
    assert len(seen) == 1


def test_publish_commits_nothing_by_itself() -> None:
    """Only the caller sends BEGIN and COMMIT. Outside a transaction, the statement commits by itself."""
    connection.ensure_connection()
    connection.force_debug_cursor = True
    try:
        connection.queries_log.clear()
        publish(TOPIC, 1)
        with transaction.atomic():
            before = len(connection.queries_log)
            publish(TOPIC, 1)
            publish_many(TOPIC, [1, 2])
            inside = [str(query["sql"]) for query in list(connection.queries_log)[before:]]
        everything = [str(query["sql"]) for query in connection.queries_log]
    finally:
        connection.force_debug_cursor = False
    assert len(inside) == 2
    assert everything[0].startswith("INSERT")
    assert everything.count("COMMIT") == 1


@pytest.mark.parametrize(("rows", "expected"), [(0, 0), (1, 1), (500, 1), (501, 2), (1000, 2), (1001, 3)])
def test_publish_many_is_one_statement_for_each_500_rows(rows: int, expected: int) -> None:
    """Without messages, no statement runs."""
    with transaction.atomic(), statements() as seen:
        answers = publish_many(TOPIC, range(rows))
    assert len(seen) == expected
    assert len(answers) == rows == len(in_log(TOPIC))


@pytest.mark.parametrize(("rows", "expected"), [(1, 2), (500, 2), (501, 4)])
def test_publish_many_reads_once_more_where_ids_are_given(rows: int, expected: int) -> None:
    """Each INSERT needs one read."""
    with transaction.atomic(), statements() as seen:
        publish_many(TOPIC, with_ids(rows))
    assert len(seen) == expected
    assert [sql.split()[0] for sql in seen] == ["SELECT", "INSERT"] * (expected // 2)


def test_a_batch_of_nothing_but_duplicates_is_one_read() -> None:
    publish_many(TOPIC, with_ids(20))
    with transaction.atomic(), statements() as seen:
        assert not any(one.created for one in publish_many(TOPIC, with_ids(20)))
    assert [sql.split()[0] for sql in seen] == ["SELECT"]


def test_ids_that_are_missing_cost_no_read() -> None:
    """Only given ids are searched for. A batch with and without ids is still one read and one INSERT."""
    with transaction.atomic(), statements() as seen:
        publish_many(TOPIC, [1, *with_ids(3), 2])
    assert [sql.split()[0] for sql in seen] == ["SELECT", "INSERT"]


@pytest.mark.parametrize(("messages", "expected"), [(3, 1), (4, 2), (9, 3)])
def test_publish_many_is_one_statement_for_each_4_mib(messages: int, expected: int) -> None:
    """Payloads and metadata count together, so that a statement stays below the server's packet size."""
    with transaction.atomic(), statements() as seen:
        publish_many(TOPIC, [b"\x00" * MEBIBYTE] * messages)
    assert len(seen) == expected
    assert len(in_log(TOPIC)) == messages


def test_the_worst_payload_fits_into_a_packet() -> None:
    """Bytes that all need an escape double in size in the statement."""
    (answer,) = publish_many(TOPIC, [b"\x00'\"\\" * (MEBIBYTE // 4)])
    assert in_log(TOPIC) == [answer.offset]
