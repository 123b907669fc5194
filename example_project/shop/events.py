"""The shop's topics, their groups, and the payloads of their messages."""

from __future__ import annotations

from datetime import timedelta
from typing import TypedDict

ORDERS, PRICES, REMINDERS, REFUNDS = "orders", "prices", "reminders", "refund-requests"
GROUPS = {ORDERS: ["confirmations", "invoices", "cards"], PRICES: ["pricing"], REMINDERS: ["mail"]}

WORK = [ORDERS, PRICES, REMINDERS, REFUNDS, "worklist.refunds", "--tasks", "mail", "default"]
"""The arguments of ``runconsumer`` for the shop's worker: its topics, and the queues of jobs: mails and reports.

The worklist of refunds has two of the topics: the requests, and the steps of its items.
"""

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


class RefundRequested(TypedDict):
    """``amount`` is a decimal number as text."""

    order: int
    customer: str
    amount: str


def reminder_id(order: int) -> str:
    """Return the id of an order's reminder, by which it can be cancelled or rescheduled."""
    return f"reminder-{order}"
