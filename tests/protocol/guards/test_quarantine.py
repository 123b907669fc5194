"""While a quarantined message runs alone, nothing else is claimed: no other message can kill its worker."""

from __future__ import annotations

import pytest

from django_mqueue import Subscription, publish
from django_mqueue.protocol import claim_scheduler
from tests.support.subscribers import consume_rest, engine_of, poll_until

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


def test_a_partition_that_is_left_to_another_member_starts_no_suspect() -> None:
    """``a`` joins while ``b`` runs a suspect of the only partition. ``b`` leaves the other suspects to ``a``."""
    for number in range(3):
        publish(TOPIC, number, key="k")
    with Subscription(TOPIC, GROUP) as gone:
        poll_until(gone, 3)
    with Subscription(TOPIC, GROUP, name="b") as b:
        (suspect,) = poll_until(b, 1)
        with Subscription(TOPIC, GROUP, name="a") as a:
            engine = engine_of(b)
            engine.find_work()
            suspect.ack()
            assert not engine.has_quarantined
            with engine.state.lock:
                assert engine.claimer.claim_quarantined(alone=True) == []
            engine.find_work()
            (following,) = poll_until(a, 1)
            assert following.payload == 1
