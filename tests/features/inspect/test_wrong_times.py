"""Searches by time when the server's clock was wrong for some messages. The search still finds all other messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.models import F

from django_mqueue import OutgoingMessage, publish_many, purge, subscribe
from django_mqueue.inspect import remove
from django_mqueue.models import Message

from .scene import GROUP, TOPIC, every

pytestmark = pytest.mark.django_db(transaction=True)

BEGAN = 1_700_000_000_000
WRONG = range(2100, 3000)
WANTED = [*range(1000, 2100), *range(3000, 4000)]
DAYS = 3 * 86_400_000
PERIOD: dict[str, Any] = {
    "after": datetime.fromtimestamp(BEGAN / 1000 + 60 * 1000, UTC),
    "before": datetime.fromtimestamp(BEGAN / 1000 + 60 * 4000, UTC),
}


@pytest.fixture(params=[-DAYS, DAYS], ids=["behind", "ahead"], autouse=True)
def offsets(request: pytest.FixtureRequest) -> list[int]:
    """Publish 5,000 messages, one per minute. The clock was wrong for 900 of them, in the middle."""
    subscribe(TOPIC, GROUP)
    found = [one.offset for one in publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(5000)])]
    Message.objects.update(published_at=BEGAN + (F("offset") - found[0]) * 60_000)
    wrong = Message.objects.filter(offset__in=[found[n] for n in WRONG])
    wrong.update(published_at=F("published_at") + request.param)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"newest_first": True},
        {"limit": 7, "scan_limit": 300},
        {"limit": 7, "scan_limit": 300, "newest_first": True},
        {"key": "k"},
        {"group": GROUP, "status": "pending"},
    ],
    ids=str,
)
def test_messages_beside_those_with_wrong_times_are_found(more: dict[str, Any]) -> None:
    found = every(**PERIOD, **{"limit": 1000, **more})
    assert sorted(message.payload for message in found) == WANTED


def test_messages_beside_those_with_wrong_times_are_removed() -> None:
    assert remove(TOPIC, group=GROUP, status="pending", dry_run=True, limit=5000, **PERIOD) == len(WANTED)


def test_dead_letters_beside_those_with_wrong_times_are_purged() -> None:
    Message.objects.update(
        topic=f"{TOPIC}_dlq", failed_group=GROUP, original_topic=TOPIC, failed_at=F("published_at")
    )
    period = {"failed_after": PERIOD["after"], "failed_before": PERIOD["before"]}
    assert purge(TOPIC, filter=period, dry_run=True) == len(WANTED)
