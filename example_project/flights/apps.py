"""The flights app: the queue with a real stream of events."""

from __future__ import annotations

from django.apps import AppConfig


class FlightsConfig(AppConfig):
    name = "example_project.flights"
    label = "flights"
    verbose_name = "Flights"
    default_auto_field = "django.db.models.BigAutoField"
