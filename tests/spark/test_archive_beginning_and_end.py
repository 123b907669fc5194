"""Errors that an archive run raises before it changes anything, and the conditions under which it ends."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import override_settings

from django_mqueue import Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import GroupTaken, LogGap
from django_mqueue.models import Message, Offset
from django_mqueue.service.registration import is_registered
from django_mqueue.spark.errors import NoSuchTopic
from tests.support.subscribers import QUICK, consume, in_log, settle_and_collect

from .archive_runs import Runs, left
from .streams import settle, stands_at

pytestmark = pytest.mark.spark

GROUP = "archive"


@pytest.mark.exhaustive
def test_a_run_ends_though_history_goes_on(run: Runs) -> None:
    """A group makes no progress, and at each check one more message becomes old enough to archive."""
    subscribe("orders", "idle")
    publish_many("orders", range(20))
    wanted = in_log("orders")

    def grow_older(*_: int) -> None:
        young = Message.objects.filter(topic="orders", published_at__gt=1_700_000_000_000)
        if first := young.order_by("offset").first():
            Message.objects.filter(offset=first.offset).update(published_at=1_600_000_000_000)

    (done,) = run(progress=grow_older)
    assert done.rows["messages"] == 20
    assert done.batches <= 2
    assert wanted[0] <= done.upto["deliveries"] < wanted[5]
    Message.objects.filter(topic="orders").update(published_at=1_600_000_000_000)
    (done,) = run()
    assert (done.batches, done.upto["deliveries"], stands_at(GROUP)) == (1, wanted[-1], wanted[-1])


def test_a_pattern_of_no_topic_is_refused_and_begins_no_archive(run: Runs) -> None:
    with pytest.raises(NoSuchTopic, match=r"'ord-\.\*' matches no whole name of a topic; topics: none"):
        run(None, pattern="ord-.*")
    for topic in "orders", "parcels":
        publish(topic, 1)
    with pytest.raises(
        NoSuchTopic, match=r"'ord-\.\*' matches no whole name of a topic; topics: 'orders', 'parcels'$"
    ):
        run(None, pattern="ord-.*")
    assert not run.place.exists()
    assert not is_registered("orders", GROUP, "default")
    run(None, pattern="ord.*")
    assert left() == []
    assert [(done.topic, done.batches) for done in run(None, pattern="ord.*")] == [("orders", 0)]


@override_settings(MQUEUE=QUICK)
def test_a_run_that_is_refused_for_one_topic_holds_no_other(run: Runs) -> None:
    publish("a", 1)
    with Subscription("b", GROUP) as subscription:
        publish("b", 1)
        consume(subscription, 1)
    with pytest.raises(GroupTaken, match="workers consume for it, or have done so"):
        run(["a", "b"])
    assert not is_registered("a", GROUP, "default")
    assert not any(run.place.iterdir()) if run.place.exists() else True
    run("a")
    assert len(run.offsets("a")) == 1


class Earlier:
    """A copy of the offsets, to restore the database to that state."""

    def __init__(self) -> None:
        self.offset = in_log("orders")[-1]
        self.rows = list(Offset.objects.values())

    def set_back(self) -> None:
        Message.objects.filter(offset__gt=self.offset).delete()
        Offset.objects.exclude(pk__in=[row["id"] for row in self.rows]).delete()
        for row in self.rows:
            Offset.objects.filter(pk=row["id"]).update(**row)
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {self.offset + 1:d}")


@pytest.fixture
def earlier(run: Runs) -> Earlier:
    """Return the state before the last of three runs."""
    for number in range(2):
        publish_many("orders", range(3 * number, 3 * number + 3))
        run()
    found = Earlier()
    publish_many("orders", range(6, 9))
    run()
    return found


def test_a_database_that_was_set_back_is_told(run: Runs, earlier: Earlier) -> None:
    """The run fails directly after the restore, and also when the log has passed the archive's last offset.

    Messages in between are kept.
    """
    archived = run.offsets()
    earlier.set_back()
    with pytest.raises(LogGap, match=f"this database has never settled an offset above {earlier.offset}"):
        run()
    publish_many("orders", range(100, 110))
    assert settle("orders") > archived[-1]
    lost = in_log("orders")[-10:]
    assert set(lost) & set(archived)
    with pytest.raises(LogGap, match=r"belonged to id .* start another one"):
        run()
    assert stands_at(GROUP) == earlier.offset
    assert set(lost) <= set(left())
    run(to=str(run.place.parent / "another"), group="another")
    another = Runs(run.spark, run.options, run.place.parent / "another")
    assert set(lost) <= set(another.offsets())
    run(fail_on_data_loss=False)
    assert run.offsets() == [*archived, *(offset for offset in lost if offset > archived[-1])]


def test_counting_on_above_the_archive_loses_nothing(run: Runs, earlier: Earlier) -> None:
    archived = run.offsets()
    earlier.set_back()
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE queue_messages AUTO_INCREMENT = {archived[-1] + 1:d}")
    more = publish("orders", 100).offset  # The run must settle it.
    run()
    assert run.offsets() == [*archived, more]
    with Subscription("orders", "billing") as subscription, override_settings(MQUEUE=QUICK):
        settle_and_collect(subscription)
