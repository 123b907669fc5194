"""No decision depends on the clock of a worker's machine."""

from __future__ import annotations

import time

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish
from django_mqueue.models import PartitionLease
from tests.support.subscribers import QUICK, poll_until

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = 3600


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 60})
def test_a_subscriber_with_a_wrong_clock_steals_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its clock, the lease of the other subscriber expired an hour ago."""
    publish("t", 1, key="k")
    with Subscription("t", "g", name="right") as right:
        (delivery,) = poll_until(right, 1)
        now = time.time
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: now() + HOUR)
            with Subscription("t", "g", name="wrong") as wrong:
                for _ in range(5):
                    assert wrong.poll() == []
        assert PartitionLease.objects.get().leased_by == "right"
        assert delivery.ack()
