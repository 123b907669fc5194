"""The gate: a publisher locks a slot before it gets an offset, and until its transaction ends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from zlib import crc32

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.exceptions import NotMigrated
from django_mqueue.models import Message, Offset
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import gates, offsets
from django_mqueue.store.log import MessageIdentity
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, in_log, poll_until, settle
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
TAKEN = {gates.gate_of(TOPIC), gates.gate_of(f"{TOPIC}_dlq")}
ELSEWHERE = next(name for name in map(str, range(99)) if gates.gate_of(name) not in TAKEN)
"""A topic of another gate."""

WAYS: dict[str, Callable[[], object]] = {
    "publish": lambda: publish(TOPIC, 1, key="k"),
    "publish with an id": lambda: publish(TOPIC, 1, key="k", id="mine"),
    "publish keyless": lambda: publish(TOPIC, 1),
    "publish_many": lambda: publish_many(TOPIC, [1, 2, 3]),
    "publish_many with ids": lambda: publish_many(
        TOPIC, [OutgoingMessage(n, key="k", id=f"mine-{n}") for n in range(3)]
    ),
}


quick = with_settings(MQUEUE=QUICK)


def lock_every_slot(topic: str) -> None:
    names = sorted(gates.slots(gates.gate_of(topic)))
    with connection.cursor() as cursor:
        assert gates.free_slots(cursor, set(names)) == set(names)


def publish_at(ms: int, topic: str) -> None:
    """Publish at another time of the server's clock. The time selects the slot."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET timestamp = {1_000_000_000 + ms / 1000:.3f}")
        try:
            publish(topic, 1)
        finally:
            cursor.execute("SET timestamp = DEFAULT")


def publish_steadily(topic: str, ms: int) -> None:
    for at in range(0, ms, gates.SLOT_MS):
        publish_at(at, topic)


def free_slots_of(topic: str) -> set[str]:
    wanted = gates.slots(gates.gate_of(topic))
    with transaction.atomic(), connection.cursor() as cursor:
        return wanted - gates.free_slots(cursor, wanted)


@pytest.mark.parametrize("way", WAYS)
def test_the_slot_is_locked_before_the_offset_is_handed_out(way: str) -> None:
    """A publisher that waits for the gate uses no offset.

    A topic of another gate gets two consecutive offsets meanwhile.
    """
    with ExitStack() as stack:
        held = stack.enter_context(HeldTransaction(lambda: lock_every_slot(TOPIC)))
        before = publish(ELSEWHERE, 1).offset
        publisher = stack.enter_context(Background(WAYS[way]))
        wait_for_lock_wait(publisher)
        assert publish(ELSEWHERE, 2).offset == before + 1
        held.rollback()
        publisher.result()
    assert min(in_log(TOPIC)) > before + 1


def test_a_dead_letter_goes_through_the_gate_too() -> None:
    """The copy is a row in the log of the dead-letter topic. It can also commit late."""
    publish(TOPIC, 1, key="k")
    subscribe(TOPIC, "billing")
    with Subscription(TOPIC, group="billing") as subscription, ExitStack() as stack:
        (delivery,) = poll_until(subscription, 1)
        held = stack.enter_context(HeldTransaction(lambda: lock_every_slot(f"{TOPIC}_dlq")))
        before = publish(ELSEWHERE, 1).offset
        rejection = stack.enter_context(Background(lambda: delivery.reject("no")))
        wait_for_lock_wait(rejection)
        assert publish(ELSEWHERE, 2).offset == before + 1
        held.rollback()
        assert rejection.result()
    assert len(in_log(f"{TOPIC}_dlq")) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_publisher_holds_one_slot_until_its_transaction_ends(way: str, isolation: str) -> None:
    """The publisher holds exactly one slot, at both isolation levels. It holds no slot of another gate.

    The connection that looks for free slots never waits.
    """
    with HeldTransaction(WAYS[way], isolation=isolation) as publisher:
        assert len(free_slots_of(TOPIC)) == 1
        assert free_slots_of(ELSEWHERE) == set()
        publisher.commit()
    assert free_slots_of(TOPIC) == set()


def test_a_held_slot_is_found_however_many_are_asked_for() -> None:
    """Ask for one, some or all slots. The server may read the rows by another path, and must see the same lock."""
    with HeldTransaction(WAYS["publish"]):
        (held,) = free_slots_of(TOPIC)
        others = sorted(gates.slots(gates.gate_of(TOPIC)) - {held})
        for more in (0, 1, 5, 63):
            with transaction.atomic(), connection.cursor() as cursor:
                assert gates.free_slots(cursor, {held, *others[:more]}) == set(others[:more])


def test_both_sides_of_the_gate_use_the_same_index() -> None:
    """A shared lock that reads only one index locks nothing for a statement that reads another index."""
    looked: list[tuple[str, tuple[str, ...]]] = []

    def note(execute: Callable[..., object], sql: str, params: tuple[str, ...], *rest: object) -> object:
        looked.append((sql, params))
        return execute(sql, params, *rest)

    connection.ensure_connection()
    with connection.execute_wrapper(note), transaction.atomic(), connection.cursor() as cursor:
        gates.free_slots(cursor, gates.slots(0))
    locking, params = gates.locking_topic(TOPIC)
    for sql, values in [*looked, (locking[1:-1], tuple(params))]:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN FORMAT=JSON {sql}", values)
            (plan,) = cursor.fetchone()
        assert "queue_offsets_partition" in plan
        assert "queue_offsets_groups" not in plan


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["STRICT_TRANS_TABLES", ""])
def test_without_its_gate_nothing_is_published(way: str, mode: str) -> None:
    """A missing gate row makes the statement fail, also with an empty SQL mode."""
    Offset.objects.filter(partition_key__in=gates.slots(gates.gate_of(TOPIC))).delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode")
        (usual,) = cursor.fetchone()
        cursor.execute("SET SESSION sql_mode = %s", [mode])
        try:
            with pytest.raises(NotMigrated, match="migrate"):
                WAYS[way]()
        finally:
            cursor.execute("SET SESSION sql_mode = %s", [usual])
    assert not Message.objects.exists()


