"""Requests that no handler can answer: the requester gets ``RequestFailed`` at once."""

from __future__ import annotations

from typing import Any

import pytest

from django_mqueue import Reject, Reply, RequestFailed, Subscription, redrive, subscribe, unsubscribe
from django_mqueue.inspect import send_to_front
from django_mqueue.models import DeliveryState, Message
from django_mqueue.spark.database import following
from django_mqueue.store.delivery_state import WORKER_DIED
from tests.support.processes import wait_until
from tests.support.running import registered, run
from tests.support.transactions import Background, HeldTransaction

from .asking import asked, boxes, one

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


@pytest.mark.parametrize("atomic", [False, True])
def test_a_rejected_request(atomic: bool) -> None:
    def handle(message: Any) -> None:
        raise Reject("no such article")

    with registered("prices", handle, atomic=atomic):
        worker = Background(lambda: run("prices:g", drain=False, max_messages=1)).start()
        with pytest.raises(
            RequestFailed, match="group 'g' dead-lettered request 'one' on topic 'prices': no such"
        ) as raised:
            asked("prices", 1, id="one").start().result()
        worker.result()
    error = raised.value
    assert (error.topic, error.id, error.group, error.reason) == ("prices", "one", "g", "no such article")
    assert boxes("prices") == []
    assert Message.objects.get(topic="prices_dlq").last_error == "no such article"


def test_a_request_whose_attempts_have_all_failed() -> None:
    """The request fails after the last attempt only. The reason holds the whole traceback."""

    def handle(message: Any) -> None:
        raise ValueError(f"attempt {message.attempt}")

    with registered("prices", handle, retry=[0], max_attempts=3):
        worker = Background(lambda: run("prices:g", drain=False, max_messages=3)).start()
        with pytest.raises(RequestFailed, match=r"ValueError: attempt 3$") as raised:
            asked("prices", 1).start().result()
        worker.result()
    assert "Traceback" in raised.value.reason


def test_a_request_that_kills_its_workers() -> None:
    """The next subscriber moves the message to the dead letters without delivering it."""
    with Subscription("prices", "shop", name="a", max_attempts=1) as subscription:
        requester = asked("prices", 1).start()
        one(subscription)
        DeliveryState.objects.update(alone=True)
        subscription._subscriber = None
        with Subscription("prices", "shop", name="a", max_attempts=1) as heir:
            wait_until(lambda: heir.poll() or requester.is_done, "it is buried")
        with pytest.raises(RequestFailed) as raised:
            requester.result()
    assert raised.value.reason == WORKER_DIED


def test_another_group_may_still_reply() -> None:
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        requester = asked("prices", 1).start()
        answering = one(shop)
        one(audit).reject("not for me")
        assert boxes("prices")[0].failure_count is None
        assert answering.reply("here")
        assert requester.result() == Reply("here")


def test_a_group_with_a_parked_retry_may_still_reply() -> None:
    """Its delivery is acknowledged in the log, because its retry waits outside of it."""
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        requester = asked("prices", 1).start()
        mine = one(audit)
        one(shop).nack(delay=7_200)
        mine.reject("not for me")
        assert boxes("prices")[0].failure_count is None
        assert requester.keeps_trying("SELECT failure_count")
        assert send_to_front("prices", group="shop") == 1
        answering = one(shop)
        assert answering.reply("here")
        assert requester.result() == Reply("here")


@pytest.mark.parametrize("verb", ["ack", "reject"])
def test_groups_that_are_done_with_it_will_not_reply(verb: str) -> None:
    """One group acknowledges without a reply, or rejects. Another group starts after the request and never sees it."""
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        requester = asked("prices", 1).start()
        mine, other = one(shop), one(audit)
        subscribe("prices", "new", start="latest")
        getattr(other, verb)()
        assert requester.keeps_trying("SELECT failure_count")
        mine.reject("never")
        with pytest.raises(RequestFailed, match="never"):
            requester.result()


def test_of_one_group_alone_no_other_could_reply() -> None:
    subscribe("prices", "audit")
    with Subscription("prices", "shop") as shop:
        requester = asked("prices", 1, group="shop").start()
        one(shop).reject("never")
        with pytest.raises(RequestFailed, match="never"):
            requester.result()


def test_a_group_that_reads_the_log_does_not_reply() -> None:
    following.follow("prices", "archive", 0, 0, using="default")
    with Subscription("prices", "shop") as shop:
        requester = asked("prices", 1).start()
        one(shop).reject("never")
        with pytest.raises(RequestFailed, match="never"):
            requester.result()


def test_after_its_reply_a_request_may_fail() -> None:
    with Subscription("prices", "shop") as shop:
        requester = asked("prices", 1).start()
        delivery = one(shop)
        with delivery_held(delivery) as held:
            held.commit()
        assert requester.result() == Reply("here")
    assert Message.objects.filter(topic="prices_dlq").count() == 1
    assert boxes("prices") == []


def delivery_held(delivery: Any) -> HeldTransaction[bool]:
    """Reply and reject in one transaction, so that the requester cannot take the reply before the rejection."""
    return HeldTransaction(lambda: delivery.reply("here") and delivery.reject("and never again"))


def test_the_worker_waits_for_nobody_who_is_just_replying() -> None:
    """A handler's reply is in an open transaction. Its group is unsubscribed, so the rejecting group is the last."""
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        requester = asked("prices", 1, timeout=60).start()
        mine, other = one(shop), one(audit)
        with HeldTransaction(lambda: mine.reply("here")) as held:
            unsubscribe("prices", "shop")
            with Background(lambda: other.reject("never")) as rejecting:
                rejecting.result()
            held.commit()
        assert requester.result() == Reply("here")


def test_a_letter_that_comes_back_has_nobody_to_reply_to() -> None:
    with Subscription("prices", "shop") as shop:
        requester = asked("prices", 1).start()
        one(shop).reject("never")
        with pytest.raises(RequestFailed):
            requester.result()
        for edit in (None, lambda letter: 2):
            assert redrive("prices", edit=edit) == 1
            again = one(shop)
            assert again.is_request
            assert again.reply("late") is False
            again.reject("never")
    assert boxes("prices") == []


def test_what_was_sent_back_to_one_group_says_nothing_of_the_others() -> None:
    with Subscription("prices", "shop") as shop, Subscription("prices", "audit") as audit:
        requester = asked("prices", 1).start()
        answering = one(audit)
        one(shop).reject("not now")
        assert redrive("prices") == 1
        one(shop).reject("nor now")
        assert answering.reply("here")
        assert requester.result() == Reply("here")


def test_a_dead_letter_s_own_handler_may_answer_where_others_could_have() -> None:
    """There are two groups. The first group rejects, and the handler of its dead letter replies."""
    subscribe("prices", "audit")
    with Subscription("prices", "shop") as shop, Subscription("prices_dlq", "helpers") as helpers:
        requester = asked("prices", 1).start()
        one(shop).reject("ask the helpers")
        assert one(helpers).reply("helped")
        assert requester.result() == Reply("helped")


def test_a_letter_past_the_deadline_tells_nobody() -> None:
    with Subscription("prices", "shop") as shop:
        requester = asked("prices", 1, timeout=0.1).start()
        delivery = one(shop)
        with pytest.raises(TimeoutError):
            requester.result()
        delivery.reject("never")
    assert boxes("prices") == []
