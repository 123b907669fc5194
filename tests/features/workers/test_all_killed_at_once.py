"""SIGKILL of every worker at once, under load, as when a node dies."""

from __future__ import annotations

import signal

import pytest
from django.db.models import F

from django_mqueue import OutgoingMessage, publish_many
from django_mqueue.models import DeliveryState
from tests.support.processes import Workers, wait_until
from tests.support.shop.models import Door, Step
from tests.support.subscribers import let_worker_die

pytestmark = pytest.mark.django_db(transaction=True)

MESSAGES, WORKERS = 400, 3
SLEEP, WAIT = {"do": "sleep", "seconds": 0.03}, {"do": "wait", "door": "exit"}
AT_DOOR = range(200, MESSAGES, 20)
"""The messages whose handlers wait: fewer than the workers have threads, so that the others continue."""


def ended() -> int:
    return Step.objects.filter(what="end").values("number").distinct().count()


@pytest.mark.timeout(180)
def test_what_they_had_in_hand_comes_again_and_attempts_are_right() -> None:
    """Three workers are killed while handlers run, and three others start.

    Each message that reached a handler has used an attempt. The others, prefetched or not, have used none.
    Nothing is dead-lettered. Ten handlers wait at a door until all are killed. The test moves the
    visibility timeouts by an hour, so that the others claim the messages only because the workers are dead.
    """
    publish_many(
        "orders",
        [
            OutgoingMessage({"n": n, **(WAIT if n in AT_DOOR else SLEEP)}, key=f"k{n % 11}")
            for n in range(MESSAGES)
        ],
    )
    with Workers() as workers:
        killed = [workers.start("orders:billing", "--threads", "4") for _ in range(WORKERS)]
        wait_until(lambda: Step.objects.values("pid").distinct().count() == WORKERS, "all are at work")
        at_door = Step.objects.filter(what="start", number__in=AT_DOOR)
        wait_until(lambda: ended() > 50 and at_door.exists(), "they are in the midst of it")
        for worker in killed:
            worker.send(signal.SIGKILL)
        assert [worker.wait() for worker in killed] == [-signal.SIGKILL] * WORKERS
        for worker in killed:
            let_worker_die(worker)
        in_flight = DeliveryState.objects.filter(in_flight=True)
        in_flight.update(invisible_until=F("invisible_until") + 3_600_000)
        in_hand = set(in_flight.filter(handed=True).values_list("message_offset", flat=True))
        assert in_hand, "some handlers were at work"
        assert ended() < MESSAGES
        Door.objects.create(name="exit")
        heirs = [workers.start("orders:billing", "--threads", "4") for _ in range(WORKERS)]
        wait_until(lambda: ended() == MESSAGES, "all are done")
        wait_until(lambda: not DeliveryState.objects.filter(acked=False).exists(), "and acked")
        assert [worker.stop() for worker in heirs] == [0] * WORKERS
    pids = {worker.pid for worker in heirs}
    again = Step.objects.filter(what="start", message_offset__in=in_hand, pid__in=pids)
    assert {step.message_offset for step in again} == in_hand
    assert {step.attempt for step in again} == {2}
    others = Step.objects.filter(what="start", pid__in=pids).exclude(message_offset__in=in_hand)
    assert {step.attempt for step in others} == {1}
    assert not DeliveryState.objects.filter(failure_count__gt=0).exists()
