"""Ranges with more rows than planned, or with rows in other places, are read only once. No test needs a JVM."""

from __future__ import annotations

import pytest
from django.db import connection

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.spark.reader import reading
from django_mqueue.spark.sql import pages
from tests.support.statements import Cost, counted
from tests.support.subscribers import in_log

pytestmark = [pytest.mark.spark, pytest.mark.django_db(transaction=True)]

ROWS = 6000


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of about 500 rows, and truncate them after about a thousand."""
    monkeypatch.setattr(reading, "BLOCK", 125_000)
    monkeypatch.setattr(pages, "MOST", 250_000)


def read(options: dict[str, str], rows: int) -> tuple[list[int], Cost]:
    """Return the offsets of a topic, read as one range that was planned with ``rows`` rows."""
    from django_mqueue.spark.reader.columns import schema_of
    from django_mqueue.spark.reader.options import read_options
    from django_mqueue.spark.reader.ranges import Range

    wanted = read_options({**options, "topic": "orders"})
    there = in_log("orders")
    task_range = Range("orders", there[0] - 1, there[-1], rows)
    cursor = reading.PageCursor(task_range, schema_of(wanted), wanted)
    found: list[int] = []
    with counted() as cost:
        while not cursor.done:
            if (page := cursor.page("default")) is not None:
                found += page.column("offset").to_pylist()
    return found, cost


def publish_spread(first: int, last: int) -> None:
    """Publish messages with a thousand offsets between neighbours.

    Only the messages from first to last are adjacent.
    """
    publish_many("orders", [OutgoingMessage("x" * 90, key="k") for _ in range(ROWS)])
    begin = in_log("orders")[0]
    number = f"(`offset` - {begin})"
    before, amid, behind = (
        f"LEAST({number}, {first})",
        f"LEAST(GREATEST({number} - {first}, 0), {last - first})",
        f"GREATEST({number} - {last}, 0)",
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE queue_messages SET `offset` = {begin} + 1000 * {before} + {amid} + 1000 * {behind}"
            " WHERE topic = 'orders' ORDER BY `offset` DESC"
        )


@pytest.mark.parametrize("planned", [0, 1, 300, ROWS, 10 * ROWS])
def test_each_row_is_read_once_whatever_was_planned(options: dict[str, str], planned: int) -> None:
    publish_many("orders", [OutgoingMessage("x" * 90, key="k") for _ in range(ROWS)])
    found, cost = read(options, planned)
    assert found == in_log("orders")
    assert cost.rows < 1.5 * ROWS + 2 * cost.count, cost


@pytest.mark.parametrize("planned", [0, 300, ROWS])
@pytest.mark.parametrize("dense", ["at the end", "at the beginning", "amid"])
def test_rows_that_lie_together_are_read_a_few_times_at_most(
    options: dict[str, str], planned: int, dense: str
) -> None:
    first, last = {"at the end": (500, ROWS), "at the beginning": (0, ROWS - 500), "amid": (500, ROWS - 500)}[
        dense
    ]
    publish_spread(first, last)
    found, cost = read(options, planned)
    assert found == in_log("orders")
    assert cost.rows < 4 * ROWS, cost
    assert cost.count < 100, cost
