"""Tests of the shop's flows, as a project tests its own: ``manage.py test example_project.shop``.

Nothing is committed and no worker runs: ``drain`` runs the handlers in the test's own thread and transaction.
"""

# ruff: noqa: PT009 (These run under Django's own runner.)
from __future__ import annotations

from datetime import timedelta

from django.test import TestCase
from django.utils import timezone

from django_mqueue import RequestFailed, redrive, scheduled
from django_mqueue.inspect import send_to_front
from django_mqueue.tasks import recurring_jobs
from django_mqueue.testing import drain, published, requests_answered
from django_mqueue.worklists import TransitionNotAllowed, WorkItem

from .events import ORDERS, REFUNDS, REMIND_AFTER, REMINDERS
from .models import BankEntry, Charge, Invoice, InvoiceNumbers, Mail, Order, Refund
from .office import CLERK, employees, work_off
from .orders import ask_refund, paid, place_order, remind_now
from .outside import DECLINED, GOOD, SILENT, SLOW
from .tasks import send_mail


def place(article: str = "tea", card: str = "") -> Order:
    with requests_answered():
        return place_order("ada", article, 2, card)


def drain_with_retries(group: str) -> list[int]:
    """Run a group until no message waits for a retry, without the delays. Return the attempts."""
    attempts = [message.attempt for message in drain(ORDERS, group)]
    while send_to_front(ORDERS, group=group, status="waiting"):
        attempts += [message.attempt for message in drain(ORDERS, group)]
    return attempts


class PlacingTest(TestCase):
    def test_the_price_is_asked_for(self) -> None:
        self.assertEqual(place("coffee").amount, 11)

    def test_what_the_shop_does_not_have_cannot_be_ordered(self) -> None:
        with self.assertRaisesMessage(RequestFailed, "there is no unicorn"):
            place("unicorn")
        self.assertFalse(Order.objects.exists())
        self.assertEqual(published(ORDERS), [])

    def test_an_order_is_one_message(self) -> None:
        order = place(card=GOOD)
        (message,) = published(ORDERS)
        self.assertEqual((message.key, message.payload), ("ada", {"order": order.pk, "card": GOOD}))


class ConfirmationTest(TestCase):
    def test_is_written_at_once(self) -> None:
        order = place()
        drain(ORDERS, "confirmations")
        self.assertEqual(Mail.objects.get().order, order)

    def test_is_sent_by_a_job(self) -> None:
        place()
        drain(ORDERS, "confirmations")
        (job,) = drain("tasks.mail")
        self.assertIsNotNone(Mail.objects.get().sent_at)
        self.assertEqual(send_mail.get_result(job.id).return_value, "Thank you for 2 tea.")


class InvoiceTest(TestCase):
    def test_numbers_have_no_gaps(self) -> None:
        for _ in range(3):
            place()
        drain(ORDERS, "invoices")
        self.assertEqual(sorted(Invoice.objects.values_list("number", flat=True)), [1, 2, 3])

    def test_a_jam_gives_the_number_back(self) -> None:
        place("honey")
        drain(ORDERS, "invoices")
        self.assertFalse(Invoice.objects.exists())
        self.assertEqual(InvoiceNumbers.objects.get().last, 0)
        self.assertEqual(drain_with_retries("invoices"), [2])
        self.assertEqual([(each.number, each.attempt) for each in Invoice.objects.all()], [(1, 2)])


