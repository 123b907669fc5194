"""Run a replay again under its name: with the same conditions, from the same archive, with its own group."""

from __future__ import annotations

import shutil
import threading
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, transaction
from django.db.models import Q
from django.test import override_settings
from pyspark.errors import PySparkException

from django_mqueue import reset, subscribe, unsubscribe
from django_mqueue.exceptions import LogGap, Superseded
from django_mqueue.models import Message, Offset
from django_mqueue.spark import archive, replay
from django_mqueue.spark.archives import open_archive
from django_mqueue.spark.archives.topic_state import gap_above
from django_mqueue.spark.collecting import collect_all
from django_mqueue.spark.database import copying, following
from django_mqueue.spark.errors import ArchiveError, ReplayBegun
from django_mqueue.spark.explaining import explained
from django_mqueue.spark.replays import originals, storing
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.subscribers import collect, in_log
from tests.support.waiting import PATIENCE

from .streams import settle
from .test_replay import done, fill, kept, numbers, stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def begun(spark: SparkSession, options: dict[str, str], **ways: Any) -> None:
    """Start a replay and stop it early."""
    stopping = threading.Event()
    stopping.set()
    ways = {"rate": 2, **ways, "options": options, "dry_run": False, "stopping": stopping}
    found = replay(spark, "orders", "spring", **ways)
    assert isinstance(found, Replayed)
    assert not found.finished
    assert found.total < 60


def rows() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Message, Offset)]


def noted() -> list[Any]:
    """Return registrations and replay marks, without the marks that a stopped task may still change."""
    still = Q(partition_key__startswith="replay-lane") | Q(partition_key__startswith="replay-turn")
    return list(Offset.objects.exclude(still).order_by("pk").values())


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_name_that_is_finished_stands_for_its_choice(
    spark: SparkSession, options: dict[str, str], place: str, dry_run: bool
) -> None:
    fill(range(6))
    kept(spark, options, place)
    ways: dict[str, Any] = {"source": place, "to": "again", "options": options}
    done(replay(spark, "orders", "spring", kinds=["even"], **ways, dry_run=False))
    before = rows()
    for other in ({"kinds": ["odd"]}, {}, {"kinds": ["even"], "live": True}):
        with pytest.raises(ReplayBegun, match="started with other conditions"):
            replay(spark, "orders", "spring", **ways, **other, dry_run=dry_run)
    assert rows() == before
    again = done(replay(spark, "orders", "spring", kinds=["even"], **ways, dry_run=False))
    assert (again.stored, again.total, again.before) == (0, 3, True)
    done(replay(spark, "orders", "summer", kinds=["odd"], **ways, dry_run=False))
    assert sorted(numbers("again")) == list(range(6))


