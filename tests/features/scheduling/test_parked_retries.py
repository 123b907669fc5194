"""Parked retries: they wait outside the log, hold back no other message, and keep their attempts and errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import override_settings

from django_mqueue import (
    Delivery,
    StaleDelivery,
    Subscription,
    publish,
    redrive,
    reset,
    scheduled,
    subscribe,
)
from django_mqueue.models import DeliveryState, Message
from django_mqueue.store import schedule
from django_mqueue.store.connection import session
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    QUICK,
    consume,
    consume_rest,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
    watermark,
)
from tests.support.transactions import rolled_back

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]

HOURS = 7200
quick = with_settings(autouse=False, MQUEUE=QUICK)


def all_due(topic: str) -> None:
    """Make all parked retries of a topic due, as if the hours had passed."""
    Message.objects.filter(topic=f"{topic}_scheduled").update(available_at=1)


def fail_late(subscription: Subscription, error: str = "not now") -> Delivery:
    (delivery,) = poll_until(subscription, 1)
    assert delivery.nack(delay=HOURS, error=error)
    return delivery


def test_it_holds_back_neither_the_watermark_nor_deletion() -> None:
    first = publish("t", "slow", id="a", key="k")
    with Subscription("t", "g") as subscription:
        fail_late(subscription)
        later = [publish("t", n, key="k").offset for n in range(5)]
        consume(subscription, 5)
        settle(subscription)
        assert watermark("t", "g", "k") >= later[-1]
        settle_and_collect(subscription)
        assert in_log("t") == []
    (waits,) = scheduled("t")
    assert (waits.id, waits.payload, waits.key, waits.group, waits.attempts) == ("a", "slow", "k", "g", 1)
    assert waits.last_error == "not now"
    assert waits.offset > first.offset


def test_it_comes_back_to_that_group_alone_with_its_id_attempts_and_errors() -> None:
    subscribe("t", "other")
    publish("t", {"n": 1}, id="a", key="k", kind="order", headers={"h": 1})
    with Subscription("t", "g", max_attempts=4) as subscription, Subscription("t", "other") as other:
        first = fail_late(subscription, "first")
        consume(other, 1)
        all_due("t")
        second = fail_late(subscription, "second")
        all_due("t")
        (third,) = poll_until(subscription, 1)
        assert (second.attempt, third.attempt) == (2, 3)
        for again in (second, third):
            assert (again.id, again.payload, again.key) == ("a", {"n": 1}, "k")
            assert (again.kind, again.headers, again.published_at) == ("order", {"h": 1}, first.published_at)
        assert (second.last_error, third.last_error) == ("first", "second")
        state = DeliveryState.objects.get(consumer_group="g", message_offset=third.offset)
        assert [(error["error"], error["attempt"]) for error in state.errors or []] == [
            ("first", 1),
            ("second", 2),
        ]
        assert third.nack(error="third")
        (fourth,) = poll_until(subscription, 1)
        assert fourth.attempt == 4
        fourth.nack(delay=HOURS, error="fourth")
        assert consume_rest(other) == []
    assert list(scheduled("t")) == []
    letter = Message.objects.get(topic="t_dlq")
    assert (letter.original_id, letter.failure_count, letter.failed_group) == ("a", 4, "g")
    assert "retry" not in letter.metadata


def test_a_dead_letter_of_one_that_waited_long_begins_anew_when_it_is_redriven() -> None:
    publish("t", 1, id="a")
    with Subscription("t", "g", max_attempts=2) as subscription:
        fail_late(subscription)
        all_due("t")
        (second,) = poll_until(subscription, 1)
        second.nack(error="again")
        assert redrive("t") == 1
        (back,) = poll_until(subscription, 1)
        assert (back.id, back.attempt) == ("a", 1)
        back.nack(delay=HOURS, error="once more")
        all_due("t")
        (last,) = poll_until(subscription, 1)
        assert (last.id, last.attempt) == ("a", 2)


def test_a_long_postponement_counts_no_attempt() -> None:
    publish("t", 1, id="a")
    with Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert delivery.postpone(timedelta(hours=2))
        assert delivery.postpone(timedelta(hours=2)), "repeated"
        (waits,) = scheduled("t")
        assert (waits.attempts, waits.last_error) == (0, "")
        all_due("t")
        (again,) = poll_until(subscription, 1)
        assert (again.attempt, again.id) == (1, "a")


def test_strict_order_is_kept_by_staying_in_place() -> None:
    for n in range(2):
        publish("t", n, key="k")
    with Subscription("t", "g", strict=True) as subscription:
        fail_late(subscription)
        assert consume_rest(subscription) == []
    assert list(scheduled("t")) == []


def test_a_dead_letters_own_retry_stays_in_place() -> None:
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        poll_until(subscription, 1)[0].reject("no")
    with Subscription("t_dlq", "menders") as menders:
        (letter,) = poll_until(menders, 1)
        assert letter.nack(delay=HOURS)
    assert DeliveryState.objects.get(topic="t_dlq").acked is False


def test_rolled_back_with_the_callers_transaction_it_is_as_it_was() -> None:
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        with rolled_back():
            delivery.nack(delay=HOURS)
        assert list(scheduled("t")) == []
        assert delivery.ack()


def test_who_has_lost_the_delivery_sets_nothing_aside() -> None:
    publish("t", 1)
    with Subscription("t", "g", visibility_timeout=0.05) as subscription:
        (late,) = poll_until(subscription, 1)
        (mine,) = poll_until(subscription, 1)
        assert mine.offset == late.offset
        with pytest.raises(StaleDelivery):
            late.nack(delay=HOURS)
        with pytest.raises(StaleDelivery):
            late.postpone(HOURS)
        assert mine.ack()
    assert list(scheduled("t")) == []


@pytest.mark.parametrize("verb", ["nack", "postpone"])
def test_a_commit_that_was_not_heard_of_sets_aside_once(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server commits, and the connection breaks. Repeating the call succeeds."""
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)

        def answer() -> bool:
            return delivery.nack(delay=HOURS, error="x") if verb == "nack" else delivery.postpone(HOURS)

        monkeypatch.setattr(delivery.status.acknowledger.state, "note_settled", lambda *a, **k: [])
        assert answer()
        assert answer()
    assert len(list(scheduled("t"))) == 1


