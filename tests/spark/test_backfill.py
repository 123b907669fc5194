"""A new group receives the past from an archive and the log. It gets each message once, in order, during publishing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe, unsubscribe
from django_mqueue.exceptions import GroupNotNew, LogGap
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Offset
from django_mqueue.spark import archive, backfill
from django_mqueue.spark.database import backfilling, following
from django_mqueue.spark.errors import ArchiveError, NoSuchTopic
from django_mqueue.spark.reader import settling
from django_mqueue.spark.replays import backfills, originals
from django_mqueue.spark.replays.backfills import Backfilled
from django_mqueue.spark.replays.preview import Preview
from django_mqueue.store import offsets
from tests.support.subscribers import QUICK, consume, in_log, settle_and_collect
from tests.support.transactions import PATIENCE, Background, HeldTransaction

from .test_replay import kept
from .test_replay_again import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEYS = ("ada", "bob", "cyd", None)


def fill(numbers: range) -> None:
    publish_many("orders", [OutgoingMessage(n, key=KEYS[n % 4]) for n in numbers])


def done(found: Preview | Backfilled) -> Backfilled:
    assert isinstance(found, Backfilled)
    assert found.finished
    return found


@contextmanager
def publishing(begin: int, stop_at: int = 1_000_000) -> Iterator[list[int]]:
    """Publish messages of all keys continuously. Yield a list with the number of messages so far."""
    stop, said = threading.Event(), [begin]

    def work() -> None:
        while not stop.wait(0.002) and said[0] < stop_at:
            fill(range(said[0], said[0] + 4))
            said[0] += 4

    thread = Background(work).start()
    try:
        yield said
    finally:
        stop.set()
        thread.result()


def assert_given_all(numbers: int, *, seconds: float = PATIENCE) -> None:
    with Subscription("orders", "reports") as worker:
        got = consume(worker, numbers, seconds=seconds)
    for key in KEYS:
        wanted = [n for n in range(numbers) if KEYS[n % 4] == key]
        found = [delivery.payload for delivery in got if delivery.key == key]
        assert found == wanted if key else sorted(found) == wanted


def test_past_and_present_are_one(spark: SparkSession, options: dict[str, str], place: str) -> None:
    fill(range(200))
    kept(spark, options, place)
    fill(range(200, 300))
    ways: dict[str, Any] = {"source": place, "options": options}
    found = backfill(spark, "orders", "reports", **ways)
    assert isinstance(found, Preview)
    assert (found.total, found.groups) == (300, ("reports",))
    assert not Offset.objects.filter(consumer_group="reports").exists()
    with publishing(300, 1000) as said:
        first = done(backfill(spark, "orders", "reports", **ways, dry_run=False))
    assert first.stored >= 300
    assert done(backfill(spark, "orders", "reports", **ways, dry_run=False)).before
    assert following.position("orders", "backfill-reports", using="default") is None
    assert_given_all(said[0])


def test_a_dry_run_tells_what_is_stored_already(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    """Only messages before the border are counted. Later messages need no copies, or ``Seam`` copies them."""
    fill(range(40))
    kept(spark, options, place)
    fill(range(40, 60))
    stopping, seen = threading.Event(), [0]
    ways: dict[str, Any] = {"source": place, "options": options}

    def watch(stored: int) -> None:
        seen.append(stored)
        if stored:
            stopping.set()

    stopped = backfill(
        spark, "orders", "reports", **ways, dry_run=False, rate=1, stopping=stopping, watch=watch
    )
    assert isinstance(stopped, Backfilled)
    fill(range(60, 65))
    found = backfill(spark, "orders", "reports", **ways)
    assert isinstance(found, Preview)
    assert found.total == 60
    assert 0 < seen[-1] <= stopped.stored <= found.stored < 60
    done(backfill(spark, "orders", "reports", **ways, dry_run=False))
    fill(range(65, 70))
    found = backfill(spark, "orders", "reports", **ways)
    assert isinstance(found, Preview)
    assert found.total == found.stored == 60


def test_what_is_waited_for_is_said_once_and_then_at_intervals(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(range(8))
    kept(spark, options, place)
    monkeypatch.setattr(backfills, "SAY_AFTER", 0.2)
    monkeypatch.setattr(backfills, "SAY_EVERY", 0.5)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            late.commit()

    with HeldTransaction(lambda: fill(range(8, 12))) as late:
        done(backfill(spark, "orders", "reports", source=place, options=options, dry_run=False, say=say))
    assert len(said) in (2, 3)
    assert said[0].startswith(
        "the backfill of group 'reports' catches up with the log: waiting for open transactions that may still commit"
    )
    assert_given_all(12)


@pytest.mark.filterwarnings("ignore:topic 'orders' is read up to offset")
def test_one_that_is_stopped_while_it_waits_tells_what_it_stored(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(range(8))
    kept(spark, options, place)
    monkeypatch.setattr(backfills, "SAY_AFTER", 0.2)
    stopping = threading.Event()
    ways: dict[str, Any] = {"source": place, "options": options, "dry_run": False, "stopping": stopping}
    with HeldTransaction(lambda: fill(range(8, 12))):
        fill(range(12, 16))
        found = backfill(spark, "orders", "reports", **ways, say=lambda _: stopping.set())
    assert isinstance(found, Backfilled)
    assert (found.stored > 8, found.finished) == (True, False)


@pytest.mark.filterwarnings("ignore:topic 'orders' is read up to offset")
def test_an_archive_above_what_is_settled_settles_nothing(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restored database reuses the archive's offsets, and one transaction is still open."""
    fill(range(8))
    first, last = in_log("orders")[0], in_log("orders")[-1]
    kept(spark, options, place)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {first + 1:d}")
    Offset.objects.filter(topic="orders").update(offset_acked=first)
    monkeypatch.setattr(settling, "SETTLE_FOR", 0.1)
    stopping = threading.Event()
    stopping.set()
    ways: dict[str, Any] = {"source": place, "options": options, "fail_on_data_loss": False}
    with HeldTransaction(lambda: fill(range(1))):
        fill(range(1, 7))
        assert in_log("orders")[-1] == last
        found = backfill(spark, "orders", "reports", **ways, dry_run=False, stopping=stopping)
        assert isinstance(found, Backfilled)
        assert found.upto == first == offsets.settled("default", "orders")


