"""Compare reports on made-up histories with plain Python.

The log, an archive, and both together give the same report.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_mqueue import subscribe
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.spark.reader.options import Table
from django_mqueue.spark.reports import Report, report
from django_mqueue.spark.reports.counting import _percentiles
from django_mqueue.spark.reports.figures import ACCURACY, EXACT_BELOW, GroupTotals, StepFigures, Times

from .archives import begin, copy_of
from .histories import DAY, HOUR, NOON, History, percentiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MESSAGES = 300
TABLES: tuple[Table, ...] = ("messages", "deliveries", "dead_letters")


def said(steps: list[StepFigures]) -> dict[int, dict[str, object]]:
    return {
        round(one.start.timestamp() * 1000): {
            **{name: getattr(one, name) for name in ("published", "finished", "dead", "removed", "failures")},
            "attempts": one.attempts,
            "most_attempts": one.most_attempts,
            "first_delivery": points(one.first_delivery),
            "ack": points(one.ack),
        }
        for one in steps
    }


def points(times: Times) -> tuple[int | None, int | None, int | None, int]:
    return times.p50, times.p95, times.p99, times.of


def check(found: Report, history: History, *, live: bool = True) -> None:
    for group in history.groups:
        expected = history.steps(group)
        mine = [one for one in found.steps if one.group == group]
        assert said(mine) == expected
        for one in mine if live else ():
            end = round(one.start.timestamp() * 1000) + HOUR
            assert one.backlog == history.backlog(group, end)
        check_group(next(one for one in found.groups if one.group == group), history, live)
        kinds = history.kinds(group)
        assert {one.error: one.count for one in found.errors if one.group == group} == kinds
    keys = history.keys()
    (topic,) = found.topics
    assert topic.published == keys.total()
    assert topic.without_key == keys.pop(None)
    assert topic.keys == len(keys)
    assert topic.retries == sum(one.retry_of is not None for one in history.sent)
    assert topic.redriven == sum(one.sent_back for one in history.sent)
    hottest = sorted(keys.items(), key=lambda item: (-item[1], (item[0] or "").encode()))[:5]
    assert [(one.key, one.published) for one in found.keys] == hottest


def check_group(one: GroupTotals, history: History, live: bool) -> None:
    mine = [done for done in history.done if done.group == one.group]
    finished = [done for done in mine if done.ending == "finished"]
    assert one.finished == len(finished)
    assert one.retried == sum(done.deliveries > 1 for done in finished)
    assert points(one.ack) == percentiles([(d.ended or 0) - (d.of.first or d.of.published) for d in finished])
    gone = [done for done in history.gone if done.group == one.group]
    assert one.dead == len(gone) + sum(done.ending == "dead" for done in mine)
    assert one.removed == sum(done.ending == "removed" for done in mine)
    firsts = [done for done in mine if done.of.retry_of is None and done.delivered]
    once = [(done.delivered or 0) - done.of.published for done in firsts if done.deliveries == 1]
    assert points(one.first_delivery) == percentiles(once)
    assert one.several_deliveries == len(firsts) - len(once)
    opened = [done for done in mine if done.ending == "open"]
    assert one.in_flight == sum(done.in_flight for done in opened)
    assert one.waiting == len(opened) - one.in_flight
    assert one.failures == history.kinds(one.group).total()
    ends = [done for done in mine if done.ending != "aside"]
    attempts = (len(done.brought) + len(done.failures) for done in ends)
    kept = (min(len(d.brought) + len(d.failures), 10 - (d.ending == "removed")) for d in ends)
    assert one.errors_not_kept == sum(attempts) - sum(kept)
    assert one.lag == (history.lag(one.group) if live else None)


def read(spark: SparkSession, options: dict[str, str], topic: str, table: Table) -> pa.Table:
    found = spark.read.format("mqueue").options(**options, topic=topic, table=table, includeTargeted="true")
    return found.option("includeHeaders", "true").load().toArrow()


def test_the_log_the_archive_and_both_say_what_happened(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    history = History(1).make(MESSAGES)
    for group in history.groups:
        subscribe("orders", group)
    history.store()
    live = report(spark, "orders", options=options, top=5)
    check(live, history)

    rows = {table: read(spark, options, "orders", table) for table in TABLES}
    whole = begin(tmp_path / "whole")
    copy_of(whole, "orders", {table: (rows[table], 10_000) for table in TABLES})
    check(report(spark, "orders", archive=whole, live=False, top=5), history, live=False)

    # Archive each of the three tables up to another offset. Delete what all groups have finished from the log.
    places = sorted(one.offset for one in history.sent)
    messages, deliveries = places[len(places) * 2 // 3], places[len(places) // 3]
    letters = sorted(rows["dead_letters"]["offset"].to_pylist())
    part = begin(tmp_path / "part")
    uptos: dict[Table, int] = {"messages": messages, "deliveries": deliveries, "dead_letters": letters[4]}
    copy_of(part, "orders", {table: (rows[table], uptos[table]) for table in TABLES})
    gone = history.done_by_all(deliveries)
    assert 10 < len(gone) < sum(offset <= deliveries for offset in places) - 10
    Message.objects.filter(topic="orders", offset__in=gone).delete()
    DeliveryState.objects.filter(topic="orders", message_offset__in=gone).delete()
    Message.objects.filter(topic="orders_dlq", offset__lte=letters[4]).delete()
    # No group has held back deletion, because the archive is made by hand.
    both = report(spark, "orders", archive=part, options=options, top=5, fail_on_data_loss=False)
    check(both, history)
    assert both.topics[0].archived_upto == both.topics[0].live_above == messages
    assert both.steps == live.steps
    assert (both.groups, both.errors, both.keys) == (live.groups, live.errors, live.keys)


def test_a_time_and_days_bound_what_is_counted(spark: SparkSession, options: dict[str, str]) -> None:
    history = History(3).make(MESSAGES)
    billing, mail = history.groups
    for group in history.groups:
        subscribe("orders", group)
    middle = sorted(one.offset for one in history.sent)[150]
    Offset.objects.filter(topic="orders", consumer_group=mail, partition_key="").update(offset_acked=middle)
    history.store()
    since, until = NOON + HOUR // 2, NOON + 3 * HOUR
    bounds = [datetime.fromtimestamp(at / 1000, UTC) for at in (since, until)]
    found = report(spark, pattern="ord.*", since=bounds[0], until=bounds[1], options=options)
    for group in history.groups:
        mine = [one for one in found.steps if one.group == group]
        assert said(mine) == history.steps(group, since=since, until=until)
    last = [one for one in found.steps if one.group == billing][-1]
    assert last.start + timedelta(hours=1) == bounds[1]
    assert last.backlog == history.backlog(billing, until)
    lags = {one.group: one.lag for one in found.groups}
    assert lags == {billing: history.lag(billing), mail: history.lag(mail, middle)}

    days = report(spark, "orders", by="day", options=options)
    for group in history.groups:
        assert said([one for one in days.steps if one.group == group]) == history.steps(group, DAY)


def test_percentiles_are_as_near_as_is_said(spark: SparkSession) -> None:
    """The percentiles are exact below 5,000 times. Above, their position is at most a ten-thousandth wrong."""
    from pyspark.sql import functions as f

    for number in (1, 99, 101, EXACT_BELOW - 1, 60_000):
        times = spark.range(0, number, 1, 5).selectExpr("abs(hash(id)) % 1000000007 AS time").persist()
        row = times.agg(f.expr(f"{_percentiles('time')} AS found")).first()
        assert row is not None
        ordered = sorted(each.time for each in times.collect())
        times.unpersist()
        for value, wanted in zip(row.found, percentiles(ordered)[:3], strict=True):
            beside = abs(ordered.index(value) - ordered.index(wanted or 0))
            assert beside <= (0 if number < EXACT_BELOW else math.ceil(number / ACCURACY)), (number, value)
