"""Promotion of due messages into the log: once, in order, by one worker, through the gate. No worker waits for it."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import (
    OutgoingMessage,
    Subscription,
    publish,
    publish_many,
    reset,
    scheduled,
    signals,
    subscribe,
    unsubscribe,
)
from django_mqueue.models import Message
from django_mqueue.protocol import promoting
from django_mqueue.protocol.promoting import GROUP_NOT_REGISTERED, IN_LOG, Promoter, Promotion
from django_mqueue.store import gates
from tests.support.subscribers import QUICK, consume, poll_until
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until
from tests.support.waiting import PATIENCE

from .helping import ids_in_log, now, waiting

pytestmark = pytest.mark.django_db(transaction=True)

PAST = timedelta(seconds=-5)


def promote(topic: str = "t") -> Promotion:
    return Promoter("default", topic).promote()


def dropping(result: Promotion) -> Promotion | None:
    return result if result.dropped else None


def due(id: str, topic: str = "t", key: str | None = None) -> None:
    publish(topic, id, id=id, key=key, at=now() + PAST)


def test_what_is_in_the_log_when_it_falls_due_is_dropped_and_told() -> None:
    publish("t", "scheduled", id="a", delay=0.05)
    publish("t", "at once", id="a")
    due("b")
    result = wait_until(lambda: dropping(promote()), "the scheduled message is due")
    assert [(row.id, reason) for row, reason in result.dropped.items()] == [("a", IN_LOG)]
    assert (waiting("t"), sorted(ids_in_log("t"))) == ([], ["a", "b"])
    assert [m.payload for m in Message.objects.filter(topic="t", message_id="a")] == [b'"at once"']


def test_receivers_of_the_signal_are_told_what_was_dropped_and_why() -> None:
    told: list[dict[str, Any]] = []

    def receiver(**arguments: Any) -> None:
        told.append(arguments)

    due("a", key="k")
    publish("t", "at once", id="a", key="k")
    signals.dropped.connect(receiver, sender="t")
    try:
        with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
            assert [delivery.payload for delivery in consume(subscription, 1)] == ["at once"]
    finally:
        signals.dropped.disconnect(receiver, sender="t")
    (dropped,) = told
    assert {name: dropped[name] for name in ("topic", "id", "key", "group", "reason", "using")} == {
        "topic": "t", "id": "a", "key": "k", "group": None, "reason": IN_LOG, "using": "default",
    }  # fmt: skip


def test_what_was_for_a_group_that_is_gone_is_dropped() -> None:
    subscribe("t", "gone")
    subscribe("t", "there")
    publish("t", 1, id="a", group="gone", at=now() + PAST)
    publish("t", 2, id="b", group="there", at=now() + PAST)
    unsubscribe("t", "gone")
    result = promote()
    assert [(row.id, reason) for row, reason in result.dropped.items()] == [("a", GROUP_NOT_REGISTERED)]
    assert ids_in_log("t") == ["b"]


def test_an_id_that_somebody_is_publishing_waits_until_that_is_decided() -> None:
    """The publish is not committed, so its outcome is unknown. Other messages are promoted, and no worker waits.

    The topic is new: an INSERT that finds the deleted row of an earlier test also locks the gap before it.
    """
    topic = f"t-{uuid4().hex[:8]}"
    due("a", topic)
    due("b", topic)
    with HeldTransaction(lambda: publish(topic, "at once", id="a")) as held:
        promoter = Promoter("default", topic)
        # MySQL may hold a lock on the gap where b belongs: promote until b is in the log.
        wait_until(lambda: promoter.promote().promoted or waiting(topic) == ["a"], "the other one comes")
        assert waiting(topic) == ["a"]
        assert promote(topic) == Promotion(), "and nobody has waited to find out"
        held.rollback()
    assert promote(topic).promoted == 1
    due("c", topic)
    with HeldTransaction(lambda: publish(topic, "at once", id="c")) as held:
        assert promote(topic).promoted == 0
        held.commit()
    assert list(promote(topic).dropped.values()) == [IN_LOG]
    assert sorted(ids_in_log(topic)) == ["a", "b", "c"]


def test_a_message_that_would_wait_for_an_open_transaction_is_left_for_later_alone() -> None:
    """A publisher that finds a duplicate locks the gap before it. A due message belongs in that gap."""
    publish("t", "there", id="m", key="k")
    for id in ("a", "l", "z"):
        due(id, key="k")
    with HeldTransaction(lambda: publish("t", "again", id="m", key="k")) as held:
        promoter, results = Promoter("default", "t"), []
        while (result := promoter.promote()).more or result.promoted:
            results.append(result.promoted)
            assert len(results) < 10
        left = waiting("t")
        assert left in ([], ["l"], ["a", "l"]), "MariaDB has no lock on the gap here"
        assert sum(results) == 3 - len(left)
        assert "z" in ids_in_log("t")
        held.rollback()
    assert promote().promoted == len(left)
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.innodb_lock_wait_timeout, @@GLOBAL.innodb_lock_wait_timeout")
        mine, servers = cursor.fetchone()
    assert mine == servers, "what was set for the promotion is set back"


def test_while_one_worker_promotes_another_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second worker promotes no other messages either, so the messages of a key stay in order."""
    monkeypatch.setattr(promoting, "ROWS", 2)
    publish_many("t", [OutgoingMessage(n, key="k", at=now() + PAST) for n in range(3)])
    with HeldTransaction(promote) as first:
        assert promote() == Promotion()
        assert first.commit().promoted == 2
    assert promote().promoted == 1