def test_a_name_that_is_begun_stands_for_its_choice_and_its_archive(
    spark: SparkSession, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    """Without its archive, a second run would store the log's messages and skip the archived ones for ever."""
    fill(range(300))
    kept(spark, options, place)
    fill(range(300, 320))
    other = str(tmp_path / "other")
    archive(spark, "orders", other, options=options, group="other")
    begun(spark, options, source=place, live=True, to="again")
    before = noted()
    for ways in (
        {},
        {"source": other, "live": True},
        {"source": place},
        {"source": place, "live": True, "keys": ["ada"]},
    ):
        for dry_run in (True, False):
            with pytest.raises(ReplayBegun, match="other conditions, or from another archive"):
                replay(spark, "orders", "spring", **ways, to="again", options=options, dry_run=dry_run)
    assert noted() == before
    moved = shutil.move(place, tmp_path / "moved")
    done(
        replay(spark, "orders", "spring", source=moved, live=True, to="again", options=options, dry_run=False)
    )
    assert sorted(numbers("again")) == list(range(320))


def test_an_older_copy_of_the_archive_is_refused(
    spark: SparkSession, options: dict[str, str], place: str, tmp_path: Path
) -> None:
    fill(range(6))
    kept(spark, options, place)
    older = shutil.copytree(place, tmp_path / "older")
    fill(range(6, 300))
    kept(spark, options, place)
    begun(spark, options, source=place, to="again")
    before = noted()
    ways: dict[str, Any] = {"to": "again", "options": options, "dry_run": False}
    with pytest.raises(ArchiveError, match="the archive or the database is an older copy"):
        replay(spark, "orders", "spring", source=older, **ways)
    assert noted() == before
    done(replay(spark, "orders", "spring", source=place, **ways))
    assert sorted(numbers("again")) == list(range(300))


def test_each_replay_holds_back_deletion_for_itself(spark: SparkSession, options: dict[str, str]) -> None:
    """Two replays of one name write into two topics. The first one ends while the other is stopped."""
    fill(range(300))
    subscribe("orders", "others")
    settle("orders")
    reset("orders", "others", "latest")
    begun(spark, options, to="slow")
    for topic in ("quick", "orders"):
        done(replay(spark, "orders", "spring", to=topic, options=options, dry_run=False))
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect("orders")
    assert len(in_log("orders")) >= 300, "deleted, though they are held"
    done(replay(spark, "orders", "spring", to="slow", options=options, dry_run=False))
    assert sorted(numbers("slow")) == list(range(300))
    left = Offset.objects.filter(topic="orders", partition_key="", consumer_group__gt="")
    assert [row.consumer_group for row in left] == ["others"]


def test_guards_are_named_for_what_they_guard() -> None:
    assert originals.guard_of_replay("spring", "orders", "orders") == "replay-spring"
    assert originals.guard_of_replay("spring", "orders", "again") == "replay-spring-into-again"
    assert originals.guard_of_backfill("reports") == "backfill-reports"
    longest = originals.guard_of_replay("n" * 100, "orders", "t" * 100)
    assert len(longest) < 128
    odd = [
        ("a", "b"), ("a-into-b", "orders"), ("a-into-b", "c"), ("a", "b-into-c"), ("a-into", "b"), ("a", "into-b"),
        ("a", "b-into-c-into-d"), ("a-into-b-into-c", "d"), ("n" * 100, "t" * 100), ("n" * 99, "t" * 100),
    ]  # fmt: skip
    assert len({originals.guard_of_replay(name, "orders", to) for name, to in odd}) == len(odd)


@pytest.mark.parametrize("lost", [False, True], ids=["", "connection lost"])
def test_a_gap_between_archive_and_log_is_an_error(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    fill(range(6))
    kept(spark, options, place)
    unsubscribe("orders", "archive")
    looked = count()

    def losing(*given: Any) -> Any:
        if next(looked) == 0 and lost:
            raise OperationalError(2013, "Lost connection to server during query")
        return gap_above(*given)

    monkeypatch.setattr(originals, "gap_above", losing)
    ways: dict[str, Any] = {
        "source": place,
        "live": True,
        "to": "again",
        "options": options,
        "dry_run": False,
    }
    with pytest.raises(
        LogGap, match=r"its group 'archive' is not registered\. Messages above that offset may be deleted"
    ):
        replay(spark, "orders", "spring", **ways)
    assert next(looked) == 1 + lost
    assert not Message.objects.filter(topic="again").exists()
    done(replay(spark, "orders", "spring", fail_on_data_loss=False, **ways))
    assert len(numbers("again")) == 6


@pytest.mark.parametrize("stops", [False, True], ids=["goes on", "stopped"])
def test_another_process_ends_the_replay_that_this_one_has_just_begun(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    """The other process deletes the marks. A run that is stopped then does not count what an earlier run has stored.

    The replay has a name of its own, because its stopped tasks may still run when the next test begins.
    """
    fill(range(300))
    ways: dict[str, Any] = {"to": "again", "options": options, "dry_run": False}
    first = stopped(spark, "autumn", **ways)
    assert 0 < first.total < 300
    lock, locked, watched = copying.lock_head, count(), threading.Event()

    def compute_after_stop(frame: Any) -> Any:
        assert watched.wait(PATIENCE)
        return collect_all(frame)

    def end() -> None:
        done(replay(spark, "orders", "autumn", **ways))
        if stops:
            monkeypatch.setattr(storing, "collect_all", compute_after_stop)

    def lock_and_lose(using: str, *given: Any) -> Any:
        if next(locked) == 0:
            transaction.on_commit(end, using=using)
        return lock(using, *given)

    monkeypatch.setattr(copying, "lock_head", lock_and_lose)
    if stops:
        stopping = threading.Event()
        stopping.set()
        found = replay(
            spark, "orders", "autumn", **ways, stopping=stopping, watch=lambda stored: watched.set()
        )
        assert isinstance(found, Replayed)
        assert (found.finished, found.total) == (False, 300)
        assert found.stored <= 300 - first.total
    else:
        with pytest.raises(PySparkException) as caught:
            replay(spark, "orders", "autumn", **ways)
        assert "replay 'autumn' has ended, or was given up" in str(explained(caught.value))
    assert next(locked) > 1, "no other process has begun: this proves nothing"
    assert sorted(numbers("again")) == list(range(300))
    assert done(replay(spark, "orders", "autumn", **ways)).before


@pytest.mark.parametrize("anew", [False, True], ids=["unsubscribed", "registered anew"])
def test_what_was_given_up_meanwhile_is_not_begun(
    spark: SparkSession, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """The replay's group is unsubscribed before the start is recorded.

    So deletion was possible for a time, even if the group is registered again.
    """
    fill(range(6))
    hold = originals.GuardedSource.hold_back_deletion

    def hold_and_lose(*given: Any, **more: Any) -> Any:
        found = hold(*given, **more)
        unsubscribe("orders", "replay-spring-into-again")
        if anew:
            following.follow(
                "orders", "replay-spring-into-again", found.archived, found.upto, using="default"
            )
        return found

    ways: dict[str, Any] = {"to": "again", "options": options, "dry_run": False}
    with monkeypatch.context() as patch:
        patch.setattr(originals.GuardedSource, "hold_back_deletion", hold_and_lose)
        with pytest.raises(Superseded, match=r"another process has given up replay .*: run it again"):
            replay(spark, "orders", "spring", **ways)
    assert not Offset.objects.filter(partition_key__startswith="replay-").exists()
    assert not Offset.objects.filter(consumer_group="replay-spring-into-again").exists()
    assert done(replay(spark, "orders", "spring", **ways)).total == 6


def test_no_archive_is_opened_while_anything_is_locked(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may answer slowly. A lock would block garbage collection and registrations of the topic."""
    fill(range(6))
    kept(spark, options, place)
    looked = count()

    def looking(*given: Any) -> Any:
        with transaction.atomic():
            assert len(Offset.objects.select_for_update(nowait=True)) > 0
        next(looked)
        return open_archive(*given)

    monkeypatch.setattr(originals, "open_archive", looking)
    ways: dict[str, Any] = {"source": place, "to": "again", "options": options, "dry_run": False}
    assert done(replay(spark, "orders", "spring", **ways)).total == 6
    assert next(looked) == 2


def test_a_store_that_fails_leaves_nothing_held(
    spark: SparkSession, options: dict[str, str], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(range(6))
    kept(spark, options, place)
    before = rows()

    def failing(*given: Any) -> Any:
        raise OSError("the store is away")

    monkeypatch.setattr(originals, "open_archive", failing)
    with pytest.raises(OSError, match="the store is away"):
        replay(spark, "orders", "spring", source=place, live=True, to="again", options=options, dry_run=False)
    assert rows() == before
