"""Reports with known results: from the log, from an archive, and at the borders of both."""

from __future__ import annotations

import csv
import io
import json
import threading
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, redrive, subscribe, unsubscribe
from django_mqueue.exceptions import LogGap, MQueueError
from django_mqueue.inspect import remove
from django_mqueue.models import DeliveryState, Message
from django_mqueue.spark import Archive, archive
from django_mqueue.spark.cli.output import Output
from django_mqueue.spark.cli.verb import Job
from django_mqueue.spark.cli.verbs.report import VERB
from django_mqueue.spark.database import following
from django_mqueue.spark.errors import NoSuchTopic
from django_mqueue.spark.reports import Report, extents, report
from django_mqueue.spark.reports.extents import Extent
from django_mqueue.spark.reports.figures import GroupTotals, StepFigures, Times
from django_mqueue.spark.reports.making import build_report
from django_mqueue.spark.reports.requests import ReportRequest, report_request
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, collect, consume, in_log, poll_until

from .archives import batch, begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOUR = 3_600_000
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MS = round(NOON.timestamp() * 1000)
_kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


def at(
    offset: int, published: int, group: str = "", delivered: int | None = None, done: int | None = None
) -> None:
    """Move the events of a message to these milliseconds after noon of a day."""
    Message.objects.filter(offset=offset).update(published_at=MS + published)
    states = DeliveryState.objects.filter(message_offset=offset, consumer_group=group)
    if delivered is not None:
        states.update(delivered_at=MS + delivered)
    if done is not None:
        for state in states:
            errors = state.errors or []
            if errors and errors[-1]["at"] == state.acked_at:
                errors[-1]["at"] = MS + done
            states.update(acked_at=MS + done, errors=errors or None)


def group_of(found: Report, group: str, topic: str = "orders") -> GroupTotals:
    (one,) = [one for one in found.groups if (one.topic, one.group) == (topic, group)]
    return one


def steps_of(found: Report, group: str | None, topic: str = "orders") -> dict[int, StepFigures]:
    """Return the steps by hours after noon."""
    return {
        (one.start - NOON) // timedelta(hours=1): one
        for one in found.steps
        if (one.topic, one.group) == (topic, group)
    }


def test_a_small_log_is_told_as_it_was(spark: SparkSession, options: dict[str, str]) -> None:
    subscribe("orders", "billing")
    subscribe("orders", "idle")
    good, slow, bad, late = (
        publish("orders", n, id=f"m{n}", key=key).offset for n, key in enumerate(["ada", "ada", "bob", None])
    )
    alone = publish("orders", 5, group="billing", key="ada").offset
    with Subscription("orders", "billing", max_attempts=3) as subscription:
        deliveries = {one.offset: one for one in poll_until(subscription, 5)}
        deliveries[good].ack()
        deliveries[alone].ack()
        deliveries[slow].nack(error="TimeoutError: no answer in 30 s")
        deliveries[bad].reject("no customer 4711")
        (again,) = poll_until(subscription, 1)
        assert again.offset == slow
        again.ack()
    at(good, 0, "billing", 10, 110)
    at(alone, HOUR - 1, "billing", HOUR + 19, HOUR + 20)
    at(slow, 2, "billing", 2 * HOUR, 2 * HOUR + 5)
    at(bad, 3, "billing", 53, 73)
    at(late, HOUR, "billing", 2 * HOUR)
    DeliveryState.objects.filter(message_offset=slow).update(
        errors=[{"at": MS + 99, "attempt": 1, "by": "x", "error": "TimeoutError: no answer in 30 s"}]
    )
    found = report(spark, "orders", options=options)

    (topic,) = found.topics
    assert (topic.published, topic.targeted, topic.redriven, topic.keys, topic.without_key) == (
        5,
        1,
        0,
        2,
        1,
    )
    assert (topic.first_published, topic.last_published) == (NOON, NOON + timedelta(hours=1))
    billing = group_of(found, "billing")
    assert billing.registered is True
    assert (billing.published, billing.targeted, billing.finished, billing.dead, billing.removed) == (
        5,
        1,
        3,
        1,
        0,
    )
    assert (billing.failures, billing.attempts, billing.most_attempts, billing.retried) == (2, 5, 2, 1)
    # "late" was never acknowledged, and "slow" was delivered twice.
    assert (billing.in_flight, billing.waiting, billing.lag, billing.several_deliveries) == (1, 0, 1, 1)
    assert billing.first_delivery == Times(20, HOUR, HOUR, 4)
    assert billing.ack == Times(110, 2 * HOUR + 3, 2 * HOUR + 3, 3)
    idle = group_of(found, "idle")
    assert (idle.published, idle.finished, idle.lag, idle.ack) == (4, 0, 4, Times())

    hours = steps_of(found, "billing")
    assert [
        (h, one.published, one.finished, one.dead, one.failures, one.backlog) for h, one in hours.items()
    ] == [
        (0, 4, 1, 1, 2, 2),
        (1, 1, 1, 0, 0, 2),
        (2, 0, 1, 0, 0, 1),
    ]
    assert hours[0].ack == Times(110, 110, 110, 1)
    assert hours[0].first_delivery == Times(10, 50, 50, 2)
    assert hours[2].attempts == hours[2].most_attempts == 2
    errors = [(one.group, one.error, one.is_class, one.count, one.example) for one in found.errors]
    assert errors == [
        ("billing", "TimeoutError", True, 1, "TimeoutError: no answer in # s"),
        ("billing", "no customer #", False, 1, "no customer #"),
    ]
    assert [(one.key, one.published, one.share) for one in found.keys] == [("ada", 3, 0.6), ("bob", 1, 0.2)]


