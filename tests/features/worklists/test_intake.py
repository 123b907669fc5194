"""A message becomes one item, or a dead letter with the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from django_mqueue import Message, publish, reset
from django_mqueue.models import Message as Row
from django_mqueue.testing import drain, published
from django_mqueue.workers.registry import handlers
from django_mqueue.worklists import WorkItem, Worklist, steps
from tests.support.shop.models import Sale

from .conftest import Declare
from .lists import SOURCE, an_item, dead_reason, newest, request, steps_of

pytestmark = pytest.mark.django_db


def test_a_message_becomes_an_item(refunds: type[Worklist]) -> None:
    sale = Sale.objects.create(number=7)
    item = an_item(50, sale=7)
    assert (item.worklist, item.state, item.kind, item.is_open) == ("refunds", "unassigned", "refund", True)
    assert item.payload == {"amount": 50, "sale": 7}
    assert item.linked == sale
    assert item.title == "7"
    assert steps_of(item) == ["created"]


def test_the_first_step_is_a_message_of_the_worklists_topic(refunds: type[Worklist]) -> None:
    item = an_item()
    (message,) = published("worklist.refunds")
    assert (message.kind, message.key) == ("created", str(item.pk))
    assert message.payload["after"] == "unassigned"


def test_a_message_that_is_delivered_again_makes_no_second_item(refunds: type[Worklist]) -> None:
    an_item()
    reset(SOURCE, "worklist.refunds", to="earliest")
    drain()
    assert WorkItem.objects.count() == 1


def test_two_priorities_may_have_one_id(refunds: type[Worklist]) -> None:
    """They are different messages: an id is unique within its partition."""
    for priority in (0, 10):
        assert publish(SOURCE, {"amount": priority}, id="17", priority=priority).created
    drain()
    assert WorkItem.objects.count() == 2
    reset(SOURCE, "worklist.refunds", to="earliest")
    drain()
    assert WorkItem.objects.count() == 2


def test_the_second_of_two_priorities_may_be_handled_when_the_first_one_is_deleted(
    refunds: type[Worklist],
) -> None:
    first = publish(SOURCE, {"amount": 0}, id="17")
    drain()
    second = publish(SOURCE, {"amount": 10}, id="17", priority=10)
    log = Row.objects.filter(topic=SOURCE)
    published_at = log.get(offset=first.offset).published_at
    log.filter(offset=second.offset).update(published_at=published_at)
    log.filter(offset=first.offset).delete()
    drain()
    assert WorkItem.objects.count() == 2


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"amount": 50, "sale": 404}, "Sale matching query does not exist"),
        ({"price": 50}, "KeyError: 'amount'"),
    ],
)
def test_a_message_that_does_not_fit_is_a_dead_letter(
    refunds: type[Worklist], payload: dict[str, int], reason: str
) -> None:
    publish(SOURCE, payload)
    drain()
    assert "cannot become an item of worklist 'refunds'" in dead_reason()
    assert reason in dead_reason()
    assert not WorkItem.objects.exists()


def test_bytes_are_a_dead_letter(refunds: type[Worklist]) -> None:
    publish(SOURCE, b"\x00")
    drain()
    assert "its payload is bytes, and a work item needs JSON" in dead_reason()


def test_due_dates_count_from_the_item(declare: Declare) -> None:
    declare(due=timedelta(days=2))
    item = an_item()
    assert item.due_at is not None
    assert item.due_at - item.created_at == timedelta(days=2)


def test_a_due_date_can_differ_by_message(declare: Declare) -> None:
    class Urgent(Worklist):
        def due(self, message):  # type: ignore[no-untyped-def]
            return timedelta(hours=1) if message.payload["amount"] > 100 else None

    declare(Urgent)
    assert an_item(50).due_at is None
    assert an_item(150).due_at is not None


def test_attributes_that_are_not_declared_are_refused(declare: Declare) -> None:
    class Wrong(Worklist):
        def attributes(self, message):  # type: ignore[no-untyped-def]
            return {"country": "DE"}

    declare(Wrong, attributes=["city"])
    request(50)
    drain()
    assert "has no attribute 'country'; its declaration names: city" in dead_reason()


def test_two_worklists_can_have_one_source(declare: Declare) -> None:
    declare()
    declare(Worklist, "checks")
    request(50)
    drain()
    assert sorted(WorkItem.objects.values_list("worklist", flat=True)) == ["checks", "refunds"]
    assert newest().history.count() == 1


def test_a_failure_after_the_item_was_stored_leaves_no_item(
    refunds: type[Worklist], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "record", Mock(side_effect=RuntimeError("no history")))
    request(50)
    drain()
    assert not WorkItem.objects.exists()


@pytest.mark.parametrize("due", [timedelta(days=-1), "tomorrow"])
def test_a_wrong_due_date_is_a_dead_letter(declare: Declare, due: Any) -> None:
    class Late(Worklist):
        def due(self, message: Message) -> Any:
            return due

    declare(Late)
    request(50)
    drain()
    assert "due must be" in dead_reason()


def test_a_payload_that_no_json_column_takes_is_a_dead_letter(refunds: type[Worklist]) -> None:
    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    request(50, deep=deep)
    drain()
    assert not WorkItem.objects.exists() or newest().payload is not None


def test_a_number_that_a_json_column_would_round_is_a_dead_letter(refunds: type[Worklist]) -> None:
    """MySQL stores whole numbers of more than 64 bits as floating point numbers."""
    request(50, wei=10**20 + 1)
    drain()
    assert "may hold whole numbers of at most 64 bits" in dead_reason()
    request(50, wei=2**64 - 1)
    drain()
    assert newest().payload == {"amount": 50, "wei": 2**64 - 1}


def test_a_name_whose_topic_nobody_may_publish_to_is_refused(declare: Declare) -> None:
    for name in ("orders_dlq", "orders_scheduled", "orders_replies"):
        with pytest.raises(ValueError, match=f"must not end in .*: 'worklist.{name}'"):
            declare(name=name)


def test_an_object_of_another_database_is_refused(declare: Declare) -> None:
    class Linked(Worklist):
        def link(self, message: Message) -> Any:
            sale = Sale(pk=1)
            sale._state.db = "legacy"
            return sale

    declare(Linked)
    request(50)
    drain()
    assert "link must return an object of database 'default'" in dead_reason()


def test_a_new_worklist_can_begin_with_later_messages(declare: Declare) -> None:
    declare(start="latest")
    (handler,) = handlers([f"{SOURCE}:worklist.refunds"])
    assert handler.start == "latest"
    with pytest.raises(TypeError, match="start must be"):
        declare(name="other", start="later")
