"""Reports, archives and replays give the same result with any settings of the user's session."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from django_mqueue import Subscription, publish, subscribe
from django_mqueue.models import DeliveryState, Message
from django_mqueue.spark import Archive, archive, erase, replay
from django_mqueue.spark.configuring import session_settings
from django_mqueue.spark.replays.preview import Preview
from django_mqueue.spark.replays.replay_run import Replayed
from django_mqueue.spark.reports import report
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, poll_until
from tests.support.threads import Background
from tests.support.waiting import SPARK_PATIENCE

from .archives import batch, begin, rows
from .test_replay import done, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.once]

ZONE = "spark.sql.session.timeZone"
SETTINGS = {
    "as Spark 3 was": {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.sizeOfNull": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.session.timeZone": "Pacific/Chatham",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    },
    "strict": {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.caseSensitive": "true",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.session.timeZone": "America/St_Johns",
    },
}
_kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


@pytest.mark.exhaustive
def test_a_session_s_settings_change_nothing(
    spark: SparkSession, options: dict[str, str], tmp_path: Path
) -> None:
    subscribe("orders", "billing")
    for id in ("good", "bad", "slow", "gone"):
        publish("orders", {"id": id}, id=id, key=id, kind="placed")
    with Subscription("orders", "billing", max_attempts=2) as subscription:
        found = {one.id: one for one in poll_until(subscription, 4)}
        found["good"].ack()
        found["bad"].reject("Broken: 1")
        found["gone"].reject("Broken: 2")
        found["slow"].nack(error="Busy: 1")
        (slow,) = poll_until(subscription, 1)
        slow.ack()
    # Keep only the dead letter of "gone", and add a dead letter by hand.
    Message.objects.filter(topic="orders", message_id="gone").delete()
    DeliveryState.objects.filter(message_offset=found["gone"].offset).delete()
    letter = Message.objects.filter(topic="orders_dlq").first()
    assert letter is not None
    letter.pk, letter.message_id = None, "by hand"
    letter.save()
    now = datetime.now(UTC)

    def told(name: str) -> list[Any]:
        place = str(tmp_path / name)
        (kept,) = archive(spark, "orders", place, options=options, group=name)
        ways: dict[str, Any] = {"since": now - timedelta(hours=1), "until": now + timedelta(hours=1)}
        live, both = (
            report(spark, "orders", options=options, archive=source, **ways) for source in (None, place)
        )
        chosen = replay(
            spark, "orders", "again", source=place, to="again", kinds=["placed"], options=options, **ways,
            where="get_json_object(value, '$.id') <> 'bad'",
        )  # fmt: skip
        figures = [
            [one for one in each.groups if one.group == "billing"] + [each.topics[0].published, each.errors]
            for each in (live, both)
        ]
        return [kept.rows, figures, both.keys, both.steps, chosen]

    usual = told("usual")
    (billing, *_), _ = usual[1]
    assert (billing.errors_not_kept, billing.failures, billing.finished, billing.dead) == (0, 4, 2, 3)
    for name, settings in SETTINGS.items():
        with session_settings(spark, settings):
            assert told(name.replace(" ", "-")) == usual, name


@pytest.mark.parametrize(
    "condition",
    [
        "date(published_at) = '2026-05-04'",
        "published_at >= '2026-05-04' AND published_at < TIMESTAMP '2026-05-05 00:00'",
    ],
    ids=["function", "compared"],
)
def test_times_in_a_condition_are_utc_wherever_it_is_asked(
    spark: SparkSession, options: dict[str, str], condition: str
) -> None:
    """A dry run, the run and its continuation may use sessions with different time zones."""
    for n, (day, hour) in enumerate([(3, 23), (4, 0), (4, 12), (4, 23), (5, 0)]):
        found = publish("orders", {"n": n})
        at = int(datetime(2026, 5, day, hour, tzinfo=UTC).timestamp() * 1000)
        Message.objects.filter(offset=found.offset).update(published_at=at)
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago"):
        ways: dict[str, Any] = {"to": f"in-{zone}".replace("/", "-"), "where": condition, "options": options}
        with session_settings(spark, {ZONE: zone}):
            told = replay(spark, "orders", "spring", **ways)
            assert isinstance(told, Preview)
            assert told.total == 3, zone
            done(replay(spark, "orders", "spring", **ways, dry_run=False))
            assert spark.conf.get(ZONE) == zone, "the session is not as it was"
        assert sorted(numbers(ways["to"])) == [1, 2, 3], zone


def test_times_in_a_condition_of_an_erasure_are_utc(spark: SparkSession, tmp_path: Path) -> None:
    folder = begin(tmp_path / "archive")
    for hour in (23, 24):
        batch(folder, "orders", [hour], published_at=datetime(2026, 5, 3, tzinfo=UTC) + timedelta(hours=hour))
    with session_settings(spark, {ZONE: "Pacific/Pago_Pago"}):
        assert erase(spark, str(folder), "orders", where="published_at < '2026-05-04'").rows["messages"] == 1
    assert rows(folder) == [(24, "id-24")]


def test_replays_at_once_leave_the_session_as_it_was(spark: SparkSession, options: dict[str, str]) -> None:
    """The second replay begins after the first and ends before it. It sees the time zone that the first has set."""
    for n in range(6):
        publish("orders", {"n": n}, key=str(n))
    ways: dict[str, Any] = {"where": "offset > 0", "rate": 0.5, "options": options, "dry_run": False}
    inside, ended = threading.Event(), threading.Event()
    others: list[Background[Preview | Replayed]] = []

    def second(_: int) -> None:
        inside.set()
        assert ended.wait(SPARK_PATIENCE)

    def first(_: int) -> None:
        if not others:
            work = lambda: replay(spark, "orders", "second", to="b", watch=second, **ways)  # noqa: E731
            others.append(Background(work).start())
            assert inside.wait(SPARK_PATIENCE)

    with session_settings(spark, {ZONE: "Europe/Berlin"}):
        done(replay(spark, "orders", "first", to="a", watch=first, **ways))
        assert spark.conf.get(ZONE) == "UTC", "the other one has not ended"
        ended.set()
        done(others[0].result())
        assert spark.conf.get(ZONE) == "Europe/Berlin"
    assert sorted(numbers("a")) == sorted(numbers("b")) == list(range(6))


def test_a_damaged_file_is_an_error_though_the_session_ignores_such(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Otherwise replays and reports would silently lack the file's messages."""
    folder = begin(tmp_path / "archive")
    entry = batch(folder, "orders", [1, 2])
    (folder / entry.path).write_bytes(b"damaged")
    ignoring = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    with session_settings(spark, ignoring), pytest.raises(Py4JJavaError, match=Path(entry.path).name):
        Archive.open(folder).frame(spark, "orders").collect()