class CardTest(TestCase):
    def test_a_good_card_pays(self) -> None:
        order = place(card=GOOD)
        self.assertEqual(drain_with_retries("cards"), [1])
        order.refresh_from_db()
        self.assertIsNotNone(order.paid_at)
        self.assertEqual(Charge.objects.get().amount, order.amount)

    def test_a_slow_bank_is_asked_again(self) -> None:
        place(card=SLOW)
        self.assertEqual(drain_with_retries("cards"), [1, 2, 3])
        self.assertEqual(Charge.objects.get().attempt, 3)

    def test_a_silent_bank_is_asked_four_times(self) -> None:
        place(card=SILENT)
        self.assertEqual(drain_with_retries("cards"), [1, 2, 3, 4])
        (letter,) = published("orders_dlq")
        self.assertEqual((letter.failed_group, letter.failure_count), ("cards", 4))
        self.assertFalse(Charge.objects.exists())

    def test_a_declined_card_is_a_dead_letter_at_once_and_pays_when_it_is_replaced(self) -> None:
        order = place(card=DECLINED)
        self.assertEqual(drain_with_retries("cards"), [1])
        self.assertEqual(len(published("orders_dlq")), 1)
        redrive(ORDERS, group="cards", edit=lambda letter: {**letter.payload, "card": GOOD})
        drain(ORDERS, "cards")
        self.assertEqual(Charge.objects.get().order, order)
        self.assertEqual(published("orders_dlq"), [])

    def test_the_bank_takes_the_money_once_for_a_message(self) -> None:
        place(card=GOOD)
        drain(ORDERS, "cards")
        self.assertEqual(BankEntry.objects.filter(answer=BankEntry.Answer.ACCEPTED).count(), 1)

    def test_a_transfer_charges_no_card(self) -> None:
        place()
        drain(ORDERS, "cards")
        self.assertFalse(BankEntry.objects.exists())


class ReportTest(TestCase):
    def test_counts_orders_and_invoices(self) -> None:
        place()
        drain(ORDERS, "invoices")
        (job,) = recurring_jobs()
        result = job.run_now()
        drain("tasks.default")
        result.refresh()
        amount = Invoice.objects.get().amount
        self.assertEqual(result.return_value, f"1 orders, 1 invoices over {amount}")


class ReminderTest(TestCase):
    def test_waits_for_a_day(self) -> None:
        place()
        (reminder,) = scheduled(REMINDERS)
        self.assertLess(abs(timezone.now() + REMIND_AFTER - reminder.at), timedelta(minutes=1))
        self.assertEqual(drain(REMINDERS), [])

    def test_is_called_off_when_the_order_is_paid(self) -> None:
        paid(place())
        self.assertEqual(list(scheduled(REMINDERS)), [])

    def test_is_sent_when_due(self) -> None:
        order = place()
        self.assertTrue(remind_now(order))
        drain(REMINDERS)
        self.assertEqual(Mail.objects.get(kind=Mail.Kind.REMINDER).order, order)
        (job,) = drain("tasks.mail")
        self.assertEqual(send_mail.get_result(job.id).status, "READY")  # The mail server was busy.
        send_to_front("tasks.mail", group="tasks", status="waiting")
        drain("tasks.mail")
        result = send_mail.get_result(job.id)
        self.assertEqual((result.status, result.attempts), ("SUCCESSFUL", 2))

    def test_a_due_reminder_of_a_paid_order_writes_nothing(self) -> None:
        order = place()
        remind_now(order)
        Order.objects.filter(pk=order.pk).update(paid_at=timezone.now())
        self.assertEqual(len(drain(REMINDERS)), 1)
        self.assertFalse(Mail.objects.exists())


class RefundTest(TestCase):
    def refund(self, article: str) -> WorkItem:
        ask_refund(place(article))
        drain(REFUNDS)
        drain("worklist.refunds")
        return WorkItem.objects.get()

    def test_a_small_refund_is_paid_by_the_handler(self) -> None:
        item = self.refund("tea")
        self.assertTrue(item.is_automated)
        self.assertEqual(Refund.objects.get().amount, 8)

    def test_a_second_request_for_an_order_is_a_duplicate(self) -> None:
        order = place("tea")
        ask_refund(order)
        ask_refund(order)
        self.assertEqual(len(drain(REFUNDS)), 1)

    def test_a_large_refund_waits_for_people(self) -> None:
        item = self.refund("honey")
        self.assertEqual((item.state, item.title), ("unassigned", "Refund 19.60 to ada"))
        self.assertEqual(work_off(), 1)
        self.assertEqual(str(Refund.objects.get().amount), "19.60")

    def test_the_clerk_cannot_skip_the_review(self) -> None:
        item, clerk = self.refund("honey"), employees()[CLERK]
        item.take(by=clerk)
        with self.assertRaisesMessage(TransitionNotAllowed, "finish is allowed in review"):
            item.finish(by=clerk)
        self.assertFalse(Refund.objects.exists())
