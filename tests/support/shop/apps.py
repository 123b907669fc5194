"""The tests' own app: what handlers of real worker processes write down."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.support.shop"
    label = "shop"
