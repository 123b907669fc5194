"""Deletion meets every step that uses the same rows: watermarks, late commits, claims, answers, another collection."""

from __future__ import annotations

import pytest

from django_mqueue import StaleDelivery, Subscription, publish, subscribe, unsubscribe
from django_mqueue.models import DeliveryState
from django_mqueue.protocol.retention import garbage_collection
from django_mqueue.store import removal
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    collect,
    consume,
    engine_of,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import Background, HeldTransaction, wait_until

from .sides import STILL, collect_page, delivered, ends, finished, move, waits
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"

GROUPS_READ = "SELECT consumer_group, offset_acked"
WATERMARKS_READ = "SELECT partition_key, consumer_group, offset_acked"
STATE_GOES, LOG_GOES = "DELETE s FROM", "DELETE m FROM"
EMPTY_READ, POSITIONS_GO = "SELECT p.partition_key, (SELECT m.`offset`", "SELECT o.id FROM queue_offsets o"
STEPS = [GROUPS_READ, WATERMARKS_READ, STATE_GOES, LOG_GOES, EMPTY_READ, POSITIONS_GO, COMMIT]
"""Steps of a collection in their order. A test stops the collection before one of them."""

MARK_LOCKED = "WHERE consumer_group = '' AND topic = %s AND partition_key = %s FOR UPDATE"
FIRST_OPEN, POSITION_WRITTEN = "ORDER BY m.`offset` LIMIT 1", "INSERT INTO queue_offsets"


still = with_settings(MQUEUE=STILL)


class TestWatermarkAndLateCommit:
    @pytest.mark.parametrize("step", [FIRST_OPEN, POSITION_WRITTEN, COMMIT])
    def test_a_commit_while_a_watermark_is_on_its_way(self, worker: Subscription, step: str) -> None:
        """P has inserted offset 3 and not committed. 1, 2 and 4 are acked. B moves the watermark and stops.

        P commits 3. B continues and moves the watermark to 2, because 3 was not settled when B began. 3 is delivered.
        The other order: protocol/settling/test_late_commits.py, test_a_late_commit_is_delivered.
        """
        one, two = delivered(worker, 2)
        with HeldTransaction(lambda: publish(TOPIC, "late", key="k")) as publisher:
            publish(TOPIC, "early", key="k")
            worker.ack([one, two, *poll_until(worker, 1)])
            with Stopped(lambda: move(worker), step) as watermarks:
                publisher.commit()
                watermarks.go()
        assert watermark(TOPIC, "g", "k") == two.offset
        assert [delivery.payload for delivery in consume(worker, 1)] == ["late"]
        settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []


class TestWatermarkAndAck:
    @pytest.mark.parametrize("step", [FIRST_OPEN, POSITION_WRITTEN, COMMIT])
    def test_an_ack_commits_while_a_watermark_is_on_its_way(self, worker: Subscription, step: str) -> None:
        """1 is acked. A moves the watermark and stops. B acks 2 and commits without waiting. A continues.

        B marks the partition as changed. A began earlier and does not lose this mark: the next run moves the watermark
        to 2.
        """
        one, two = delivered(worker, 2)
        one.ack()
        with Stopped(lambda: move(worker), step) as watermarks, Background(two.ack) as ack:
            done = DeliveryState.objects.filter(message_offset=two.offset, acked=True)
            wait_until(done.exists, "the ack is committed beside the watermark")
            watermarks.go()
            assert ack.result()
        assert watermark(TOPIC, "g", "k") >= one.offset
        move(worker)
        assert watermark(TOPIC, "g", "k") == two.offset

    def test_a_watermark_moves_while_an_ack_is_about_to_commit(self, worker: Subscription) -> None:
        """B acks 2 and stops before COMMIT. A moves the watermark to 1 without waiting. B commits. A moves it to 2."""
        one, two = delivered(worker, 2)
        one.ack()
        with Stopped(two.ack, COMMIT) as ack:
            ends(lambda: move(worker))
            assert watermark(TOPIC, "g", "k") == one.offset
            assert ack.go()
        move(worker)
        assert watermark(TOPIC, "g", "k") == two.offset


