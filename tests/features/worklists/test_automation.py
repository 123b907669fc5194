"""Automated items: a handler finishes them, or gives them to people."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_mqueue import Reject, Retry, RetryOn, Subscription, publish, redrive, reschedule, reset
from django_mqueue.models import Message
from django_mqueue.testing import drain, published
from django_mqueue.worklists import ItemChanged, WorkItem, Worklist, automation
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import SOURCE, an_item, calls, fails, newest, published_step, refunded, request, steps_of, user

pytestmark = pytest.mark.django_db


def test_a_handler_finishes_an_automated_item(refunds: type[Worklist]) -> None:
    item = an_item(10)
    assert (item.state, item.is_automated, item.result) == ("finished", True, {"refunded": 10})
    assert refunded() == [10]
    assert steps_of(item) == ["created", "finished"]
    last = published("worklist.refunds")[-1].payload
    assert (last["step"], last["automated"]) == ("finished", True)
    assert 0 <= last["seconds"] < 60


@pytest.mark.parametrize("kind", ["work", "return"])
def test_a_message_that_a_user_publishes_does_not_end_a_review(refunds: type[Worklist], kind: str) -> None:
    """Users who may publish know the id that the handler expects: it is in the links of the item's page."""
    item = an_item(50)
    item.assign(to=user("ann", "take"))
    item.move("review")
    id = f"{kind} {item.pk} {item.version}"
    publish(item.topic, {"item": item.pk}, key=str(item.pk), id=id, kind=kind, group=item.topic)
    drain()
    assert (newest().state, refunded()) == ("review", [])


def test_a_failed_attempt_is_retried(declare: Declare) -> None:
    declare(retry=[0, 0])
    fails.append(RuntimeError("busy"))
    item = an_item(10)
    assert item.state == "finished"
    assert refunded() == [10]


def test_after_the_last_attempt_people_get_the_item(declare: Declare) -> None:
    declare(retry=[0, 0], max_attempts=3)
    fails.extend([RuntimeError("busy"), RuntimeError("busy"), RuntimeError("closed")])
    item = an_item(10)
    assert (item.state, item.error) == ("unassigned", "RuntimeError: closed")
    assert refunded() == []
    assert steps_of(item) == ["created", "failed"]
    ann = user("ann", "take")
    item.take(by=ann)
    item.finish(by=ann)
    assert (newest().is_automated, newest().error, refunded()) == (False, "", [10])


@pytest.mark.parametrize(
    ("retry", "error", "shown"),
    [
        (None, RuntimeError("closed"), "RuntimeError: closed"),
        (RetryOn(OSError), RuntimeError("closed"), "RuntimeError: closed"),
        (None, Retry("closed"), "closed"),
    ],
)
def test_if_the_retry_policy_ends_the_attempts_people_get_the_item_with_the_error(
    declare: Declare, retry: Any, error: Exception, shown: str
) -> None:
    declare(retry=retry, max_attempts=3)
    fails.append(error)
    item = an_item(10)
    assert (item.state, item.error, len(calls)) == ("unassigned", shown, 1)
    assert not Message.objects.filter(topic="worklist.refunds_dlq").exists()


def test_a_retry_policy_that_fails_does_not_end_the_attempts(declare: Declare) -> None:
    def broken(attempt: int, error: BaseException) -> float:
        raise LookupError

    declare(retry=broken, max_attempts=3)
    fails.append(RuntimeError("busy"))
    request(10)
    drain(until=timedelta(minutes=1))
    assert (newest().state, len(calls)) == ("finished", 2)


def test_reject_gives_the_item_to_people_at_once(refunds: type[Worklist]) -> None:
    fails.append(Reject("the account is closed"))
    item = an_item(10)
    assert (item.state, item.error) == ("unassigned", "the account is closed")


def test_a_result_that_is_no_json_gives_the_item_to_people(declare: Declare) -> None:
    class Wrong(Worklist):
        def automate(self, message: Any) -> bool:
            return True

        def work(self, item: WorkItem) -> Any:
            return {1, 2}

    declare(Wrong, max_attempts=1)
    assert "the result of work must be a JSON value" in an_item(10).error


def test_the_handler_leaves_an_item_that_a_person_took_from_it(refunds: type[Worklist]) -> None:
    request(10)
    drain(SOURCE)
    item = newest()
    assert item.state == "automated"
    item.unassign(by=user("boss", "assign"))
    drain()
    assert newest().state == "unassigned"
    assert refunded() == []


def test_a_step_with_another_item_that_fails_is_an_attempt(declare: Declare) -> None:
    """A conflict of another item is no reason to leave this one."""

    class Closing(Worklist):
        def automate(self, message: Any) -> bool:
            return bool(message.payload["amount"] < 20)

        def work(self, item: WorkItem) -> None:
            raise ItemChanged("item 1 was changed meanwhile")

    declare(Closing, max_attempts=1)
    item = an_item(10)
    assert (item.state, item.error) == ("unassigned", "ItemChanged: item 1 was changed meanwhile")


@pytest.mark.django_db(transaction=True)
def test_work_that_has_killed_its_worker_each_time_is_given_to_people(declare: Declare) -> None:
    declare(max_attempts=3)
    request(10)
    drain(SOURCE)
    item = newest()
    with Subscription("worklist.refunds", group="worklist.refunds") as subscription:
        (delivery,) = [one for one in subscription.poll() if one.kind == "work"]
        delivery.status.failures = 3
        with delivery.atomic():
            automation.handle(item.rules, delivery)
    assert "the worker died" in newest().error
    assert calls == []


def test_deliver_now_returns_a_delayed_item(refunds: type[Worklist]) -> None:
    item = an_item()
    item.delay(until=3600)
    assert reschedule(
        "worklist.refunds",
        f"return {item.pk} {item.version}",
        key=str(item.pk),
        group="worklist.refunds",
        delay=0,
    )
    drain()
    assert newest().state == "unassigned"


def test_a_message_that_was_redriven_makes_no_second_item(declare: Declare) -> None:
    """A reset delivers the original again, after its copy has become the item."""
    declare()
    request(10, sale=7)
    drain()
    assert not WorkItem.objects.exists()
    Sale.objects.create(number=7)
    redrive(SOURCE)
    drain()
    assert refunded() == [10]
    reset(SOURCE, "worklist.refunds", to="earliest")
    drain()
    assert refunded() == [10]
    assert WorkItem.objects.count() == 1


def test_the_last_failure_of_an_earlier_version_changes_nothing(declare: Declare) -> None:
    """The item was changed meanwhile, and has a new message."""
    declare(max_attempts=1)
    item = an_item(50)
    WorkItem.objects.filter(pk=item.pk).update(state="automated", is_automated=True)
    offset = published_step(f"work {item.pk} {item.version}")
    WorkItem.objects.filter(pk=item.pk).update(version=item.version + 1)
    with transaction.atomic():
        automation.after_failure(item.rules, "default", offset, is_final=True)
    item.refresh_from_db()
    assert item.state == "automated"
    WorkItem.objects.filter(pk=item.pk).update(version=item.version - 1)
    with transaction.atomic():
        automation.after_failure(item.rules, "default", offset, is_final=True)
    item.refresh_from_db()
    assert item.state == "unassigned"
