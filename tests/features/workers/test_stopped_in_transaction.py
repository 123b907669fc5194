"""A worker that is stopped inside a transaction blocks one partition for a limited time."""

from __future__ import annotations

import signal

import pytest
from django.db import connection, transaction

from django_mqueue import OutgoingMessage, publish, publish_many
from django_mqueue.models import DeliveryState
from tests.support.processes import FAST, Workers, wait_until
from tests.support.shop.models import Step
from tests.support.transactions import HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"k{n}" for n in range(6)]


def ended() -> set[int]:
    return set(Step.objects.filter(what="end").values_list("number", flat=True))


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'")
        return bool(cursor.fetchone()[0])


def make_state(offset: int) -> None:
    DeliveryState.objects.create(
        consumer_group="billing", topic="orders", partition_key="k0", message_offset=offset, invisible_until=0,
        delivery_token=0, delivered_at=0,
    )  # fmt: skip


def leases_locked() -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM queue_partition_leases")
        ids = [number for (number,) in cursor.fetchall()]
        free = 0
        for number in ids:
            cursor.execute(
                "SELECT 1 FROM queue_partition_leases WHERE id = %s FOR UPDATE SKIP LOCKED", [number]
            )
            free += cursor.fetchone() is not None
    return len(ids) - free


@pytest.mark.timeout(120)
def test_a_worker_that_stands_still_in_its_claim_holds_up_one_partition_until_the_server_ends_it() -> None:
    """A: claims a message and is stopped before its COMMIT, with its lease locked, like a machine that pauses or dies.

    B: starts, takes all other partitions when A's leases have expired, and works. The server closes A's connection
    when it has been idle for as long as a lease. B takes the last partition. It is the message's first attempt.
    A: wakes, has lost all its partitions, and continues as a member.
    """
    publish_many("orders", [OutgoingMessage({"n": n}, key=key) for n, key in enumerate(KEYS)])
    with Workers({**FAST, "LEASE_DURATION": 2}) as workers:
        one = workers.start("orders:billing", "--threads", "1")
        wait_until(lambda: len(ended()) == len(KEYS), "it has all partitions")
        with transaction.atomic():
            message = publish("orders", {"n": 100}, key="k0")
            state = HeldTransaction(lambda: make_state(message.offset)).start()
            state.result()

        def is_stopped_in_its_claim() -> bool:
            """A claim waits for the row for a second only. After a pause, the worker repeats it."""
            wait_until(somebody_waits_for_a_lock, "its claim meets the row", every=0.25)
            one.send(signal.SIGSTOP)
            if leases_locked() != 1:
                one.send(signal.SIGCONT)
                return False
            return True

        wait_until(is_stopped_in_its_claim, "it stands still in its claim")
        state.rollback()

        two = workers.start("orders:billing", "--threads", "1")
        publish_many("orders", [OutgoingMessage({"n": 200 + n}, key=key) for n, key in enumerate(KEYS[1:])])
        wait_until(lambda: {200 + n for n in range(5)} <= ended(), "the other partitions go on")
        wait_until(lambda: 100 in ended(), "and so does the one that was locked")
        one.send(signal.SIGCONT)
        publish_many("orders", [OutgoingMessage({"n": 300 + n}, key=key) for n, key in enumerate(KEYS)])
        wait_until(lambda: {300 + n for n in range(6)} <= ended(), "all go on")
        wait_until(lambda: "the database is back" in one.output(), "the first one has noticed")
        assert [worker.stop() for worker in (one, two)] == [0, 0]
    (run,) = Step.objects.filter(what="start", number=100)
    assert (run.pid, run.attempt) == (two.pid, 1)
    assert not DeliveryState.objects.filter(acked=False).exists()
