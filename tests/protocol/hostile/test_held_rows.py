"""A caller locks rows of a group in a transaction that stays open. This stops no other group and no poll."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.test import override_settings

from django_mqueue import (
    FixedDelay,
    Message,
    OutgoingMessage,
    Subscription,
    pause,
    publish,
    publish_many,
    release,
    reset,
    resume,
    subscribe,
    unsubscribe,
)
from django_mqueue.inspect import remove, send_to_front
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from django_mqueue.protocol import subscriber
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.processes import FAST, database_ms
from tests.support.running import Seen, registered
from tests.support.subscribers import QUICK, consume, consume_rest
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_for_lock_wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

LASTING = {**FAST, "LEASE_DURATION": 600}
"""Frequent renewals and heartbeats. The leases last longer than every transaction that locks them."""

HELD: dict[str, Callable[[], object]] = {
    "pause": lambda: pause("ta", "A"),
    "unsubscribe": lambda: unsubscribe("ta", "A"),
    "reset": lambda: reset("ta", "A", "earliest", force=True),
    "release": lambda: release("ta", "A", subscriber="w"),
    "remove": lambda: publish("ta", "x") and remove("ta", group="A", status="pending"),
    "send to front": lambda: publish("ta", "x") and send_to_front("ta", group="A", status="pending"),
}


@contextmanager
def worker(*names: str) -> Iterator[Background[None]]:
    """Run a worker's loop over these handlers, or those of both topics, in a thread. Stop it at the end."""
    runner = Runner(handlers(list(names) or ["ta:A", "tb:B"]), RunOptions(name="w", max_seconds=120))
    with Background(runner.run) as running:
        try:
            yield running
        finally:
            runner.stop()
            running.result()


def signs_of_life() -> tuple[int, int]:
    """Return group B's oldest lease renewal and the time of its worker's last heartbeat."""
    leases = PartitionLease.objects.filter(consumer_group="B").order_by("lease_renewed_at")
    return leases[0].lease_renewed_at, SubscriberHeartbeat.objects.get(consumer_group="B").heartbeat_at


def lives_on() -> None:
    """Wait until group B has renewed its leases and sent a heartbeat, twice."""
    for _ in range(2):
        renewed, beaten = signs_of_life()
        wait_until(lambda: signs_of_life()[0] > renewed, "the other group renews")  # noqa: B023
        wait_until(lambda: signs_of_life()[1] > beaten, "it sends heartbeats")  # noqa: B023


