"""One request, several replies: the requester gets exactly one of them, the first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from django_mqueue import Reply, Subscription, request
from django_mqueue.models import DeliveryState
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.subscribers import poll_until
from tests.support.transactions import Background, HeldTransaction
from tests.support.waiting import PATIENCE

from .asking import asked, boxes, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def test_the_second_reply_of_a_delivery_is_none() -> None:
    with Subscription("prices", "shop") as subscription:
        requester = asked("prices", 1).start()
        delivery = one(subscription)
        with transaction.atomic():  # So that the requester cannot take the first reply before the second.
            assert delivery.reply("first") is True
            assert delivery.reply("second") is False
        assert requester.result() == Reply("first")
        assert delivery.reply("third") is False
        assert boxes("prices") == []


def test_a_redelivery_replies_again() -> None:
    """The handler replies, then fails. The requester has the first reply, and the second ``reply`` returns False."""
    told: list[bool] = []

    def handle(message: Any) -> None:
        told.append(message.reply(message.attempt))
        if message.attempt == 1:
            raise ValueError("after the reply")

    with registered("prices", handle, retry=[0.01]):
        worker = Background(lambda: run("prices:g", drain=False, max_messages=2)).start()
        requester = asked("prices", 1, timeout=60).start()
        assert requester.result() == Reply(1)
        worker.result()
    assert told == [True, False]
    assert boxes("prices") == []


def test_of_several_groups_the_first_one_s_reply_counts() -> None:
    with Subscription("prices", "one") as first, Subscription("prices", "two") as second:
        requester = asked("prices", 1).start()
        mine, other = one(first), one(second)
        assert other.reply("two") is True
        assert requester.result() == Reply("two")
        assert mine.reply("one") is False
        assert boxes("prices") == []


@pytest.mark.parametrize("kept", [True, False])
def test_two_groups_at_once_the_second_waits_until_the_first_has_ended(kept: bool) -> None:
    """The second reply counts if the first one is rolled back.

    The requester may find the box locked by the second reply. Then others delete the box after its deadline.
    """
    with Subscription("prices", "one") as first, Subscription("prices", "two") as second:
        requester = asked("prices", 1).start()
        mine, other = one(first), one(second)
        with (
            HeldTransaction(lambda: mine.reply("one")) as held,
            Background(lambda: other.reply("two")) as background,
        ):
            assert background.keeps_trying()
            held.commit() if kept else held.rollback()
            assert background.result() is not kept
        assert requester.result() == Reply("one" if kept else "two")


def test_who_stands_still_with_a_reply_in_its_transaction_holds_another_up_to_the_deadline_only() -> None:
    """The second reply waits until the deadline, not until the lock wait timeout."""
    late = threading.Event()

    def on_clock(work: Callable[[], Any]) -> Background[Any]:
        """Run the work in a thread. When ``late`` is set, the database's clock is past the deadline for it."""

        def ahead(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if late.is_set():
                execute("SET SESSION timestamp = UNIX_TIMESTAMP(SYSDATE(3)) + 61", None, False, context)
            return execute(sql, params, many, context)

        def run_on_clock() -> Any:
            with connection.execute_wrapper(ahead):
                return work()

        return Background(run_on_clock)

    with Subscription("prices", "one") as first, Subscription("prices", "two") as second:
        requester = on_clock(lambda: request("prices", 1, timeout=60)).start()
        mine, other = one(first), one(second)
        with HeldTransaction(lambda: mine.reply("one")) as held:
            assert held.result() is True
            with on_clock(lambda: other.reply("two")) as background:
                assert background.keeps_trying("SKIP LOCKED")
                late.set()
                assert background.result() is False
            with pytest.raises(TimeoutError):
                requester.result()


def test_an_atomic_handler_s_reply_commits_with_its_effects() -> None:
    """The reply of a failed attempt is rolled back with its effects. The requester does not get it."""
    seen, replied, go_on = Seen(), threading.Event(), threading.Event()

    def handle(message: Any) -> None:
        seen(message)
        Sale.objects.create(number=message.attempt)
        assert message.reply(message.attempt) is True
        if message.attempt == 1:
            replied.set()
            assert go_on.wait(PATIENCE)
            raise ValueError("rolled back")

    with registered("prices", handle, atomic=True, retry=[0]):
        requester = asked("prices", 1, timeout=60).start()
        worker = Background(lambda: run("prices:g", drain=False, max_messages=2)).start()
        assert replied.wait(PATIENCE)
        assert requester.keeps_trying()
        go_on.set()
        assert requester.result() == Reply(2)
        worker.result()
    assert len(seen.messages) == 2
    assert [sale.number for sale in Sale.objects.all()] == [2]
    assert DeliveryState.objects.get().acked


def test_a_reply_in_the_caller_s_transaction_is_got_when_that_commits() -> None:
    with Subscription("prices", "shop") as subscription:
        requester = asked("prices", 1, timeout=60).start()
        delivery = one(subscription)
        with delivery.atomic():
            assert delivery.reply("done")
            assert requester.keeps_trying()
        assert requester.result() == Reply("done")
    assert boxes("prices") == []


def test_a_stale_delivery_s_reply_is_an_effect_like_any_other() -> None:
    """In one transaction with its ack, a stale reply is rolled back. A stale reply alone counts if it is the first."""
    with Subscription("prices", "shop", name="old", visibility_timeout=0.05) as old:
        requester = asked("prices", 1, timeout=60).start()
        late = one(old)
        with Subscription("prices", "shop", name="old") as new:
            (again,) = poll_until(new, 1)
            with pytest.raises(Exception, match="cannot ack"), late.atomic():
                assert late.reply("refused")
            assert again.reply("new")
            assert requester.result() == Reply("new")
        old._subscriber = None  # The second subscriber has replaced it: there is nothing to close.


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_a_reply_that_comes_too_late_holds_up_no_new_request(isolation: str) -> None:
    """The search for a deleted box does not lock the gap where other boxes and messages are inserted."""
    with Subscription("prices", "shop") as subscription:
        with pytest.raises(TimeoutError):
            asked("prices", 1, timeout=0.05).start().result()
        late = one(subscription)
        with HeldTransaction(lambda: late.reply("late"), isolation=isolation) as held:
            assert held.result() is False
            with connection.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 2")
            try:
                requester = asked("prices", 2).start()
                found = next(d for d in poll_until(subscription, 1) if d.payload == 2)
                assert found.reply("in time")
                assert requester.result() == Reply("in time")
            finally:
                with connection.cursor() as cursor:
                    cursor.execute("SET SESSION innodb_lock_wait_timeout = DEFAULT")
