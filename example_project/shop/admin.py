"""The shop's rows as read-only admin pages."""

from __future__ import annotations

from django.contrib import admin

from django_mqueue.worklists.admin import WorkItemInline
from example_project.read_only import ReadOnlyAdmin

from .models import BankEntry, Charge, Invoice, InvoiceNumbers, Mail, Order, Refund


@admin.register(Order)
class OrderAdmin(ReadOnlyAdmin):
    list_display = ["id", "customer", "article", "count", "amount", "card", "placed_at", "paid_at"]
    search_fields = ["customer"]
    ordering = ["-id"]
    inlines = [WorkItemInline]


@admin.register(Mail)
class MailAdmin(ReadOnlyAdmin):
    list_display = ["id", "order", "kind", "text", "written_at", "sent_at"]
    list_filter = ["kind"]
    list_select_related = ["order"]
    ordering = ["-id"]


@admin.register(Invoice)
class InvoiceAdmin(ReadOnlyAdmin):
    list_display = ["number", "order", "amount", "attempt", "written_at"]
    list_select_related = ["order"]
    ordering = ["-number"]


@admin.register(InvoiceNumbers)
class InvoiceNumbersAdmin(ReadOnlyAdmin):
    list_display = ["id", "last"]


@admin.register(Charge)
class ChargeAdmin(ReadOnlyAdmin):
    list_display = ["id", "order", "card", "amount", "attempt", "charged_at"]
    list_select_related = ["order"]
    ordering = ["-id"]


@admin.register(Refund)
class RefundAdmin(ReadOnlyAdmin):
    list_display = ["id", "order", "amount", "refunded_at"]
    list_select_related = ["order"]
    ordering = ["-id"]


@admin.register(BankEntry)
class BankEntryAdmin(ReadOnlyAdmin):
    list_display = ["id", "reference", "card", "amount", "answer", "at"]
    list_filter = ["answer", "card"]
    search_fields = ["reference"]
    ordering = ["-id"]
