"""``preview_reset`` reports what a reset would do, and ``reset`` does exactly that."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import GroupActive, NotRegistered, Subscription, pause, publish, reset, subscribe
from django_mqueue.inspect import ResetPreview, preview_reset
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.stats.groups import reset_preview
from django_mqueue.stats.surveying import Size
from tests.support.subscribers import QUICK, consume, consume_rest, poll_until, settle

from .scene import GROUP, TOPIC, one_of_each, published, published_at

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    with override_settings(MQUEUE={**QUICK, "RETENTION": 3600}):
        yield


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


def test_where_there_are_many_the_numbers_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1,000 of 3,000 messages done, the estimates are nearly always within the reported error."""
    monkeypatch.setattr(reset_preview, "SIZE", Size(strata=20, rounds=2, exact=501))
    monkeypatch.setattr(reset_preview, "ENDS", 20)
    subscribe(TOPIC, GROUP)
    offsets = published(*range(3_000))
    DeliveryState.objects.all().delete()
    Offset.objects.create(
        consumer_group=GROUP, topic=TOPIC, partition_key="k", offset_acked=offsets[999], updated_at=1
    )
    seen = preview_reset(TOPIC, GROUP, "earliest")
    for stretch, truth in ((seen.replayed, 1_000), (seen.coming, 2_000)):
        assert stretch.count.how == "about"
        assert stretch.count.least <= truth
        assert abs(stretch.count.value - truth) <= stretch.count.error <= truth / 10
    assert (seen.replayed.first, seen.coming.last) == (offsets[0], offsets[-1])
    assert numbers_of(seen.skipped) == (0, "exact")
    ahead = preview_reset(TOPIC, GROUP, offsets[2_500])
    assert ahead.skipped.count.how == "about"
    assert (ahead.skipped.first, ahead.skipped.last) == (offsets[1_000], offsets[2_499])
    assert numbers_of(ahead.coming) == (500, "exact")


def numbers_of(stretch: Any) -> tuple[int, str]:
    return stretch.count.value, stretch.count.how


def test_a_topic_that_is_rare_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages form clusters that are far apart in the log. If they are few, they are still counted one by one."""
    subscribe(TOPIC, GROUP)
    for lump in range(4):
        offsets = published(*range(lump * 100, lump * 100 + 100))
        shift = 2_000 * lump
        for offset in reversed(offsets):
            Message.objects.filter(offset=offset).update(offset=offset + shift)
    assert numbers_of(preview_reset(TOPIC, GROUP, "earliest").coming) == (400, "exact")
    monkeypatch.setattr(reset_preview, "SIZE", Size(strata=20, rounds=2, exact=101))
    monkeypatch.setattr(reset_preview, "ENDS", 5)
    found = preview_reset(TOPIC, GROUP, "earliest").coming
    assert found.count.how == "about"
    assert abs(found.count.value - 400) <= found.count.error
    assert (found.first, found.last) == (
        Message.objects.order_by("pk")[0].pk,
        Message.objects.latest("pk").pk,
    )
