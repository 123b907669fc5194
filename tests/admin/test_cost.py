"""The cost of a page does not grow with the tables."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import Model
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_mqueue.admin.base import choices
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease

from .looking import html_of, links, listed
from .rows import PAGES, dead_letter, delivery, lease, list_url, message, offset, one_of_each

MANY = 5_000
MOST_READ = 2_000
"""Maximum number of rows and keys that a view reads.

This allows the keys of five pages, at most twice, and the rows of one page.
"""

OF_BILLING = {"consumer_group": "billing", "topic": "orders"}
VIEWS: list[tuple[str, dict[str, str]]] = [
    ("message", {}),
    ("message", {"topic": "orders"}),
    ("message", {"topic": "orders", "order": "oldest"}),
    ("message", {"topic": "rare"}),
    ("message", {"topic": "orders", "key": "customer-1"}),
    ("message", {"topic": "orders", "id": "copy-3000"}),
    ("message", {"topic": "orders", "key": "customer-1", "id": "copy-3000"}),
    ("message", {"topic": "orders", "status": "dead", "group": "billing", "id": "order-7"}),
    ("message", {"topic": "orders_dlq"}),
    ("deliverystate", {}),
    ("deliverystate", {"p": "5"}),
    ("deliverystate", {"consumer_group": "billing"}),
    ("deliverystate", OF_BILLING),
    ("deliverystate", {**OF_BILLING, "partition_key": "customer-1"}),
    ("deliverystate", {**OF_BILLING, "partition_key": "customer-1", "message_offset__gte": "3000"}),
    ("partitionlease", {}),
    ("partitionlease", {"consumer_group": "billing"}),
    ("partitionlease", OF_BILLING),
    ("partitionlease", {**OF_BILLING, "partition_key": "customer-1"}),
    ("offset", {}),
    ("offset", {"whose": "topics"}),
    ("offset", {"consumer_group": "billing"}),
    ("offset", OF_BILLING),
]


@pytest.fixture(autouse=True)
def _names_stay_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "NAMES_MAX_AGE", 3600)


def multiply(row: Model, column: str, values: list[Any]) -> None:
    """Insert a copy of the row for each value of one of its columns."""
    kind: Any = type(row)
    names = {field.attname for field in kind._meta.concrete_fields} - {"id", "offset", column}
    same = {name: getattr(row, name) for name in names}
    kind.objects.bulk_create([kind(**same, **{column: value}) for value in values], batch_size=1_000)


def fill() -> None:
    """Insert thousands of rows into the tables that grow. Almost all messages are in one partition."""
    message(topic="rare")
    message(topic="orders", partition_key="customer-2")
    dead_letter()
    multiply(message(), "message_id", [f"copy-{number}" for number in range(MANY)])
    multiply(delivery(), "message_offset", list(range(1_000, 1_000 + MANY)))
    for row in (lease(), offset()):
        multiply(row, "partition_key", [f"key-{number:06d}" for number in range(MANY)])
    offset(consumer_group="", partition_key="")
    tables = (model._meta.db_table for model in (Message, DeliveryState, PartitionLease, Offset))
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {', '.join(tables)}")
        cursor.fetchall()


def reads() -> int:
    """Return the number of rows and index entries that the server has read for this connection."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler\\_read%'")
        return sum(int(value) for _, value in cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_no_view_reads_much_more_than_it_shows(admin_client: Client) -> None:
    """The server's own counters stay low for every list and search over thousands of rows.

    Each count has a limit, except the count of a group's subscribers.
    """
    fill()
    middle = str(Message.objects.filter(topic="orders")[MANY // 2].offset)
    old = [
        ("message", {"start": f'["newest of all",{middle}]'}),
        ("message", {"topic": "orders", "start": f'["newest",{middle}]'}),
    ]
    read, empty = {}, []
    with CaptureQueriesContext(connection) as captured:
        for page, parameters in [*VIEWS, *old]:
            before = reads()
            if not listed(admin_client, page, **parameters):
                empty.append((page, parameters))
            read[f"{page} {parameters}"] = reads() - before
    assert not empty
    assert {view: rows for view, rows in read.items() if rows > MOST_READ} == {}
    counted = {
        what
        for query in captured
        for what in re.findall(r"\bCOUNT\(.*?\bFROM (\(SELECT|\S+)", query["sql"], re.IGNORECASE | re.DOTALL)
    }
    assert counted <= {"(SELECT", "queue_subscriber_heartbeats"}
    limited = [
        query["sql"] for query in captured if "FROM (SELECT" in query["sql"] and "COUNT(" in query["sql"]
    ]
    assert [sql for sql in limited if " LIMIT " not in sql] == []


@pytest.mark.django_db
@pytest.mark.parametrize("page", PAGES)
def test_statements_do_not_grow_with_rows(admin_client: Client, page: str) -> None:
    """A list takes four statements (session, user, keys, rows), for one row and for hundreds.

    The page of one row takes no more. The list of messages also reads payloads, and the groups of their topics.
    ``test_message_page`` tests the page of a message.
    """
    one_of_each()
    listed(admin_client, page)  # The names of topics and groups that forms offer are in the cache now.
    with CaptureQueriesContext(connection) as few:
        listed(admin_client, page)
    (url,) = links(admin_client, page)
    model = {model._meta.model_name: model for model in (Message, DeliveryState, PartitionLease, Offset)}.get(
        page
    )
    if model is not None:
        column = {"message": "message_id", "deliverystate": "message_offset"}.get(page, "partition_key")
        row: Any = model.objects.exclude(topic="")[0]
        multiply(row, column, [1_000 + number for number in range(300)])
    with CaptureQueriesContext(connection) as many:
        listed(admin_client, page)
    assert len(few) == len(many) == (7 if page == "message" else 4)
    html_of(admin_client, url)  # Django caches the content type here.
    with CaptureQueriesContext(connection) as one:
        html_of(admin_client, url)
    assert len(one) == (8 if page == "message" else 3)


@pytest.mark.django_db
@pytest.mark.parametrize("asked", [{}, {"topic": "orders"}, {"topic": "orders", "key": "customer-1"}])
def test_no_list_fetches_whole_payloads(admin_client: Client, asked: dict[str, str]) -> None:
    """The server returns only the first 400 bytes of a large payload, and its length."""
    message(payload={"pad": "x" * 1_000_000})
    with CaptureQueriesContext(connection) as captured:
        listed(admin_client, "message", **asked)
    statements = [query["sql"] for query in captured if "payload" in query["sql"]]
    found = [one for sql in statements for one in re.findall(r"(\w+\()?m\.payload(, \d+)?", sql)]
    assert sorted(found) == [("LEFT(", ", 400"), ("LENGTH(", "")]


@pytest.mark.django_db
def test_the_small_tables_have_no_more_than_five_pages(admin_client: Client) -> None:
    """Rows beyond five pages are found by search. The list shows no total that it does not know."""
    multiply(lease(), "partition_key", [f"key-{number}" for number in range(600)])
    html = html_of(admin_client, list_url("partitionlease"))
    assert "the first 500 partition leases; there are more" in html
    assert html.count("?p=") == 4
    assert len(listed(admin_client, "partitionlease", p="5")) == 100
    response = admin_client.get(list_url("partitionlease"), {"p": "6"})
    assert response.headers["Location"].endswith("?e=1")
    assert len(listed(admin_client, "partitionlease", e="1")) == 100


@pytest.mark.django_db
def test_their_pages_carry_what_was_looked_up(admin_client: Client) -> None:
    multiply(lease(), "partition_key", [f"key-{number}" for number in range(150)])
    html = html_of(admin_client, list_url("partitionlease"), {"consumer_group": "billing"})
    assert 'href="?consumer_group=billing&amp;p=2"' in html
    assert "151 partition leases" in html
    assert len(listed(admin_client, "partitionlease", p="2", consumer_group="billing")) == 51


@pytest.mark.django_db(databases=["default", "other"])
def test_the_queue_may_live_in_another_database(admin_client: Client) -> None:
    """The rows come from ``MQUEUE["DATABASE"]``. The users stay in their own database."""
    message()
    with override_settings(MQUEUE={"DATABASE": "other"}):
        assert listed(admin_client, "message") == []
        Message.objects.using("other").bulk_create([Message(**{**vars_of(message()), "topic": "elsewhere"})])
        (row,) = listed(admin_client, "message")
        assert row["topic"] == "elsewhere"
        with CaptureQueriesContext(connections["default"]) as captured:
            html_of(admin_client, links(admin_client, "message", topic="elsewhere")[0])
    assert [query["sql"] for query in captured if "queue_messages" in query["sql"]] == []


def vars_of(row: Message) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in Message._meta.concrete_fields}