@pytest.mark.exhaustive
def test_what_the_queue_does_is_told_from_the_log_and_after_it_was_archived(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """The case has messages that are redriven, retried after hours, postponed or removed by hand.

    One group reads the log, and one group has an empty topic.
    """
    subscribe("orders", "billing")
    subscribe("quiet", "billing")
    following.follow("orders", "stream", 0, 0, using="default")
    ids = ["back", "late", "later", "away", "good"]
    offsets = {id: publish("orders", id, id=id, key=id).offset for id in ids}
    with Subscription("orders", "billing", max_attempts=3) as subscription:
        found = {one.id: one for one in poll_until(subscription, 5)}
        found["back"].reject("Broken: 1")
        found["late"].nack(delay=7200, error="Busy: 1")
        found["later"].postpone(7200)
        found["away"].nack(delay=600, error="Busy: 2")
        found["good"].postpone(0.001)
        assert remove("orders", group="billing", key="away") == 1
        consume(subscription, 1)
        assert redrive("orders") == 1
        waiting = group_of(report(spark, "orders", options=options), "billing")
        assert (waiting.finished, waiting.dead, waiting.removed, waiting.waiting) == (1, 1, 1, 2)
        Message.objects.filter(topic="orders_scheduled").update(available_at=1)
        consume(subscription, 3)
        publish("orders", 6, key="open")

    def check(one: Report, *, archived: bool) -> None:
        billing = group_of(one, "billing")
        assert (billing.published, billing.targeted) == (7, 1), "six, and the one that was sent back"
        assert (billing.finished, billing.dead, billing.removed, billing.lag) == (4, 1, 1, 1)
        assert (billing.failures, billing.attempts, billing.most_attempts, billing.retried) == (3, 6, 2, 1)
        assert (billing.ack.of, billing.waiting) == (4, 0)
        stream = group_of(one, "stream")
        # The stream's lag excludes deleted messages. It includes the message redriven for billing only.
        assert (stream.reads_log, stream.lag) == (True, 4 if archived else 9)
        assert steps_of(one, "stream") == {}
        topic = next(each for each in one.topics if each.topic == "orders")
        assert (topic.published, topic.redriven, topic.targeted, topic.retries) == (7, 1, 0, 2)
        assert {(each.error, each.count) for each in one.errors} == {("Broken", 1), ("Busy", 2)}
        quiet = group_of(one, "billing", "quiet")
        assert (quiet.published, quiet.lag, steps_of(one, "billing", "quiet")) == (0, 0, {})
        assert (topic.archived_upto is not None) is archived

    check(report(spark, ["quiet", "orders"], options=options), archived=False)
    place = str(tmp_path / "archive")
    archive(spark, "orders", place, options=options, history_after=0)
    Message.objects.filter(topic="orders", offset__lte=offsets["good"]).delete()
    DeliveryState.objects.filter(message_offset__lte=offsets["good"]).delete()
    both = report(spark, ["orders", "quiet"], archive=place, options=options)
    check(both, archived=True)
    alone = group_of(report(spark, pattern=".*", archive=place, live=False), "billing")
    assert (alone.published, alone.finished, alone.dead, alone.lag, alone.registered) == (7, 4, 1, None, None)
    with pytest.raises(NoSuchTopic, match=r"has no topic 'quiet'; it has orders"):
        report(spark, "quiet", archive=place, live=False)


def test_dead_letters_and_a_topic_that_only_a_stream_reads(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    with Subscription("orders", "billing") as subscription:
        publish("orders", 1)
        poll_until(subscription, 1)[0].reject("no")
    following.follow("events", "stream", 0, 0, using="default")
    for n in range(2):
        publish("events", n)
    found = report(spark, ["orders_dlq", "events"], options=options)
    events, dead = found.topics
    assert (dead.published, dead.redriven, events.published) == (1, 0, 2)
    assert sum(one.published for one in found.steps if (one.topic, one.group) == ("events", None)) == 2


def test_a_retry_that_was_parked_and_is_done_and_deleted_is_no_dead_letter(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """Another group keeps the message in the log. The row of the retry is deleted."""
    subscribe("orders", "slow")
    with Subscription("orders", "billing", max_attempts=3) as subscription:
        publish("orders", 1, key="ada")
        poll_until(subscription, 1)[0].nack(delay=7200, error="Busy: 1")
        Message.objects.filter(topic="orders_scheduled").update(available_at=1)
        consume(subscription, 1)
    Message.objects.filter(partition_key="ada", consumer_group="billing").delete()
    found = group_of(report(spark, "orders", options=options), "billing")
    assert (found.dead, found.finished, found.waiting) == (0, 0, 0)


@pytest.mark.exhaustive
def test_what_waits_long_for_a_retry_is_neither_dead_nor_done_though_its_history_was_archived(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """This includes a message that is parked, or moved back into the log, while the report runs."""
    subscribe("orders", "billing")
    for id in ("late", "later", "in between"):
        publish("orders", id, id=id, key=id)
    place, set_aside = str(tmp_path / "archive"), threading.Event()
    with Subscription("orders", "billing", max_attempts=3) as subscription:
        found = {one.id: one for one in poll_until(subscription, 3)}
        found["late"].nack(delay=7200, error="Busy: 1")
        found["later"].postpone(7200)
        archive(spark, "orders", place, options=options, history_after=0)
        before = Archive.open(place).upto("orders", "deliveries")
        assert before >= max(one.offset for one in found.values())

        def set_the_third_aside() -> None:
            if not set_aside.is_set():
                set_aside.set()
                found["in between"].nack(delay=7200, error="Busy: 2")
                Message.objects.filter(topic="orders_scheduled", metadata__retry__id="late").delete()

        asked = report_request("orders", None, None, True, None, None, "hour", 10, options)
        live = group_of(build_report(spark, asked, set_the_third_aside), "billing")
        assert (live.finished, live.dead, live.waiting) == (0, 0, 3)
        both = group_of(report(spark, "orders", archive=place, options=options), "billing")
        assert (both.finished, both.dead, both.waiting) == (0, 0, 2), "one was taken out by hand"


def test_what_may_be_deleted_between_archive_and_log_is_told(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    subscribe("orders", "billing")
    place = str(tmp_path / "archive")

    def handle(*ids: str) -> None:
        with Subscription("orders", "billing") as subscription:
            for id in ids:
                publish("orders", id, id=id, key=id)
            consume(subscription, len(ids))

    def asked(strict: bool = True) -> ReportRequest:
        return report_request("orders", None, place, True, None, None, "hour", 10, options, strict)

    handle("a", "b")
    archive(spark, "orders", place, options=options, history_after=0)
    handle("c")
    assert extents.gaps_of(asked(), *stands(asked(), place)) == [], "it is held back"
    unsubscribe("orders", "archive")
    with pytest.raises(
        LogGap, match=r"but its group 'archive' is not registered\. Messages above that offset may be"
    ):
        report(spark, "orders", archive=place, options=options)
    with override_settings(MQUEUE={**QUICK, "RETENTION": 0}):
        collect("orders")
    assert in_log("orders") == [], "c is gone, and nothing in the tables says so"
    with pytest.raises(LogGap, match="is not registered"):
        report(spark, "orders", archive=place, options=options)
    following.follow("orders", "archive", 0, 0, using="default")
    (gap,) = extents.gaps_of(asked(False), *stands(asked(), place))
    assert gap.endswith("was registered again later. Some messages may be missing here.")
    unsubscribe("orders", "archive")
    archive(spark, "orders", place, options=options, history_after=0, fail_on_data_loss=False)
    unsubscribe("orders", "archive")
    assert extents.gaps_of(asked(), *stands(asked(), place)) == [], "above the archive nothing has ever been"


def test_a_note_names_what_shows_that_the_database_was_set_back(
    options: dict[str, str], tmp_path: Path
) -> None:
    place = begin(tmp_path / "archive")
    offset = publish("orders", 1, id="another").offset
    publish("orders", 2)
    batch(
        place,
        "orders",
        [offset],
        life=following.follow("orders", "archive", 0, 0, using="default").generation,
    )
    asked = report_request("orders", None, place, True, None, None, "hour", 10, options, False)
    assert extents.gaps_of(asked, *stands(asked, str(place))) == [
        f"topic 'orders' has changed since it was archived up to offset {offset}: offset {offset} belonged to id"
        f" 'id-{offset}' when it was archived, but now belongs to id 'another' in topic 'orders'. Some messages may be"
        " missing here."
    ]


def stands(asked: ReportRequest, place: str) -> tuple[Archive, dict[str, Extent]]:
    found = Archive.open(place)
    return found, extents.extents_of(asked, found)[0]


@pytest.mark.exhaustive
def test_deletion_that_is_let_go_while_a_report_reads_is_told(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """With ``fail_on_data_loss`` false, the gap is only a note."""
    subscribe("orders", "billing")
    publish("orders", 1)
    place = str(tmp_path / "archive")
    archive(spark, "orders", place, options=options, history_after=0)
    publish("orders", 2)
    asked = report_request("orders", None, place, True, None, None, "hour", 10, options)

    def let_go() -> None:
        unsubscribe("orders", "archive")

    with pytest.raises(LogGap, match="is not registered"):
        build_report(spark, asked, let_go)
    found = report(spark, "orders", archive=place, options=options, fail_on_data_loss=False)
    assert "'archive' is not registered. Some messages may be missing here." in found.notes[0]
    assert group_of(found, "billing").published == 2


@pytest.mark.exhaustive
def test_names_that_are_attacks_are_data_everywhere(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    topics = ["a,b", "<script>x</script>", "=1+1"]
    for topic in topics:
        publish(topic, 1, key="=cmd|' /C calc'!A0")
        with Subscription(topic, "<b>g</b>, h") as subscription:
            (delivery,) = poll_until(subscription, 1)
            delivery.reject("\x1b[2J<img src=x>: \u202e {{ 1 }} [bold]")
    out, err = io.StringIO(), io.StringIO()
    parser = ArgumentParser()
    VERB.arguments(parser)
    given = [word for topic in topics for word in ("--topic", topic)]
    given += ["--csv", str(tmp_path / "csv"), "--html", str(tmp_path / "report.html")]
    job = Job(
        parser.parse_args([*given, "--json", str(tmp_path / "report.json")]),
        options,
        lambda: spark,
        Output(out, err),
        threading.Event(),
    )
    assert VERB.run(job) == 0
    told = out.getvalue()
    assert "\x1b" not in told
    assert all(topic in told for topic in topics)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    content = json.loads((tmp_path / "report.json").read_text())
    assert (content["format"], content["version"]) == ("django_mqueue.report", 1)
    assert [one["topic"] for one in content["topics"]] == sorted(topics)
    assert content["groups"][0]["ack"] == {"p50": None, "p95": None, "p99": None, "of": 0}
    with (tmp_path / "csv" / "keys.csv").open(newline="") as file:
        keys = list(csv.DictReader(file))
    assert {row["topic"] for row in keys} == {"a,b", "<script>x</script>", "'=1+1"}
    assert {row["key"] for row in keys} == {"'=cmd|' /C calc'!A0"}

    json_alone = Job(
        parser.parse_args(["--topic", "a,b", "--json", "-"]),
        options,
        lambda: spark,
        Output(out := io.StringIO(), err),
        threading.Event(),
    )
    assert VERB.run(json_alone) == 0
    assert json.loads(out.getvalue())["topics"][0]["published"] == 1
    stopping = threading.Event()
    stopping.set()
    stopped = Job(
        parser.parse_args(["--topic", "a,b"]),
        options,
        lambda: spark,
        Output(out := io.StringIO(), err),
        stopping,
    )
    with pytest.raises(MQueueError, match="nothing was written"):
        VERB.run(stopped)
    assert out.getvalue() == ""


def test_what_was_counted_is_not_lost_for_a_form_that_cannot_be_written(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    """The error appears only when the file is written, so no earlier check finds it."""
    publish("orders", 1)
    (tmp_path / "csv" / "topics.csv").mkdir(parents=True)
    parser = ArgumentParser()
    VERB.arguments(parser)
    page = tmp_path / "report.html"
    given = parser.parse_args(["--topic", "orders", "--csv", str(tmp_path / "csv"), "--html", str(page)])
    err = io.StringIO()
    with pytest.raises(OSError, match=r"csv cannot be written: .*Is a directory"):
        VERB.run(Job(given, options, lambda: spark, Output(io.StringIO(), err), threading.Event()))
    assert "report.html is written" in err.getvalue()
    assert "orders" in page.read_text()
