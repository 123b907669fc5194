"""The example's rows, to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest

from .models import Aircraft, Delay, Flight, Run, Unassigned, Violation

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]  # Generic for type checkers only.
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Nothing here is written by hand. Counting hundreds of thousands of rows twice a page is not needed either."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object | None = None) -> bool:
        return False


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    list_display = ["id", "flights", "started_at", "published_at"]


@admin.register(Flight)
class FlightAdmin(ReadOnlyAdmin):
    list_display = ["row", "carrier", "number", "tail", "origin", "destination", "scheduled", "cancelled"]
    list_filter = ["carrier", "origin", "cancelled"]
    search_fields = ["tail"]
    ordering = ["id"]


@admin.register(Aircraft)
class AircraftAdmin(ReadOnlyAdmin):
    list_display = ["tail", "legs", "last_leg", "redelivered"]
    search_fields = ["tail"]
    ordering = ["-legs", "tail"]


@admin.register(Unassigned)
class UnassignedAdmin(ReadOnlyAdmin):
    list_display = ["offset", "flight", "redelivered"]


@admin.register(Violation)
class ViolationAdmin(ReadOnlyAdmin):
    list_display = ["tail", "expected", "leg", "offset", "noticed_at"]


@admin.register(Delay)
class DelayAdmin(ReadOnlyAdmin):
    list_display = ["offset", "carrier", "departure", "arrival", "cancelled", "redelivered"]
    list_filter = ["carrier", "cancelled"]
    ordering = ["offset"]
