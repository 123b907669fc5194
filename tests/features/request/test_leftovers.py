"""Late replies and dead requesters leave no rows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue import OutgoingMessage, Reply, Subscription, request, subscribe
from django_mqueue.models import Message
from django_mqueue.protocol.retention.expired_replies import BOXES as PAGE
from django_mqueue.protocol.retention.expired_replies import LINGER_MS, ExpiredReplies
from django_mqueue.service import requesting
from django_mqueue.service.requesting import PendingRequest
from tests.factories import MessageFactory
from tests.support.processes import Worker, Workers, database_ms, database_url, wait_until
from tests.support.shop.models import Step
from tests.support.statements import counted
from tests.support.subscribers import QUICK, collect
from tests.support.transactions import Background, HeldTransaction
from tests.support.waiting import PATIENCE

from .asking import asked, boxes, later, move_deadlines, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


@contextmanager
def requester(topic: str, seconds: float) -> Iterator[Worker]:
    """Run a separate process that sends one request."""
    worker = Worker(
        (topic, str(seconds)), {"DATABASE_URL": database_url()}, ("tests.features.request.requester",)
    )
    try:
        yield worker
    finally:
        worker.close()


def sweep(topic: str) -> None:
    """Sweep as a worker does when its sweep is due and the last deadline was a minute ago."""
    move_deadlines(topic, 60_000 + LINGER_MS)
    collect(topic)


def question(seconds: float = 60) -> PendingRequest:
    """Send a request from this thread, and return it."""
    asking = PendingRequest("prices", OutgoingMessage(1), seconds, None)
    asking.send()
    return asking


def look_later(asking: PendingRequest) -> None:
    with later(61):
        asking.poll()


def test_the_deadline_passes_between_the_handler_s_start_and_its_reply() -> None:
    with Subscription("prices", "shop") as subscription:
        waiting = asked("prices", 1, timeout=0.2).start()
        delivery = one(subscription)
        with pytest.raises(TimeoutError):
            waiting.result()
        with counted() as cost:
            assert delivery.reply("late") is False
        assert cost.count == 2
        assert boxes("prices") == []


def test_the_deadline_is_held_by_the_database_whatever_the_requester_does() -> None:
    """The requester does not look before its deadline. ``reply`` returns False after the deadline."""
    with Subscription("prices", "shop") as subscription:
        asking = question()
        delivery = one(subscription)
        with later(61):
            assert delivery.reply("late") is False
            with pytest.raises(TimeoutError):
                asking.poll()
    assert boxes("prices") == []


def test_what_was_replied_in_time_is_got_also_after_the_deadline() -> None:
    """The requester looks for its reply after the deadline. ``reply`` returned True before the deadline."""
    with Subscription("prices", "shop") as subscription:
        asking = question()
        assert one(subscription).reply("in time") is True
        with later(61):
            ExpiredReplies("default", "prices").delete_page()
            assert asking.poll() == Reply("in time")
    assert boxes("prices") == []


def test_a_reply_s_transaction_is_open_over_the_deadline_and_commits_then() -> None:
    """The requester does not wait for the lock. A reply that commits after the requester has left is swept."""
    with Subscription("prices", "shop") as subscription:
        asking = question()
        delivery = one(subscription)
        with HeldTransaction(lambda: delivery.reply("held")) as held:
            assert held.result() is True
            looking = Background(lambda: look_later(asking)).start()
            with pytest.raises(TimeoutError):
                looking.result()
            assert held.commit() is True
        assert [box.failure_count for box in boxes("prices")] == [0]
        with later(61):
            ExpiredReplies("default", "prices").delete_page()
        assert len(boxes("prices")) == 1, "its requester might still be on its way"
        sweep("prices")
        assert boxes("prices") == []
        delivery.ack()


def test_a_reply_that_commits_while_the_requester_takes_its_last_looks_is_got() -> None:
    with Subscription("prices", "shop") as subscription:
        asking = question()
        delivery = one(subscription)
        with HeldTransaction(lambda: delivery.reply("just")) as held:
            assert held.result() is True
            looks = []

            def commit(seconds: float) -> None:
                looks.append(seconds)
                if len(looks) == 2:
                    held.commit()

            with pytest.MonkeyPatch.context() as patch, later(61):
                patch.setattr(requesting, "sleep", commit)
                assert asking.poll() == Reply("just")
    assert len(looks) == 2
    assert boxes("prices") == []


def test_a_requester_that_is_killed_leaves_a_box_that_workers_sweep() -> None:
    with requester("prices", 60) as process, Subscription("prices", "shop") as subscription:
        delivery = one(subscription)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert delivery.reply("to nobody") is True
        delivery.ack()
        assert len(boxes("prices")) == 1
        collect("prices")
        assert len(boxes("prices")) == 1, "as far as anybody knows, it waits"
        sweep("prices")
        assert boxes("prices") == []


def test_a_requester_that_stood_still_for_too_long_finds_no_box() -> None:
    with requester("prices", 60) as process, Subscription("prices", "shop") as subscription:
        delivery = one(subscription)
        process.send(signal.SIGSTOP)
        with transaction.atomic():  # The server may still run the look that the process has sent before.
            delivery.reply("in time")
            sweep("prices")
        assert boxes("prices") == []
        process.send(signal.SIGCONT)
        assert process.wait() == 1
        assert "RequestTimeout" in process.output()


@pytest.mark.timeout(20 * PATIENCE)
def test_each_request_is_answered_once_though_workers_are_killed() -> None:
    """Every ten requests, the test kills one of the two workers and starts it again."""
    with Workers() as workers:
        crew = [workers.start("quotes:pricing", "--name", f"w{n}") for n in range(2)]
        requesters = [asked("quotes", {"n": n}, timeout=10 * PATIENCE) for n in range(40)]
        for n, requester in enumerate(requesters):
            requester.start()
            if n % 10 == 5:
                wait_until(lambda: Step.objects.filter(number__lt=n), "they are at work")  # noqa: B023
                crew[n // 10 % 2].kill()
                crew[n // 10 % 2] = workers.start("quotes:pricing", "--name", f"w{n // 10 % 2}")
        for n, requester in enumerate(requesters):
            assert requester.result().payload == {"n": n, "price": 2 * n}
        assert boxes("quotes") == []


def test_a_running_worker_sweeps_by_itself() -> None:
    """One process sends a request, a worker replies, and a third process dies."""
    seconds = int(10 * PATIENCE)
    with Workers({**QUICK, "GC_INTERVAL": 0.1}) as workers, requester("quotes", seconds) as victim:
        wait_until(lambda: boxes("quotes"), "it has asked")
        victim.kill()
        workers.start("quotes:pricing")
        assert request("quotes", {"n": 1}, timeout=PATIENCE).payload == {"n": 1, "price": 2}
        assert len(boxes("quotes")) == 1
        move_deadlines("quotes", seconds * 1000 + LINGER_MS)
        wait_until(lambda: not boxes("quotes"), "it is swept")


def test_where_no_worker_runs_requesters_sweep() -> None:
    """Each process sweeps with its first request, and then once per ``GC_INTERVAL``."""
    MessageFactory(topic="prices_replies", partition_key=" replies", available_at=1)
    requesting._next_deletions.clear()
    with pytest.raises(TimeoutError):
        request("prices", 1, timeout=0.001)
    assert boxes("prices") == []
    requesting._next_deletions["default", "prices"] += 3600  # As if the interval never ended.
    MessageFactory(topic="prices_replies", partition_key=" replies", available_at=1)
    with pytest.raises(TimeoutError):
        request("prices", 1, timeout=0.001)
    assert len(boxes("prices")) == 1
    with override_settings(MQUEUE={"GC_INTERVAL": 0.01}):
        requesting._next_deletions.clear()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                request("prices", 1, timeout=0.02)
            MessageFactory(topic="prices_replies", partition_key=" replies", available_at=1)
        with pytest.raises(TimeoutError):
            request("prices", 1, timeout=0.02)
    assert boxes("prices") == []


def test_a_sweep_takes_none_that_is_waited_for() -> None:
    with Subscription("prices", "shop") as subscription:
        waiting = asked("prices", 1).start()
        delivery = one(subscription)
        for _ in range(3):
            collect("prices")
        assert delivery.reply("here")
        assert waiting.result() == Reply("here")


def test_a_sweep_waits_for_nobody() -> None:
    """One of two leftover boxes is locked. The sweep skips it, and a later sweep deletes it."""
    for _ in range(2):
        MessageFactory(topic="prices_replies", partition_key=" replies", available_at=1)
    first, _ = boxes("prices")
    subscribe("prices", "shop")
    with HeldTransaction(lambda: Message.objects.select_for_update().get(pk=first.pk)):
        with Background(lambda: collect("prices")) as sweeping:
            sweeping.result()
        assert boxes("prices") == [first]
    collect("prices")
    assert boxes("prices") == []


def test_a_sweep_goes_through_them_all_a_page_at_a_time() -> None:
    """Boxes at the start that still wait do not keep the sweep from the boxes after them."""
    now = database_ms()
    for number in range(PAGE + 10):
        waits = number < PAGE + 5
        MessageFactory(
            topic="prices_replies", partition_key=" replies", available_at=now + 3_600_000 if waits else 1
        )
    leftovers = ExpiredReplies("default", "prices")
    with counted() as cost:
        assert leftovers.delete_page() == 0
    assert cost.count == 1
    assert cost.rows <= 2 * PAGE + 10, cost
    assert leftovers.delete_page() == 5
    assert leftovers.delete_page() == 0
    assert len(boxes("prices")) == PAGE + 5
    Message.objects.filter(topic="prices_replies").update(available_at=1)
    with counted() as cost:
        ExpiredReplies("default", "prices").delete_pages()
    assert len(boxes("prices")) == 0
    assert cost.commits == 2, cost
    for _ in range(PAGE + 5):
        MessageFactory(topic="prices_replies", partition_key=" replies", available_at=1)
    assert sorted(leftovers.delete_page() for _ in range(3)) == [0, 5, PAGE]
    assert boxes("prices") == []
