"""Orders and payments of the shop."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from django_mqueue import cancel, publish, request, reschedule

from .events import (
    ORDERS,
    PRICES,
    REFUNDS,
    REMIND_AFTER,
    REMINDERS,
    OrderPlaced,
    PriceAsked,
    RefundRequested,
    ReminderDue,
    reminder_id,
)
from .models import Order


def price_of(article: str, count: int) -> Decimal:
    """Request the price from the pricing handler.

    Do not call it inside a transaction: the handler would not see the request before the commit. Raises
    ``RequestFailed`` for an article that the shop does not have, ``RequestTimeout`` if no worker answers.
    """
    return Decimal(request(PRICES, PriceAsked(article=article, count=count)).payload["amount"])


def place_order(customer: str, article: str, count: int, card: str = "") -> Order:
    """Store an order, publish it, and schedule a reminder, in one transaction."""
    amount = price_of(article, count)
    with transaction.atomic():
        order = Order.objects.create(
            customer=customer, article=article, count=count, amount=amount, card=card
        )
        publish(
            ORDERS,
            OrderPlaced(order=order.pk, card=card),
            key=customer,
            id=f"order-{order.pk}",
            headers={"payment": "card" if card else "transfer"},
        )
        publish(REMINDERS, ReminderDue(order=order.pk), id=reminder_id(order.pk), delay=REMIND_AFTER)
    return order


def paid(order: Order) -> None:
    """Mark the order as paid and cancel its reminder, in the caller's transaction or in a new one.

    A reminder that is already due finds the order paid.
    """
    with transaction.atomic():
        Order.objects.filter(pk=order.pk, paid_at=None).update(paid_at=timezone.now())
        cancel(REMINDERS, reminder_id(order.pk))


def remind_now(order: Order) -> bool:
    """Send the reminder as soon as possible. Return False if no reminder is scheduled."""
    return reschedule(REMINDERS, reminder_id(order.pk), delay=0)


def ask_refund(order: Order) -> None:
    """Request that the shop gives the money back. The request becomes a work item of the worklist ``refunds``.

    While the log holds the request, a second one for the order is a duplicate, and stores nothing.
    """
    asked = RefundRequested(order=order.pk, customer=order.customer, amount=str(order.amount))
    publish(REFUNDS, asked, key=order.customer, id=f"refund-{order.pk}", kind="refund")
