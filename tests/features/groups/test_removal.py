"""Bounded transactions delete a group's state after a reset or an unsubscribe, even if a process dies between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import override_settings

from django_mqueue import (
    Delivery,
    StaleDelivery,
    Subscription,
    pause,
    publish_many,
    reset,
    subscribe,
    unsubscribe,
)
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import DeliveryState, Offset, PartitionLease
from django_mqueue.protocol.retention import removing
from django_mqueue.store import leases, offsets, removal
from tests.factories import FAR
from tests.protocol.hostile.breaking import killed_at
from tests.support.fixtures import with_settings
from tests.support.statements import counted
from tests.support.subscribers import (
    QUICK,
    collect,
    consume,
    consume_rest,
    engine_of,
    in_log,
    poll_until,
    settle,
)
from tests.support.threads import raw_connection
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP, OTHER = "orders", "billing", "stock"
STATE, OF_STATE = "DELETE t FROM", "queue_delivery_state"


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete only three rows of a table at a time."""
    monkeypatch.setattr(removal, "ROWS", 3)


@pytest.fixture
def done(pieces: None) -> list[int]:
    """Let the group ack twenty messages of five keys, and store its positions. Return the offsets."""
    subscribe(TOPIC, OTHER)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 5}") for n in range(20)])
    with Subscription(TOPIC, GROUP) as subscription:
        consume(subscription, 20)
        settle(subscription)
    assert (states(), places()) == (20, 5)
    return in_log(TOPIC)


def states() -> int:
    return DeliveryState.objects.filter(consumer_group=GROUP).count()


def places() -> int:
    return Offset.objects.filter(consumer_group=GROUP).exclude(partition_key="").count()


def is_unfinished(group: str = GROUP) -> bool:
    return Offset.objects.filter(topic=TOPIC, consumer_group="", partition_key=f"removal {group}").exists()


def is_resetting() -> bool:
    found = offsets.registration("default", GROUP, TOPIC)
    return found is not None and found.resetting


def assert_all_comes_again(count: int = 20) -> None:
    """Assert that a worker of the group receives each message once, as a first attempt."""
    with Subscription(TOPIC, GROUP) as subscription:
        again = consume(subscription, count)
        assert sorted((d.payload, d.attempt) for d in again) == [(n, 1) for n in range(count)]
        assert consume_rest(subscription) == []
        settle(subscription)
    assert not is_unfinished()


def forced_reset() -> int:
    return reset(TOPIC, GROUP, "earliest", force=True)


def is_deletion(sql: str) -> bool:
    return sql.startswith(STATE) and OF_STATE in sql


def half_done(verb: Callable[[], object], *, pieces: int = 2, group: str = GROUP) -> None:
    """Fail after ``pieces`` pieces of the removal, as if the process died."""
    seen = 0

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal seen
        seen += is_deletion(sql)
        if seen > pieces:
            raise DatabaseError("the process died")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look), pytest.raises(DatabaseError, match="died"):
        verb()
    assert is_unfinished(group)


@contextmanager
def searches() -> Iterator[list[tuple[str, int]]]:
    """Yield the (key, offset) behind which each search for delivery state begins."""
    found: list[tuple[str, int]] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT partition_key, message_offset FROM queue_delivery_state"):
            found.append((params[2], params[4]))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield found


@contextmanager
def deleted_rows() -> Iterator[list[int]]:
    """Yield the number of rows that each DELETE of delivery state, leases and offsets has removed."""
    found: list[int] = []

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if sql.startswith("DELETE"):
            found.append(context["cursor"].rowcount)
        return result

    with connection.execute_wrapper(look):
        yield found


def fill(count: int, partitions: int) -> None:
    """Create the state of ``count`` delivered messages.

    Each of ``partitions`` partitions also has a position and a lease.
    """
    for n in range(partitions):
        Offset.objects.create(
            consumer_group=GROUP,
            topic=TOPIC,
            partition_key=f"k{n}",
            offset_acked=1,
            scan_offset=1,
            updated_at=0,
        )
        PartitionLease.objects.create(
            consumer_group=GROUP, topic=TOPIC, partition_key=f"k{n}", leased_by="", holder="", leased_at=0,
            lease_renewed_at=0,
        )  # fmt: skip
    DeliveryState.objects.bulk_create(
        (
            DeliveryState(
                consumer_group=GROUP, topic=TOPIC, partition_key=f"k{n % partitions}", message_offset=n, acked=True,
                invisible_until=0, delivery_token=n, delivered_to="", delivered_at=0,
            )
            for n in range(count)
        ),
        batch_size=2000,
    )  # fmt: skip


