"""Signals of publishing and of consuming without a worker: their order, arguments and times."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_mqueue import (
    Delivery,
    DuplicateMessage,
    OutgoingMessage,
    StaleDelivery,
    Subscription,
    pause,
    publish,
    publish_many,
    redrive,
    signals,
    subscribe,
)
from django_mqueue.models import Message, PartitionLease
from tests.support.fixtures import with_settings
from tests.support.statements import counted
from tests.support.subscribers import QUICK, engine_of, poll_until
from tests.support.threads import Background
from tests.support.waiting import PATIENCE

from .listening import listening

pytestmark = pytest.mark.django_db(transaction=True)


quick = with_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "RETENTION": 3600})


def test_a_publish_is_told_with_all_that_was_published_but_the_payload() -> None:
    with listening() as heard:
        one = publish("t", {"n": 1}, key="k", id="one", kind="a", headers={"h": 1})
    assert heard.calls == [
        (
            "published",
            {
                "sender": "t", "topic": "t", "using": "default", "offset": one.offset, "id": "one", "key": "k",
                "kind": "a", "headers": {"h": 1}, "group": None, "scheduled": False, "replaced": False,
            },
        )
    ]  # fmt: skip


def test_a_publish_is_told_after_its_commit_and_never_when_it_is_rolled_back() -> None:
    with listening() as heard:
        with transaction.atomic():
            publish("t", 1)
            publish_many("t", [2, 3])
            assert heard.calls == []
        assert len(heard.of("published")) == 3
        with transaction.atomic():
            publish("t", 4)
            transaction.set_rollback(True)
        with transaction.atomic():
            with transaction.atomic():
                publish("t", 5)
                transaction.set_rollback(True)
            publish("t", 6)
    assert [told["offset"] for told in heard.of("published")] == list(
        Message.objects.order_by("offset").values_list("offset", flat=True)
    )


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_commit_that_counts_is_that_of_the_messages_database() -> None:
    with listening() as heard:
        with transaction.atomic():
            publish("t", 1, using="other")
            assert [told["using"] for told in heard.of("published")] == ["other"]
        with transaction.atomic(using="other"):
            publish("t", 2, using="other")
            assert len(heard.calls) == 1
        assert len(heard.calls) == 2


def test_duplicates_are_not_told() -> None:
    publish("t", 1, key="k", id="one")
    with listening() as heard:
        publish("t", 2, key="k", id="one")
        with pytest.raises(DuplicateMessage):
            publish("t", 2, key="k", id="one", on_duplicate="error")
        publish_many("t", [OutgoingMessage(n, key="k", id=str(n // 2)) for n in range(4)])
    assert [told["id"] for told in heard.of("published")] == ["0", "1"]


def test_of_a_transaction_that_django_knows_nothing_of_nothing_is_told() -> None:
    """Autocommit is off, so Django does not report the commit."""
    transaction.set_autocommit(False)
    try:
        with listening() as heard:
            publish("t", 1)
            transaction.commit()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert heard.calls == []
    assert Message.objects.count() == 1


def test_a_delivery_and_its_ack() -> None:
    published = publish("t", 1, key="k", id="one", kind="a", headers={"h": 1})
    with listening() as heard, Subscription("t", "g", name="me") as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert heard.names == ["delivered"]
        delivery.ack()
        delivery.ack()
    common = {
        "sender": "t", "topic": "t", "using": "default", "group": "g", "worker": "me", "offset": published.offset,
        "id": "one", "key": "k", "kind": "a", "headers": {"h": 1}, "attempt": 1,
        "published_at": delivery.published_at,
    }  # fmt: skip
    assert heard.calls == [("delivered", common), ("acked", common)]
    assert heard.threads == {threading.current_thread().name}


@pytest.mark.parametrize(
    ("answer", "names", "retry_in"),
    [
        (lambda d: d.nack(delay=5, error="no"), ["failed"], 5),
        (lambda d: d.postpone(7), ["postponed"], 7),
        (lambda d: d.reject("no"), ["failed", "dead_lettered"], None),
    ],
    ids=["nack", "postpone", "reject"],
)
def test_other_answers(
    answer: Callable[[Delivery], object], names: list[str], retry_in: float | None
) -> None:
    published = publish("t", 1, key="k", id="one")
    with listening(*set(ANSWERS)) as heard, Subscription("t", "g", name="me") as subscription:
        (delivery,) = poll_until(subscription, 1)
        clock = engine_of(subscription).state.clock
        begun = clock.now()
        answer(delivery)
        ended = clock.now()
    assert heard.names == names
    told = heard.calls[0][1]
    assert (told["id"], told["attempt"], told["retry_in"]) == ("one", 1, retry_in)
    assert names[0] != "failed" or told["error"] == "no"
    if retry_in is None:
        assert told["retry_at"] is None
        assert heard.of("dead_lettered") == [
            {
                "sender": "t", "topic": "t", "using": "default", "group": "g", "worker": "me",
                "offset": published.offset, "id": "one", "key": "k", "failure_count": 1, "error": "no",
                "dead_letter_topic": "t_dlq",
            }
        ]  # fmt: skip
    else:
        assert begun - 1 <= told["retry_at"].timestamp() * 1000 - retry_in * 1000 <= ended + 1


ANSWERS = [signals.acked, signals.failed, signals.postponed, signals.dead_lettered]


def test_the_last_attempt_that_fails_is_told_with_its_dead_letter() -> None:
    publish("t", 1)
    with listening() as heard, Subscription("t", "g", max_attempts=2) as subscription:
        for _ in range(2):
            (delivery,) = poll_until(subscription, 1)
            delivery.nack(error="no")
    assert heard.names == ["delivered", "failed", "delivered", "failed", "dead_lettered"]
    assert [told["retry_in"] for told in heard.of("failed")] == [0, None]
    assert [told["attempt"] for told in heard.of("delivered")] == [1, 2]


def test_many_acks_at_once_are_told_one_by_one_and_stale_ones_not_at_all() -> None:
    publish_many("t", [OutgoingMessage(n, key=f"k{n}") for n in range(4)])
    with listening(signals.acked) as heard, Subscription("t", "g") as subscription:
        deliveries = poll_until(subscription, 4)
        PartitionLease.objects.filter(partition_key="k2").update(holder="another")
        with pytest.raises(StaleDelivery):
            subscription.ack(deliveries)
    assert sorted(told["key"] for told in heard.of("acked")) == ["k0", "k1", "k3"]


def test_an_ack_within_a_transaction_is_told_after_its_commit() -> None:
    publish_many("t", [1, 2])
    with listening(*ANSWERS) as heard, Subscription("t", "g") as subscription:
        first, second = poll_until(subscription, 2)
        with first.atomic():
            assert heard.calls == []
        assert heard.names == ["acked"]
        with transaction.atomic():
            second.ack()
            transaction.set_rollback(True)
        assert heard.names == ["acked"]
        with transaction.atomic():
            second.reject("no")
            assert heard.names == ["acked"]
    assert heard.names == ["acked", "failed", "dead_lettered"]


def test_what_was_left_unanswered_until_it_was_given_up_is_told_with_its_id() -> None:
    """The subscriber leaves the message unacknowledged three times. This looks like a worker that dies each time."""
    publish("t", 1, key="k", id="one")
    impatient = Subscription("t", "g", visibility_timeout=0.05, max_attempts=2)
    with listening(signals.dead_lettered) as heard, impatient as subscription:
        poll_until(subscription, lambda _: heard.calls)
    (told,) = heard.of("dead_lettered")
    assert (told["id"], told["key"], told["group"]) == ("one", "k", "g")
    assert "died" in told["error"]


def test_what_cannot_be_decoded_is_told_too() -> None:
    publish("t", 1, id="one")
    Message.objects.update(payload=b"{")
    with listening() as heard, Subscription("t", "g") as subscription:
        poll_until(subscription, lambda _: heard.calls)
    assert heard.names == ["dead_lettered"]
    assert "cannot be decoded" in heard.of("dead_lettered")[0]["error"]


def test_a_redrive_is_told_for_each_letter_after_its_transaction() -> None:
    publish_many("t", [OutgoingMessage(n, key="k", id=str(n)) for n in range(3)])
    with Subscription("t", "g") as subscription:
        for delivery in poll_until(subscription, 3):
            delivery.reject("no")
    letters = list(Message.objects.filter(topic="t_dlq").order_by("offset").values_list("offset", flat=True))
    with listening() as heard:
        assert redrive("t", dry_run=True) == 3
        assert redrive("t", ids=["1"]) == 1
        assert heard.calls == [
            (
                "redriven",
                {"sender": "t", "topic": "t", "using": "default", "group": "g", "id": "1", "key": "k",
                 "letter_offset": letters[1]},
            )
        ]  # fmt: skip
        with transaction.atomic():
            redrive("t")
            assert len(heard.calls) == 1
        assert [told["id"] for told in heard.of("redriven")] == ["1", "0", "2"]


def test_leases_are_told_as_they_are_won_shared_and_released() -> None:
    publish_many("t", [OutgoingMessage(n, key=f"k{n}") for n in range(4)])
    keys = tuple(f"k{n}" for n in range(4))
    with listening(signals.lease_won, signals.lease_lost) as heard:
        with Subscription("t", "g", name="a") as a:
            a.ack(poll_until(a, 4))
            assert sorted(p for told in heard.of("lease_won") for p in told["partitions"]) == list(keys)
            with Subscription("t", "g", name="b") as b:
                poll_until(b, lambda _: a.poll() == [] and len(heard.of("lease_won")) > 1)
                (shared,) = heard.of("lease_lost")
                assert (shared["worker"], shared["reason"], len(shared["partitions"])) == ("a", "shared", 2)
            assert heard.of("lease_lost")[-1]["reason"] == "stopped"
        assert {told["group"] for _, told in heard.calls} == {"g"}


def test_a_lease_that_was_taken_is_told_as_lost() -> None:
    publish("t", 1, key="k")
    with listening(signals.lease_lost) as heard, Subscription("t", "g", name="a") as subscription:
        poll_until(subscription, 1)
        PartitionLease.objects.update(holder="another", lease_renewed_at=1 << 50)
        poll_until(subscription, lambda _: heard.calls)
        assert [(told["partitions"], told["reason"]) for told in heard.of("lease_lost")] == [(("k",), "lost")]


def test_a_topic_can_be_listened_to_alone() -> None:
    """``sender`` matches by value, although Django compares senders by identity."""
    with listening(signals.published, sender="".join(["or", "ders"])) as heard:
        publish("".join(["ord", "ers"]), 1)
        publish("others", 2)
    assert [told["topic"] for told in heard.of("published")] == ["orders"]
    with listening(signals.published, sender="orders"):
        assert signals.published.has_listeners("".join(["ord", "ers"]))
        assert not signals.published.has_listeners("others")
    assert not signals.published.has_listeners("orders")
    assert signals.published.send("orders") == []


def consumed(count: int) -> tuple[int, int]:
    with counted() as cost:
        publish_many("t", [OutgoingMessage(n, key="k") for n in range(count)])
    with Subscription("t", "g") as subscription:
        deliveries = poll_until(subscription, count)
        with counted() as more:
            subscription.ack(deliveries[:-1])
            deliveries[-1].reject("no")
    return cost.count, more.count


def test_signals_cost_no_statement_with_listeners_or_without() -> None:
    without = consumed(3)
    with listening():
        assert consumed(3) == without


@pytest.mark.parametrize("at", ["lease_won", "delivered"])
def test_receivers_of_a_poll_run_with_no_lock_and_no_transaction(at: str) -> None:
    """While a receiver hangs, another thread acknowledges and polls. The receiver itself can publish."""
    entered, leave = threading.Event(), threading.Event()

    def hang(**arguments: Any) -> None:
        assert not connection.in_atomic_block
        if not entered.is_set():
            entered.set()
            assert leave.wait(PATIENCE)
            publish("told", arguments["topic"])

    publish_many("t", [OutgoingMessage(n, key="k") for n in range(2)])
    signal = getattr(signals, at)
    with Subscription("t", "g", batch_size=1) as subscription, listening(signal, then=hang):
        polling = Background(lambda: poll_until(subscription, lambda _: entered.is_set())).start()
        try:
            assert entered.wait(PATIENCE)
            handling = Background(lambda: finish(subscription, 2)).start()
            assert handling.result() == 2
        finally:
            leave.set()
        polling.result()
    assert Message.objects.filter(topic="told").count() == 1


def test_receivers_of_a_poll_that_finds_nothing_run_with_no_lock() -> None:
    """The group is paused. Another thread polls while the receiver runs."""
    polled: list[list[Delivery]] = []

    def poll(**arguments: Any) -> None:
        if not polled:
            polled.append([])
            polled.append(Background(subscription.poll).start().result())

    subscribe("t", "g")
    pause("t", "g")
    publish("t", 1, key="k")
    with Subscription("t", "g") as subscription, listening(signals.lease_won, then=poll):
        poll_until(subscription, lambda _: polled)
    assert polled == [[], []]


def test_receivers_of_an_ack_that_a_poll_confirms_run_with_no_lock() -> None:
    """Django calls no hook at the commit of a transaction that was begun by turning autocommit off."""
    polled: list[list[Delivery]] = []

    def poll(**arguments: Any) -> None:
        polled.append(Background(subscription.poll).start().result())

    publish("t", 1)
    with Subscription("t", "g") as subscription, listening(signals.acked, then=poll):
        (delivery,) = poll_until(subscription, 1)
        connection.set_autocommit(False)
        delivery.ack()
        connection.commit()
        connection.set_autocommit(True)
        assert polled == []
        subscription.poll()
    assert polled == [[]]


def finish(subscription: Subscription, count: int) -> int:
    """Acknowledge the deliveries in flight and new ones, until ``count`` are done."""
    done = 0
    while done < count:
        for delivery in [*engine_of(subscription).state.in_flight.values(), *subscription.poll()]:
            done += delivery.status.settled_by == "" and delivery.ack()
    return done
