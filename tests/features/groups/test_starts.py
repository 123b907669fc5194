"""The start of a new group: latest, an offset, or a time. It is never above the settled offset."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_mqueue import (
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    reset,
    subscribe,
)
from django_mqueue.inspect import preview_reset
from django_mqueue.models import Message, Offset
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    consume_rest,
    payloads,
    poll_until,
)
from tests.support.transactions import HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
MILLISECOND = timedelta(milliseconds=1)


quick = with_settings(MQUEUE=QUICK)


def test_start_latest_begins_with_what_is_published_from_now_on() -> None:
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(3)])
    assert subscribe(TOPIC, "a", start="latest")
    publish(TOPIC, "new", key="k")
    publish(TOPIC, "new partition", key="new")
    with Subscription(TOPIC, group="a") as subscription:
        assert set(payloads(subscription, 2)) == {"new", "new partition"}


def test_start_latest_loses_nothing_that_commits_late() -> None:
    """A transaction is open when the group registers. The group gets some earlier messages rather than miss one."""
    publish(TOPIC, "before", key="k")
    with HeldTransaction(lambda: publish(TOPIC, "late", key="k")) as held:
        publish(TOPIC, "just before", key="k")
        assert subscribe(TOPIC, "a", start="latest")
        held.commit()
    publish(TOPIC, "after", key="k")
    with Subscription(TOPIC, group="a") as subscription:
        got = poll_until(subscription, lambda deliveries: "after" in [d.payload for d in deliveries])
    assert {"late", "after"} <= {d.payload for d in got}


@pytest.mark.parametrize("settled_before", [False, True])
def test_start_at_an_offset_begins_with_that_message(settled_before: bool) -> None:
    """The start does not depend on earlier consumers of the topic."""
    if settled_before:
        with Subscription(TOPIC, group="before"):
            pass
    published = [publish(TOPIC, n, key=f"key-{n % 2}").offset for n in range(6)]
    assert subscribe(TOPIC, "a", start=published[3])
    with Subscription(TOPIC, group="a") as subscription:
        assert sorted(map(str, payloads(subscription, 3))) == ["3", "4", "5"]
        assert consume_rest(subscription) == []


def test_start_beyond_the_end_begins_at_the_end() -> None:
    """No start is above the settled offset, so no later message is skipped."""
    last = publish(TOPIC, 1, key="k").offset
    assert subscribe(TOPIC, "a", start=last + 1000)
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, group="a") as subscription:
        assert payloads(subscription, 1) == [2]


def test_start_at_zero_and_at_the_first_offset_is_everything() -> None:
    first = publish(TOPIC, 1, key="k").offset
    for group, start in (("a", 0), ("b", first), ("c", 1)):
        assert subscribe(TOPIC, group, start=start)
        with Subscription(TOPIC, group=group) as subscription:
            assert payloads(subscription, 1) == [1]


def make_older(offset: int, by: timedelta) -> None:
    Message.objects.filter(offset=offset).update(published_at=F("published_at") - by // MILLISECOND)


@pytest.mark.parametrize("spacing", [timedelta(seconds=5), timedelta(minutes=10)])
def test_start_at_a_moment_begins_with_what_was_published_then(spacing: timedelta) -> None:
    """The start is an aware datetime. The messages are close together or far apart."""
    published = [publish(TOPIC, n, key="k").offset for n in range(20)]
    for place, offset in enumerate(published):
        make_older(offset, spacing * (20 - place))
    now = Message.objects.get(offset=published[12]).published_at
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=now)
    assert subscribe(TOPIC, "at", start=moment)
    assert subscribe(TOPIC, "before", start=moment - timedelta(days=1))
    assert subscribe(TOPIC, "after", start=moment + timedelta(days=1))
    publish(TOPIC, "new", key="k")
    for group, expected in (
        ("at", [*range(12, 20), "new"]),
        ("before", [*range(20), "new"]),
        ("after", ["new"]),
    ):
        with Subscription(TOPIC, group=group) as subscription:
            assert payloads(subscription, len(expected)) == expected


def behind(offsets: list[int], by: timedelta) -> datetime:
    """Date messages as if the server's clock was behind. Return the true publication time of the first one."""
    true = Message.objects.get(offset=offsets[0]).published_at
    Message.objects.filter(offset__in=offsets).update(published_at=F("published_at") - by // MILLISECOND)
    return datetime(1970, 1, 1, tzinfo=UTC) + true * MILLISECOND


def begun(start: datetime, how: str) -> list[Any]:
    """Start a group at that time with ``subscribe`` or ``reset``, and return the payloads that it gets."""
    if how == "subscribe":
        assert subscribe(TOPIC, "a", start=start)
    else:
        subscribe(TOPIC, "a")
        assert reset(TOPIC, "a", start) == preview_reset(TOPIC, "a", start).start
    publish(TOPIC, "new", key="k")
    with Subscription(TOPIC, group="a") as subscription:
        got = poll_until(subscription, lambda deliveries: "new" in [d.payload for d in deliveries])
    return [delivery.payload for delivery in got]


@pytest.fixture
def spaced() -> list[int]:
    """Publish twenty messages, ten minutes apart, the last one two hours ago. Return their offsets."""
    published = [publish(TOPIC, n, key="k").offset for n in range(20)]
    for place, offset in enumerate(published):
        make_older(offset, timedelta(hours=2) + timedelta(minutes=10) * (20 - place))
    return published


@pytest.mark.parametrize("how", ["subscribe", "reset"])
@pytest.mark.parametrize("by", [timedelta(minutes=30), timedelta(days=3)], ids=["half an hour", "days"])
@pytest.mark.parametrize("first", [8, 12, 18])
def test_a_clock_that_was_behind_hides_nothing_that_was_published_before(
    spaced: list[int], by: timedelta, how: str, first: int
) -> None:
    """Wrong old times are in the middle of the log or at its end. They do not hide the messages before them."""
    moment = (
        datetime(1970, 1, 1, tzinfo=UTC) + Message.objects.get(offset=spaced[5]).published_at * MILLISECOND
    )
    behind(spaced[first : first + 4], by)
    assert begun(moment, how) == [*range(5, 20), "new"]


@pytest.mark.parametrize("how", ["subscribe", "reset"])
@pytest.mark.parametrize(
    ("by", "last"),
    [(timedelta(minutes=31), 10), (timedelta(days=3), 12), (timedelta(days=3), 19)],
    ids=["minutes", "days", "still behind"],
)
def test_what_was_published_while_the_clock_was_behind_is_not_skipped(
    spaced: list[int], by: timedelta, how: str, last: int
) -> None:
    """The start is a time at which the clock was behind.

    The group also gets the messages that the clock dated too early.
    """
    moment = behind(spaced[8 : last + 1], by)
    assert begun(moment, how) == [*range(8, 20), "new"]


def test_a_clock_that_was_behind_for_thousands_of_messages() -> None:
    """The clock was behind by less than ``CLOCK_SPREAD``, one hour.

    The search halves the offsets from 1 on. The log begins at 1, so the search first reads messages with wrong times.
    """
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queue_messages AUTO_INCREMENT = 1")
    offsets = [one.offset for one in publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(6000)])]
    Message.objects.update(published_at=F("published_at") + F("offset") - offsets[-1] - 7_200_000)
    moment = (
        datetime(1970, 1, 1, tzinfo=UTC) + Message.objects.get(offset=offsets[5]).published_at * MILLISECOND
    )
    behind(offsets[1000:5000], timedelta(minutes=50))
    assert subscribe(TOPIC, "a", start=moment)
    assert Offset.objects.get(consumer_group="a", partition_key="").offset_acked == offsets[4]
