"""While a quarantined message runs alone, nothing else is claimed: no other message can kill its worker."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.protocol import claim_scheduler
from tests.support.subscribers import consume_rest, poll_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def test_others_wait_while_a_suspect_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_scheduler, "alone_for", lambda attempt: 3600.0)
    publish(TOPIC, "suspect", key="a")
    with Subscription(TOPIC, GROUP) as gone:
        poll_until(gone, 1)
    publish(TOPIC, "other", key="b")
    with Subscription(TOPIC, GROUP) as heir:
        (suspect,) = poll_until(heir, lambda got: "suspect" in [delivery.payload for delivery in got])
        assert consume_rest(heir) == []
        suspect.ack()
        (other,) = poll_until(heir, 1)
        assert other.payload == "other"
        other.ack()
