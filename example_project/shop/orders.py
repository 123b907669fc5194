"""What the shop does when somebody orders or pays."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from django_mqueue import cancel, publish, request, reschedule

from .events import ORDERS, PRICES, REMIND_AFTER, REMINDERS, OrderPlaced, PriceAsked, ReminderDue, reminder_id
from .models import Order


def price_of(article: str, count: int) -> Decimal:
    """Ask the pricing handler. Not inside a transaction: it would not see the question before the commit.

    Raises ``RequestFailed`` for what the shop does not have, ``RequestTimeout`` where nobody answers.
    """
    return Decimal(request(PRICES, PriceAsked(article=article, count=count)).payload["amount"])


def place_order(customer: str, article: str, count: int, card: str = "") -> Order:
    """Store an order, tell everybody, and plan a reminder: all of it or nothing."""
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
    """The money is there, so nobody is reminded: both in the caller's transaction, or in one of its own.

    A reminder that is on its way already finds the order paid.
    """
    with transaction.atomic():
        Order.objects.filter(pk=order.pk, paid_at=None).update(paid_at=timezone.now())
        cancel(REMINDERS, reminder_id(order.pk))


def remind_now(order: Order) -> bool:
    """Send the reminder as soon as possible. False: there is none that waits."""
    return reschedule(REMINDERS, reminder_id(order.pk), delay=0)
