"""The zygote, and settings under which nothing happens by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from .deaths import Zygote, zygote

PATIENT: dict[str, Any] = {
    "DISCOVERY_INTERVAL": 60,
    "LEASE_DURATION": 600,
    "LEASE_RENEWAL_INTERVAL": 60,
    "GC_INTERVAL": 600,
    "RETENTION": 0,
}
"""Nothing periodic happens by itself, so that each run of a walk issues the same statements."""


@pytest.fixture(scope="module")
def mother(django_db_setup: None) -> Iterator[Zygote]:
    with zygote(PATIENT) as process:
        yield process


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    with override_settings(MQUEUE=PATIENT):
        yield
