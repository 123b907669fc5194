"""The package retries after deadlocks (1213) and lock wait timeouts (1205). The tests cause them on a real server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from django_mqueue import Delivery, Subscription, publish
from django_mqueue.models import DeliveryState, Message
from tests.support.processes import Workers, database_url, gather, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import engine_of
from tests.support.threads import Background, RawConnection, raw_connection

pytestmark = pytest.mark.django_db(transaction=True)

DEADLOCK, LOCK_WAIT = 1213, 1205


@pytest.fixture
def rival() -> Iterator[RawConnection]:
    with override_settings(MQUEUE={"LEASE_DURATION": 60}), raw_connection() as rival:
        yield rival


class Errors:
    """Runs a function in a thread and keeps the error codes that the server returned to its connection."""

    def __init__(self, function: Callable[[], Any], *, lock_wait: int = 50) -> None:
        self.codes: list[int] = []

        def run() -> Any:
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = %s", [lock_wait])
            with connection.execute_wrapper(self._note):
                return function()

        self.thread = Background(run).start()

    def _note(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            self.codes.append(error.args[0])
            raise


def make_heavy(rival: RawConnection) -> None:
    """Change many rows: in a deadlock, the server rolls back the transaction that has changed less."""
    names = ", ".join(f"('heavy-{n}')" for n in range(400))
    rival.execute(f"INSERT INTO shop_door (name) VALUES {names}")


def two_held() -> tuple[Subscription, list[Delivery]]:
    for k in range(2):
        publish("t", k, key=f"k{k}")
    subscription = Subscription("t", "g").open()
    held = gather(subscription.poll, 2, "both")
    return subscription, sorted(held, key=lambda delivery: delivery.offset)


def lock_state(rival: RawConnection, delivery: Delivery) -> None:
    rival.execute(
        "SELECT 1 FROM queue_delivery_state WHERE message_offset = %s AND consumer_group = 'g'"
        " AND topic = 't' AND partition_key = %s FOR UPDATE",
        [delivery.offset, delivery.key],
    )


def begin_state(rival: RawConnection, offset: int) -> None:
    rival.execute(
        "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
        " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
        " VALUES ('g', 't', 'k0', %s, 0, 1, 0, 0, 0, 1, 0, 0, '', 0)",
        [offset],
    )


def test_an_ack_that_is_the_victim_of_a_deadlock_is_tried_again(rival: RawConnection) -> None:
    """The ack has locked the first row and waits for the second. The rival holds the second and requests the first."""
    subscription, (first, second) = two_held()
    make_heavy(rival)
    lock_state(rival, second)
    ack = Errors(lambda: subscription.ack([first, second]))
    assert ack.thread.is_blocked
    lock_state(rival, first)
    rival.rollback()
    assert ack.thread.result() is True
    assert ack.codes == [DEADLOCK]
    assert DeliveryState.objects.filter(acked=True).count() == 2
    subscription.close()


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "postpone", "extend"])
def test_an_answer_whose_lock_wait_times_out_is_tried_again(verb: str, rival: RawConnection) -> None:
    subscription, (first, _) = two_held()
    lock_state(rival, first)
    arguments = (30,) if verb == "extend" else ()
    answer = Errors(lambda: getattr(first, verb)(*arguments), lock_wait=1)
    wait_until(lambda: answer.codes, "its wait has timed out")
    rival.rollback()
    assert answer.thread.result() is True
    assert set(answer.codes) == {LOCK_WAIT}
    state = DeliveryState.objects.get(message_offset=first.offset)
    assert state.in_flight is (verb == "extend")
    assert Message.objects.filter(topic="t_dlq").count() == (verb == "reject")
    subscription.close()


def test_a_claim_whose_lock_wait_times_out_is_tried_again_and_delivers_once(rival: RawConnection) -> None:
    """The claim has locked its leases and waits to mark a message, until its lock wait times out."""
    subscription, held = two_held()
    subscription.ack(held)
    begin_state(rival, publish("t", "new", key="k0").offset)
    claim = Errors(subscription.poll, lock_wait=1)
    wait_until(lambda: claim.codes, "its wait has timed out")
    rival.rollback()
    (delivery,) = claim.thread.result()
    assert (delivery.payload, delivery.attempt) == ("new", 1)
    assert subscription.poll() == []
    subscription.close()


def test_a_claim_that_is_the_victim_of_a_deadlock_is_tried_again(rival: RawConnection) -> None:
    """The claim has locked its leases and waits to mark a message. The rival holds that row and requests the lease."""
    subscription, held = two_held()
    subscription.ack(held)
    make_heavy(rival)
    begin_state(rival, publish("t", "new", key="k0").offset)
    claim = Errors(subscription.poll)
    assert claim.thread.is_blocked
    rival.execute("SELECT id FROM queue_partition_leases FOR UPDATE")
    rival.rollback()
    # The claim skips the lease if it retries before the rival has ended.
    (delivery,) = claim.thread.result() or gather(subscription.poll, 1, "it")
    assert (delivery.payload, delivery.attempt) == ("new", 1)
    assert DEADLOCK in claim.codes
    subscription.close()


def test_a_lock_that_is_never_free_is_an_error_at_last(rival: RawConnection) -> None:
    """The ack fails after 3 to 20 tries and has changed nothing. A later ack succeeds."""
    subscription, (first, _) = two_held()
    lock_state(rival, first)
    answer = Errors(first.ack, lock_wait=1)
    with pytest.raises(OperationalError, match="1205"):
        answer.thread.result()
    assert 3 <= len(answer.codes) <= 20
    rival.rollback()
    assert first.ack()
    subscription.close()


def test_while_a_group_rests_only_a_renewal_is_due() -> None:
    """A discovery is overdue, and waits for the end of the rest."""
    rare = {"DISCOVERY_INTERVAL": 0.01, "LEASE_DURATION": 36_000, "LEASE_RENEWAL_INTERVAL": 3600}
    with override_settings(MQUEUE=rare), Subscription("t", "g") as subscription:
        subscription.poll()
        engine = engine_of(subscription)
        engine._backoff_until = time.monotonic() + 3600
        wait_until(lambda: engine.membership.due_in() == 0, "a discovery is overdue")
        assert engine.due_in() > 1


def test_a_worker_process_meets_both_and_carries_on() -> None:
    """The connections of ``runconsumer`` wait one second for locks. The rival locks leases and messages for longer."""
    impatient = database_url(init_command="SET SESSION innodb_lock_wait_timeout = 1")
    for n in range(3):
        publish("orders", {"n": n, "do": "wait", "door": "exit"}, key="k")
    with Workers({"LEASE_DURATION": 60, "DISCOVERY_INTERVAL": 0.1}) as workers, raw_connection() as rival:
        worker = workers.start("orders:billing", "--threads", "3", url=impatient)
        wait_until(lambda: Step.objects.count() == 3, "three have started")
        rival.execute("SELECT id FROM queue_partition_leases FOR UPDATE")
        rival.execute("SELECT * FROM queue_delivery_state WHERE acked = 0 FOR UPDATE")
        Door.objects.create(name="exit")
        wait_until(lambda: f"({LOCK_WAIT}, " in worker.output(), "a wait for a lock has timed out")
        assert worker.running
        rival.rollback()
        wait_until(lambda: DeliveryState.objects.filter(acked=True).count() == 3, "they are acked")
        assert worker.stop() == 0
    assert set(Step.objects.filter(what="start").values_list("attempt", flat=True)) == {1}
