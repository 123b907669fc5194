"""The shop's tasks. A handler enqueues a job in the transaction that writes its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import django
from django.db.models import Sum
from django.utils import timezone

from django_mqueue.tasks import Limit, job_options

from . import outside
from .models import Invoice, Mail, Order

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import TaskContext, task
else:
    from django_tasks import TaskContext, task


@job_options(limit=Limit(2))
@task(queue_name="mail", takes_context=True)
def send_mail(context: TaskContext[..., str], mail: int) -> str:
    """Send a mail, and return its text. If the mail server is busy, the job is retried. Two jobs run at a time.

    A job that runs again after a crash finds the mail sent. The mail is sent twice only if the worker dies between the
    mail server's answer and the commit.
    """
    found = Mail.objects.get(pk=mail)
    if found.sent_at is None:
        outside.send(found, context.attempt)
        found.sent_at = timezone.now()
        found.save(update_fields=["sent_at"])
    return found.text


@task
def report_sales() -> str:
    """Count the orders and the invoices. The settings let a job do this each morning."""
    billed = Invoice.objects.aggregate(sum=Sum("amount"))["sum"] or 0
    return f"{Order.objects.count()} orders, {Invoice.objects.count()} invoices over {billed}"
