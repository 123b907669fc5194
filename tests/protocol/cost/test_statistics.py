"""Finding names costs the same, whatever the servers' statistics say about other topics.

Both servers skip from name to name only if the average partition over all topics is long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_mqueue import subscribe
from django_mqueue.inspect import groups, messages
from django_mqueue.store import garbage, log
from django_mqueue.store.queries import skip_scan
from tests.support.many import insert_messages
from tests.support.statements import Cost, counted

pytestmark = pytest.mark.django_db(transaction=True)

LONG, KEYS = 8_000, 50
"""The numbers of messages and partitions in the topic with long partitions."""
SHORT = 10_000
"""The number of partitions in the topic with short partitions. Each has one message."""


def analyze() -> None:
    with connection.cursor() as cursor:
        for table in ("queue_messages", "queue_offsets"):
            cursor.execute(f"ANALYZE TABLE {table}")
            cursor.fetchall()


def all_news(topic: str, page: int = 10_000) -> list[str]:
    found, after = log.unleased_partitions_with_backlog("default", "g", topic, 0, "", page)
    names = found
    while after:
        found, after = log.unleased_partitions_with_backlog("default", "g", topic, 0, after, page)
        names = names + found
    return names


def forget(topic: str) -> None:
    with connection.cursor() as cursor:
        garbage.delete_empty_positions(cursor, topic, [f"k{n}" for n in range(KEYS + 1)])


LOOKS: dict[str, Callable[[str], Any]] = {
    "discovery": all_news,
    "discovery in pages": lambda topic: all_news(topic, 20),
    "groups": lambda topic: groups(topic),
    "pending": lambda topic: messages(topic, group="g", status="pending", limit=10),
    "id": lambda topic: messages(topic, id="id-7"),
    "empty partitions": forget,
    "topics": lambda topic: skip_scan.topics_in_log("default"),
}


def costs(topic: str) -> dict[str, Cost]:
    found = {}
    for name, look in LOOKS.items():
        with counted() as cost:
            look(topic)
        found[name] = cost
    return found


@pytest.fixture
def long_ones() -> None:
    subscribe("long", "g")
    insert_messages("long", LONG, KEYS)


@pytest.mark.usefixtures("long_ones")
def test_short_partitions_of_another_topic_make_no_look_dearer() -> None:
    analyze()
    before = costs("long")
    insert_messages("short", SHORT, SHORT)
    analyze()
    for name, cost in costs("long").items():
        assert cost.rows <= before[name].rows + 40 * KEYS < LONG, (
            f"{name}: {before[name].rows} rows, and {cost}"
        )
        assert cost.count <= before[name].count + 60, f"{name}: {before[name].count} statements, and {cost}"


@pytest.mark.usefixtures("long_ones")
def test_tables_that_nobody_has_counted_cost_no_more() -> None:
    """The tables are in this state after a bulk load."""
    insert_messages("short", SHORT, SHORT)
    for name, cost in costs("long").items():
        assert cost.rows < LONG, f"{name}: {cost}"


def test_many_short_partitions_are_read_in_few_statements() -> None:
    """Here the measured topic has the short partitions, and another topic has a few long ones."""
    subscribe("short", "g")
    insert_messages("long", LONG, 4)
    insert_messages("short", SHORT, SHORT)
    analyze()
    with counted() as cost:
        assert len(all_news("short")) == SHORT
    assert cost.rows <= 9 * SHORT, cost
    assert cost.count <= 40, cost
