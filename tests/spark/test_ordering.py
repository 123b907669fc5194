"""The order of each key is kept on request, in a batch and in the batches of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import Message
from django_mqueue.spark import keep_order
from django_mqueue.spark.errors import OptionError

from .test_sink import save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEYS = 5


@pytest.fixture(autouse=True)
def several_tasks(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from joining so few rows into one task."""
    settings = {
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": "5",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


def tasks(frame: DataFrame) -> int:
    return int(frame.selectExpr("spark_partition_id()").distinct().count())


def by_key(topic: str = "orders") -> dict[str, list[int]]:
    """Return the numbers in the payloads by key, in their stored order."""
    found: dict[str, list[int]] = {}
    for key, payload in (
        Message.objects.filter(topic=topic).order_by("offset").values_list("partition_key", "payload")
    ):
        found.setdefault(key, []).append(json.loads(bytes(payload)))
    return found


def expected(count: int) -> dict[str, list[int]]:
    return {f"k{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


def test_a_batch_is_stored_in_order(spark: SparkSession, options: dict[str, str]) -> None:
    columns = ("id", "CAST(id AS STRING) AS payload", f"CONCAT('k', id % {KEYS}) AS key")
    shuffled = spark.range(2000).selectExpr(*columns).repartition(7, "id")
    ordered = keep_order(shuffled, "id").select("key", "payload")
    assert tasks(ordered) > 1
    save(ordered, options, topic="orders")
    assert by_key() == expected(2000)


def test_a_key_is_in_order_though_some_of_its_rows_leave_their_topic_to_the_option(
    spark: SparkSession, options: dict[str, str]
) -> None:
    """With topic and key these rows would be in several tasks, and be stored at the same time."""
    columns = (
        "id",
        "CAST(id AS STRING) AS payload",
        f"CONCAT('k', id % {KEYS}) AS key",
        "IF(id % 3 = 0, 'orders', NULL) AS topic",
    )
    shuffled = spark.range(1000).selectExpr(*columns).repartition(7, "id")
    ordered = keep_order(shuffled, "id")
    apart = ordered.selectExpr("key", "spark_partition_id() AS task").distinct()
    assert apart.groupBy("key").count().where("count > 1").count() == 0
    assert tasks(ordered) > 1
    save(ordered.select("topic", "key", "payload"), options, topic="orders")
    assert by_key() == expected(1000)


def test_the_batches_of_a_stream_are_stored_in_order_and_once(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """The how-to does the same. The second batch fails after all its rows are stored, and Spark repeats it."""
    publish_many("source", [OutgoingMessage(n, key=f"k{n % KEYS}") for n in range(500)])
    ran: list[int] = []

    def ordered(batch: DataFrame, number: int) -> None:
        ran.append(number)
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        frame = keep_order(batch.repartition(7, "offset"), "offset").select("key", "payload")
        assert tasks(frame) > 1
        save(frame, options, topic="orders", writeId=f"{query} {number}")
        if ran == [0, 1]:
            raise RuntimeError("the driver dies")

    def run() -> None:
        reader = spark.readStream.format("mqueue").options(
            **options, topic="source", maxOffsetsPerTrigger="200"
        )
        stream = reader.load().selectExpr("key", "offset", "CAST(payload AS STRING) AS payload")
        writer = stream.writeStream.foreachBatch(ordered).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the driver dies"):
        run()
    run()
    assert ran == [0, 1, 1, 2]
    assert by_key() == expected(500)


def test_what_has_no_order_is_refused(spark: SparkSession, options: dict[str, str]) -> None:
    """Spark's own error for a stream is raised only when the query starts, and names no solution."""
    stream = spark.readStream.format("rate").load().selectExpr("value", "CAST(value AS STRING) AS key")
    with pytest.raises(OptionError, match=r"does not sort a stream\. Write by foreachBatch"):
        keep_order(stream, "value")
    with pytest.raises(OptionError, match="no column 'key', and messages without a key have no order"):
        keep_order(spark.range(3), "id")
