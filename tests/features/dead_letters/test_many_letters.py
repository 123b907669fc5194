"""Redrive many dead letters, with an interruption and a repetition. Memory does not grow with their number."""

from __future__ import annotations

import tracemalloc

import pytest

from django_mqueue import Message, redrive, subscribe
from django_mqueue.models import Message as Row
from tests.support.many import insert_dead_letters

pytestmark = [pytest.mark.once, pytest.mark.exhaustive, pytest.mark.django_db(transaction=True)]

LETTERS = 25_000


@pytest.mark.timeout(240)
def test_more_letters_than_memory_may_hold() -> None:
    subscribe("orders", "billing")
    insert_dead_letters("orders", "billing", LETTERS)
    seen = 0

    def interrupted(letter: Message) -> dict[str, str]:
        nonlocal seen
        seen += 1
        if seen > 5_250:
            raise KeyboardInterrupt
        return dict(letter.payload)

    tracemalloc.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            redrive("orders", edit=interrupted)
        assert Row.objects.filter(topic="orders_dlq").count() == LETTERS - 5_000
        assert redrive("orders") == LETTERS - 5_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 1_048_576, f"{most:,} bytes for {LETTERS:,} letters"
    back = Row.objects.filter(topic="orders", consumer_group="billing")
    assert back.count() == LETTERS == back.values("original_id").distinct().count()
    assert not Row.objects.filter(topic="orders_dlq").exists()
