"""Publishers meet settling, deletion, and publishers of the same ids."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from django.db import OperationalError, transaction

from django_mqueue import OutgoingMessage, Published, Subscription, publish, publish_many, subscribe
from django_mqueue.models import Message
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import offsets
from tests.support.fixtures import with_settings
from tests.support.subscribers import collect, consume, in_log, settle, settle_and_collect, with_state
from tests.support.transactions import (
    PATIENCE,
    Background,
    HeldTransaction,
    is_waiting_for_lock,
    rolled_back,
    wait_for_lock_wait,
    wait_until,
)

from .sides import STILL, collect_page, ends, waits
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"
SLOTS, INSERTED, ROWS_GO = "FOR UPDATE SKIP LOCKED", "INSERT INTO queue_messages", "DELETE m FROM"
TOPIC_LOCKED = "SELECT offset_acked, EXISTS"


still = with_settings(MQUEUE=STILL)


def one(id: str, payload: object = 1) -> Published:
    return publish(TOPIC, payload, key="k", id=id)


def many(*ids: str, topic: str = TOPIC) -> list[Published]:
    return publish_many(topic, [OutgoingMessage(id, key="k", id=id) for id in ids])


AGAIN: dict[str, Callable[[], Published]] = {
    "publish": lambda: one("mine", "again"),
    "publish_many": lambda: many("mine")[0],
}


def stored() -> dict[str, int]:
    return dict(Message.objects.filter(topic=TOPIC).values_list("message_id", "offset"))


class TestSettlingAndPublishing:
    def test_a_commit_between_noting_the_newest_and_looking_at_the_slots(self) -> None:
        """P has inserted 1. A (settling) reads that 2 is the newest offset and stops. P commits 1.

        A finds all slots free. A reports 2 as settled. This is correct, because a later read sees 1.
        """
        settler = Settler("default", TOPIC)
        with HeldTransaction(lambda: publish(TOPIC, 1, key="k")) as publisher:
            newest = publish(TOPIC, 2, key="k").offset
            with Stopped(settler.advance, SLOTS) as settling:
                late = publisher.commit().offset
                assert settling.go() == newest
        assert in_log(TOPIC) == [late, newest]

    def test_a_publisher_that_begins_after_the_newest_was_noted(self) -> None:
        """A (settling) reads that 1 is the newest offset and stops. P inserts 2.

        A reports 1 or nothing, and never 2.
        """
        settler = Settler("default", TOPIC)
        first = publish(TOPIC, 1, key="k").offset
        with Stopped(settler.advance, SLOTS) as settling:
            with HeldTransaction(lambda: publish(TOPIC, 2, key="k")) as publisher:
                assert settling.go() == 0, "the slot that P holds was not free"
                publish(TOPIC, 3, key="k")
                for _ in range(3):
                    assert settler.advance() in (0, first)
                publisher.rollback()
            wait_until(lambda: settler.advance() == max(in_log(TOPIC)), "all is settled")

    def test_a_publisher_waits_while_the_slots_are_looked_at(self) -> None:
        """A (settling) has locked the free slots and stops before COMMIT. P waits and has used no offset. A reports 1.

        The slot is locked before the offset is assigned: protocol/settling/test_gate.py.
        """
        settler = Settler("default", TOPIC)
        first = publish(TOPIC, 1, key="k").offset
        with Stopped(settler.advance, COMMIT) as settling:
            second = waits(settling, lambda: publish(TOPIC, 2, key="k"))
            assert settling.result() == first
        assert second.offset > first

    def test_two_settle_at_once(self) -> None:
        """A has locked the slots and stops. B finds no free slot, reports nothing and does not wait.

        A reports 1, then also B.
        """
        subscribe(TOPIC, "g")
        one_settler, other = Settler("default", TOPIC), Settler("default", TOPIC)
        newest = publish(TOPIC, 1, key="k").offset
        with Stopped(one_settler.advance, COMMIT) as settling:
            assert ends(other.advance) == 0
            assert other.pending
            assert settling.go() == newest
        assert other.advance() == newest
        assert not other.pending

    @pytest.mark.parametrize("step", [TOPIC_LOCKED, "SET offset_acked"])
    def test_the_older_finding_is_told_last(self, step: str) -> None:
        """A has found 1 settled, and stops before it writes that. P commits 2. B finds 2. A writes.

        The stored offset is 2 at the end. B writes at once, unless A has already locked the topic's row. In that case B
        writes with its next run.
        """
        subscribe(TOPIC, "g")
        older, newer = Settler("default", TOPIC), Settler("default", TOPIC)
        first = publish(TOPIC, 1, key="k").offset
        with Stopped(older.advance, step) as settling:
            second = publish(TOPIC, 2, key="k").offset
            assert ends(newer.advance) == second
            assert offsets.settled("default", TOPIC) == 0 or step == TOPIC_LOCKED
            assert settling.go() == (second if step == TOPIC_LOCKED else first)
        newer.advance()
        assert offsets.settled("default", TOPIC) == second
        assert not newer.pending

    def test_a_commit_while_settling_and_then_a_watermark(self) -> None:
        """P has inserted 2. A reads 3, which is acked, and stops. P commits. A reports 3. The watermark moves to 1."""
        with Subscription(TOPIC, "g") as worker:
            first = publish(TOPIC, 1, key="k").offset
            consume(worker, 1)
            with HeldTransaction(lambda: publish(TOPIC, 2, key="k")) as publisher:
                publish(TOPIC, 3, key="k")
                consume(worker, 1)
                settler = Settler("default", TOPIC)
                with Stopped(settler.advance, SLOTS) as settling:
                    publisher.commit()
                    settling.go()
            settle(worker)
            collect(TOPIC)
            assert first not in in_log(TOPIC)
            assert [delivery.payload for delivery in consume(worker, 1)] == [2]


class TestDuplicatesAndDeletion:
    @pytest.fixture
    def first(self) -> Iterator[tuple[Subscription, Published]]:
        """A message that its group has acked and that is not deleted yet."""
        with Subscription(TOPIC, "g") as worker:
            published = one("mine", "first")
            consume(worker, 1)
            settle(worker)
            yield worker, published

    @pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
    def test_an_id_comes_again_while_its_message_is_deleted(
        self, first: tuple[Subscription, Published], again: Callable[[], Published]
    ) -> None:
        """A (collection) has deleted the first message and stops before COMMIT. P publishes its id again.

        P either stores a second message after A's commit, or returns the first one, which was there when P read it. P
        never returns "stored" for a message that is not stored. A message that P stores is delivered.
        """
        worker, published = first
        with Stopped(lambda: collect_page(TOPIC), COMMIT) as collection, Background(again) as publisher:
            wait_until(
                lambda: publisher.is_done or is_waiting_for_lock(publisher.connection_id),
                "it is told, or waits",
                every=0.25,
            )
            collection.go()
            result = publisher.result()
        assert result.created is (in_log(TOPIC) == [result.offset])
        assert result.created or result.offset == published.offset
        assert len(consume(worker, int(result.created))) == int(result.created)

    @pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
    @pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
    def test_a_collection_waits_for_no_publisher_who_was_told_of_a_duplicate(
        self, isolation: str, again: Callable[[], Published]
    ) -> None:
        """P begins a transaction. Q publishes an id, and the message is consumed.

        P publishes the id again and does not commit. P gets the existing message. A (collection) returns without
        waiting. P commits. The message is deleted by this collection or by the next.
        """
        with Subscription(TOPIC, "g") as worker:

            def told() -> Published:
                assert in_log(TOPIC) == []  # Later rows are invisible in REPEATABLE READ.
                began.set()
                assert go_on.wait(PATIENCE)
                return again()

            began, go_on = threading.Event(), threading.Event()
            publisher = HeldTransaction(told, isolation=isolation).start()
            try:
                assert began.wait(PATIENCE)
                first = one("mine")
                consume(worker, 1)
                settle(worker)
                go_on.set()
                assert publisher.result() == Published(first.offset, "mine", TOPIC, "k", False)
                ends(lambda: collect_page(TOPIC))
                publisher.commit()
            finally:
                go_on.set()
                publisher.__exit__(None, None, None)
            settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    def test_an_id_that_was_met_is_not_deleted_before_it_is_read(self) -> None:
        """P finds no such id. Its INSERT waits for Q, which stores the id and commits.

        P stops before it reads the offset. W consumes Q's message and collects. It deletes nothing, because the offsets
        that P may read are not settled. P returns the right offset.
        """
        publisher = Stopped(lambda: many("mine", "yours"), "SELECT x.p, x.i", skip=1)

        def let_in() -> None:
            wait_until(lambda: publisher.connection_id, "the publisher begins")
            wait_for_lock_wait(publisher)
            first.commit()

        with Subscription(TOPIC, "g") as worker:
            with HeldTransaction(lambda: one("mine")) as first, Background(let_in), publisher:
                consume(worker, 1)
                settle_and_collect(worker)
                answers = publisher.go()
            assert [answer.created for answer in answers] == [False, True]
            assert {answer.id: answer.offset for answer in answers} == stored()
            consume(worker, 1)
            settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []


class TestCrossing:
    def test_in_a_callers_transaction_a_deadlock_is_raised_and_nothing_is_half_done(self) -> None:
        """A publishes x and stops. B publishes y, then x, and waits for A. A publishes y.

        One side gets a deadlock error and has published nothing. The other has published both.
        """

        def both(*ids: str) -> list[Published]:
            with transaction.atomic():
                return [answer for id in ids for answer in many(id, f"beside-{id}")]

        with Stopped(lambda: both("x", "y"), INSERTED, skip=1) as a, Background(lambda: both("y", "x")) as b:
            wait_for_lock_wait(b)
            a.let_go()
            outcomes = [outcome_of(a), outcome_of(b)]
        (error,) = [outcome for outcome in outcomes if isinstance(outcome, OperationalError)]
        assert error.args[0] == 1213
        (answers,) = [outcome for outcome in outcomes if not isinstance(outcome, OperationalError)]
        assert isinstance(answers, list)
        assert {answer.id: answer.offset for answer in answers} == stored()
        assert [answer.created for answer in answers] == [True] * 4

    def test_in_their_own_transactions_a_deadlock_is_run_again(self) -> None:
        """The same with ``publish_many`` of two statements each.

        Both return, each id is stored once, and both return its offset.
        """
        a_ids, b_ids = [f"a-{n}" for n in range(499)], [f"b-{n}" for n in range(499)]
        with (
            Stopped(lambda: many("x", *a_ids, "y"), INSERTED, skip=1) as a,
            Background(lambda: many("y", *b_ids, "x")) as b,
        ):
            wait_for_lock_wait(b)
            a.let_go()
            answers = [*a.result(), *b.result()]
        there = stored()
        assert set(there) == {"x", "y", *a_ids, *b_ids}
        assert all(answer.offset == there[answer.id] for answer in answers)
        assert sorted(answer.id for answer in answers if answer.created) == sorted(there)

    def test_two_wait_for_one_who_rolls_back(self) -> None:
        """A publishes x and stops. B and C publish x and wait. A rolls back.

        One stores x, and the other gets it as a duplicate. With one waiting publisher:
        features/publish/test_duplicates.py, test_a_publisher_of_the_same_id_is_waited_for.
        """
        with (
            HeldTransaction(lambda: one("x")) as a,
            Background(lambda: one("x")) as b,
            Background(lambda: many("w", "x", "z")[1]) as c,
        ):
            wait_for_lock_wait(b)
            wait_for_lock_wait(c)
            a.rollback()
            answers = [b.result(), c.result()]
        assert sorted(answer.created for answer in answers) == [False, True]
        assert {answer.offset for answer in answers} == {stored()["x"]}
        assert set(stored()) == {"w", "x", "z"}

    def test_who_was_told_of_a_duplicate_rolls_back(self) -> None:
        """A publishes x and commits. B publishes x, gets it as a duplicate, publishes y, and rolls back.

        Only x is stored.
        """
        first = one("x")
        with rolled_back():
            assert one("x") == Published(first.offset, "x", TOPIC, "k", False)
            one("y")
        assert stored() == {"x": first.offset}


def outcome_of(side: Background[list[Published]]) -> list[Published] | OperationalError:
    try:
        return side.result()
    except OperationalError as error:
        return error