@pytest.mark.parametrize("command", [("flush", "--no-input"), ("migrate",)])
def test_flush_and_migrate_bring_the_gate_back(command: tuple[str, ...]) -> None:
    """``flush`` empties the table. Each ``migrate`` also inserts missing gate rows."""
    everything = {name for gate in range(gates.GATES) for name in gates.slots(gate)}
    rows = Offset.objects.filter(consumer_group="", topic="")
    rows.filter(partition_key__endswith="7").delete()
    call_command(*command, verbosity=0)
    assert set(rows.values_list("partition_key", flat=True)) == everything
    WAYS["publish"]()


def test_migrate_does_not_wait_for_publishers() -> None:
    """``migrate`` does not change existing gate rows. So a deployment never waits for an open transaction."""
    with (
        HeldTransaction(WAYS["publish"]),
        Background(lambda: call_command("migrate", verbosity=0)) as migration,
    ):
        migration.result()


def test_settling_goes_on_under_steady_overlapping_transactions() -> None:
    """At every moment three publishers are open. A committed message is still settled before twelve more have begun.

    The publishers begin half a slot apart, by the server's clock.
    """
    overlap: list[HeldTransaction[None]] = []
    settler = Settler("default", TOPIC)
    times = count(step=gates.SLOT_MS // 2)

    def begin() -> None:
        overlap.append(HeldTransaction(partial(publish_at, next(times), TOPIC)).__enter__())

    try:
        for _ in range(3):
            begin()
        newest = publish(TOPIC, "newest").offset
        for _ in range(12):
            begin()
            overlap.pop(0).commit()
            settler.advance()
        assert settler.settled >= newest
    finally:
        for publisher in overlap:
            publisher.__exit__(None, None, None)


def test_transactions_that_overlap_without_end_hold_back_no_other_topic() -> None:
    """All slots of one topic are held. The messages of another topic, of nearly the same hash, are deleted."""
    held = "22"
    assert crc32(held.encode()) % 32 == crc32(TOPIC.encode()) % 32
    subscribe(TOPIC, "billing")
    with (
        Subscription(TOPIC, group="billing") as subscription,
        HeldTransaction(lambda: publish_steadily(held, gates.SLOTS * gates.SLOT_MS)),
    ):
        assert len(free_slots_of(held)) == gates.SLOTS
        publish(TOPIC, 1, key="k")
        consume(subscription, 1)

        def collected() -> bool:
            subscription.poll()
            return in_log(TOPIC) == []

        wait_until(collected, "the message is deleted")


def test_half_a_minute_of_publishing_leaves_slots_for_those_that_follow() -> None:
    """A chain of such transactions, each of which begins before the last one ends, does not always hold all slots."""
    with HeldTransaction(lambda: publish_steadily(TOPIC, 30_000)):
        before = free_slots_of(TOPIC)
        with HeldTransaction(lambda: publish_at(30_000, TOPIC)):
            assert len(free_slots_of(TOPIC) - before) == 1


def test_what_is_settled_is_known_to_all_and_never_moves_back() -> None:
    """All workers share a settled offset. An older offset does not replace it."""
    subscribe(TOPIC, "billing")
    earlier, newest = publish(TOPIC, 0), publish(TOPIC, 1).offset
    settler = Settler("default", TOPIC)
    wait_until(lambda: settler.advance() >= newest, "settled")
    assert offsets.settled("default", TOPIC) == newest
    stored = Message.objects.get(offset=earlier.offset)
    offsets.store_settled("default", TOPIC, MessageIdentity(stored.offset, earlier.id, stored.published_at))
    assert offsets.settled("default", TOPIC) == newest


def test_what_could_not_be_noted_is_noted_later() -> None:
    """While the topic is locked, a worker does not wait to write the settled offset.

    It writes later, without new messages.
    """
    subscribe(TOPIC, "billing")
    with Subscription(TOPIC, group="billing") as subscription:
        with HeldTransaction(lambda: subscribe(TOPIC, "another")):
            newest = publish(TOPIC, 1, key="k").offset
            consume(subscription, 1)
            assert settle(subscription) == newest
            assert offsets.settled("default", TOPIC) < newest

        def collected() -> bool:
            subscription.poll()
            return in_log(TOPIC) == []

        wait_until(collected, "the last message is collected")


def test_nothing_at_or_above_an_open_offset_is_settled() -> None:
    """The settled offset stays below an open transaction's offset, however often the settler runs."""
    before = publish(TOPIC, 0).offset
    with HeldTransaction(lambda: publish(TOPIC, 1, key="k")) as publisher:
        after = publish(TOPIC, 2).offset
        settler = Settler("default", TOPIC)
        for _ in range(20):
            assert settler.advance() < publisher.result().offset
        assert settler.pending
        publisher.commit()
    wait_until(lambda: settler.advance() >= after, "settled")
    assert before < after