@pytest.mark.parametrize(
    "verb", [forced_reset, lambda: unsubscribe(TOPIC, GROUP)], ids=["reset", "unsubscribe"]
)
def test_every_transaction_is_bounded_and_their_number_linear(verb: Callable[[], object]) -> None:
    """The first transaction deletes a thousand rows of each table.

    Each later one deletes up to a thousand rows, and the last one ends the removal.
    """
    subscribe(TOPIC, GROUP)
    fill(10_500, 30)
    with counted() as cost, deleted_rows() as deleted:
        verb()
    assert max(deleted) <= 1000, cost
    assert sum(deleted) >= 10_500 + 30 + 30
    # One more piece finds no rows. Then one transaction ends the removal.
    assert cost.commits == 1 + 10 + 1 + 1, cost
    assert (states(), places(), is_unfinished()) == (0, 0, False)


def test_each_piece_begins_behind_the_one_before(done: list[int]) -> None:
    """A search from the beginning would read all deleted rows that the server has not purged yet."""
    with searches() as found:
        unsubscribe(TOPIC, GROUP)
    # The first transaction begins at the start, and so does the first piece after it.
    assert found[:2] == [("", -1)] * 2
    assert len(found) == 1 + 6 + 2
    assert found[1:-1] == sorted(set(found[1:-1])), found


def test_a_small_group_is_reset_in_one_transaction() -> None:
    subscribe(TOPIC, GROUP)
    fill(1000, 30)
    with counted() as cost:
        reset(TOPIC, GROUP, "earliest")
    assert cost.commits == 1
    assert (states(), places(), is_unfinished(), is_resetting()) == (0, 0, False, False)


def test_the_topic_is_not_locked_while_the_rest_is_removed(done: list[int]) -> None:
    """Another group can register between any two pieces, and also during a piece."""
    groups: list[bool] = []
    deletions = 0

    def look(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal deletions
        deletions += is_deletion(sql)
        if is_deletion(sql) and deletions > 1:  # The reset's own transaction makes the first.
            with Background(lambda: subscribe(TOPIC, f"new-{deletions}")) as newcomer:
                groups.append(newcomer.result())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        reset(TOPIC, GROUP, "earliest")
    assert groups == [True] * 6
    assert_all_comes_again()


@pytest.mark.parametrize("at", range(1, 6))
def test_the_same_verb_finishes_what_a_death_has_left(done: list[int], at: int) -> None:
    half_done(forced_reset, pieces=at)
    assert is_resetting()
    assert reset(TOPIC, GROUP, done[3]) == done[3] - 1
    assert (states(), places(), is_unfinished(), is_resetting()) == (0, 0, False, False)
    with Subscription(TOPIC, GROUP) as subscription:
        assert sorted(d.payload for d in consume(subscription, 17)) == list(range(3, 20))


def test_a_connection_that_is_lost_leaves_a_removal_that_goes_on(done: list[int]) -> None:
    with killed_at(STATE, holding=OF_STATE), pytest.raises(DatabaseError):
        reset(TOPIC, GROUP, "earliest")
    assert states() == 20, "the first transaction was rolled back whole"
    half_done(forced_reset)
    assert states() > 0
    assert_all_comes_again()


@pytest.mark.usefixtures("nobody_else_removes")
def test_nothing_is_delivered_until_all_is_removed(done: list[int]) -> None:
    """A running worker claims nothing during the removal. Afterwards it receives every message."""
    with Subscription(TOPIC, GROUP) as worker:
        assert consume_rest(worker) == []
        half_done(forced_reset)
        assert consume_rest(worker) == []
        assert engine_of(worker).find_work(), "to drain it would stop"
        reset(TOPIC, GROUP, "earliest", force=True)
        assert sorted((d.payload, d.attempt) for d in consume(worker, 20)) == [(n, 1) for n in range(20)]


@pytest.fixture
def nobody_else_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "django_mqueue.protocol.retention.garbage_collection.unfinished", lambda using, topic: None
    )


