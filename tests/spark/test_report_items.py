"""The work items of a worklist in a report: by week and kind, the share of the handler and the mean time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import publish
from django_mqueue.models import Message
from django_mqueue.spark import archive
from django_mqueue.spark.reports import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPIC = "worklist.refunds"
SUNDAY = datetime(2026, 3, 1, 23, tzinfo=UTC)
MONDAY = SUNDAY + timedelta(hours=2)


def finished(kind: str, when: datetime, *, automated: bool, seconds: float) -> None:
    """Publish the step of an item that was finished, as a worklist does."""
    payload = {"item": 1, "step": "finished", "kind": kind, "automated": automated, "seconds": seconds}
    offset = publish(TOPIC, payload, key="1", kind="finished").offset
    Message.objects.filter(offset=offset).update(published_at=round(when.timestamp() * 1000))


def items(found: Any) -> list[tuple[str, str, int, int, float, float]]:
    return [
        (f"{one.week:%m-%d}", one.kind, one.finished, one.by_handler, one.share, one.mean_seconds)
        for one in found.items
    ]


def test_items_by_week_and_kind(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> None:
    finished("refund", SUNDAY, automated=True, seconds=2)
    finished("refund", SUNDAY, automated=False, seconds=10)
    finished("", MONDAY, automated=False, seconds=60)
    publish(TOPIC, {"item": 1, "step": "taken", "kind": "refund"}, key="1", kind="taken")
    publish("orders", {"automated": True}, kind="finished")
    want = [("02-23", "refund", 2, 1, 0.5, 6.0), ("03-02", "", 1, 0, 0.0, 60.0)]

    found = report(spark, [TOPIC, "orders"], options=options)
    assert items(found) == want
    assert "refunds" in found.to_text()
    assert "Work items, by week and kind" in found.to_html()
    assert "items.csv" in found.to_csv(tmp_path / "csv")
    assert items(report(spark, TOPIC, options=options, since=MONDAY - timedelta(hours=1))) == want[1:]
    assert report(spark, "orders", options=options).items == []

    archive(spark, TOPIC, str(tmp_path / "archive"), options=options)
    assert items(report(spark, TOPIC, archive=tmp_path / "archive", live=False)) == want
    assert items(report(spark, TOPIC, archive=tmp_path / "archive", options=options)) == want
