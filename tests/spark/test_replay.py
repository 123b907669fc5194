"""Replay messages from an archive and the log: the requested ones, once each, in the order of each key."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import NotRegistered
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message, Offset
from django_mqueue.spark import archive, replay
from django_mqueue.spark.database import following
from django_mqueue.spark.database.copied_content import HEADER
from django_mqueue.spark.errors import NoArchive, NoSuchTopic, OptionError
from django_mqueue.spark.replays.preview import Preview
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.subscribers import QUICK, collect, consume, in_log, settle_and_collect

from .streams import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYS = ("ada", "bob", None)


def fill(numbers: range, topic: str = "orders") -> None:
    publish_many(
        topic,
        [
            OutgoingMessage({"n": n}, key=KEYS[n % 3], id=f"o-{n}", kind="even" if n % 2 == 0 else "odd")
            for n in numbers
        ],
    )


def kept(spark: SparkSession, options: dict[str, str], place: str, topic: str = "orders") -> None:
    """Archive the topic, and delete its messages from the log."""
    archive(spark, topic, place, options=options)
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect(topic)
    assert in_log(topic) == []


def numbers(topic: str, key: str | None = "") -> list[int]:
    rows = Message.objects.filter(topic=topic).order_by("offset")
    if key == "":
        return [json.loads(bytes(row.payload))["n"] for row in rows]
    return [json.loads(bytes(row.payload))["n"] for row in rows if row.partition_key == key]


def stopped(spark: SparkSession, name: str, **ways: Any) -> Replayed:
    """Begin a replay of ``orders``, and stop it when it has stored a few messages."""
    stopping = threading.Event()

    def watch(stored: int) -> None:
        if stored:
            stopping.set()

    found = replay(spark, "orders", name, **ways, rate=5, stopping=stopping, watch=watch)
    assert isinstance(found, Replayed)
    return found


def done(found: Preview | Replayed) -> Replayed:
    assert isinstance(found, Replayed)
    assert found.finished
    return found


def test_an_archive_is_replayed_once_in_order(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(300))
    kept(spark, options, place)
    ways: dict[str, Any] = {"source": place, "to": "again", "options": options, "dry_run": False}
    found = done(replay(spark, "orders", "spring", **ways))
    assert (found.stored, found.total, found.before) == (300, 300, False)
    assert sorted(numbers("again")) == list(range(300))
    for key in ("ada", "bob"):
        assert numbers("again", key) == [n for n in range(300) if KEYS[n % 3] == key]
    again = done(replay(spark, "orders", "spring", **ways))
    assert (again.stored, again.total, again.before) == (0, 300, True)
    with pytest.raises(NoSuchTopic):
        replay(spark, "orderz", "spring", **{**ways, "to": "third"})
    assert len(numbers("again")) == 300
    with Subscription("again", "billing") as worker:
        one = next(each for each in consume(worker, 300) if each.payload == {"n": 4})
    assert one.key == "bob"
    assert one.kind == "even"
    assert one.id == f"spring@{one.headers[f'{HEADER}-offset']}"
    assert one.headers[f"{HEADER}-id"] == "o-4"
    assert one.headers[f"{HEADER}-topic"] == "orders"
    assert one.headers[HEADER] == "spring"


def test_a_dry_run_tells_and_changes_nothing(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(30))
    kept(spark, options, place)
    fill(range(30, 40))
    subscribe("orders", "billing")
    settle("orders")
    before = [list(model.objects.order_by("pk").values()) for model in (Message, Offset)]
    found = replay(spark, "orders", "spring", source=place, live=True, options=options)
    assert [list(model.objects.order_by("pk").values()) for model in (Message, Offset)] == before
    assert isinstance(found, Preview)
    assert found.total == 40
    assert found.kinds == {"even": 20, "odd": 20}
    assert found.keys == {"ada": 14, "bob": 13, None: 13}
    assert sum(found.hours.values()) == 40
    assert found.groups == ("archive", "billing")
    assert found.first is not None
    assert found.last is not None
    assert found.first.offset < found.last.offset
    assert datetime.now(UTC) - found.last.published_at < timedelta(hours=1)
    assert [json.loads(each["payload"])["n"] for each in found.sample] == [0, 1, 2, 3, 4]


def test_what_is_asked_for_is_replayed(spark: SparkSession, options: dict[str, str]) -> None:
    fill(range(30))
    middle = Message.objects.order_by("offset")[15]
    Message.objects.filter(offset__lt=middle.offset).update(published_at=middle.published_at - 60_000)
    since = datetime.fromtimestamp(middle.published_at / 1000, UTC)
    publish("orders", b"\0", key="ada", kind="odd")
    subscribe("orders", "billing")
    publish("orders", {"n": 100}, key="ada", group="billing")
    ways: list[tuple[dict[str, Any], list[int]]] = [
        ({"since": since, "where": "value IS NOT NULL"}, list(range(15, 30))),
        ({"until": since}, list(range(15))),
        ({"keys": ["bob", "cyd"]}, list(range(1, 30, 3))),
        ({"kinds": ["even"]}, list(range(0, 30, 2))),
        ({"where": "get_json_object(value, '$.n') > 25"}, list(range(26, 30))),
        ({"where": "parse_json(value):n::int = 7"}, [7]),
        ({"where": "id LIKE 'o-1_' AND key = 'ada'", "kinds": ["odd"]}, [15]),
        ({"targeted": True, "where": "get_json_object(value, '$.n') > 28"}, [29, 100]),
    ]
    for place, (way, wanted) in enumerate(ways):
        topic = f"copies-{place}"
        found = done(replay(spark, "orders", "some", to=topic, options=options, dry_run=False, **way))
        assert sorted(numbers(topic)) == wanted, way
        assert found.total == len(wanted)


def test_one_group_alone_is_given_the_copies(spark: SparkSession, options: dict[str, str]) -> None:
    fill(range(6))
    with pytest.raises(NotRegistered, match="group 'billing' is not registered for topic 'orders'"):
        replay(spark, "orders", "spring", group="billing", options=options)
    with (
        override_settings(MQUEUE=QUICK),
        Subscription("orders", "billing") as billing,
        Subscription("orders", "mail") as mail,
    ):
        consume(billing, 6)
        consume(mail, 6)
        done(replay(spark, "orders", "spring", group="billing", options=options, dry_run=False))
        assert {each.headers[HEADER] for each in consume(billing, 6)} == {"spring"}
        assert mail.poll() == []
        settle_and_collect(mail)
        settle_and_collect(billing)
        assert in_log("orders") == []
        done(replay(spark, "orders", "spring", group="billing", options=options, dry_run=False))
        assert in_log("orders") == []


def test_a_topic_is_replayed_into_itself_once(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(10))
    kept(spark, options, place)
    fill(range(10, 20))
    found = done(replay(spark, "orders", "spring", source=place, live=True, options=options, dry_run=False))
    assert found.stored == 20
    assert sorted(numbers("orders")) == sorted([*range(20), *range(10, 20)])
    assert following.position("orders", "replay-spring", using="default") is None
    assert not Offset.objects.filter(partition_key__startswith="replay-lane").exists()
    archive(spark, "orders", place, options=options)
    done(replay(spark, "orders", "summer", source=place, to="once", options=options, dry_run=False))
    assert len(numbers("once")) == 40


def test_the_rate_is_kept(spark: SparkSession, options: dict[str, str]) -> None:
    """All tasks share the rate. Each half second has at most the rate's messages, plus one step of each task."""
    fill(range(60))
    done(replay(spark, "orders", "slowly", to="slow", rate=40, options=options, dry_run=False))
    times = list(Message.objects.filter(topic="slow").values_list("published_at", flat=True))
    assert len(times) == 60
    for begin in times:
        assert sum(begin <= at < begin + 500 for at in times) <= 20 + 2 * 10


