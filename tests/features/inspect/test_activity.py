"""Numbers about running handlers and recent dead letters, in short and in long topics."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from django_mqueue import Subscription, publish_many, subscribe
from django_mqueue.inspect import Figure, GroupFigures, group_figures
from django_mqueue.models import DeliveryState, Message, Offset
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, consume, poll_until, settle

from .scene import GROUP, TOPIC

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = 60_000


kept = with_settings(MQUEUE={**QUICK, "RETENTION": 7 * 86_400})


@pytest.fixture(params=[None, 20], ids=["short", "long"])
def exact(request: pytest.FixtureRequest) -> int | None:
    return request.param  # type: ignore[no-any-return]


def figures(exact: int | None) -> GroupFigures:
    return group_figures([(TOPIC, GROUP)], exact=exact)[TOPIC, GROUP]


def test_what_handlers_do(exact: int | None) -> None:
    """Sixty messages took three seconds each. Four are in flight, and one of these has no handler yet."""
    subscription = Subscription(TOPIC, GROUP, "worker-1").open()
    publish_many(TOPIC, list(range(60)))
    consume(subscription, 60)
    DeliveryState.objects.filter(topic=TOPIC).update(
        delivered_at=F("acked_at") - 10 * MINUTE - 3_000, acked_at=F("acked_at") - 10 * MINUTE
    )
    publish_many(TOPIC, list(range(4)))
    first = poll_until(subscription, 4)[0]
    settle(subscription)
    publish_many(TOPIC, list(range(30 if exact is None else 900)))
    opened = DeliveryState.objects.filter(topic=TOPIC, acked=False)
    opened.update(delivered_at=F("delivered_at") - 5 * MINUTE)
    DeliveryState.objects.filter(message_offset=first.offset).update(
        handed=False, delivered_at=F("delivered_at") + MINUTE
    )
    Offset.objects.filter(consumer_group=GROUP).update(updated_at=1)
    found = figures(exact)
    subscription._subscriber = None
    assert found.usual == timedelta(seconds=3)
    told = [found.running_for, found.queued_for, found.quiet_for]
    assert [None if one is None else one // timedelta(minutes=1) for one in told] == [5, 4, 4]


def test_a_group_that_comes_further_is_not_quiet() -> None:
    """Nothing is in flight, and no acked message is left.

    The group is not quiet, because a watermark has moved.
    """
    with Subscription(TOPIC, GROUP) as subscription:
        publish_many(TOPIC, list(range(60)))
        consume(subscription, 60)
        settle(subscription)
    publish_many(TOPIC, list(range(900)))
    DeliveryState.objects.all().delete()
    Offset.objects.filter(consumer_group=GROUP, partition_key="").update(updated_at=1)
    quiet = figures(20).quiet_for
    assert quiet is not None
    assert quiet < timedelta(minutes=5)
    Offset.objects.filter(consumer_group=GROUP).update(updated_at=1)
    quiet = figures(20).quiet_for
    assert quiet is not None
    assert quiet > timedelta(days=1)


def test_a_group_that_has_not_begun_is_quiet() -> None:
    subscribe(TOPIC, GROUP)
    publish_many(TOPIC, list(range(30)))
    Offset.objects.filter(consumer_group=GROUP).update(updated_at=1)
    quiet = figures(20).quiet_for
    assert quiet is not None
    assert quiet > timedelta(days=1)


def letters(group: str, count: int, ago: int) -> None:
    now = Message.objects.filter(topic=TOPIC).latest("offset").published_at
    Message.objects.bulk_create(
        Message(
            topic=f"{TOPIC}_dlq", partition_key="k", message_id=f"{ago}-{number}:{group}", consumer_group="",
            payload=b"1", metadata={}, available_at=1, created_at=1, published_at=now - ago * MINUTE, failed_at=1,
            failure_count=1, last_error="E", original_topic=TOPIC, failed_group=group, original_id="i",
        )
        for number in range(count)
    )  # fmt: skip


def test_dead_letters_that_came_lately() -> None:
    for group in (GROUP, "other"):
        subscribe(TOPIC, group)
    publish_many(TOPIC, [1])
    letters(GROUP, 30, 11)
    letters(GROUP, 12, 5)
    letters("other", 3, 1)
    found = group_figures([(TOPIC, GROUP), (TOPIC, "other")])
    assert [(one.dead.value, one.dead_lately.value) for one in found.values()] == [(42, 12), (3, 3)]
    letters("other", 250, 0)
    found = group_figures([(TOPIC, GROUP), (TOPIC, "other")])
    assert found[TOPIC, "other"].dead_lately == Figure(200, "at_least")
    assert found[TOPIC, GROUP].dead_lately == Figure(0, "at_least")