@pytest.mark.usefixtures("nobody_else_removes")
def test_a_claim_under_the_new_life_gets_nothing_before_all_is_removed(done: list[int]) -> None:
    """The claim gets nothing even if the worker knows the new registration generation and has a lease."""
    publish_many(TOPIC, [OutgoingMessage(20, key="k0")])
    with Subscription(TOPIC, GROUP) as worker:
        wait_until(lambda: (worker.poll(), "k0" in engine_of(worker).state.partitions)[1], "it owns the key")
        half_done(forced_reset)
        found = offsets.registration("default", GROUP, TOPIC)
        assert found is not None
        state = engine_of(worker).state
        state.registration_generation, me = found.generation, state.holder
        PartitionLease.objects.create(
            consumer_group=GROUP, topic=TOPIC, partition_key="k0", leased_by=me.name, holder=me.incarnation,
            leased_at=0, lease_renewed_at=FAR,
        )  # fmt: skip
        with transaction.atomic(), connection.cursor() as cursor:
            assert not leases.lock_owned(cursor, me, found.generation, ["k0"]).locked


@pytest.mark.usefixtures("nobody_else_removes")
def test_what_a_worker_read_while_it_was_removed_is_forgotten(done: list[int]) -> None:
    """A worker joins during the removal and reads old positions and state. It forgets them when the group begins."""
    half_done(forced_reset, pieces=1)
    assert places() > 0
    PartitionLease.objects.bulk_create(
        PartitionLease(
            consumer_group=GROUP, topic=TOPIC, partition_key=f"k{n}", leased_by="", holder="", leased_at=0,
            lease_renewed_at=0,
        )
        for n in range(5)
    )  # fmt: skip
    with Subscription(TOPIC, GROUP) as worker:
        known = engine_of(worker).state.partitions
        wait_until(lambda: (worker.poll(), len(known) == 5)[1], "it has read all partitions")
        removing.finish("default", TOPIC, GROUP)
        assert sorted(d.payload for d in consume(worker, 20)) == list(range(20))


@pytest.mark.parametrize("group", [GROUP, OTHER])
def test_workers_of_the_topic_finish_a_reset(done: list[int], group: str) -> None:
    half_done(forced_reset)
    with Subscription(TOPIC, group) as worker:
        wait_until(lambda: (worker.poll(), not is_unfinished())[1], "the removal is finished")
    assert not is_resetting()
    if group == OTHER:
        assert (states(), places()) == (0, 0)


def test_workers_of_the_topic_finish_an_unsubscribe(done: list[int]) -> None:
    """Only workers of the topic can delete the state of a group that no longer exists."""
    half_done(lambda: unsubscribe(TOPIC, GROUP))
    with Subscription(TOPIC, OTHER) as worker:
        wait_until(lambda: (worker.poll(), not is_unfinished())[1], "the removal is finished")
    assert (states(), places()) == (0, 0)


@pytest.mark.parametrize("locked", ["a", "b"])
def test_a_removal_that_cannot_go_on_hinders_no_other(pieces: None, locked: str) -> None:
    """A transaction locks the remaining state of one group.

    Workers of the topic finish the removal of the other group.
    """
    subscribe(TOPIC, OTHER)
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 5}") for n in range(20)])
    for group in ("a", "b"):
        with Subscription(TOPIC, group) as subscription:
            consume(subscription, 20)
    marks = Offset.objects.filter(topic=TOPIC, consumer_group="", partition_key__startswith="removal ")
    for group in ("a", "b"):
        half_done(partial(unsubscribe, TOPIC, group), group=group)
    held = DeliveryState.objects.filter(consumer_group=locked).select_for_update()
    with HeldTransaction(lambda: list(held)), Subscription(TOPIC, OTHER) as worker:
        wait_until(lambda: (worker.poll(), marks.count() == 1)[1], "one removal is finished")
        assert marks.get().partition_key == f"removal {locked}"


def test_who_subscribes_again_finishes_an_unsubscribe(done: list[int]) -> None:
    half_done(lambda: unsubscribe(TOPIC, GROUP))
    assert states() > 0
    assert subscribe(TOPIC, GROUP)
    assert (states(), places(), is_unfinished(), is_resetting()) == (0, 0, False, False)
    assert_all_comes_again()


def test_what_a_resetting_group_had_done_before_does_not_count_for_deletion(done: list[int]) -> None:
    """The group's old positions still cover every message.

    Collection must not use them, because the messages are delivered again.
    """
    with Subscription(TOPIC, OTHER) as other:
        consume(other, 20)
        settle(other)
    half_done(forced_reset, pieces=1)
    assert places() > 0
    with override_settings(MQUEUE={**QUICK, "RETENTION": 0}):
        collect(TOPIC)
    assert in_log(TOPIC) == done
    assert_all_comes_again()


