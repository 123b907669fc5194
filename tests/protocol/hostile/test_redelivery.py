"""Messages that are postponed, unanswered, paused or undecodable. They come once, when due, and delay no others."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from django.db import connection

from django_mqueue import Delivery, OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, Message, Offset
from django_mqueue.policy import quarantine
from tests.protocol.model.time_passing import visibility_passes
from tests.support.running import Seen, registered, run
from tests.support.subscribers import consume, consume_rest, engine_of, poll_until
from tests.support.transactions import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"


def test_retries_beyond_those_in_memory_come_in_their_turn() -> None:
    """Sixty parked retries of one partition wait. A new owner reads the first fifty, and postpones each delivery again.

    The last ten are due soon after the first ones. They come before any message comes a third time.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(60)])
    with Subscription(TOPIC, GROUP) as first:
        for delivery in poll_until(first, 60):
            delivery.postpone(0.2 + delivery.payload * 0.005)
    times: Counter[int] = Counter()

    def all_came() -> bool:
        for delivery in heir.poll(10):
            times[delivery.payload] += 1
            delivery.postpone(0.5)
        return len(times) == 60

    with Subscription(TOPIC, GROUP, batch_size=10) as heir:
        wait_until(all_came, f"all sixty; came: {times}")
    assert max(times.values()) <= 2


def test_nothing_grows_in_memory_behind_a_message_that_waits_for_long() -> None:
    """One message is postponed for a day. A hundred later messages of its key pass. The list of timers stays short."""
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, "waits", key="k")
        poll_until(subscription, 1)[0].postpone(86_400)
        for n in range(100):
            publish(TOPIC, n, key="k")
            consume(subscription, 1)
            subscription.poll()
        assert len(engine_of(subscription).state.timers) <= 2


BROKEN: dict[str, tuple[str, bytes | str]] = {
    "no JSON": ("payload", b"{"),
    "no UTF-8": ("payload", b'"\xff"'),
    "an unknown encoding": ("metadata", '{"kind": "", "headers": {}, "encoding": "rot13"}'),
    "metadata of somebody else": ("metadata", "[]"),
    "nested too deeply": ("payload", b"[" * 200_000),
}


def break_message(offset: int, how: str) -> None:
    column, value = BROKEN[how]
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE queue_messages SET {column} = %s WHERE `offset` = %s", [value, offset])


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_be_decoded_is_dead_lettered_and_its_neighbours_are_delivered(
    how: str, strict: bool
) -> None:
    """A row in the middle of a batch is damaged in the table and is dead-lettered.

    The other messages are delivered once, with attempt 1.
    """
    subscribe(TOPIC, GROUP)
    offsets = [publish(TOPIC, n, key="other" if n == 3 else "k").offset for n in range(4)]
    break_message(offsets[1], how)
    with Subscription(TOPIC, GROUP, strict=strict) as subscription:
        deliveries = consume(subscription, 3)
        assert sorted((d.payload, d.attempt) for d in deliveries) == [(0, 1), (2, 1), (3, 1)]
        assert consume_rest(subscription) == []
    letter = Message.objects.get(topic=f"{TOPIC}_dlq")
    assert "cannot be decoded" in (letter.last_error or "")
    assert letter.failed_group == GROUP
    assert not DeliveryState.objects.exclude(acked=True, in_flight=False).exists()


def test_a_worker_goes_on_after_what_cannot_be_decoded() -> None:
    """The same with ``runconsumer``, where an exception would end the process and every process started after it."""
    offsets = [publish("t", n, key="k").offset for n in range(3)]
    break_message(offsets[0], "no JSON")
    with registered("t", seen := Seen()):
        run()
    assert seen.payloads == [1, 2]
    assert Message.objects.filter(topic="t_dlq").count() == 1


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_open_when_its_group_is_paused_stays_open(strict: bool) -> None:
    """The group is paused between two polls, while one message is in flight and another waits, and is then resumed.

    Nothing is delivered twice.
    """
    publish(TOPIC, "one", key="k")
    with Subscription(TOPIC, GROUP, strict=strict) as subscription:
        (one,) = poll_until(subscription, 1)
        pause(True)
        publish(TOPIC, "two", key="k")
        publish(TOPIC, "three", key="new")
        assert consume_rest(subscription) == []
        pause(False)
        others = [(d.payload, d.attempt) for d in consume(subscription, 1 if strict else 2)]
        assert set(others) <= {("two", 1), ("three", 1)}
        assert consume_rest(subscription) == []
        assert one.ack()
        if strict:
            assert [d.payload for d in consume(subscription, 1)] == ["two"]