@pytest.mark.parametrize("what", HELD)
@override_settings(MQUEUE=LASTING)
def test_one_group_stops_no_other_group_of_its_process(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """A caller changes group A in a transaction that stays open. Group B of the same worker continues.

    B gets new messages in old and new partitions, renews its leases and sends heartbeats. No statement of the loop
    waits for a lock. When the caller's transaction ends, A also gets its messages.
    """
    with registered("ta", a := Seen(), group="A"), registered("tb", b := Seen(), group="B"), worker():
        for topic in ("ta", "tb"):
            publish(topic, "first", key="k0")
        acked = DeliveryState.objects.filter(acked=True)
        wait_until(lambda: acked.count() == 2, "both are acked")
        with HeldTransaction(HELD[what]) as held:
            for topic in ("ta", "tb"):
                publish_many(topic, [OutgoingMessage(n, key=f"k{n % 4}") for n in range(20)])
            wait_until(lambda: len(b.messages) == 21, "the other group goes on")
            lives_on()
            held.rollback()
        wait_until(lambda: len(a.messages) >= 21, "and so does the first")
    assert len(b.messages) == 21
    assert "has locked its rows" not in caplog.text


@override_settings(MQUEUE=LASTING)
def test_an_ack_that_has_to_wait_stops_no_other_group(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler of A runs. A caller resets A and does not commit. The handler ends, and its ack waits for a lock.

    The loop stops waiting after a second, and B continues. The caller rolls back, and the ack counts.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", 0.2)
    door = threading.Event()
    with (
        registered("ta", a := Seen(lambda message: door.wait(PATIENCE)), group="A"),
        registered("tb", b := Seen(), group="B"),
        worker(),
    ):
        publish("tb", "first")
        publish("ta", "slow", key="k")
        wait_until(lambda: a.messages and b.messages, "both have begun")
        with HeldTransaction(HELD["reset"]) as held:
            door.set()
            wait_until(lambda: "has locked its rows" in caplog.text, "the ack has waited in vain")
            publish_many("tb", range(20))
            wait_until(lambda: len(b.messages) == 21, "the other group goes on")
            lives_on()
            held.rollback()
        publish("ta", "next", key="k")
        wait_until(lambda: len(a.messages) == 2, "and so does the first")
    assert a.attempts("slow") == a.attempts("next") == [1]
    assert caplog.text.count("has locked its rows") == 1, "the next try asks first what is locked"


def the_waiting_retry() -> int:
    """Pause group A. Return the offset of the message that now waits for its retry."""
    pause("ta", "A")
    waiting = DeliveryState.objects.filter(acked=False, in_flight=False).values_list(
        "message_offset", flat=True
    )
    return wait_until(waiting.first, "a message waits for its retry")


@override_settings(MQUEUE=LASTING)
def test_a_retry_whose_row_is_locked_holds_up_no_other_message(caplog: pytest.LogCaptureFixture) -> None:
    """A message fails again and again. While its group is paused, a caller locks its row, and it becomes due.

    The group is resumed. The worker leaves it out of its claims. When the transaction ends, it is delivered again.
    """

    def handle(message: Message) -> None:
        if message.payload == "fails":
            raise ValueError

    with (
        registered("ta", a := Seen(handle), group="A", retry=FixedDelay(0.2), max_attempts=1000),
        worker("ta:A"),
    ):
        publish("ta", "fails", key="k")
        wait_until(lambda: a.messages, "its first attempt")
        offset = the_waiting_retry()
        before = len(a.attempts("fails"))
        row = DeliveryState.objects.select_for_update().filter(message_offset=offset)
        with HeldTransaction(row.get) as held:
            wait_until(lambda: state_is_due(offset), "it is due")
            resume("ta", "A")
            publish_many("ta", [OutgoingMessage(n, key=f"k{n % 4}") for n in range(20)])
            publish("ta", "same key", key="k")
            wait_until(lambda: len(a.messages) == before + 21, "the other messages")
            assert len(a.attempts("fails")) == before
            held.rollback()
        wait_until(lambda: len(a.attempts("fails")) > before, "it is delivered again")
    assert "has locked its rows" not in caplog.text


def state_is_due(offset: int) -> bool:
    return DeliveryState.objects.get(message_offset=offset).invisible_until < database_ms()


@override_settings(MQUEUE=LASTING)
def test_a_worker_starts_beside_a_group_that_is_being_subscribed() -> None:
    """Group A is new, and its topic is locked. The worker joins B at once, and joins A when the lock ends."""
    subscribe("tb", "B")
    with (
        HeldTransaction(lambda: subscribe("ta", "another")) as held,
        registered("ta", a := Seen(), group="A"),
        registered("tb", b := Seen(), group="B"),
        worker(),
    ):
        publish("ta", 1)
        publish("tb", 1)
        wait_until(lambda: b.messages, "the other group goes on")
        lives_on()
        held.rollback()
        wait_until(lambda: a.messages, "and so does the first")


@pytest.mark.parametrize("what", HELD)
@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600})
def test_a_poll_never_waits(what: str) -> None:
    """A changes the group in a transaction that stays open.

    B polls with all periodic work due, and closes its subscription. Neither waits for a lock.
    """
    with Subscription("ta", "A", "w") as subscription:
        publish("ta", 0, key="k0")
        consume(subscription, 1)
        with HeldTransaction(HELD[what]) as held:
            publish_many("ta", [OutgoingMessage(n, key=f"k{n}") for n in range(3)])
            with Background(lambda: consume_rest(subscription)) as polling:
                got = polling.result()
            assert got == [] or what == "release", "its registration is locked"
            held.rollback()
        consume(subscription, 3 - len(got))
        with HeldTransaction(HELD[what]), Background(subscription.close) as leaving:
            leaving.result()


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600})
def test_a_poll_does_not_wait_behind_a_pause_that_waits() -> None:
    """A publishes to the group in a transaction that stays open. B pauses the group and waits for A.

    C polls without waiting.
    """
    with Subscription("ta", "A", "w") as subscription:
        publish("ta", 0, key="k0")
        consume(subscription, 1)
        with (
            HeldTransaction(lambda: publish("ta", 9, group="A")) as publisher,
            Background(lambda: pause("ta", "A")) as pausing,
        ):
            wait_for_lock_wait(pausing)
            publish("ta", 1, key="k1")
            with Background(lambda: consume_rest(subscription)) as polling:
                assert polling.result() == []
            publisher.rollback()
            assert pausing.result() == 1


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600})
def test_partitions_that_could_not_be_leased_are_found_by_the_next_discovery() -> None:
    """A pauses the group and does not commit. B sees a message of a new partition and cannot lease it. A rolls back.

    B's next discovery leases the partition.
    """
    with Subscription("ta", "A", "w") as subscription:
        publish("ta", 0, key="k0")
        consume(subscription, 1)
        with HeldTransaction(HELD["pause"]) as held:
            publish("ta", 1, key="new")
            assert consume_rest(subscription) == []
            held.rollback()
        assert [delivery.payload for delivery in consume(subscription, 1)] == [1]
