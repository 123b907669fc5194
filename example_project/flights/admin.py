"""The example's rows as read-only admin pages."""

from __future__ import annotations

from django.contrib import admin

from example_project.read_only import ReadOnlyAdmin

from .models import Aircraft, CarrierHour, CarrierStream, Delay, Flight, Run, Unassigned, Violation


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


@admin.register(CarrierHour)
class CarrierHourAdmin(ReadOnlyAdmin):
    list_display = ["carrier", "hour", "flights", "delayed", "minutes_late"]
    list_filter = ["carrier"]
    ordering = ["-hour", "carrier"]

    @admin.display(description="mean delay")
    def minutes_late(self, hour: CarrierHour) -> str:
        return "none departed" if hour.mean_delay is None else f"{hour.mean_delay:.1f} min"


@admin.register(CarrierStream)
class CarrierStreamAdmin(ReadOnlyAdmin):
    list_display = ["run_id", "query", "batch", "applied_at"]
