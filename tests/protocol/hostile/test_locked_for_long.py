"""Rows of a group stay locked for longer than the group rests, or the group is paused at a critical moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue import Subscription, pause, publish, publish_many, reset, resume, unsubscribe
from django_mqueue.models import DeliveryState, Offset
from django_mqueue.protocol import subscriber
from django_mqueue.protocol.retention.removing import Removal
from django_mqueue.store import removal
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.protocol.interleavings.workers import GROUP, STILL, TOPIC, claim, claim_suspect, run_out, worker
from tests.support.processes import FAST
from tests.support.running import Seen, registered
from tests.support.subscribers import QUICK, consume, engine_of
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_until

from .test_held_rows import worker as loop

pytestmark = pytest.mark.django_db(transaction=True)


@override_settings(MQUEUE={**FAST, "LEASE_DURATION": 600})
def test_an_answer_that_stays_locked_keeps_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of A has ended. Its ack is still locked after A's rest. B has many messages and uses all threads.

    When the caller's transaction ends, A continues.
    """
    monkeypatch.setattr(subscriber, "BACKOFF", 0.2)
    door = threading.Event()
    with (
        registered("ta", a := Seen(lambda message: door.wait(PATIENCE)), group="A"),
        registered("tb", b := Seen(lambda message: threading.Event().wait(0.02)), group="B"),
        loop(),
    ):
        publish("ta", "slow", key="k")
        wait_until(lambda: a.messages, "it has begun")
        with HeldTransaction(lambda: reset("ta", "A", "earliest", force=True)) as held:
            door.set()
            publish_many("tb", range(400))
            wait_until(lambda: len(b.messages) == 400, "the other group goes on")
            held.rollback()
        publish("ta", "next", key="k")
        wait_until(lambda: len(a.messages) == 2, "and so does the first")
    assert a.attempts("slow") == a.attempts("next") == [1]


@override_settings(MQUEUE=STILL)
def test_a_pause_before_a_suspect_is_claimed_does_not_lose_it() -> None:
    """A has a message whose visibility timeout is over. B pauses the group, and A's claim gets nothing.

    B resumes the group, and A claims the message.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a:
        (first,) = claim(a)
        run_out(a)
        pause(TOPIC, GROUP)
        assert claim_suspect(a) == []
        resume(TOPIC, GROUP)
        assert not engine_of(a).claimer._refresh_paused()
        (again,) = claim_suspect(a)
        assert (again.offset, again.attempt) == (first.offset, 2)
        assert again.ack()


MUCH = "much"
"""A topic for which the example shop has no consumer."""


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group with more rows than one transaction of a removal deletes."""
    monkeypatch.setattr(removal, "ROWS", 2)
    with override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "RETENTION": 3600}):
        publish_many(MUCH, range(5))
        with Subscription(MUCH, "g", name="a") as subscription:
            consume(subscription, 5)


@contextmanager
def running() -> Iterator[None]:
    """Run a worker's loop over the group's handler in a thread."""
    runner = Runner(handlers([f"{MUCH}:g"]), RunOptions(name="w", max_seconds=120))
    with Background(runner.run) as background:
        try:
            yield
        finally:
            runner.stop()
            background.result()


@pytest.mark.usefixtures("much")
@override_settings(MQUEUE=STILL)
def test_a_reset_with_autocommit_off_leaves_the_rest_to_workers() -> None:
    transaction.set_autocommit(False)
    try:
        reset(MUCH, "g", "earliest", force=True)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert DeliveryState.objects.filter(consumer_group="g").exists()
    with override_settings(MQUEUE=FAST), registered(MUCH, seen := Seen(), group="g"), running():
        wait_until(lambda: len(seen.messages) == 5, "all are delivered again")
    assert not Offset.objects.filter(partition_key__startswith=removal.PREFIX).exists()


@pytest.mark.usefixtures("much")
@override_settings(MQUEUE=FAST)
def test_a_worker_s_loop_removes_what_an_unsubscribed_group_left_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process that unsubscribed its group died before it removed all rows. The worker registers the group again.

    Its loop removes the rest and waits for no lock.
    """
    with monkeypatch.context() as died:
        died.setattr("django_mqueue.protocol.retention.removing.finish", lambda *arguments: None)
        unsubscribe(MUCH, "g")
    waited: list[bool] = []
    step = Removal.step

    def noted(rest: Removal, *, wait: bool = False) -> bool:
        waited.append(wait)
        return step(rest, wait=wait)

    monkeypatch.setattr(Removal, "step", noted)
    with registered(MUCH, seen := Seen(), group="g"), running():
        wait_until(lambda: len(seen.messages) == 5, "all are delivered again")
    assert waited
    assert True not in waited
