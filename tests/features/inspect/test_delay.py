"""``delay``, ``hold`` and ``unhold`` change when a group gets messages. ``redeliver`` delivers them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_mqueue import NotRegistered, Subscription, publish, subscribe
from django_mqueue import scheduled as scheduled_messages
from django_mqueue.browse import operations
from django_mqueue.inspect import delay, hold, messages, redeliver, send_to_front, unhold
from django_mqueue.models import DeliveryState, Message, PartitionLease
from django_mqueue.service.actions import recent
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    consume_rest,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
    with_state,
)

from .scene import GROUP, TOPIC, one_of_each, published, scheduled

pytestmark = pytest.mark.django_db(transaction=True)
TOMORROW = timedelta(days=1)


quick = with_settings(MQUEUE={**QUICK, "GC_INTERVAL": 3600})


def held() -> list[Any]:
    return [one.payload for one in messages(TOPIC, group=GROUP, status="waiting") if one.is_held]


@pytest.mark.parametrize("strict", [False, True])
def test_a_held_message_is_not_delivered_before_unhold(strict: bool) -> None:
    published(1, 2, 3)
    subscribe(TOPIC, GROUP)
    assert hold(TOPIC, group=GROUP, filter=lambda m: m.payload == 2, dry_run=True) == 1
    assert held() == []
    assert hold(TOPIC, group=GROUP, filter=lambda m: m.payload == 2, by="alice", why="wrong price") == 1
    assert held() == [2]
    with Subscription(TOPIC, GROUP, strict=strict) as subscription:
        got = [delivery.payload for delivery in consume_rest(subscription)]
        assert got == ([1] if strict else [1, 3]), "a strict handler keeps the order of the key"
        assert unhold(TOPIC, group=GROUP) == 1
        assert [delivery.payload for delivery in poll_until(subscription, 1)] == [2]
    assert [(one.action, one.by, one.why) for one in recent(TOPIC)[1:2]] == [("hold", "alice", "wrong price")]


def test_a_running_worker_gets_no_message_that_is_held() -> None:
    """The worker has read the message from the log, but has not claimed it."""
    with Subscription(TOPIC, GROUP, batch_size=1) as subscription:
        published(*range(5))
        (first,) = poll_until(subscription, 1)
        assert hold(TOPIC, group=GROUP, filter=lambda m: m.payload in (0, 1, 3)) == 2, "one is in flight"
        first.ack()
        assert [one.payload for one in consume_rest(subscription)] == [2, 4]


def test_each_status_can_be_delayed() -> None:
    offsets = one_of_each()
    mine = scheduled("mine", group=GROUP)
    until = datetime.now(UTC) + TOMORROW
    assert delay(TOPIC, until, group=GROUP) == 3, "pending, waiting, and scheduled for this group"
    assert DeliveryState.objects.filter(acked=False, in_flight=False).count() == 2
    for one in messages(TOPIC, group=GROUP, status="waiting"):
        assert one.invisible_until is not None
        assert abs(one.invisible_until - until) < timedelta(milliseconds=2)
    times = {one.offset: one.available_at for one in messages(TOPIC, status="scheduled")}
    assert abs(times[mine[0]] - until) < timedelta(milliseconds=2)
    assert times[offsets["scheduled"]] < until - timedelta(hours=20), "other groups get it, too"
    (waiting,) = [one for one in messages(TOPIC, group=GROUP, status="waiting") if one.id == "waiting"]
    assert (waiting.attempts, waiting.failures, len(waiting.errors)) == (1, 1, 1)


def test_a_scheduled_message_can_be_held() -> None:
    subscribe(TOPIC, GROUP)
    publish(TOPIC, 1, id="a", delay=600)
    assert hold(TOPIC, group=None, status="scheduled") == 1
    (found,) = messages(TOPIC, status="scheduled")
    assert found.is_held
    assert next(scheduled_messages(TOPIC)).at.year == 9999
    assert unhold(TOPIC, group=None) == 1
    with Subscription(TOPIC, GROUP) as subscription:
        assert [one.payload for one in poll_until(subscription, 1)] == [1]


def test_unhold_changes_only_what_is_held() -> None:
    one_of_each()
    before = list(DeliveryState.objects.values())
    assert unhold(TOPIC, group=None) == 0
    assert list(DeliveryState.objects.values()) == before


def test_a_held_message_can_be_sent_to_the_front() -> None:
    published(1, 2)
    subscribe(TOPIC, GROUP)
    hold(TOPIC, group=GROUP)
    send_to_front(TOPIC, group=GROUP, filter=lambda m: m.payload == 2)
    assert held() == [1]


def test_redeliver_sends_what_is_done_to_one_group() -> None:
    subscribe(TOPIC, "stock")
    with Subscription(TOPIC, GROUP) as subscription:
        published(1, 2, 3, kind="order", headers={"a": 1})
        consume_rest(subscription)
        settle(subscription)
        assert redeliver(TOPIC, group=GROUP, filter=lambda m: m.payload > 1, dry_run=True) == 2
        assert redeliver(TOPIC, group=GROUP, filter=lambda m: m.payload > 1) == 2
        again = poll_until(subscription, 2)
        assert [(one.payload, one.attempt, one.kind, one.headers["a"]) for one in again] == [
            (2, 1, "order", 1),
            (3, 1, "order", 1),
        ]
        assert [one.key for one in again] == ["k", "k"]
        subscription.ack(again)
        assert redeliver(TOPIC, group=GROUP, filter=lambda m: m.payload > 1) == 2, "copies are not copied"
        consume_rest(subscription)
        with Subscription(TOPIC, "stock") as other:
            assert [one.payload for one in consume_rest(other)] == [1, 2, 3]
            settle(other)
        settle_and_collect(subscription)
    assert in_log(TOPIC) == with_state(TOPIC, GROUP) == []


def test_redeliver_keeps_the_id() -> None:
    with Subscription(TOPIC, GROUP) as subscription:
        (offset,) = published("a", id="mine")
        consume_rest(subscription)
        assert redeliver(TOPIC, group=GROUP, id="mine") == 1
        (copy,) = poll_until(subscription, 1)
        assert (copy.id, copy.offset > offset) == ("mine", True)
        copy.ack()
        assert redeliver(TOPIC, group=GROUP, offset=copy.offset) == 1, "an offset selects a copy"


def test_bad_arguments_change_nothing() -> None:
    one_of_each()
    before = list(DeliveryState.objects.values())
    with pytest.raises(ValueError, match="status must be one of"):
        hold(TOPIC, group=GROUP, status="done")
    with pytest.raises(ValueError, match="aware"):
        delay(TOPIC, datetime(2026, 1, 1), group=GROUP)
    with pytest.raises(NotRegistered):
        redeliver(TOPIC, group="nobody")
    with pytest.raises(TypeError, match="one group"):
        redeliver(TOPIC, group=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected argument 'colour'"):
        hold(TOPIC, group=GROUP, colour="red")
    assert list(DeliveryState.objects.values()) == before
    assert PartitionLease.objects.count() == 4


def test_each_waiting_message_is_held_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new due time moves a message ahead of the search, which follows due times."""
    monkeypatch.setattr(operations, "CHUNK", 3)
    with Subscription(TOPIC, GROUP) as subscription:
        published(*range(6))
        for delivery in poll_until(subscription, 6):
            delivery.nack(delay=100)
    assert hold(TOPIC, group=GROUP, key="k", dry_run=True) == 6
    assert hold(TOPIC, group=GROUP, key="k") == 6
    assert sorted(held()) == [*range(6)]
    assert recent(TOPIC)[0].details["messages_in_all"] == 6


def test_the_attempts_of_a_redelivered_retry_start_at_one() -> None:
    """The retry was parked, and came back into the log with its attempts."""
    with Subscription(TOPIC, GROUP) as subscription:
        published(1)
        poll_until(subscription, 1)[0].nack(error="busy", delay=7200)
        settle(subscription)
        Message.objects.filter(topic=f"{TOPIC}_scheduled").update(available_at=1)
        (retry,) = poll_until(subscription, 1)
        assert retry.attempt == 2
        retry.ack()
        settle(subscription)
        assert redeliver(TOPIC, group=GROUP, offset=retry.offset) == 1
        (again,) = poll_until(subscription, 1)
    assert (again.payload, again.attempt, again.last_error) == (1, 1, "")
