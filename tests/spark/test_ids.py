"""Rows without ids are stored once, even if they move to other tasks in the next run. Otherwise they are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from django_mqueue import publish_many
from django_mqueue.models import Message
from tests.support.subscribers import payloads_in_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

STREAMS = "spark.sql.adaptive.streaming.stateless.enabled"
COALESCE = "spark.sql.adaptive.coalescePartitions"


@contextmanager
def configured(spark: SparkSession, **settings: str) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def payloads(topic: str = "orders") -> list[int]:
    return sorted(map(json.loads, payloads_in_log(topic)))


def save(frame: DataFrame, options: dict[str, str], name: str) -> None:
    frame.write.format("mqueue").options(**options, topic="orders", writeId=name).mode("append").save()


def test_a_write_with_a_name_may_be_cut_into_other_tasks(
    spark: SparkSession, options: dict[str, str]
) -> None:
    """Adaptive execution joins partitions by the number of cores, which may differ in the next run."""
    tasks = set()
    for cores in (2, 8):
        sizes = {f"{COALESCE}.minPartitionNum": str(cores), f"{COALESCE}.minPartitionSize": "1b"}
        with configured(spark, **sizes, **{"spark.sql.shuffle.partitions": "16"}):
            frame = (
                spark.range(3000).selectExpr("CAST(id % 2000 AS STRING) AS payload").repartition("payload")
            )
            tasks.add(frame.rdd.getNumPartitions())
            save(frame, options, "import of May")
    assert len(tasks) == 2, "the same tasks: this proves nothing"
    assert payloads() == sorted(n % 2000 for n in range(3000))


def test_equal_rows_of_several_tasks_are_refused_and_what_is_missing_can_be_stored(
    spark: SparkSession, options: dict[str, str]
) -> None:
    """Several tasks cannot distinguish equal rows from repeated rows. A single task counts its equal rows."""
    frame = spark.range(0, 4, 1, 2).selectExpr("'1' AS payload")
    with pytest.raises(Exception, match="several tasks have equal rows without an id"):
        save(frame, options, "import of May")
    assert payloads() == [1, 1]
    for _ in range(2):
        save(frame.repartition("payload"), options, "import of May")
        assert payloads() == [1, 1, 1, 1]
    save(frame.selectExpr("payload", "uuid() AS id"), options, "import of June")
    assert len(payloads()) == 8


def copy(
    spark: SparkSession, options: dict[str, str], checkpoint: str, columns: tuple[str, ...]
) -> StreamingQuery:
    stream = spark.readStream.format("mqueue").options(**options, topic="orders").load()
    frame = stream.selectExpr("CAST(payload AS STRING) AS payload", "id").repartition("payload")
    writer = frame.select(*columns).writeStream.format("mqueue").options(**options, topic="copies")
    query = writer.option("checkpointLocation", checkpoint).queryName("copying").trigger(availableNow=True)
    return query.start()


def test_a_stream_that_could_be_cut_into_other_tasks_needs_ids(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    publish_many("orders", range(20))
    with configured(spark, **{STREAMS: "true"}):
        query = copy(spark, options, checkpoint, ("payload",))
        with pytest.raises(Exception, match=f"rows without an id.*set {STREAMS} to false"):
            query.awaitTermination()
        assert not payloads("copies")
        copy(spark, options, checkpoint, ("payload", "id")).awaitTermination()
        assert payloads("copies") == list(range(20))


def test_sessions_of_ours_cut_no_stream_anew(
    spark: SparkSession, options: dict[str, str], checkpoint: str
) -> None:
    """A query's name is allowed, although Spark passes it as an option of the writer."""
    assert spark.conf.get(STREAMS) == "false"
    publish_many("orders", range(20))
    copy(spark, options, checkpoint, ("payload",)).awaitTermination()
    assert payloads("copies") == list(range(20))


def test_sums_of_floats_are_refused_by_a_write_with_a_name(
    spark: SparkSession, options: dict[str, str]
) -> None:
    sums = spark.range(1000).selectExpr("id % 10 AS place", "id / 7 AS weight").groupBy("place").sum("weight")
    totals = sums.selectExpr("to_json(struct(*)) AS payload")

    def save(frame: DataFrame) -> None:
        named = frame.write.format("mqueue").options(**options, topic="orders", writeId="totals")
        named.mode("append").save()

    with pytest.raises(Exception, match=r"column 'payload' has the number .*a column 'id'"):
        save(totals)
    rounded = sums.selectExpr(
        "to_json(struct(place, CAST(`sum(weight)` AS DECIMAL(18, 2)) AS weight)) AS payload"
    )
    for _ in range(2):
        save(rounded)
    assert Message.objects.filter(topic="orders").count() == 10