def pause(paused: bool) -> None:
    assert Offset.objects.filter(consumer_group=GROUP, partition_key="").update(paused=paused)


@pytest.mark.parametrize("strict", [True, False])
def test_a_forgotten_message_comes_beside_others_after_a_while(
    strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscriber that polls by hand always has another message open. An unanswered message still comes after a while.

    The next message of its key also comes. This delivery does not run alone, so the death of its worker would not
    count.
    """
    monkeypatch.setattr(quarantine, "RUN_TOGETHER_AFTER", 0.4)
    publish(TOPIC, "forgotten", key="k0")
    came: list[Delivery] = []
    with (
        Subscription(TOPIC, GROUP, strict=strict) as subscription,
        ExitStack() as stack,
    ):
        (forgotten,) = poll_until(subscription, 1)  # It is never answered.
        publish(TOPIC, "behind it", key="k0")
        open_now: list[Delivery] = []
        stack.callback(lambda: subscription.ack(open_now))
        turn = iter(range(10_000))
        expired: list[int] = []

        def both_came() -> bool:
            n = next(turn)
            publish(TOPIC, n, key=f"k{1 + n % 5}")
            if open_now and not expired:
                visibility_passes(forgotten)
                expired.append(n)
            for delivery in subscription.poll():
                if isinstance(delivery.payload, str):
                    came.append(delivery)
                open_now.append(delivery)
            while len(open_now) > 2:
                open_now.pop(0).ack()
            assert n < 5 or open_now, "nothing was open: this proves nothing"
            return {"forgotten", "behind it"} <= {d.payload for d in came}

        wait_until(both_came, "the forgotten message and the next of its key")
        again = next(d for d in came if d.payload == "forgotten")
        assert again.attempt == 2
        state = DeliveryState.objects.get(message_offset=again.offset)
        assert (state.alone, state.failure_count) == (False, 0)
        if strict:
            assert [d.payload for d in came] == ["forgotten", "behind it"]


def test_strict_order_takes_what_a_subscriber_without_it_left_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A subscriber without strict order leaves two deliveries of a key, and its strict successor has the first one.

    Others may run beside it at once, and an unanswered message may come beside others at once. The second delivery
    still waits until the first is answered, and a message of another key does not.
    """
    monkeypatch.setattr(quarantine, "ALONE_FOR", 0.0)
    monkeypatch.setattr(quarantine, "RUN_TOGETHER_AFTER", 0.0)
    publish_many(TOPIC, [OutgoingMessage(payload, key="k") for payload in ("one", "two")])
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 2)
    with Subscription(TOPIC, GROUP, strict=True) as subscription:
        (one,) = poll_until(subscription, 1)
        publish(TOPIC, "other", key="other")
        (other,) = poll_until(subscription, 1)
        assert (one.payload, other.payload) == ("one", "other")
        assert consume_rest(subscription) == []
        one.ack()
        (two,) = poll_until(subscription, 1)
        assert (two.payload, two.attempt) == ("two", 2)


def test_a_forgotten_message_waits_that_long_for_company_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that time, the message comes only when no other message is open. It then runs alone."""
    monkeypatch.setattr(quarantine, "RUN_TOGETHER_AFTER", 3600)
    publish(TOPIC, "forgotten", key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        (forgotten,) = poll_until(subscription, 1)
        publish(TOPIC, "open", key="other")
        (other,) = poll_until(subscription, 1)
        visibility_passes(forgotten)
        assert consume_rest(subscription) == []
        other.ack()
        (again,) = poll_until(subscription, 1)
        assert (again.payload, again.attempt) == ("forgotten", 2)
        assert DeliveryState.objects.get(message_offset=again.offset).alone
        again.ack()
