"""Spans of batch handlers, and of handlers that exceed their time limit."""

from __future__ import annotations

import pytest

from django_mqueue import BatchFailure, Delivery, OutgoingMessage, publish, publish_many
from tests.features.time_limits.hanging import LimitedWait
from tests.support.fixtures import with_settings
from tests.support.processes import FAST, wait_until
from tests.support.running import registered, run
from tests.support.waiting import PATIENCE

from .spans import Spans, attributes, context, linked

pytestmark = pytest.mark.django_db(transaction=True)

OUTCOME = "messaging.django_mqueue.outcome"


fast = with_settings(MQUEUE=FAST)


def test_a_batch_is_one_span_with_a_link_for_each_message(spans: Spans) -> None:
    for n in range(3):
        publish("orders", n, key="k")
    with registered("orders", lambda messages: None, batch=True):
        run()
    span = spans.one("process orders")
    assert span.parent is None
    assert linked(span) == [context(sent).span_id for sent in spans.named("publish orders")]
    found = attributes(span)
    assert (found["messaging.batch.message_count"], found[OUTCOME]) == (3, "ack")
    assert found["messaging.destination.partition.id"] == "k"
    assert "messaging.message.id" not in found


def test_a_batch_that_fails_in_part_has_the_failure_and_no_one_outcome(spans: Spans) -> None:
    def handle(messages: list[Delivery]) -> None:
        if failed := [message for message in messages if message.payload == 1]:
            raise BatchFailure({message: ValueError("no") for message in failed})

    publish_many("orders", [OutgoingMessage(n, key="k") for n in range(3)])
    with registered("orders", handle, batch=True, max_attempts=1):
        run()
    span = spans.one("process orders")
    assert attributes(span)["error.type"] == "django_mqueue.exceptions.BatchFailure"
    assert OUTCOME not in attributes(span)


def test_a_handler_that_ends_after_its_time_limit_says_so(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = LimitedWait(monkeypatch)

    def handle(message: Delivery) -> None:
        if message.attempt == 1:
            leave.wait(PATIENCE)

    publish("orders", 1)
    try:
        with registered("orders", handle, max_runtime=0.5, retry=[0]):
            run(max_messages=2)
    finally:
        leave.set()
    wait_until(lambda: len(spans.named("process orders")) == 2, "the first one ends at last")
    assert [attributes(span)[OUTCOME] for span in spans.named("process orders")] == ["ack", "overdue"]
