"""The shop's handlers. Each group gets every order, and no group waits for another."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from django_mqueue import Delivery, ExponentialBackoff, Reject, RetryOn, consumer

from . import outside
from .events import ORDERS, PRICES, REMINDERS, OrderPlaced, PriceAsked, ReminderDue
from .models import Charge, Invoice, InvoiceNumbers, Mail, Order
from .orders import paid
from .tasks import send_mail

PRICE_LIST = {"tea": "4.00", "coffee": "5.50", "cocoa": "6.20", "honey": "9.80"}


@consumer(PRICES, group="pricing")
def price(message: Delivery) -> None:
    """Reply with the price of ``count`` articles. An article that the shop does not have fails the request at once."""
    asked: PriceAsked = message.payload
    if asked["article"] not in PRICE_LIST:
        raise Reject(f"there is no {asked['article']}")
    message.reply({"amount": str(asked["count"] * Decimal(PRICE_LIST[asked["article"]]))})


@consumer(ORDERS, group="confirmations")
def confirm(message: Delivery) -> None:
    """Write the confirmation. A repeated delivery finds the mail already written."""
    placed: OrderPlaced = message.payload
    order = Order.objects.get(pk=placed["order"])
    _write(order, Mail.Kind.CONFIRMATION, f"Thank you for {order.count} {order.article}.")


@consumer(ORDERS, group="invoices", atomic=True, retry=[0.1])
def invoice(message: Delivery) -> None:
    """Write the invoice exactly once: the number, the invoice and the acknowledgement are one commit.

    If the printer jams, the rollback also gives the number back.
    """
    placed: OrderPlaced = message.payload
    order = Order.objects.get(pk=placed["order"])
    Invoice.objects.create(order=order, number=_next_number(), amount=order.amount, attempt=message.attempt)
    outside.print_invoice(order, message.attempt)


@consumer(
    ORDERS,
    group="cards",
    filter={"payment": "card"},
    max_attempts=4,
    # A real shop would wait for minutes: first=60, max=3600.
    retry=RetryOn(outside.BankTimeout, policy=ExponentialBackoff(first=0.2, factor=2, max=60)),
)
def charge(message: Delivery) -> None:
    """Charge the card. Retry while the bank does not answer. A declined card is a dead letter at once.

    The bank is outside of every transaction. It knows the payment by the message's id, which is the same in all
    deliveries, and takes the money once.
    """
    placed: OrderPlaced = message.payload
    order = Order.objects.get(pk=placed["order"])
    outside.charge(message.id, placed["card"], order.amount)
    with transaction.atomic():
        Charge.objects.get_or_create(
            order=order,
            defaults={"card": placed["card"], "amount": order.amount, "attempt": message.attempt},
        )
        paid(order)


@consumer(REMINDERS, group="mail")
def remind(message: Delivery) -> None:
    """Write a reminder a day after the order, unless the order was paid meanwhile."""
    due: ReminderDue = message.payload
    order = Order.objects.get(pk=due["order"])
    if order.paid_at is None:
        _write(order, Mail.Kind.REMINDER, f"Please pay {order.amount} for {order.article}.")


def _write(order: Order, kind: Mail.Kind, text: str) -> None:
    """Write a mail, and enqueue the job that sends it, in one commit."""
    with transaction.atomic():
        mail, is_new = Mail.objects.get_or_create(order=order, kind=kind, defaults={"text": text})
        if is_new:
            send_mail.enqueue(mail.pk)


def _next_number() -> int:
    numbers = InvoiceNumbers.objects.select_for_update().get()
    numbers.last += 1
    numbers.save()
    return numbers.last
