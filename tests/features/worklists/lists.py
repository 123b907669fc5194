"""A worklist of refunds for the tests: large refunds are for people, small ones for a handler."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission, User

from django_mqueue import Message, publish
from django_mqueue.models import DeadLetter
from django_mqueue.models import Message as Row
from django_mqueue.testing import drain
from django_mqueue.worklists import WorkItem, Worklist
from tests.factories import DeliveryStateFactory
from tests.support.shop.models import Sale

SOURCE = "refund-requests"
fails: list[Exception] = []
"""Exceptions that ``work`` raises, one for each call."""
calls: list[int] = []
"""The amount of each call of ``work``, also of calls that were rolled back."""


class Refunds(Worklist):
    """Each finished refund is a ``Sale`` with its amount."""

    def link(self, message: Message) -> Sale | None:
        number = message.payload.get("sale")
        return None if number is None else Sale.objects.get(number=number)

    def automate(self, message: Message) -> bool:
        return bool(message.payload["amount"] < 20)

    def work(self, item: WorkItem) -> Any:
        payload: Any = item.payload
        calls.append(payload["amount"])
        Sale.objects.create(number=-payload["amount"])
        if fails:
            raise fails.pop(0)
        return {"refunded": payload["amount"]}


def request(amount: int, **more: Any) -> None:
    publish(SOURCE, {"amount": amount, **more}, kind=more.get("kind", "refund"))


def an_item(amount: int = 50, **more: Any) -> WorkItem:
    """Publish a request, and return its item."""
    request(amount, **more)
    drain()
    return newest()


def again(item: WorkItem) -> WorkItem:
    return WorkItem.objects.get(pk=item.pk)


def newest() -> WorkItem:
    return WorkItem.objects.order_by("-pk")[0]


def refunded() -> list[int]:
    """Return the amounts that ``work`` has refunded, in order."""
    return [
        -number
        for number in Sale.objects.filter(number__lt=0).order_by("pk").values_list("number", flat=True)
    ]


def user(name: str, *rights: str, worklist: str = "refunds") -> User:
    """Return a new user with these rights on the worklist."""
    made = User.objects.create_user(name, is_staff=True)
    made.user_permissions.set(
        Permission.objects.filter(codename__in=[f"{right}_{worklist}" for right in rights])
    )
    return made


def team(name: str) -> Group:
    return Group.objects.create(name=name)


def steps_of(item: WorkItem) -> list[str]:
    return [one.step for one in item.history]


def dead_reason(topic: str = SOURCE) -> str:
    """Return the error of the only dead letter of a topic."""
    return str(DeadLetter.objects.get(topic=f"{topic}_dlq").last_error)


def published_step(id: str) -> int:
    """Publish a message of the worklist that is in flight. Return its offset."""
    row = Row.objects.get(pk=publish("worklist.refunds", {}, id=id).offset)
    DeliveryStateFactory(
        consumer_group=row.topic, topic=row.topic, partition_key=row.partition_key, message_offset=row.pk
    )
    return row.pk
