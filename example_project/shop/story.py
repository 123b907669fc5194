"""A day at the shop: who orders what, and what then happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from django_mqueue import redrive, scheduled
from django_mqueue.inspect import Inspected, messages

from .events import GROUPS, ORDERS, REMINDERS, reminder_id
from .models import Order
from .orders import paid, place_order, remind_now
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
"""Article, count, card. The last three pay by bank transfer."""

BROKEN = {"cy", "dora"}
"""Their cards end as dead letters, until they are sent back with another."""

TRANSFERRED, REMINDED_NOW = "gus", "fay"


@dataclass
class Story:
    """One run's orders, by customer; ``mended``: the broken cards were replaced."""

    orders: dict[str, Order] = field(default_factory=dict)
    mended: bool = False

    def place(self) -> Iterator[Order]:
        """Place all orders; one is paid by transfer, one is reminded of today and not tomorrow."""
        for customer, (article, count, card) in ORDERED.items():
            self.orders[customer] = place_order(customer, article, count, card)
            yield self.orders[customer]
        paid(self.orders[TRANSFERRED])
        remind_now(self.orders[REMINDED_NOW])

    def mend(self) -> int:
        """Send this story's dead letters back with a card that works. Returns how many went."""
        ids = [f"order-{self.orders[customer].pk}" for customer in sorted(BROKEN)]
        self.mended = True
        return redrive(ORDERS, group="cards", ids=ids, edit=lambda letter: {**letter.payload, "card": GOOD})

    def is_over(self) -> bool:
        """Whether each message that is not for tomorrow is done or dead: nothing leaves these two by itself.

        (Counts of what is pending, waiting and in flight could miss one that goes from one to the other meanwhile.)
        """
        reminder = reminder_id(self.orders[REMINDED_NOW].pk)
        if any(scheduled(REMINDERS, id=reminder)):
            return False  # It is due, and not yet in the log.
        return all(message.status in ("done", "dead") for message in self._messages(reminder))

    def _messages(self, reminder: str) -> Iterator[Inspected]:
        """What became of them, for each group."""
        for customer, order in self.orders.items():
            for group in GROUPS[ORDERS]:
                yield from messages(ORDERS, group=group, key=customer, id=f"order-{order.pk}")
        for group in GROUPS[REMINDERS]:
            yield from messages(REMINDERS, group=group, id=reminder)
