"""Compare the results of a day at the shop with the expected results. Each difference is one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.utils import timezone

from django_mqueue import scheduled
from django_mqueue.inspect import messages
from django_mqueue.worklists import find

from .events import ORDERS, REMIND_AFTER, REMINDERS, reminder_id
from .models import BankEntry, Charge, Invoice, InvoiceNumbers, Mail, Order, Refund
from .outside import DECLINED, GOOD, SILENT, SLOW, STICKY
from .story import BROKEN, ORDERED, REFUNDED, REMINDED_NOW, TRANSFERRED, Story

ATTEMPTS = {GOOD: [GOOD], SLOW: [SLOW] * 3, DECLINED: [DECLINED], SILENT: [SILENT] * 4}
"""The expected calls to the bank for each card, up to its success or its dead letter."""


def wrong(story: Story) -> list[str]:
    """Return the differences; empty if all results are right."""
    return [*_mails(story), *_invoices(story), *_cards(story), *_reminders(story), *_numbers()]


def wrong_refunds(story: Story) -> list[str]:
    """Return the differences of the refunds: each is paid once, and a handler pays the small ones."""
    found: list[str] = []
    for customer, automated in REFUNDED.items():
        order = story.orders[customer]
        have = Refund.objects.filter(order=order).values_list("amount", flat=True)
        found += _differs(f"{customer}'s refunds", [order.amount], have)
        items = find(linked=order).values_list("state", "is_automated")
        found += _differs(f"{customer}'s work items", [("finished", automated)], items)
    return found


def is_paid(story: Story, customer: str) -> bool:
    by_card = bool(ORDERED[customer][2]) and (story.redriven or customer not in BROKEN)
    return by_card or customer == TRANSFERRED


def _mails(story: Story) -> Iterator[str]:
    for customer, order in story.orders.items():
        want = ["confirmation", "reminder"] if customer == REMINDED_NOW else ["confirmation"]
        have = Mail.objects.filter(order=order).order_by("kind").values_list("kind", flat=True)
        yield from _differs(f"{customer}'s mails", want, have)
        unsent = Mail.objects.filter(order=order, sent_at=None).values_list("kind", flat=True)
        yield from _differs(f"{customer}'s unsent mails", [], unsent)


def _invoices(story: Story) -> Iterator[str]:
    for customer, order in story.orders.items():
        attempt = 2 if order.article == STICKY else 1
        have = Invoice.objects.filter(order=order).values_list("amount", flat=True)
        yield from _differs(f"{customer}'s invoices", [order.amount], have)
        first = Invoice.objects.filter(order=order).values_list("attempt", flat=True).first() or 0
        if first < attempt:
            yield f"{customer}'s invoice was written in attempt {first}, should be {attempt} or later"


def _numbers() -> Iterator[str]:
    """Check that the numbers have no gaps: an attempt that was rolled back gives its number back."""
    have = Invoice.objects.order_by("number").values_list("number", flat=True)
    yield from _differs("the invoices' numbers", range(1, InvoiceNumbers.objects.get().last + 1), have)


def _cards(story: Story) -> Iterator[str]:
    for customer, order in story.orders.items():
        card = ORDERED[customer][2]
        if not card:
            continue
        calls = ATTEMPTS[card] + ([GOOD] if story.redriven and customer in BROKEN else [])
        entries = BankEntry.objects.filter(reference=f"order-{order.pk}").order_by("pk")
        yield from _differs(f"the calls for {customer}'s card", calls, entries.values_list("card", flat=True))
        charged = [order.amount] if is_paid(story, customer) else []
        have = Charge.objects.filter(order=order).values_list("amount", flat=True)
        yield from _differs(f"{customer}'s charges", charged, have)
        letters = messages(ORDERS, group="cards", status="dead", key=customer, id=f"order-{order.pk}")
        yield from _differs(
            f"the attempts of {customer}'s dead letters",
            [] if is_paid(story, customer) else [len(ATTEMPTS[card])],
            [letter.failures for letter in letters],
        )


def _reminders(story: Story) -> Iterator[str]:
    for customer, order in story.orders.items():
        paid = Order.objects.get(pk=order.pk).paid_at is not None
        yield from _differs(f"whether {customer} has paid", [is_paid(story, customer)], [paid])
        waiting = list(scheduled(REMINDERS, id=reminder_id(order.pk)))
        expected = [] if is_paid(story, customer) or customer == REMINDED_NOW else [reminder_id(order.pk)]
        yield from _differs(f"{customer}'s planned reminders", expected, [each.id for each in waiting])
        for reminder in waiting:
            if not timedelta(0) <= timezone.now() + REMIND_AFTER - reminder.at < timedelta(hours=1):
                yield f"{customer}'s reminder is planned for {reminder.at}, should be a day after the order"


def _differs(what: str, want: Iterable[object], have: Iterable[object]) -> Iterator[str]:
    wanted, found = [str(each) for each in want], [str(each) for each in have]
    if wanted != found:
        yield f"{what}: {', '.join(found) or 'none'}; should be {', '.join(wanted) or 'none'}"