@pytest.mark.parametrize("first", ["ack", "postpone"])
def test_an_ack_and_a_long_postponement_are_not_taken_for_each_other(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscription does not know that the first call has committed. The other call is refused."""
    publish("t", 1)
    with Subscription("t", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        calls: dict[str, Callable[[], bool]] = {
            "ack": delivery.ack,
            "postpone": lambda: delivery.postpone(HOURS),
        }
        monkeypatch.setattr(delivery.status.acknowledger.state, "note_settled", lambda *a, **k: [])
        assert calls.pop(first)()
        (other,) = calls.values()
        with pytest.raises(StaleDelivery):
            other()
    assert len(list(scheduled("t"))) == (first == "postpone")


def test_reset_forgets_what_was_set_aside_before() -> None:
    """The log delivers the message again, with fresh attempts. The parked retry does not deliver it a second time."""
    with override_settings(MQUEUE=QUICK | {"RETENTION": 3600}):
        publish("t", 1, id="a")
        with Subscription("t", "g") as subscription:
            fail_late(subscription)
        reset("t", "g", "earliest")
        all_due("t")
        with Subscription("t", "g") as subscription:
            (again,) = poll_until(subscription, 1)
            assert (again.id, again.attempt) == ("a", 1)
            again.ack()
            assert consume_rest(subscription) == []
    assert list(scheduled("t")) == []
    assert session.fetch("default", "SELECT 1 FROM queue_messages WHERE topic = %s", ["t_scheduled"]) == []
    assert schedule.WAITING