class TestDeletionAndRegistration:
    @pytest.mark.parametrize("step", [*STEPS[1:-2], GROUPS_READ, POSITIONS_GO, COMMIT])
    def test_a_group_registers_while_a_collection_is_under_way(self, worker: Subscription, step: str) -> None:
        """A (collection) stops. B subscribes and waits for A. A deletes 1 and commits. B's group begins with 2.

        At each step of A, B gets all messages that remain and no deleted message. The other order:
        features/groups/test_races.py, test_collection_leaves_a_topic_where_a_registration_is_under_way.
        """
        finished(worker, "gone")
        there = publish(TOPIC, "there", key="another").offset
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            assert waits(collection, lambda: subscribe(TOPIC, "new"))
        assert in_log(TOPIC) == [there]
        with Subscription(TOPIC, "new") as newcomer:
            assert [delivery.payload for delivery in consume(newcomer, 1)] == ["there"]


class TestDeletionAndUnsubscribe:
    @pytest.fixture
    def both(self, worker: Subscription) -> list[int]:
        """Return two messages that g has acked. Group ``behind`` has acked only the first."""
        offsets = finished(worker, 1)
        with Subscription(TOPIC, "behind") as other:
            consume(other, 1)
            settle(other)
        return offsets + finished(worker, 2)

    @pytest.mark.parametrize(
        "step",
        [WATERMARKS_READ, STATE_GOES, LOG_GOES, COMMIT],
    )
    def test_a_group_leaves_while_a_collection_is_under_way(self, both: list[int], step: str) -> None:
        """A (collection) has read both groups and stops. B unsubscribes ``behind`` and waits. A deletes only 1.

        B leaves no state. The next collection deletes 2.
        """
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            assert waits(collection, lambda: unsubscribe(TOPIC, "behind"))
        assert in_log(TOPIC) == both[1:]
        assert with_state(TOPIC, "behind") == []
        collect(TOPIC)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    @pytest.mark.parametrize(
        "step",
        ["DELETE o FROM", "DELETE t FROM queue_subscriber_heartbeats", COMMIT],
    )
    def test_a_collection_begins_while_a_group_is_leaving(self, both: list[int], step: str) -> None:
        """B unsubscribes and stops. A (collection) skips the topic without waiting. B commits. A deletes 1 and 2."""
        with Stopped(lambda: unsubscribe(TOPIC, "behind"), step) as leaving:
            assert ends(lambda: collect_page(TOPIC)) is False
            assert in_log(TOPIC) == both
            assert leaving.go()
        collect(TOPIC)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == with_state(TOPIC, "behind") == []

    def test_a_collection_between_two_transactions_of_leaving(
        self, worker: Subscription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """B has unregistered the group and stops while some of its state exists. A (collection) deletes 1 and 2.

        B continues. No state remains of deleted messages.
        """
        monkeypatch.setattr(removal, "ROWS", 1)
        finished(worker, 1, 2)
        with Subscription(TOPIC, "behind") as other:
            consume(other, 2)
            settle(other)
        with Stopped(lambda: unsubscribe(TOPIC, "behind"), MARK_LOCKED) as leaving:
            assert with_state(TOPIC, "behind")
            ends(lambda: collect(TOPIC))
            assert in_log(TOPIC) == with_state(TOPIC, "g") == []
            assert leaving.go()
        assert with_state(TOPIC, "behind") == []


class TestDeletionAndWatermark:
    @pytest.mark.parametrize("step", [STATE_GOES, LOG_GOES, EMPTY_READ, COMMIT])
    def test_a_watermark_moves_while_a_collection_is_under_way(self, worker: Subscription, step: str) -> None:
        """A (collection) has read watermark 1 and stops. B moves it to 2 without waiting. A deletes only 1."""
        one, two = delivered(worker, 2)
        one.ack()
        move(worker)
        two.ack()
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            ends(lambda: move(worker))
            assert watermark(TOPIC, "g", "k") == two.offset
            collection.go()
        assert in_log(TOPIC) == with_state(TOPIC, "g") == [two.offset]
        collect(TOPIC)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    @pytest.mark.parametrize("step", [POSITION_WRITTEN, COMMIT])
    def test_a_collection_begins_while_a_watermark_is_uncommitted(
        self, worker: Subscription, step: str
    ) -> None:
        """B moves the watermark and stops. A (collection) deletes nothing and does not wait.

        B commits. A deletes both.
        """
        deliveries = delivered(worker, 2)
        worker.ack(deliveries)
        with Stopped(lambda: move(worker), step) as watermarks:
            ends(lambda: collect_page(TOPIC))
            assert in_log(TOPIC) == with_state(TOPIC, "g") == [delivery.offset for delivery in deliveries]
            watermarks.go()
        collect(TOPIC)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []


class TestDeletionAndAck:
    @pytest.mark.parametrize("step", [STATE_GOES, LOG_GOES, COMMIT])
    def test_an_ack_while_a_collection_is_under_way(self, worker: Subscription, step: str) -> None:
        """A (collection) deletes 1 and stops. B acks 2 of the same partition without waiting."""
        finished(worker, 1)
        (two,) = delivered(worker, 1)
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            assert ends(two.ack)
            collection.go()
        assert in_log(TOPIC) == with_state(TOPIC, "g") == [two.offset]

    def test_a_collection_while_an_ack_is_about_to_commit(self, worker: Subscription) -> None:
        """B acks 2 and stops before COMMIT. A (collection) deletes 1 without waiting. B commits."""
        finished(worker, 1)
        (two,) = delivered(worker, 1)
        with Stopped(two.ack, COMMIT) as ack:
            ends(lambda: collect_page(TOPIC))
            assert in_log(TOPIC) == [two.offset]
            assert ack.go()
        settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    def test_an_ack_repeated_while_its_message_is_deleted(self, worker: Subscription) -> None:
        """A (collection) has deleted 1 with its state and stops before COMMIT.

        B does not know that its ack of 1 was committed. B repeats the ack, waits for A, and is refused. No row is
        created again.
        """
        (one,) = delivered(worker, 1)
        one.ack()
        move(worker)
        one.status.settled_by = ""
        with Stopped(lambda: collect_page(TOPIC), COMMIT) as collection, pytest.raises(StaleDelivery):
            waits(collection, one.ack)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []


class TestDeletionAndClaim:
    @pytest.mark.parametrize("step", ["SELECT m.`offset`, m.partition_key, m.id", COMMIT])
    def test_a_collection_meets_a_claim_of_what_is_done(self, worker: Subscription, step: str) -> None:
        """1 is acked, but B still has it as new. B claims it and stops with its state locked.

        A (collection) waits for B. B gets nothing and commits. A deletes 1. No state remains, and nothing is delivered
        twice. The other order: protocol/fencing/test_claims_of_deleted_messages.py.
        """
        (offset,) = finished(worker, 1)

        def claim() -> int:
            engine = engine_of(worker)
            partition = engine.state.partitions["k"]
            partition.fresh.append(offset)
            engine.state.mark_ready(partition)
            return len(engine.claimer.claim(10, 10))

        with Stopped(claim, step) as claiming:
            waits(claiming, lambda: collect_page(TOPIC))
            assert claiming.result() == 0
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []


class TestTwoCollections:
    @pytest.mark.parametrize(
        "step",
        [GROUPS_READ, STATE_GOES, POSITIONS_GO, COMMIT],
    )
    def test_a_second_worker_leaves_the_topic_to_the_first(self, worker: Subscription, step: str) -> None:
        """A collects and stops. B collects, returns at once, and deletes nothing. A deletes all."""
        finished(worker, 1, 2)
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            assert ends(lambda: collect_page(TOPIC)) is False
            assert len(in_log(TOPIC)) == 2
            collection.go()
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    def test_two_workers_take_turns_page_by_page(
        self, worker: Subscription, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A page has one message. A collects page 1 and stops. B deletes nothing. A commits.

        The same follows with page 2.
        """
        offsets = finished(worker, 1, 2)
        monkeypatch.setattr(garbage_collection, "PAGE", 1)
        for left in (offsets[1:], []):
            with Stopped(lambda: collect_page(TOPIC), COMMIT) as one:
                assert ends(lambda: collect_page(TOPIC)) is False
                one.go()
            assert in_log(TOPIC) == left
