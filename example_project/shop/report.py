"""The results of a day at the shop, in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django_mqueue import scheduled
from django_mqueue.inspect import messages

from .events import ORDERS, REMINDERS, reminder_id
from .models import Charge, Invoice, Mail, Order
from .story import Story


def lines(story: Story, customers: Iterable[str]) -> Iterator[str]:
    """Yield one line for each customer, from the tables."""
    for customer in customers:
        yield f"{customer}: {', '.join(_results(story.orders[customer]))}"


def _results(order: Order) -> Iterator[str]:
    for mail in Mail.objects.filter(order=order, kind=Mail.Kind.CONFIRMATION):
        yield f"confirmed after {_ms(order, mail)} ms"
    for invoice in Invoice.objects.filter(order=order):
        yield f"invoice {invoice.number}{_at_attempt(invoice.attempt)}"
    yield from _payment(order)
    for reminder in scheduled(REMINDERS, id=reminder_id(order.pk)):
        yield f"to be reminded on {reminder.at:%Y-%m-%d at %H:%M} UTC"
    for mail in Mail.objects.filter(order=order, kind=Mail.Kind.REMINDER):
        yield f"reminded after {_ms(order, mail)} ms"


def _payment(order: Order) -> Iterator[str]:
    for charge in Charge.objects.filter(order=order):
        yield f"{charge.card} charged{_at_attempt(charge.attempt)}"
    for letter in messages(ORDERS, group="cards", status="dead", key=order.customer, id=f"order-{order.pk}"):
        reason = letter.errors[-1].error.splitlines()[0].partition(": ")[2]
        yield f"dead letter after {letter.failures} attempt{'s' * (letter.failures > 1)}: {reason}"
    if not order.card:
        paid = Order.objects.filter(pk=order.pk, paid_at__isnull=False).exists()
        yield "paid by transfer" if paid else "not paid"


def _at_attempt(number: int) -> str:
    return f" at attempt {number}" if number > 1 else ""


def _ms(order: Order, mail: Mail) -> int:
    """Return the milliseconds from the order until the mail was sent."""
    return round(((mail.sent_at or mail.written_at) - order.placed_at).total_seconds() * 1000)
