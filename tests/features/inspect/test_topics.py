"""``topics`` lists the topics that exist."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import publish, subscribe
from django_mqueue.inspect import KnownTopic, topics
from tests.factories import DeadLetterFactory, MessageFactory, OffsetFactory
from tests.support.statements import counted

from .scene import scheduled

pytestmark = pytest.mark.django_db(transaction=True)


def names(**asked: object) -> list[str]:
    return [one.topic for one in topics(**asked).topics]  # type: ignore[arg-type]


def test_derived_topics_are_part_of_theirs() -> None:
    """Messages, groups, scheduled messages and dead letters make a topic.

    A row that only the protocol uses makes none.
    """
    publish("a/b?c=d", 1)
    subscribe("empty", "g")
    scheduled("later", topic="only_later")
    DeadLetterFactory.create(topic="buried_dlq")
    MessageFactory.create(topic="asked_replies")
    OffsetFactory.create(consumer_group="", topic="left over", partition_key="")
    assert topics().topics == (
        KnownTopic("a/b?c=d", ()),
        KnownTopic("asked", ()),
        KnownTopic("buried", ()),
        KnownTopic("empty", ("g",)),
        KnownTopic("only_later", ()),
    )


def test_a_dead_letter_topic_that_a_group_consumes_is_one() -> None:
    publish("orders", 1)
    DeadLetterFactory.create(topic="orders_dlq")
    subscribe("orders_dlq", "undertaker")
    subscribe("orders", "b")
    subscribe("orders", "a")
    assert topics().topics == (
        KnownTopic("orders", ("a", "b")),
        KnownTopic("orders_dlq", ("undertaker",), dead_letters_of="orders"),
    )
    with override_settings(MQUEUE={"TOPICS": {"orders": {"DLQ_SUFFIX": ".dead"}}}):
        assert names() == ["orders", "orders_dlq"]
        publish("orders", 2)
        DeadLetterFactory.create(topic="orders.dead")
        assert names() == ["orders", "orders_dlq"]


def test_pages_by_name() -> None:
    for number in range(7):
        subscribe(f"t{number}", "g")
        scheduled(number, topic=f"t{number}")
    found, after = [], ""
    while True:
        page = topics(after=after, limit=3)
        found += [one.topic for one in page.topics]
        if page.next is None:
            break
        after = page.next
    assert found == [f"t{number}" for number in range(7)]
    assert names(containing="5") == ["t5"]
    assert names(after="t5") == ["t6"]
    assert topics(limit=7).next is None


def test_a_thousand_topics_are_named_in_a_few_statements() -> None:
    rows = [
        MessageFactory.build(topic=f"topic-{n:04d}", payload=b"1") for n in range(1_000) for _ in range(3)
    ]
    for number, row in enumerate(rows):
        row.message_id = f"id-{number}"
    type(rows[0]).objects.bulk_create(rows)
    with counted() as cost:
        assert len(topics(limit=1_000).topics) == 1_000
    assert cost.count <= 12, cost
    assert cost.rows <= 5_000, cost


def test_what_cannot_be_asked_is_refused() -> None:
    for wrong in ({"limit": 0}, {"limit": 1_001}, {"max_age": -1}, {"max_age": 1e9}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            topics(**wrong)
    for odd in ({"after": None}, {"containing": 7}, {"limit": "1"}, {"max_age": "1"}, {"max_age": True}):
        with pytest.raises(TypeError, match=next(iter(odd))):
            topics(**odd)
