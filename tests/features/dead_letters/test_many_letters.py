"""A hundred thousand dead letters go back: interrupted, repeated, in memory that does not grow with their number."""

from __future__ import annotations

import tracemalloc

import pytest
from django.db import connection

from django_mqueue import Message, redrive, subscribe
from django_mqueue.models import Message as Row

pytestmark = [pytest.mark.once, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]

LETTERS = 100_000
DIGITS = "(SELECT 0 AS d UNION ALL " + " UNION ALL ".join(f"SELECT {n}" for n in range(1, 10)) + ")"


def fill() -> None:
    """Rows as dead-lettering makes them, ten thousand a statement."""
    numbers = " CROSS JOIN ".join(f"{DIGITS} x{place}" for place in range(4))
    number = " + ".join(f"x{place}.d * {10**place}" for place in range(4))
    with connection.cursor() as cursor:
        for block in range(LETTERS // 10_000):
            cursor.execute(
                "INSERT INTO queue_messages (topic, partition_key, id, consumer_group, payload, metadata, available_at,"
                " created_at, published_at, failed_at, failure_count, last_error, original_topic, failed_group,"
                f" original_id) SELECT 'orders_dlq', CONCAT('k', x0.d), CONCAT(%s, '-', {number}, ':billing'), '',"
                " CONCAT('{\"pad\": \"', REPEAT('x', 200), '\"}'),"
                ' \'{"kind": "", "headers": {}, "encoding": "json"}\', 1, 1, 1, 1, 3, \'ValueError: no\','
                f" 'orders', 'billing', CONCAT(%s, '-', {number}) FROM {numbers}",
                [block, block],
            )


@pytest.mark.timeout(240)
def test_a_hundred_thousand_letters() -> None:
    subscribe("orders", "billing")
    fill()
    seen = 0

    def interrupted(letter: Message) -> dict[str, str]:
        nonlocal seen
        seen += 1
        if seen > 20_250:
            raise KeyboardInterrupt
        return dict(letter.payload)

    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            redrive("orders", edit=interrupted)
        assert Row.objects.filter(topic="orders_dlq").count() == LETTERS - 20_000
        assert redrive("orders") == LETTERS - 20_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 1_048_576, f"{most:,} bytes for {LETTERS:,} letters"
    back = Row.objects.filter(topic="orders", consumer_group="billing")
    assert back.count() == LETTERS == back.values("original_id").distinct().count()
    assert not Row.objects.filter(topic="orders_dlq").exists()
