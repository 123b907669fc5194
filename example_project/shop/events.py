"""What the shop's topics are called, who listens to them, and what their messages say."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

ORDERS, PRICES, REMINDERS = "orders", "prices", "reminders"
GROUPS = {ORDERS: ["confirmations", "invoices", "cards"], PRICES: ["pricing"], REMINDERS: ["mail"]}

REMIND_AFTER = timedelta(days=1)


class PriceAsked(TypedDict):
    article: str
    count: int


class OrderPlaced(TypedDict):
    """``card`` is empty for orders that are paid by bank transfer."""

    order: int
    card: str


class ReminderDue(TypedDict):
    order: int


def reminder_id(order: int) -> str:
    """An id of its own, so that it can be cancelled and given another time."""
    return f"reminder-{order}"
