"""Messages of three kinds of handlers, and what must hold for them after the database has lost commits."""

from __future__ import annotations

from collections import Counter

from django_mqueue.models import DeliveryState, Message
from tests.support.shop.models import Sale, Step
from tests.support.steps import assert_in_order, by_key
from tests.support.stream import Stream

GROUPS = {"orders": "billing", "ledger": "books", "sales": "till"}
"""The group of ``ledger`` is strict, and the handler of ``sales`` is atomic."""
CHOSEN = [f"{topic}:{group}" for topic, group in GROUPS.items()]
KEYS = ["k0", "k1", "k2"]


def settled_ids(topic: str, using: str = "default") -> set[str]:
    states = DeliveryState.objects.using(using).filter(topic=topic, consumer_group=GROUPS[topic], acked=True)
    offsets = list(states.values_list("message_offset", flat=True))
    return set(Message.objects.using(using).filter(offset__in=offsets).values_list("message_id", flat=True))


def ids(topic: str, using: str = "default") -> set[str]:
    return set(Message.objects.using(using).filter(topic=topic).values_list("message_id", flat=True))


def assert_effects_and_acks_agree(using: str = "default") -> None:
    """Each sale and its receipt exist if and only if the message is acknowledged."""
    settled = Counter(int(id.partition("-")[2]) for id in settled_ids("sales", using))
    assert Counter(Sale.objects.using(using).values_list("number", flat=True)) == settled
    assert len(ids("receipts", using)) == settled.total()


def publish_again(stream: Stream) -> None:
    """Publish all messages again. Those that the database lost are stored, the others are not stored twice."""
    kept = {topic: ids(topic, stream.using) for topic in GROUPS}
    for number in range(stream.numbers):
        wanted = [f"{key}-{number}" not in kept[topic] for topic in GROUPS for key in KEYS]
        assert stream.publish(number) == wanted


def assert_all_was_handled(stream: Stream) -> None:
    """Each message was handled: of an atomic handler once, and those of a strict key in order."""
    using, numbers = stream.using, range(stream.numbers)
    assert_effects_and_acks_agree(using)
    sold = Counter(Sale.objects.using(using).values_list("number", flat=True))
    assert sold == dict.fromkeys(numbers, len(KEYS))
    steps = by_key("ledger", "books", using)
    for key in KEYS:
        assert_in_order(steps[key], numbers)
    ended = Step.objects.using(using).filter(topic="orders", what="end").values_list("key", "number")
    assert {(key, n) for key in KEYS for n in numbers} <= set(ended)


def at_work(stream: Stream, messages: int) -> bool:
    """Return True if the groups have settled so many messages of each topic."""
    return all(len(settled_ids(topic, stream.using)) >= messages for topic in GROUPS)
