"""The shop app: messages that a shop sends through a queue."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "example_project.shop"
    label = "example_shop"
    verbose_name = "Shop"
    default_auto_field = "django.db.models.BigAutoField"
