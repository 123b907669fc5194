"""``preview_reset`` reports what a reset would do, and ``reset`` does exactly that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from django_mqueue import GroupActive, NotRegistered, Subscription, pause, publish, reset, subscribe
from django_mqueue.inspect import Figure, ResetPreview, preview_reset
from django_mqueue.models import Message, Offset
from django_mqueue.stats.groups import reset_preview
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, consume_rest, poll_until, settle

from .scene import GROUP, TOPIC, one_of_each, published, published_at

pytestmark = pytest.mark.django_db(transaction=True)


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


@pytest.fixture
def half_done() -> list[int]:
    """Publish twelve messages of three keys; the first six and the ninth are done. Return their offsets.

    Messages for another group lie between them.
    """
    subscribe(TOPIC, "stock")
    offsets = []
    with Subscription(TOPIC, GROUP) as subscription:
        for number in range(6):
            offsets.append(publish(TOPIC, number, key=f"k{number % 3}").offset)
        consume(subscription, 6)
        settle(subscription)
        for number in range(6, 12):
            offsets.append(publish(TOPIC, number, key=f"k{number % 3}").offset)
            publish(TOPIC, "stock's", key="k0", group="stock")
        for delivery in poll_until(subscription, 6):
            if delivery.payload == 8:
                delivery.ack()
            else:
                delivery.postpone(0)
    return offsets


def came(count: int) -> list[int]:
    """Consume what the group receives from now on, and return the offsets."""
    with Subscription(TOPIC, GROUP) as subscription:
        got = consume(subscription, count) + consume_rest(subscription)
    return sorted(one.offset for one in got)


def numbers(seen: ResetPreview) -> tuple[int, int, int]:
    parts = (seen.replayed.count, seen.skipped.count, seen.coming.count)
    assert {one.how for one in parts} == {"exact"}
    return tuple(one.value for one in parts)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("earliest", (7, 0, 5)),
        (0, (7, 0, 5)),
        (3, (4, 0, 5)),
        (8, (1, 2, 3)),
        (9, (0, 2, 3)),
        (11, (0, 4, 1)),
        ("latest", (0, 5, 0)),
        (1_000, (0, 5, 0)),
    ],
)
def test_as_many_come_as_were_told(
    half_done: list[int], place: str | int, expected: tuple[int, int, int]
) -> None:
    """A number as ``place`` is an index into the twelve messages."""
    to: Any = place
    if isinstance(place, int):
        to = half_done[place] if place < len(half_done) else half_done[-1] + place
    with Subscription(TOPIC, "stock") as stock:  # Settle the published messages.
        settle(stock)
    seen = preview_reset(TOPIC, GROUP, to)
    assert numbers(seen) == expected
    again, _, coming = expected
    rows = list(Offset.objects.order_by("pk").values())
    assert (seen.start, seen.running, seen.paused) == (preview_reset(TOPIC, GROUP, to).start, (), False)
    assert list(Offset.objects.order_by("pk").values()) == rows, "a preview changes nothing"
    assert reset(TOPIC, GROUP, to) == seen.start
    assert len(came(again + coming)) == again + coming


def test_first_and_last_and_their_times(half_done: list[int]) -> None:
    at = published_at([half_done[2]], 1_700_000_000_000)
    seen = preview_reset(TOPIC, GROUP, half_done[2])
    assert (seen.replayed.first, seen.replayed.last) == (half_done[2], half_done[8])
    assert (seen.replayed.first_published_at, seen.begins_at) == (at, at)
    assert (seen.coming.first, seen.coming.last) == (half_done[6], half_done[11])
    assert (seen.skipped.first, seen.skipped.last_published_at) == (None, None)


def test_to_a_time(half_done: list[int]) -> None:
    Message.objects.filter(offset__lt=half_done[10]).update(published_at=1_000_000_000_000)
    seen = preview_reset(TOPIC, GROUP, datetime(2020, 1, 1, tzinfo=UTC))
    assert numbers(seen) == (0, 3, 2)
    reset(TOPIC, GROUP, datetime(2020, 1, 1, tzinfo=UTC))
    assert came(2) == half_done[10:]


def test_what_is_in_hand_waits_and_is_dead_and_who_runs() -> None:
    one_of_each()
    seen = preview_reset(TOPIC, GROUP, "earliest")
    assert [one.value for one in (seen.in_flight, seen.waiting, seen.dead)] == [1, 1, 1]
    assert seen.running == ("worker-1",)
    assert numbers(seen) == (2, 0, 3)
    with pytest.raises(GroupActive):
        reset(TOPIC, GROUP, "earliest")
    pause(TOPIC, GROUP)
    assert preview_reset(TOPIC, GROUP, "earliest").paused
    reset(TOPIC, GROUP, "earliest", force=True)
    assert preview_reset(TOPIC, GROUP, "earliest").life > seen.life


def test_an_empty_topic() -> None:
    subscribe(TOPIC, GROUP)
    places: list[Any] = ["earliest", "latest", 0, 99, datetime(2020, 1, 1, tzinfo=UTC)]
    for to in places:
        seen = preview_reset(TOPIC, GROUP, to)
        assert numbers(seen) == (0, 0, 0)
        assert seen.begins_at is None


def test_the_last_message_of_the_log_is_told(half_done: list[int]) -> None:
    newest = Message.objects.latest("offset").offset
    for to in (half_done[2], half_done[-1] + 1_000):
        assert preview_reset(TOPIC, GROUP, to).newest == newest
    subscribe("empty", GROUP)
    assert preview_reset("empty", GROUP, 1_000).newest is None


def test_what_cannot_be_asked() -> None:
    with pytest.raises(NotRegistered):
        preview_reset(TOPIC, GROUP, "latest")
    subscribe(TOPIC, GROUP)
    wrong: Any
    for wrong in ("now", None, True):
        with pytest.raises(TypeError, match="start"):
            preview_reset(TOPIC, GROUP, wrong)
    for wrong in (-1, datetime(2020, 1, 1)):
        with pytest.raises(ValueError, match="start"):
            preview_reset(TOPIC, GROUP, wrong)


def test_where_there_are_many_they_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 300 messages, 100 are done. The preview reads 20 from either end."""
    monkeypatch.setattr(reset_preview, "ROWS", 20)
    subscribe(TOPIC, GROUP)
    offsets = published(*range(300))
    Offset.objects.create(
        consumer_group=GROUP, topic=TOPIC, partition_key="k", offset_acked=offsets[99], updated_at=1
    )
    seen = preview_reset(TOPIC, GROUP, "earliest")
    assert (seen.replayed.count, seen.coming.count) == (Figure(21, "at_least"), Figure(20, "at_least"))
    assert (seen.replayed.first, seen.coming.last) == (offsets[0], offsets[-1])
    assert seen.skipped.count == Figure(0)
    ahead = preview_reset(TOPIC, GROUP, offsets[290])
    assert ahead.skipped.count == Figure(41, "at_least")
    assert (ahead.skipped.first, ahead.skipped.last) == (offsets[100], offsets[289])
    assert ahead.coming.count == Figure(10)


def test_where_there_are_more_partitions_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is behind, and has open deliveries, only in the last of four partitions."""
    monkeypatch.setattr(reset_preview, "PARTITIONS", 2)
    monkeypatch.setattr(reset_preview, "LEASES", 3)
    with Subscription(TOPIC, GROUP) as subscription:
        for key in "abc":
            published(1, key=key)
        consume(subscription, 3)
        (offset,) = published(1, key="d")
        (delivery,) = poll_until(subscription, 1)
        settle(subscription)
        seen = preview_reset(TOPIC, GROUP, offset + 1)
        delivery.ack()
    assert (seen.skipped.count, seen.skipped.first) == (Figure(1), offset)
    assert (seen.in_flight, seen.waiting) == (Figure(0, "at_least"), Figure(0, "at_least"))
