"""The shop's tables: orders, and the results of its handlers."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=40)
    article = models.CharField(max_length=40)
    count = models.PositiveIntegerField()
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    card = models.CharField(max_length=20, blank=True, help_text="Empty: paid by bank transfer.")
    placed_at = models.DateTimeField(auto_now_add=True)
    paid_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.count} {self.article} for {self.customer}, {self.amount}"


class Mail(models.Model):
    """A mail. An order has one mail of each kind, so a repeated delivery finds it. A job sends it."""

    class Kind(models.TextChoices):
        CONFIRMATION = "confirmation"
        REMINDER = "reminder"

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="mails")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    text = models.CharField(max_length=200)
    written_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "kind"], name="example_shop_mail_once")]

    def __str__(self) -> str:
        return f"{self.kind} of {self.order}"


class InvoiceNumbers(models.Model):
    """The last number given away, in one row that is locked until the commit. So there are no gaps."""

    last = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "invoice numbers"

    def __str__(self) -> str:
        return str(self.last)


class Invoice(models.Model):
    """An invoice. No constraint keeps an order from having two; only the atomic handler ensures that there is one."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="invoices")
    number = models.PositiveIntegerField(unique=True)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    attempt = models.PositiveIntegerField(help_text="Which attempt of the handler wrote it.")
    written_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"invoice {self.number}"


class Charge(models.Model):
    """A charge for an order, which the bank has accepted."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    card = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    attempt = models.PositiveIntegerField(help_text="Which attempt of the handler succeeded.")
    charged_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} from {self.card}"


class Refund(models.Model):
    """Money that a customer got back. No constraint prevents two for an order: each request is paid once."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="refunds")
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    refunded_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} for {self.order}"


class BankEntry(models.Model):
    """The books of the simulated bank: every call and its answer. A real shop does not have these."""

    class Answer(models.TextChoices):
        ACCEPTED = "accepted"
        DECLINED = "declined"
        NONE = "no answer"

    reference = models.CharField(max_length=255)
    card = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    answer = models.CharField(max_length=20, choices=Answer.choices)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "bank entries"

    def __str__(self) -> str:
        return f"{self.amount} from {self.card}: {self.answer}"
