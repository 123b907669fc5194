"""Refunds: a handler pays small ones. People pay large ones, and another person reviews them before."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django_mqueue import Message
from django_mqueue.worklists import State, WorkItem, Worklist, worklist

from .events import REFUNDS
from .models import Order, Refund

BY_HAND_FROM = Decimal(10)


@worklist(
    "refunds",
    source=REFUNDS,
    states=[State("review", required=True, own=False)],
    due=timedelta(days=2),
    remind=timedelta(hours=4),
    attributes=["customer"],
)
class Refunds(Worklist):
    def link(self, message: Message) -> Order:
        return Order.objects.get(pk=message.payload["order"])

    def title(self, message: Message) -> str:
        return f"Refund {message.payload['amount']} to {message.payload['customer']}"

    def automate(self, message: Message) -> bool:
        return Decimal(message.payload["amount"]) < BY_HAND_FROM

    def work(self, item: WorkItem) -> Any:
        """Pay the money back. The refund and the end of the item are one commit, so it is paid once."""
        order = Order.objects.get(pk=item.linked_id)
        Refund.objects.create(order=order, amount=order.amount)
        return {"refunded": str(order.amount)}
