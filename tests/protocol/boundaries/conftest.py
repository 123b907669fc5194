"""Fixtures: the zygote, and settings without periodic work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from tests.support.fixtures import with_settings

from .deaths import Zygote, zygote

PATIENT: dict[str, Any] = {
    "DISCOVERY_INTERVAL": 60,
    "LEASE_DURATION": 600,
    "LEASE_RENEWAL_INTERVAL": 60,
    "GC_INTERVAL": 600,
    "RETENTION": 0,
    "WAKE_WORKERS": "host",
}
"""No periodic work and no second thread runs, so that each run of a walk issues the same statements."""


@pytest.fixture(scope="module")
def mother(django_db_setup: None) -> Iterator[Zygote]:
    with zygote(PATIENT) as process:
        yield process


@pytest.fixture(autouse=True)
def same_number_of_steps(transactional_db: None) -> None:
    """Start the log at an offset from which a search by time takes 11 steps, even if a walk publishes many messages.

    The search halves the offsets from 0 to the newest until 1,000 are left. This takes 11 steps from any offset
    between 1,024,000 and 2,048,000.
    """
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE queue_messages AUTO_INCREMENT = 1500000")


patient = with_settings(MQUEUE=PATIENT)