def test_a_reset_keeps_the_pause_while_much_is_removed(done: list[int]) -> None:
    pause(TOPIC, GROUP)
    reset(TOPIC, GROUP, "earliest")
    with Subscription(TOPIC, GROUP) as worker:
        assert consume_rest(worker) == []


class TestInTheCallersTransaction:
    def test_the_rest_is_removed_after_the_commit(self, done: list[int]) -> None:
        with transaction.atomic():
            with deleted_rows() as deleted:
                reset(TOPIC, GROUP, "earliest")
            assert sum(deleted) <= 1 + 3 + 3 + 3, "unbounded"
            assert is_resetting()
        assert (states(), places(), is_unfinished(), is_resetting()) == (0, 0, False, False)
        assert_all_comes_again()

    def test_a_rollback_leaves_all_as_it_was(self, done: list[int]) -> None:
        with transaction.atomic():
            reset(TOPIC, GROUP, "earliest")
            transaction.set_rollback(True)
        assert (states(), places(), is_unfinished(), is_resetting()) == (20, 5, False, False)

    def test_what_was_claimed_and_is_locked_since_its_first_read_is_found(self) -> None:
        """At REPEATABLE READ a plain read shows the tables as they were before the claim."""
        subscribe(TOPIC, GROUP)
        publish_many(TOPIC, [OutgoingMessage(0, key="k")])
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with transaction.atomic():
            assert states() == 0
            with Background(claim_one) as claim:
                claim.result()
            assert states() == 0, "this proves nothing"
            rows = DeliveryState.objects.select_for_update()
            with HeldTransaction(lambda: list(rows)) as held:
                forced_reset()
                assert is_resetting()
                held.rollback()
        assert (states(), is_resetting(), is_unfinished()) == (0, False, False)
        assert_all_comes_again(1)


def claim_one() -> None:
    with Subscription(TOPIC, GROUP) as worker:
        consume(worker, 1)


class TestBesideHandlers:
    @pytest.fixture
    def worker(self, done: list[int]) -> Iterator[Subscription]:
        publish_many(TOPIC, [OutgoingMessage(20, key="k0")])
        with Subscription(TOPIC, GROUP) as worker:
            yield worker

    @pytest.fixture
    def delivery(self, worker: Subscription) -> Delivery:
        (found,) = poll_until(worker, 1)
        return found

    def test_an_answer_to_a_delivery_from_before_is_refused(self, delivery: Delivery) -> None:
        half_done(forced_reset, pieces=1)
        with pytest.raises(StaleDelivery):
            delivery.ack()
        reset(TOPIC, GROUP, "earliest", force=True)
        with pytest.raises(StaleDelivery):
            delivery.ack()

    @pytest.mark.parametrize(
        "verb", [forced_reset, lambda: unsubscribe(TOPIC, GROUP)], ids=["reset", "unsubscribe"]
    )
    def test_the_verb_waits_for_a_handlers_transaction_without_the_topic(
        self, delivery: Delivery, verb: Callable[[], object]
    ) -> None:
        """It does not lock the registration either, so verbs of other groups and deletion continue."""
        with HeldTransaction(delivery.ack) as handler, Background(verb) as moving:
            wait_for_lock_wait(moving)
            with Background(lambda: subscribe(TOPIC, "new")) as newcomer:
                assert newcomer.result()
            with raw_connection() as probe:
                probe.execute(
                    "SELECT 1 FROM queue_offsets FORCE INDEX (queue_offsets_partition)"
                    f" WHERE consumer_group = '{GROUP}' AND topic = '{TOPIC}' AND partition_key = ''"
                    " FOR UPDATE NOWAIT"
                )
                probe.rollback()
            handler.commit()
            moving.result()
        assert (states(), is_unfinished()) == (0, False)

    def test_a_workers_loop_does_not_wait_for_a_handlers_transaction(self, delivery: Delivery) -> None:
        half_done(forced_reset, pieces=1)
        row = DeliveryState.objects.filter(consumer_group=GROUP).select_for_update()
        with HeldTransaction(lambda: list(row)), Subscription(TOPIC, OTHER) as other:

            def look() -> bool:
                for _ in range(5):
                    other.poll()
                    engine_of(other).collector._next = float("-inf")
                return True

            with Background(look) as loop:
                assert loop.result()
            assert is_unfinished()
        assert_all_comes_again(21)
