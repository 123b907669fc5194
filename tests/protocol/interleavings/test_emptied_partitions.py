"""The last message of a partition is deleted.

Meanwhile others publish to the partition, own it or move its watermark.
"""

from __future__ import annotations

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.models import Offset
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    consume,
    consume_rest,
    engine_of,
    in_log,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import HeldTransaction, wait_until

from .sides import STILL, collect_page, ends, finished, give_up, move
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = "orders"

EMPTY_READ, POSITIONS_GO = "SELECT p.partition_key, (SELECT m.`offset`", "SELECT o.id FROM queue_offsets o"
"""Statements before which a collection stops."""


still = with_settings(MQUEUE=STILL)


class TestEmptiedPartitions:
    @pytest.mark.parametrize("leased", [True, False])
    @pytest.mark.parametrize("step", [EMPTY_READ, POSITIONS_GO, COMMIT])
    @pytest.mark.parametrize("begun", ["before", "meanwhile"])
    def test_a_message_comes_while_its_partition_is_found_empty(
        self, worker: Subscription, begun: str, step: str, leased: bool
    ) -> None:
        """A (collection) deletes 1, the only message of k, and stops. B publishes 2 to k and commits without waiting.

        With ``begun="before"``, B inserted 2 before A began. A continues, and may delete k's position. Only 2 is
        delivered. If the publisher stays open: features/groups/test_open_transactions.py.
        """
        finished(worker, 1)
        if not leased:
            give_up(worker, "k")
        with (
            HeldTransaction(lambda: begun == "before" and publish(TOPIC, 2, key="k")) as publisher,
            Stopped(lambda: collect_page(TOPIC), step) as collection,
        ):
            if begun == "meanwhile":
                ends(lambda: publish(TOPIC, 2, key="k"))
            publisher.commit()
            collection.go()
        assert [delivery.payload for delivery in consume(worker, 1)] == [2]
        settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []

    def test_a_position_is_written_while_its_partition_is_found_empty(self, worker: Subscription) -> None:
        """A has written the watermark of k and stops before COMMIT. B (collection) deletes k's last message.

        B does not wait, and leaves k's position, which A has locked. A commits.
        """
        finished(worker, 1)
        finished(worker, 2, key="other")
        engine_of(worker).state.mark_dirty("k")
        with Stopped(lambda: move(worker), COMMIT) as watermarks:
            ends(lambda: collect_page(TOPIC))
            watermarks.go()
        assert in_log(TOPIC) == []
        assert Offset.objects.filter(consumer_group="g", partition_key="k").exists()

    def test_a_new_owner_moves_the_watermark_while_the_old_position_goes(self, worker: Subscription) -> None:
        """A (collection) deletes the last message and the position of k, which has no lease, and stops before COMMIT.

        B publishes 2 to k, leases k and acks 2. Its watermark does not move: A has the topic locked, so B cannot write
        the settled offset. A commits. B writes the settled offset and a new position.
        """
        finished(worker, 1)
        give_up(worker, "k")

        def begin_anew() -> list[object]:
            publish(TOPIC, 2, key="k")
            got = consume(worker, 1)
            settle(worker)
            return [delivery.payload for delivery in got]

        with Stopped(lambda: collect_page(TOPIC), COMMIT) as collection:
            assert ends(begin_anew) == [2]
            assert watermark(TOPIC, "g", "k") < in_log(TOPIC)[-1]
            collection.go()
        (offset,) = in_log(TOPIC)
        wait_until(lambda: not worker.poll() and watermark(TOPIC, "g", "k") == offset, "it is written")
        assert consume_rest(worker) == []

    def test_a_position_that_goes_under_its_new_owner_holds_up_no_other_one(
        self, worker: Subscription, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A (collection) does the same. B publishes 2 to k and 3 to another partition, leases both and acks. A commits.

        B writes the watermark of the other partition at once. It reads k again, because k's position is deleted.
        """
        finished(worker, 1)
        give_up(worker, "k")

        def begin_anew() -> None:
            publish(TOPIC, 2, key="k")
            publish(TOPIC, 3, key="other")
            consume(worker, 2)

        with Stopped(lambda: collect_page(TOPIC), COMMIT) as collection:
            ends(begin_anew)
            collection.go()
        of_k, of_other = in_log(TOPIC)
        engine = engine_of(worker)
        wait_until(lambda: engine.tailer.settle(TOPIC) >= of_other, "it is settled")
        assert {"k", "other"} <= engine.state.dirty.keys()
        move(worker)
        assert watermark(TOPIC, "g", "other") == of_other
        assert not engine.tailer.tails[TOPIC].reload_needed
        move(worker)
        assert watermark(TOPIC, "g", "k") >= of_k
        assert {record.getMessage().partition(":")[0] for record in caplog.records} <= {"partitions lost"}
