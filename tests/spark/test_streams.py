"""Streams: each message is in one batch, and the group's offset equals the end of the durable batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from django.db import connection

from django_mqueue import publish, publish_many, subscribe
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.policy.encoding import encode
from django_mqueue.store import log

from .jobs import start
from .streams import committed, ended, eventually, newest, reads_log, settle, stands_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ARCHIVE = {"topic": "orders", "group": "archive"}
MANY = {"subscribePattern": "orders-.*", "group": "archive"}
TENS = {"maxOffsetsPerTrigger": "10"}


class Kept:
    """The numbers of each batch, by the batch's id."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = sorted(json.loads(bytes(row.payload)) for row in frame.collect())
        if batch == self.fail_at:
            raise RuntimeError("the sink is out of order")
        self.batches[batch] = rows

    @property
    def numbers(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)


def test_a_query_to_the_end_reads_all_and_its_group_is_done_with_all(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    publish_many("orders", range(25))
    kept = Kept()
    start(spark, options | ARCHIVE | TENS, checkpoint, kept).awaitTermination(300)
    assert [len(rows) for rows in kept.batches.values()] == [10, 10, 5]
    assert kept.numbers == list(range(25))
    assert stands_at("archive") == newest()
    assert reads_log("archive")
    publish_many("orders", range(25, 30))
    start(spark, options | ARCHIVE, checkpoint, kept).awaitTermination(300)
    assert kept.numbers == list(range(30))
    assert stands_at("archive") == newest()


def test_a_batch_that_fails_is_not_done_and_comes_again(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    publish_many("orders", range(20))
    kept = Kept()
    kept.fail_at = 1
    query = start(spark, options | ARCHIVE | TENS, checkpoint, kept)
    eventually(lambda: not query.isActive, "the query fails")
    assert query.exception() is not None
    assert "out of order" in str(query.exception())
    end_of_first = ended(checkpoint, 0)
    assert committed(checkpoint) == 0
    assert stands_at("archive") == end_of_first, "the first batch is durable, the second is not"
    kept.fail_at = None
    start(spark, options | ARCHIVE | TENS, checkpoint, kept).awaitTermination(300)
    assert kept.batches == {0: list(range(10)), 1: list(range(10, 20))}
    assert stands_at("archive") == newest()


def test_a_query_that_runs_on_has_done_its_last_batch_too(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """Spark commits a batch only with the next one, which may take days."""
    publish_many("orders", range(3))
    kept = Kept()
    query = start(spark, options | ARCHIVE, checkpoint, kept, once=False)
    try:
        eventually(lambda: kept.numbers == [0, 1, 2], "all three are read")
        eventually(lambda: stands_at("archive") == newest(), "the group is done with all")
        publish("orders", 3)
        eventually(lambda: stands_at("archive") == newest(), "the group is done with all")
        assert kept.numbers == [0, 1, 2, 3]
    finally:
        query.stop()


def test_a_query_that_is_stopped_has_done_its_last_batch_too(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """The next trigger is one hour away. Spark never calls ``commit`` for the batch, but the checkpoint shows it."""
    publish_many("orders", range(3))
    kept = Kept()
    asked = options | ARCHIVE | {"checkpointLocation": checkpoint}
    query = start(spark, asked, checkpoint, kept, every="1 hour")
    try:
        eventually(lambda: committed(checkpoint) == 0, "the batch is durable")
    finally:
        query.stop()
    eventually(lambda: stands_at("archive") == newest(), "the group is done with all")
    eventually(_nobody_reads, "the reader has left: another one need not wait for its silence")
    publish("orders", 3)
    start(spark, asked, checkpoint, kept).awaitTermination(300)
    assert kept.numbers == [0, 1, 2, 3]


def test_a_query_that_is_stopped_leaves(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """Without ``checkpointLocation`` the group stays behind its last batch until the next query starts."""
    publish_many("orders", range(3))
    query = start(spark, options | ARCHIVE, checkpoint, Kept(), every="1 hour")
    try:
        eventually(lambda: committed(checkpoint) == 0, "the batch is durable")
    finally:
        query.stop()
    eventually(_nobody_reads, "the reader has left")
    assert stands_at("archive") == 0
    start(spark, options | ARCHIVE, checkpoint, Kept()).awaitTermination(300)
    assert stands_at("archive") == newest()


def _nobody_reads() -> bool:
    return not SubscriberHeartbeat.objects.filter(deregistered_at=None).exists()


def test_what_may_still_commit_is_waited_for(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """An open transaction has a message below a committed one. The stream neither reads nor skips it."""
    kept = Kept()
    first = publish("orders", 0)
    subscribe("orders", "archive")
    assert settle("orders") == first.offset
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            log.insert(cursor, "orders", [log.NewRow("late", "late", encode(1, "", None, 100))])
        publish("orders", 2)
        query = start(spark, options | ARCHIVE, checkpoint, kept, once=False)
        try:
            eventually(lambda: kept.numbers == [0], "what is settled is read")
            publish("orders", 3)
            assert kept.numbers == [0]
            other.commit()
            eventually(lambda: kept.numbers == [0, 1, 2, 3], "all four are read")
        finally:
            query.stop()
    finally:
        other.close()


def test_topics_that_come_later_are_found_by_their_pattern(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    kept = Kept()
    publish("orders-a", 1)
    publish("other", 9)
    query = start(spark, options | MANY, checkpoint, kept, once=False)
    try:
        eventually(lambda: kept.numbers == [1], "the first topic is read")
        publish("orders-b", 2)
        eventually(lambda: kept.numbers == [1, 2], "the second topic is read")
        eventually(
            lambda: stands_at("archive", "orders-b") == newest("orders-b"), "the group is done with it"
        )
    finally:
        query.stop()
