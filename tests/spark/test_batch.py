"""Batches: every requested message once, in even ranges."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import Message
from django_mqueue.policy.encoding import encode
from django_mqueue.store import log
from tests.support.subscribers import QUICK, poll_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, options: dict[str, str]) -> Load:
    """Return a function that loads with options, and with a ``schema`` for some columns only."""

    def read(schema: str | None = None, **more: str) -> DataFrame:
        reader = spark.read.format("mqueue").options(**options, **more)
        return (reader.schema(schema) if schema else reader).load()

    return read


def offsets(found: DataFrame) -> list[int]:
    return sorted(row.offset for row in found.select("offset").collect())


def test_a_topic_is_read_as_it_is(load: Load) -> None:
    first = publish(
        "orders", {"order": 1}, key="ada", id="order-1", kind="order.placed", headers={"by": "web"}
    )
    publish("orders", b"\x00\xff", id="raw")
    publish("other", 1)
    rows: list[Row] = load(topic="orders", includeHeaders="true").orderBy("offset").collect()
    assert [row.id for row in rows] == ["order-1", "raw"]
    one, two = rows
    assert (one.topic, one.key, one.partition, one.offset) == ("orders", "ada", "ada", first.offset)
    assert (one.kind, one.encoding, bytes(one.payload)) == ("order.placed", "json", b'{"order":1}')
    assert one.headers.replace(" ", "") == '{"by":"web"}'
    assert (two.key, bytes(two.payload), two.encoding) == (None, b"\x00\xff", "bytes")
    stored = Message.objects.get(offset=first.offset)
    assert one.published_at.timestamp() * 1000 == pytest.approx(stored.published_at, abs=0.5)


def test_ranges_are_even_however_sparse_the_offsets_are(load: Load) -> None:
    for start in range(0, 2000, 500):
        publish_many("sparse", [OutgoingMessage(n, key=f"k{n % 7}") for n in range(start, start + 500)])
        publish_many("filler", range(3000 if start == 500 else 10))
    found = load("offset BIGINT", topic="sparse", minPartitions="4")
    counted = found.rdd.mapPartitions(lambda rows: [[row.offset for row in rows]]).collect()
    assert [len(each) for each in counted] == [500, 500, 500, 500]
    assert len({offset for each in counted for offset in each}) == 2000


def test_bounds_are_offsets_or_moments(load: Load) -> None:
    a, b, c = (publish("orders", n).offset for n in range(3))
    later = publish("orders", "later").offset
    moment = Message.objects.get(offset=c).published_at + 1000
    Message.objects.filter(offset=later).update(published_at=moment + 1)
    column = "offset BIGINT"
    assert offsets(load(column, topic="orders", startingOffsets=f'{{"orders": {b}}}')) == [b, c, later]
    assert offsets(load(column, topic="orders", endingOffsets=str(c))) == [a, b]
    assert offsets(load(column, topic="orders", startingTimestamp=str(moment))) == [later]
    assert offsets(load(column, topic="orders", endingTimestamp=str(moment))) == [a, b, c]
    assert offsets(load(column, topic="orders", startingOffsets="latest")) == []


def test_nothing_is_read_that_a_transaction_may_still_commit_below(load: Load) -> None:
    """A batch ends at the settled offset. The next batch begins there, so it would miss a later commit below."""
    subscribe("orders", "billing")
    first = publish("orders", 0).offset
    assert offsets(load("offset BIGINT", topic="orders")) == [first]
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            late = log.insert(cursor, "orders", [log.NewRow("late", "late", encode(1, "", None, 100))])
        last = publish("orders", 2).offset
        assert offsets(load("offset BIGINT", topic="orders")) == [first]
        other.commit()
    finally:
        other.close()
    assert offsets(load("offset BIGINT", topic="orders")) == [first, late, last]


@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_dead_letters_and_delivery_state_are_read_too(load: Load) -> None:
    publish("orders", 1, key="ada", id="good")
    publish("orders", 2, key="bob", id="bad")
    subscribe("orders", "idle")
    with Subscription("orders", "billing") as subscription:
        for delivery in poll_until(subscription, 2):
            delivery.ack() if delivery.id == "good" else delivery.reject("no such customer")
    (letter,) = load(topic="orders", table="dead_letters").collect()
    assert (letter.topic, letter.original_topic, letter.original_id) == ("orders_dlq", "orders", "bad")
    assert (letter.failed_group, letter.last_error, letter.failure_count) == (
        "billing",
        "no such customer",
        1,
    )
    assert letter.failed_at is not None
    states = load(topic="orders", table="deliveries").orderBy("offset").collect()
    assert [(row.group, row.partition, row.done, row.redeliveries) for row in states] == [
        ("billing", "ada", True, 0),
        ("billing", "bob", True, 0),
    ]
    assert all(row.delivered_at <= row.done_at for row in states)
    assert load(topic="orders", table="deliveries", groups="idle").count() == 0


def test_messages_for_one_group_are_left_out_unless_asked_for(load: Load) -> None:
    subscribe("orders", "billing")
    publish("orders", 1)
    publish("orders", 2, group="billing")
    assert load(topic="orders").count() == 1
    found = load(topic="orders", includeTargeted="true").select("target").collect()
    assert sorted(row.target for row in found) == ["", "billing"]


def test_large_messages_come_in_small_pages(load: Load, options: dict[str, str]) -> None:
    """A page has a byte budget, even if the sizes before it were small."""
    publish_many("large", [b"x" * (10 if n < 1500 else 400_000) for n in range(1600)])
    found = load("offset BIGINT, payload BINARY", topic="large")
    lengths = found.selectExpr("offset", "length(payload) AS length").collect()
    assert len({row.offset for row in lengths}) == 1600
    assert sum(row.length for row in lengths) == 1500 * 10 + 100 * 400_000


@pytest.mark.parametrize("targeted", ["false", "true"])
def test_what_was_deleted_after_planning_is_missed(
    targeted: str, load: Load, options: dict[str, str]
) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    from django_mqueue.exceptions import LogGap
    from django_mqueue.spark.reader.options import read_options
    from django_mqueue.spark.reader.planning import batch
    from django_mqueue.spark.reader.reading import read

    publish_many("orders", range(10))
    schema = StructType([StructField("offset", LongType())])
    asked = {**options, "topic": "orders", "includeTargeted": targeted}
    wanted = read_options(asked)
    (planned,) = batch("default", wanted)
    Message.objects.filter(offset__lt=planned.upto - 5).delete()
    with pytest.raises(LogGap, match=r"of the 10 messages .* were deleted since the read was planned"):
        list(read(planned, schema, wanted))
    careless = read_options({**asked, "failOnDataLoss": "false"})
    assert sum(part.num_rows for part in read(planned, schema, careless)) < 10


def test_what_is_wrong_is_said(load: Load, spark: SparkSession, options: dict[str, str]) -> None:
    publish("orders", 1)
    cases: list[tuple[Callable[[], DataFrame], str]] = [
        (lambda: load(topic="order"), "Did you mean 'orders'"),
        (lambda: load(topic="orders", startingOffset="latest"), "option 'startingoffset' does not exist"),
        (lambda: load("body STRING", topic="orders"), "has no column 'body'"),
        (lambda: load("payload STRING", topic="orders"), "is binary, not string: use this type, then cast"),
        (
            lambda: (
                spark.read.format("mqueue")
                .options(host="127.0.0.1", port="1", database="x", topic="orders")
                .load()
            ),
            "cannot be reached from here",
        ),
        (
            lambda: (
                spark.read.format("mqueue")
                .options(**{**options, "database": "no_such_one"}, topic="orders")
                .load()
            ),
            "Check the option 'database'",
        ),
    ]
    for attempt, message in cases:
        with pytest.raises(Exception, match=message.replace("(", r"\(")):
            attempt().count()
