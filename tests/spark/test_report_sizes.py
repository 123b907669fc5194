"""The size of a report: Spark sends a limited number of rows to the driver, but counts everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_mqueue import publish
from django_mqueue.models import Message
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.reports import counting, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000


def publish_hourly(topic: str, hours: int) -> None:
    for hour in range(hours):
        offset = publish(topic, hour, key="ada").offset
        Message.objects.filter(offset=offset).update(published_at=20_000 * 24 * HOUR + hour * HOUR)


def test_a_report_with_too_many_rows_is_refused_with_a_way_out(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "ROWS_MAX", 3)
    publish_hourly("orders", 3)
    assert len(report(spark, "orders", options=options).steps) == 3
    publish_hourly("orders", 4)
    with pytest.raises(
        OptionError,
        match=r"more than 3 rows in one of its tables: ask for by='day', fewer topics, or a shorter time",
    ):
        report(spark, "orders", options=options)
    assert len(report(spark, "orders", options=options, by="day").steps) == 1
    for topic in ("a", "b", "c"):
        publish_hourly(topic, 1)
    with pytest.raises(OptionError, match="more than 3 rows in one of its tables: ask for fewer topics, or"):
        report(spark, pattern=".*", options=options, by="day")