def test_the_archive_may_grow_meanwhile(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is read first.

    Then the next batch is archived and deleted, before the backfill holds back deletion.
    """
    fill(range(40))
    kept(spark, options, place)
    fill(range(40, 80))
    follow = following.follow

    def late(topic: str, group: str, *others: Any, **more: Any) -> Any:
        if group == "backfill-reports":
            monkeypatch.setattr(following, "follow", follow)
            kept(spark, options, place)
            fill(range(80, 100))
        return follow(topic, group, *others, **more)

    monkeypatch.setattr(following, "follow", late)
    done(backfill(spark, "orders", "reports", source=place, options=options, dry_run=False))
    assert_given_all(100)


@override_settings(MQUEUE=QUICK)
def test_nothing_is_deleted_that_is_still_to_be_copied(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive's group moves, another group consumes everything, and garbage collection deletes all that it may."""
    fill(range(40))
    kept(spark, options, place)
    fill(range(40, 80))
    hold = originals.GuardedSource.hold_back_deletion

    def held(*given: Any, **more: Any) -> Any:
        found = hold(*given, **more)
        archive(spark, "orders", place, options=options)
        with Subscription("orders", "others") as others:
            consume(others, 40)
            settle_and_collect(others)
        assert len(in_log("orders")) == 40
        return found

    monkeypatch.setattr(originals.GuardedSource, "hold_back_deletion", held)
    subscribe("orders", "others")
    done(backfill(spark, "orders", "reports", source=place, options=options, dry_run=False))
    assert_given_all(80)


def test_an_end_without_an_answer_is_an_end(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(range(8))
    kept(spark, options, place)
    finish, ended = backfilling.finish, count()

    def unheard(*given: Any, **more: Any) -> bool:
        found = finish(*given, **more)
        if next(ended) == 0:
            raise OperationalError(2013, "Lost connection to server during query")
        return found

    monkeypatch.setattr(backfilling, "finish", unheard)
    done(backfill(spark, "orders", "reports", source=place, options=options, dry_run=False))
    assert next(ended) == 2, "it was heard at once: this proves nothing"
    assert following.position("orders", "backfill-reports", using="default") is None
    assert_given_all(8)


def test_a_gap_is_an_error_though_a_killed_run_has_left_its_guard(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(8))
    kept(spark, options, place)
    unsubscribe("orders", "archive")
    following.follow("orders", "backfill-reports", 0, 0, using="default")
    with pytest.raises(LogGap, match="its group 'archive' is not registered"):
        backfill(spark, "orders", "reports", source=place, options=options, dry_run=False)
    assert not Offset.objects.filter(consumer_group__gt="").exists()


def test_another_archive_than_it_was_begun_with_is_refused(
    spark: SparkSession, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    """The other archive holds none of the messages that were deleted before."""
    fill(range(40))
    kept(spark, options, place)
    fill(range(40, 44))
    other = str(tmp_path / "other")
    archive(spark, "orders", other, options=options, group="other")
    stopping = threading.Event()
    stopping.set()
    ways: dict[str, Any] = {"options": options, "dry_run": False}
    found = backfill(spark, "orders", "reports", source=place, rate=5, stopping=stopping, **ways)
    assert isinstance(found, Backfilled)
    assert not found.finished
    with pytest.raises(ArchiveError, match="was started from another archive"):
        backfill(spark, "orders", "reports", source=other, **ways)
    done(backfill(spark, "orders", "reports", source=place, **ways))
    assert_given_all(44)


@pytest.mark.parametrize("there", [True, False], ids=["not archived", "mistyped"])
def test_an_archive_that_has_not_the_topic_is_refused_and_nothing_is_registered(
    spark: SparkSession, options: dict[str, str], place: str, there: bool
) -> None:
    """Otherwise the group stays paused, and deletion waits for it for ever."""
    publish("parcels", 1)
    archive(spark, "parcels", place, options=options)
    if there:
        fill(range(4))
    before = list(Offset.objects.order_by("pk").values())
    for dry_run in (True, False):
        with pytest.raises(NoSuchTopic, match="has no topic 'orders'; it has parcels"):
            backfill(spark, "orders", "reports", source=place, options=options, dry_run=dry_run)
    assert list(Offset.objects.order_by("pk").values()) == before


def test_what_cannot_be_is_refused_and_nothing_is_changed(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    fill(range(8))
    kept(spark, options, place)
    subscribe("orders", "known")
    ways: dict[str, Any] = {"source": place, "options": options, "dry_run": False}

    before = rows()
    with pytest.raises(GroupNotNew, match="group 'known' is already registered"):
        backfill(spark, "orders", "known", **ways)
    assert rows() == before
    unsubscribe("orders", "archive")
    before = rows()
    with pytest.raises(LogGap, match="its group 'archive' is not registered"):
        backfill(spark, "orders", "reports", **ways)
    assert rows() == before
    Offset.objects.filter(topic="orders", partition_key="").update(offset_acked=1)
    with pytest.raises(ArchiveError, match="the archive belongs to another database"):
        backfill(spark, "orders", "reports", **ways, fail_on_data_loss=False)
    assert not Offset.objects.filter(consumer_group__gt="").exclude(consumer_group="known").exists()
