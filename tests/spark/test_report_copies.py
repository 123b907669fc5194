"""A backfill's copies are the same messages: they are counted once, and not as redriven."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import Subscription, publish, redrive, subscribe
from django_mqueue.spark import archive, backfill, replay
from django_mqueue.spark.replays.backfills import Backfilled
from django_mqueue.spark.replays.preview import Preview
from django_mqueue.spark.reports import Report, report
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, poll_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
_kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


def stored(found: Preview | Backfilled) -> Backfilled:
    assert isinstance(found, Backfilled)
    return found


@pytest.mark.exhaustive
def test_copies_of_a_backfill_are_the_same_messages(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    place = str(tmp_path / "archive")
    subscribe("orders", "billing")
    for n in range(3):
        publish("orders", n, key="ada")
    archive(spark, "orders", place, options=options)
    # This run stops before the whole past is stored, so the next message also needs a copy.
    (stopping := threading.Event()).set()
    ways: dict[str, Any] = {"source": place, "options": options, "dry_run": False}
    assert not stored(backfill(spark, "orders", "reports", **ways, rate=1, stopping=stopping)).finished
    publish("orders", 3, key="ada")
    assert stored(backfill(spark, "orders", "reports", **ways)).finished
    with Subscription("orders", "reports", max_attempts=1) as subscription:
        bad, *good = poll_until(subscription, 4)
        bad.reject("Broken: 1")
        subscription.ack(good)

    def check(found: Report, sent_back: int, finished: int) -> None:
        (topic,) = found.topics
        assert (topic.published, topic.redriven, topic.copies) == (4 + sent_back, sent_back, 4)
        assert (topic.targeted, topic.retries) == (0, 0)
        assert [(one.key, one.published, one.share) for one in found.keys] == [("ada", 4 + sent_back, 1.0)]
        billing, reports = (
            next(one for one in found.groups if one.group == name) for name in ("billing", "reports")
        )
        assert (billing.published, billing.lag) == (4, 4)
        assert (reports.published, reports.targeted) == (4 + sent_back, sent_back)
        assert (reports.finished, reports.dead, reports.lag) == (finished, 1, 0)
        assert (reports.attempts, reports.ack.of) == (finished + 1, finished)
        # A full hour may pass between the events: then there are two steps.
        steps = [one for one in found.steps if one.group == "reports"]
        done = sum(one.published for one in steps), sum(one.finished for one in steps)
        assert (*done, steps[-1].backlog) == (4 + sent_back, finished, 0)

    check(report(spark, "orders", archive=place, options=options), 0, 3)
    check(report(spark, "orders", options=options), 0, 3)
    assert redrive("orders") == 1
    with Subscription("orders", "reports") as subscription:
        consume(subscription, 1)
    check(report(spark, "orders", options=options), 1, 4)


def test_copies_of_a_replay_are_published_anew(spark: SparkSession, options: dict[str, str]) -> None:
    subscribe("orders", "billing")
    publish("orders", 1, key="ada")
    replay(spark, "orders", "again", options=options, dry_run=False)
    found = report(spark, "orders", options=options)
    (topic,), (billing,) = found.topics, found.groups
    assert (topic.published, topic.redriven, topic.copies) == (2, 0, 0)
    assert (billing.published, billing.lag) == (2, 2)
