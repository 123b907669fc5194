"""A report counts one state of the log, and leaves the session as it was."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import publish, publish_many
from django_mqueue.exceptions import LogGap
from django_mqueue.spark import archive, explained
from django_mqueue.spark.reports import counting, reading, report
from tests.support.waiting import SPARK_PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SHUFFLES = "spark.sql.shuffle.partitions"


def lose_what_was_read(spark: SparkSession) -> None:
    """Remove all that Spark keeps in memory, as the loss of the executors would."""
    for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
        rdd.unpersist(True)


def test_a_report_whose_executor_is_lost_fails(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the counting, the rows that were read are lost, and another message is in the log.

    To read them again would count that message in one table and not in another.
    """
    publish_many("orders", range(10))
    delivery_facts = vars(counting)["delivery_facts"]

    def late(*arguments: Any) -> Any:
        publish("orders", 11)
        lose_what_was_read(spark)
        return delivery_facts(*arguments)

    monkeypatch.setattr(counting, "delivery_facts", late)
    with pytest.raises(Exception, match="heckpoint block") as caught:
        report(spark, "orders", options=options)
    assert "an executor was lost" in (explained(caught.value) or "")
    monkeypatch.undo()
    (topic,) = report(spark, "orders", options=options).topics
    assert topic.published == 11


def test_a_report_fails_if_its_messages_were_archived_while_it_read(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that, the log may delete the messages before the report reads them."""
    place = str(tmp_path / "archive")
    publish("orders", 1)
    archive(spark, "orders", place, options=options)
    publish("orders", 2)
    parked_retries = vars(reading)["parked_retries"]

    def late(*arguments: Any) -> Any:
        archive(spark, "orders", place, options=options)
        return parked_retries(*arguments)

    monkeypatch.setattr(reading, "parked_retries", late)
    with pytest.raises(LogGap, match="topic 'orders' was archived further while it was read"):
        report(spark, "orders", archive=place, options=options)
    monkeypatch.undo()
    (topic,) = report(spark, "orders", archive=place, options=options).topics
    assert topic.published == 2


def test_two_reports_at_once_leave_the_session_as_it_was(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first report begins first and ends last. Both change the same setting meanwhile."""
    publish("orders", 1)
    before = spark.conf.get(SHUFFLES)
    spark.conf.set(SHUFFLES, "200")
    both, second_is_done = threading.Barrier(2, timeout=SPARK_PATIENCE), threading.Event()
    counted = counting.counted

    def together(*arguments: Any) -> Any:
        both.wait()
        if threading.current_thread() is first:
            assert second_is_done.wait(SPARK_PATIENCE)
        return counted(*arguments)

    monkeypatch.setattr(counting, "counted", together)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            report(spark, "orders", options=options)
        except BaseException as error:
            failures.append(error)

    first = threading.Thread(target=run)
    first.start()
    try:
        run()
    finally:
        second_is_done.set()
        first.join(SPARK_PATIENCE)
        found = spark.conf.get(SHUFFLES)
        spark.conf.set(SHUFFLES, str(before))
    assert (failures, found) == ([], "200")
