"""A day at the shop: the orders, and the operator's steps after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django_mqueue import redrive, scheduled
from django_mqueue.inspect import Inspected, messages
from django_mqueue.worklists import find

from .events import GROUPS, ORDERS, REMINDERS, reminder_id
from .models import Mail, Order
from .orders import ask_refund, paid, place_order, remind_now
from .outside import DECLINED, GOOD, SILENT, SLOW

ORDERED = {
    "ada": ("tea", 3, GOOD),
    "bob": ("honey", 1, SLOW),
    "cy": ("coffee", 2, DECLINED),
    "dora": ("cocoa", 1, SILENT),
    "eve": ("tea", 5, ""),
    "fay": ("coffee", 1, ""),
    "gus": ("cocoa", 2, ""),
}
"""Article, count and card of each customer. The last three pay by bank transfer."""

BROKEN = {"cy", "dora"}
"""Customers whose cards end as dead letters, until these are redriven with another card."""

TRANSFERRED, REMINDED_NOW = "gus", "fay"
REFUNDED = {"ada": False, "bob": True}
"""Customers who send their order back, and whether a handler pays them. The others are paid by hand."""


@dataclass
class Story:
    """The orders of one run, by customer. ``redriven``: the broken cards were replaced."""

    orders: dict[str, Order] = field(default_factory=dict)
    redriven: bool = False

    def place(self) -> Iterator[Order]:
        """Place all orders. One is paid by transfer; one gets its reminder today, not tomorrow."""
        for customer, (article, count, card) in ORDERED.items():
            self.orders[customer] = place_order(customer, article, count, card)
            yield self.orders[customer]
        paid(self.orders[TRANSFERRED])
        remind_now(self.orders[REMINDED_NOW])

    def redrive(self) -> int:
        """Redrive this story's dead letters with a card that works. Return their number."""
        ids = [f"order-{self.orders[customer].pk}" for customer in sorted(BROKEN)]
        self.redriven = True
        return redrive(ORDERS, group="cards", ids=ids, edit=lambda letter: {**letter.payload, "card": GOOD})

    def send_back(self) -> None:
        """Ask for the refunds."""
        for customer in REFUNDED:
            ask_refund(self.orders[customer])

    def refunds(self, **query: Any) -> int:
        """Return the number of work items for this story's refunds."""
        return sum(find(linked=self.orders[customer], **query).count() for customer in REFUNDED)

    def is_over(self) -> bool:
        """Return whether each message that is due today is done or dead, and no written mail waits for its job.

        No message leaves these two states by itself. A handler writes a mail before its message is done, so the mails
        are checked after the messages.

        Counts of pending, waiting and in-flight messages could miss a message that changes its state meanwhile.
        """
        reminder = reminder_id(self.orders[REMINDED_NOW].pk)
        if any(scheduled(REMINDERS, id=reminder)):
            return False  # It is due, but not yet promoted into the log.
        if any(message.status not in ("done", "dead") for message in self._messages(reminder)):
            return False
        return not Mail.objects.filter(order__in=self.orders.values(), sent_at=None).exists()

    def _messages(self, reminder: str) -> Iterator[Inspected]:
        """Yield the messages with their state, for each group."""
        for customer, order in self.orders.items():
            for group in GROUPS[ORDERS]:
                yield from messages(ORDERS, group=group, key=customer, id=f"order-{order.pk}")
        for group in GROUPS[REMINDERS]:
            yield from messages(REMINDERS, group=group, id=reminder)