def test_one_that_is_stopped_goes_on(spark: SparkSession, options: dict[str, str]) -> None:
    fill(range(300))
    ways: dict[str, Any] = {"to": "again", "options": options, "dry_run": False}
    found = stopped(spark, "spring", **ways)
    assert not found.finished
    assert 0 < found.stored == found.total < 300
    assert following.position("orders", "replay-spring-into-again", using="default") is not None
    rest = done(replay(spark, "orders", "spring", **ways))
    assert rest.total == 300
    assert rest.stored <= 300 - found.stored
    assert sorted(numbers("again")) == list(range(300))


def test_what_cannot_be_is_refused_and_nothing_is_changed(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(3))
    archive(spark, "orders", place, options=options)
    before = [list(model.objects.order_by("pk").values()) for model in (Message, Offset)]
    usual: dict[str, Any] = {"topic": "orders", "name": "x", "source": place, "live": True}
    usual |= {"options": options, "dry_run": False}
    ways: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"where": "colour = 'red'"}, OptionError, "colour = 'red'.*is not a condition over the columns"),
        ({"where": "((("}, OptionError, "is not a condition"),
        ({"where": f"offset = {10**44}"}, OptionError, "is not a condition"),
        ({"where": " "}, ValueError, "is empty"),
        ({"source": f"{place}/none"}, NoArchive, "there is no archive"),
        ({"rate": 0}, ValueError, "rate must be more than 0"),
        ({"rate": float("inf")}, ValueError, "rate must be more than 0"),
        ({"to": "orders_dlq"}, ValueError, "reserved for dead letters"),
        ({"name": "n" * 101}, ValueError, "at most 100"),
        ({"keys": "ada"}, TypeError, "keys must be a collection"),
        ({"since": datetime(2026, 1, 1)}, ValueError, "since must be an aware datetime"),
        ({"until": "2026-01-01"}, TypeError, "until must be an aware datetime, not '2026-01-01'"),
        ({"group": "nobody"}, NotRegistered, "nobody"),
    ]
    for way, error, words in ways:
        with pytest.raises(error, match=words):
            replay(spark, **{**usual, **way})
    assert [list(model.objects.order_by("pk").values()) for model in (Message, Offset)] == before
