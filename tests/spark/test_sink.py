"""Writing to topics: each row is stored once, even if a task or a batch is repeated."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import Subscription, publish_many
from django_mqueue.models import Message
from tests.support.subscribers import payloads_in_log, poll_until

from .streams import newest

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def numbers(topic: str = "orders") -> list[int]:
    return list(map(json.loads, payloads_in_log(topic)))


def save(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("mqueue").options(**options, **more).mode("append").save()


def test_columns_become_messages(spark: SparkSession, options: dict[str, str]) -> None:
    rows: list[tuple[Any, ...]] = [
        ("orders", "ada", "o-1", "order.placed", {"by": "web"}, '{"order": 1}'),
        ("mail", None, None, None, None, '"hello"'),
    ]
    schema = "topic STRING, key STRING, id STRING, kind STRING, headers MAP<STRING, STRING>, payload STRING"
    save(spark.createDataFrame(rows, schema), options)
    with Subscription("orders", "billing") as orders, Subscription("mail", "billing") as mail:
        (one,), (two,) = poll_until(orders, 1), poll_until(mail, 1)
    assert (one.key, one.id, one.kind, one.headers) == ("ada", "o-1", "order.placed", {"by": "web"})
    assert one.payload == {"order": 1}
    assert (two.key, two.kind, two.headers, two.payload) == (None, "", {}, "hello")
    assert two.id.startswith("spark-")


@pytest.mark.parametrize("killed", [False, True], ids=["fails", "killed"])
def test_a_task_that_is_run_again_stores_nothing_twice(
    spark: SparkSession, options: dict[str, str], killed: bool
) -> None:
    """The first attempt dies after it has stored most rows. The second attempt has the rows in another order."""

    def dying(batches: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = context.attemptNumber() == 0
        for number, batch in enumerate(batches):
            if first and number == 3 and context.partitionId() == 1:
                if killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("this attempt dies")
            yield batch if first else batch.iloc[::-1]

    frame = spark.range(4000).selectExpr("CAST(id % 1500 AS STRING) AS payload").repartition(2, "payload")
    small = {"spark.sql.execution.arrow.maxRecordsPerBatch": "400"}
    for name, value in small.items():
        spark.conf.set(name, value)
    try:
        save(frame.mapInPandas(dying, "payload STRING"), options, topic="orders")
    finally:
        for name in small:
            spark.conf.unset(name)
    assert sorted(numbers()) == sorted(n % 1500 for n in range(4000))


def test_a_write_with_a_name_may_be_run_again(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.range(10).selectExpr("CAST(id AS STRING) AS payload").coalesce(1)
    for _ in range(2):
        save(frame, options, topic="orders", writeId="import of May")
    assert sorted(numbers()) == list(range(10))
    save(frame, options, topic="orders")
    assert len(numbers()) == 20, "without a name it is another write"


def test_a_batch_of_a_stream_that_comes_again_stores_nothing_twice(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """The stream copies a topic. Its driver dies after all rows are stored and before the batch is durable."""
    publish_many("orders", range(50))

    def run() -> int:
        stream = spark.readStream.format("mqueue").options(**options, topic="orders").load()
        writer = (
            stream.select("key", "payload").writeStream.format("mqueue").options(**options, topic="copies")
        )
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return int(max(progress.numInputRows for progress in query.recentProgress))

    run()
    assert sorted(numbers("copies")) == list(range(50))
    last = newest("copies")
    shutil.rmtree(Path(checkpoint, "commits"))
    assert run() == 50, "the batch did not come again: this proves nothing"
    assert newest("copies") == last
    publish_many("orders", range(50, 60))
    run()
    assert sorted(numbers("copies")) == list(range(60))


def test_rows_for_one_group_are_delivered_to_it_alone(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS payload")
    with pytest.raises(Exception, match="group 'billing' is not registered for topic 'orders'"):
        # One task only: Spark may retry another task, and the retry might find the group.
        save(frame.coalesce(1), options, topic="orders", target="billing")
    with Subscription("orders", "billing") as billing, Subscription("orders", "mail") as mail:
        for _ in range(2):
            save(frame, options, topic="orders", target="billing", writeId="three")
        save(spark.sql("SELECT '3' AS payload, '' AS target"), options, topic="orders", target="billing")
        assert sorted(delivery.payload for delivery in poll_until(billing, 4)) == [0, 1, 2, 3]
        assert [delivery.payload for delivery in poll_until(mail, 1)] == [3]


def test_what_cannot_be_written_is_refused(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    frame = spark.range(1).selectExpr("'1' AS payload")
    ways: list[tuple[Any, str]] = [
        (lambda: frame.write.format("mqueue").options(**options, topic="a").save(), "Append"),
        (
            lambda: frame.write.format("mqueue").options(**options, topic="a").mode("overwrite").save(),
            "can only be appended",
        ),
        (lambda: save(frame, options), "no topic"),
        (
            lambda: save(frame.withColumnRenamed("payload", "value"), options, topic="a"),
            "'value' is not a column of a message",
        ),
        (
            lambda: save(frame.selectExpr("1 AS payload"), options, topic="a"),
            "is int, but must be string or binary",
        ),
        (lambda: save(frame.selectExpr("'{' AS payload"), options, topic="a"), "payload is not JSON"),
    ]
    for way, message in ways:
        with pytest.raises(Exception, match=message):
            way()
    assert not Message.objects.exists()
