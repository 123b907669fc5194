"""The rows that a query reads depend on the question, not on the number of stored messages."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_mqueue import subscribe
from django_mqueue.inspect import (
    Figure,
    group_figures,
    holds,
    lag,
    latency,
    messages,
    rates,
    remove,
    send_to_front,
    topic_figures,
    topics,
)
from django_mqueue.service.registration import NEIGHBOURS
from django_mqueue.stats.groups import backlog
from tests.support.many import insert_messages
from tests.support.statements import Cost, counted

pytestmark = pytest.mark.django_db(transaction=True)

SMALL, LARGE = 4_000, 40_000
KEYS, OPEN = 200, 1_000
SHORT = 20_000
MOST_READ = 25_000
"""The most rows that a query of ``NUMBERS`` may read."""
STEPS_MORE = 2 * math.ceil(math.log2(LARGE / SMALL)) * 2 * (2 * NEIGHBOURS)
"""Rows that two searches by time read in their further steps.

Each counts twice: in the log and in the result of the search.
"""


def fill(topic: str, count: int, keys: int = KEYS) -> None:
    """Fill a topic. The last ``OPEN`` messages are new, as many before them wait for a retry, and the rest are done."""
    subscribe(topic, "g")
    first = insert_messages(topic, count, keys, published_at="1700000000000 + n * 1000")
    with connection.cursor() as cursor:
        done, told = first + count - 2 * OPEN, first + count - OPEN
        cursor.execute(
            "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
            " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
            " SELECT 'g', topic, partition_key, `offset`, `offset` < %s, 0, `offset`, 0, 0, 1, 1, 0, 'w', 1"
            " FROM queue_messages WHERE topic = %s AND `offset` < %s",
            [done, topic, told],
        )
        cursor.execute(
            "INSERT INTO queue_offsets (consumer_group, topic, partition_key, offset_acked, scan_offset, paused,"
            " updated_at) SELECT DISTINCT 'g', topic, partition_key, %s, %s, 0, 1 FROM queue_messages WHERE topic = %s",
            [done - 1, told - 1, topic],
        )
        cursor.execute(
            "INSERT INTO queue_partition_leases (consumer_group, topic, partition_key, leased_by, holder, leased_at,"
            " lease_renewed_at) SELECT DISTINCT 'g', topic, partition_key, '', '', 1, 1 FROM queue_messages"
            " WHERE topic = %s",
            [topic],
        )
        for table in ("queue_messages", "queue_delivery_state"):
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()


BEGAN = datetime.fromtimestamp(1_700_000_000, UTC)

QUESTIONS: dict[str, Callable[[str, int], Any]] = {
    "all": lambda topic, count: messages(topic, group="g"),
    "newest": lambda topic, count: messages(topic, group="g", newest_first=True),
    "done": lambda topic, count: messages(topic, group="g", status="done"),
    "pending": lambda topic, count: messages(topic, group="g", status="pending"),
    "pending of a key": lambda topic, count: messages(topic, group="g", status="pending", key="k7", limit=10),
    "newest pending": lambda topic, count: messages(topic, group="g", status="pending", newest_first=True),
    "waiting": lambda topic, count: messages(topic, group="g", status="waiting"),
    "waiting of a key": lambda topic, count: messages(topic, group="g", status="waiting", key="k7", limit=1),
    "key": lambda topic, count: messages(topic, group="g", key="k7", limit=10),
    "id and key": lambda topic, count: messages(topic, group="g", key="k7", id="id-7"),
    "id": lambda topic, count: messages(topic, group="g", id="id-7"),
    "time": lambda topic, count: messages(
        topic, after=BEGAN + timedelta(seconds=count // 2), before=BEGAN + timedelta(seconds=count // 2 + 10)
    ),
    "time, from the end": lambda topic, count: messages(
        topic, before=BEGAN + timedelta(seconds=count // 2), newest_first=True, limit=10
    ),
    "removing": lambda topic, count: remove(topic, group="g", limit=20),
    "removing pending": lambda topic, count: remove(topic, group="g", status="pending", limit=20),
    "to the front": lambda topic, count: send_to_front(topic, group="g", status="pending", limit=20),
}

NUMBERS: dict[str, Callable[[str], Any]] = {
    "group figures": lambda topic: group_figures([(topic, "g")]),
    "topic figures": lambda topic: topic_figures([topic], exact=OPEN),
    "rates": lambda topic: rates([(topic, "g"), (topic, None)], span=timedelta(days=1)),
    "latency": lambda topic: latency(topic, "g", span=timedelta(days=1)).steps,
    "lag": lambda topic: lag(topic, "g").partitions,
    "holds": holds,
    "topics": lambda topic: topics().topics,
}


def cost(topic: str, count: int, question: str) -> Cost:
    with counted() as spent:
        found = QUESTIONS[question](topic, count)
        assert len(found) if not isinstance(found, int) else found
    return spent


def test_ten_times_as_many_messages_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only searches by time read more, because bisection takes a few more steps."""
    fill("small", SMALL)
    fill("large", LARGE)
    for question in QUESTIONS:
        small, large = cost("small", SMALL, question), cost("large", LARGE, question)
        more = STEPS_MORE if question.startswith("time") else 100
        assert large.rows <= 1.1 * small.rows + more, f"{question}: {small.rows} rows, and {large}"
        assert large.count <= 1.1 * small.count + 10, f"{question}: {small.count} statements, and {large}"
    fill(
        "short", SHORT, SHORT
    )  # With so many short partitions, the server's statistics advise against loose scans.
    for most in (backlog.PARTITIONS_READ, KEYS // 4):
        monkeypatch.setattr(backlog, "PARTITIONS_READ", most)
        numbers_cost_the_same()


def numbers_cost_the_same() -> None:
    """Assert that the numbers of both topics cost the same, because they read the same number of rows.

    ``latency`` reads what was acked in the requested time, which is nothing here.
    """
    for question, ask in NUMBERS.items():
        spent = []
        for topic in ("small", "large"):
            with counted() as cost:
                assert len(ask(topic))
            spent.append(cost)
        small, large = spent
        assert large.rows <= 1.1 * small.rows + 1_000, f"{question}: {small.rows} rows, and {large}"
        assert large.rows <= MOST_READ, f"{question}: {large}"
        assert large.count <= small.count + 12, f"{question}: {small.count} statements, and {large}"
        assert large.commits == 0


def test_the_figures_of_many_long_topics_take_no_more_statements_than_those_of_two() -> None:
    """The topics hold more messages than are counted, so their groups' positions are read."""
    names = [f"topic-{number}" for number in range(12)]
    first = {}
    for name in names:
        subscribe(name, "g")
        first[name] = insert_messages(name, 100, 4)
    spent = []
    for some in (names[:2], names[:2], names):  # The first one may also read the server's settings.
        with counted() as cost:
            figures = group_figures([(name, "g") for name in some], exact=50)
        assert {one.topic: (one.pending, one.oldest) for one in figures.values()} == {
            name: (Figure(50, "at_least"), first[name]) for name in some
        }
        spent.append(cost.count)
    assert spent[1] == spent[2]


def test_what_has_no_index_is_looked_for_up_to_the_limit() -> None:
    """A query reads about five rows for each message, including its state."""
    fill("large", LARGE)
    for asked in ({"kind": "none"}, {"payload__x": 1}, {"filter": lambda message: False}):
        with counted() as spent:
            page = messages("large", group="g", scan_limit=2_000, **asked)
        assert (page.messages, page.scanned) == ([], 2_000)
        assert page.next is not None
        assert spent.rows <= 10 * 2_000, spent
        assert spent.count <= 30, spent
