"""The log has one line for all messages whose worker died."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish_many
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from tests.support.running import Seen, registered, run
from tests.support.subscribers import CALM, consume, engine_of, poll_until

pytestmark = pytest.mark.django_db(transaction=True)


def die() -> None:
    """Let all leases and heartbeats expire."""
    PartitionLease.objects.update(lease_renewed_at=0)
    SubscriberHeartbeat.objects.update(heartbeat_at=0)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if record.getMessage().startswith("quarantine: ")
    ]


@override_settings(MQUEUE=CALM)
def test_messages_of_a_dead_worker_are_one_line_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """The dead worker has 64 messages in flight, in eight partitions."""
    publish_many("t", [OutgoingMessage(n, key=f"k{n % 8}") for n in range(64)])
    dead = Subscription("t", "g", name="dead").open()
    left = sorted(delivery.offset for delivery in poll_until(dead, 64))
    die()
    with registered("t", seen := Seen()):
        run(name="heir", max_messages=64, max_seconds=120)
    assert lines(caplog) == [
        "quarantine: messages in flight when their worker died or lost its lease run alone, one by one:"
        f" count 64, group g, topic t, offsets {left[0]} to {left[-1]}, new worker heir"
    ]
    assert len(seen.messages) == 64
    assert seen.most_at_once == 1


@override_settings(MQUEUE=CALM)
def test_a_partition_that_is_read_again_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    publish_many("t", [OutgoingMessage(n, key="k") for n in range(3)])
    dead = Subscription("t", "g", name="dead").open()
    poll_until(dead, 3)
    die()
    with Subscription("t", "g", name="heir") as heir:
        first = poll_until(heir, 1)
        engine = engine_of(heir)
        engine.membership.reload()
        assert len(lines(caplog)) == 1
        assert first[0].ack()
        consume(heir, 2)
    assert len(lines(caplog)) == 1
