"""The tests' own app. Handlers of real worker processes write their steps to its tables."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.support.shop"
    label = "shop"
