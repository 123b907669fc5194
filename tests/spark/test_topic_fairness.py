"""A query reads all its topics in the end, even with few rows in a batch. Nothing here needs Spark."""

from __future__ import annotations

from collections import Counter

import pytest

from django_mqueue import publish, publish_many, subscribe
from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.streams.query import Query

pytestmark = pytest.mark.django_db(transaction=True)

LARGE, SMALL = "orders-large", [f"orders-{n}" for n in range(10)]


@pytest.mark.parametrize("most", [1, 3, 30])
def test_small_topics_are_read_beside_a_large_one_that_grows(options: dict[str, str], most: int) -> None:
    """There are more topics than rows in a batch, or fewer. One topic gets new offsets without rows for this query."""
    subscribe("orders-zero", "billing")
    for topic in SMALL:
        publish_many(topic, range(2))
    publish_many(LARGE, range(100))
    query = Query(
        read_options({**options, "subscribePattern": "orders-.*", "pollInterval": "0.01"}, streaming=True)
    )
    seen: Counter[str] = Counter()
    begun, batches = query.initial(), 0
    try:
        while any(seen[topic] < 2 for topic in SMALL):
            publish_many(LARGE, range(most))
            publish("orders-zero", 1, group="billing")
            ended = query.latest(begun, most)
            ranges = query.ranges(begun, ended)
            assert sum(each.rows for each in ranges) <= most
            seen.update({each.topic: each.rows for each in ranges})
            begun, batches = ended, batches + 1
            assert batches < 60, seen
    finally:
        query.stop()
    assert 0 < seen[LARGE] < 100 + batches * most, "it had its turns, too, and still grows"