def test_the_first_promotion_of_a_topic_by_two_workers_at_once() -> None:
    """The row that the workers lock does not exist yet. One worker inserts it."""
    publish_many("t", [OutgoingMessage(n, at=now() + PAST) for n in range(200)])
    ready = threading.Barrier(4)

    def work() -> int:
        ready.wait(PATIENCE)
        return sum(promote().promoted for _ in range(5))

    workers = [Background(work).start() for _ in range(4)]
    assert sum(worker.result() for worker in workers) == 200
    assert len(ids_in_log("t")) == 200


def test_many_workers_promote_each_message_once() -> None:
    """Two groups of three subscribers poll while messages become due. Each group gets each message once."""
    total = 600
    got: dict[str, Counter[int]] = {"a": Counter(), "b": Counter()}
    begun = threading.Barrier(7)
    lock = threading.Lock()

    def consumer(group: str, name: str) -> None:
        with Subscription("t", group, name=name, batch_size=50) as subscription:
            begun.wait(PATIENCE)

            def has_all() -> bool:
                deliveries = subscription.poll()
                subscription.ack(deliveries)
                with lock:
                    got[group].update(delivery.payload for delivery in deliveries)
                    return sum(got[group].values()) >= total

            wait_until(has_all, f"all messages of group {group}", every=0.01)

    with override_settings(MQUEUE=QUICK | {"RETENTION": 3600}):
        threads = [Background(partial(consumer, g, f"{g}{n}")).start() for g in "ab" for n in range(3)]
        begun.wait(PATIENCE)
        for start in range(0, total, 100):
            publish_many(
                "t", [OutgoingMessage(n, delay=0.001 * (n % 300 + 1)) for n in range(start, start + 100)]
            )
        for thread in threads:
            thread.result()
    assert got["a"] == got["b"] == Counter(range(total))
    assert len(ids_in_log("t")) == total


def test_a_promotion_goes_through_the_gate_before_it_gets_an_offset() -> None:
    """While all slots are taken, the promotion waits. A message that passes another gate gets the next offset."""
    due("a")
    names = sorted(gates.slots(gates.gate_of("t")))
    before = publish("other", 1).offset
    with connection.cursor() as cursor, transaction.atomic():
        assert gates.free_slots(cursor, set(names)) == set(names)
        moving = HeldTransaction(promote).start()
        wait_for_lock_wait(moving)
        meanwhile = publish(_topic_of_another_gate("t"), 1).offset
        assert meanwhile == before + 1
    assert moving.result().promoted == 1
    held: set[str] = set()

    def look() -> bool:
        with transaction.atomic(), connection.cursor() as cursor:
            held.update(set(names) - gates.free_slots(cursor, set(names)))
        return True

    look()
    assert len(held) == 1, "it holds a slot until its transaction ends"
    moving.commit()
    assert Message.objects.get(topic="t").offset > meanwhile


def _topic_of_another_gate(topic: str) -> str:
    return next(n for n in map(str, range(100)) if gates.gate_of(n) != gates.gate_of(topic))


def test_a_promotion_that_commits_late_loses_nothing() -> None:
    """The promotion has offsets but is not committed. Meanwhile a later offset is acknowledged, and settling runs."""
    promote()  # Creates the row to lock. With a remnant of an earlier test, the next row would also be locked.
    for n in range(3):
        publish("t", f"m{n}", at=now() + PAST)
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        engine = subscription._subscriber
        assert engine is not None
        with HeldTransaction(promote) as late:
            publish("t", "after")
            (delivery,) = poll_until(subscription, 1)
            delivery.ack()
            for _ in range(3):
                engine.tailer.settle("t")
                engine.watermarks.tick(force=True)
                engine.collector.collect_page(0)
            late.commit()
        assert sorted(d.payload for d in consume(subscription, 3)) == ["m0", "m1", "m2"]


def test_a_batch_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promoting, "BYTES_PER_STATEMENT", 5000)
    for n in range(4):
        publish("t", "x" * 2000, id=f"m{n}", at=now() + PAST)
    results = [promote() for _ in range(3)]
    assert [(result.promoted, result.more) for result in results] == [(2, True), (2, False), (0, False)]


def test_reset_and_deletion_leave_what_waits_alone() -> None:
    publish("t", "later", delay=3600)
    with override_settings(MQUEUE=QUICK), Subscription("t", "g") as subscription:
        publish("t", "now")
        consume(subscription, 1)
    reset("t", "g", "latest")
    assert [message.payload for message in scheduled("t")] == ["later"]
