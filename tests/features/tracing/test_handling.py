"""Spans of handlers and polls: they link to the publish span, and a handler's span holds the outcome."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from django_mqueue import (
    FixedDelay,
    Message,
    NoRetry,
    OutgoingMessage,
    Postpone,
    Reject,
    Subscription,
    publish,
    publish_many,
    redrive,
)
from django_mqueue.models import Message as Row
from django_mqueue.testing import drain
from django_mqueue.tracing import context_of
from tests.support.fixtures import with_settings
from tests.support.processes import FAST
from tests.support.running import Seen, registered, run
from tests.support.subscribers import poll_until

from .spans import Spans, attributes, context, linked, traceparent

pytestmark = pytest.mark.django_db(transaction=True)


fast = with_settings(MQUEUE=FAST)


def test_a_handler_is_a_consumer_span_in_the_trace_of_its_message(spans: Spans) -> None:
    """The publish span is its parent and its link. A publish in the handler is its child."""

    def handle(message: Message) -> None:
        publish("invoices", message.payload, key="ada")

    stored = publish("orders", 1, key="ada", id="one")
    with registered("orders", handle):
        run(name="me")
    sent, process, inner = (
        spans.one(f"{n}") for n in ("publish orders", "process orders", "publish invoices")
    )
    assert process.kind is SpanKind.CONSUMER
    assert process.parent is not None
    assert process.parent.span_id == context(sent).span_id
    assert linked(process) == [context(sent).span_id]
    assert inner.parent is not None
    assert inner.parent.span_id == context(process).span_id
    assert {context(span).trace_id for span in (sent, process, inner)} == {context(sent).trace_id}
    assert attributes(process) == {
        "messaging.system": "django_mqueue",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "ada",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "me",
        "messaging.message.id": "one",
        "messaging.django_mqueue.message.offset": stored.offset,
        "messaging.django_mqueue.message.attempt": 1,
        "messaging.django_mqueue.outcome": "ack",
    }
    assert process.status.status_code is StatusCode.UNSET


def test_one_message_after_another_has_its_own_trace(spans: Spans) -> None:
    """This also holds if a handler leaves its own span as the current one."""

    def handle(message: Message) -> None:
        from opentelemetry import context as contexts

        contexts.attach(trace.set_span_in_context(trace.get_tracer("x").start_span("left behind")))

    for n in range(5):
        publish("orders", n)
    with registered("orders", handle):
        run(threads=1)
    found = spans.named("process orders")
    assert len({context(span).trace_id for span in found}) == 5
    assert [span.parent is not None and span.parent.span_id for span in found] == [
        linked(s)[0] for s in found
    ]


def test_a_message_without_a_context_begins_a_trace(spans: Spans) -> None:
    publish("orders", 1)
    Row.objects.update(metadata={"kind": "", "headers": {}, "encoding": "json"})
    with registered("orders", Seen()):
        run()
    span = spans.one("process orders")
    assert (span.parent, linked(span)) == (None, [])


def fail(message: Message) -> None:
    raise ValueError("no")


def reject(message: Message) -> None:
    raise Reject("never")


def postpone(message: Message) -> None:
    if message.offset not in postponed:
        postponed.add(message.offset)
        raise Postpone(0)


postponed: set[int] = set()


@pytest.mark.parametrize(
    ("handle", "options", "outcomes", "errors"),
    [
        (
            fail,
            {"max_attempts": 2, "retry": FixedDelay(0)},
            [("retry", 0), ("dead_letter", None)],
            ["ValueError", "ValueError"],
        ),
        (fail, {"retry": NoRetry()}, [("dead_letter", None)], ["ValueError"]),
        (reject, {}, [("dead_letter", None)], ["django_mqueue.exceptions.Reject"]),
        (postpone, {}, [("postpone", 0), ("ack", None)], [None, None]),
    ],
    ids=["retries", "no retry", "reject", "postpone"],
)
@pytest.mark.parametrize("atomic", [False, True], ids=["plain", "atomic"])
def test_outcomes_and_exceptions(
    spans: Spans,
    handle: Any,
    options: dict[str, Any],
    outcomes: list[tuple[str, float | None]],
    errors: list[str | None],
    atomic: bool,
) -> None:
    publish("orders", 1)
    with registered("orders", handle, atomic=atomic, **options):
        run()
    found = spans.named("process orders")
    own = "messaging.django_mqueue"
    assert [
        (attributes(span)[f"{own}.outcome"], attributes(span).get(f"{own}.retry_in")) for span in found
    ] == outcomes
    assert [attributes(span).get("error.type") for span in found] == errors
    for span, error in zip(found, errors, strict=True):
        assert (span.status.status_code is StatusCode.ERROR) == bool(error)
        assert [event.name for event in span.events] == (["exception"] if error else [])


def test_a_handler_that_leaves_its_transaction_open_has_failed(spans: Spans) -> None:
    publish("bills", 1)
    with registered("bills", lambda message: transaction.set_autocommit(False), max_attempts=1):
        run()
    span = spans.one("process bills")
    assert attributes(span)["messaging.django_mqueue.outcome"] == "dead_letter"
    assert attributes(span)["error.type"] == "django_mqueue.exceptions.MQueueError"
    assert span.status.status_code is StatusCode.ERROR


def tell(message: Message) -> None:
    try:
        raise KeyError(message.payload["card"])
    except KeyError as error:
        raise ValueError(f"no card {message.payload['card']}") from error


@pytest.mark.parametrize(
    ("mask", "shown"),
    [
        (None, True),
        ("tests.features.tracing.test_handling.mask", False),
        ("tests.features.tracing.no_such_module.mask", False),
    ],
)
@pytest.mark.parametrize("topic", ["orders", "orders_dlq"])
def test_a_masked_topics_errors_are_exported_without_their_text(
    spans: Spans, topic: str, mask: str | None, shown: bool
) -> None:
    """Without a mask, the text is exported. A mask also hides the text of the cause, even if its import fails."""
    publish("orders", {"card": "4711-0815"})
    with override_settings(MQUEUE={**FAST, "TOPICS": {"orders": {"MASK": mask}}}):
        if topic == "orders_dlq":
            with registered("orders", reject):
                run()
        with registered(topic, tell, retry=NoRetry()):
            run()
    span = spans.named(f"process {topic}")[-1]
    (event,) = span.events
    told = dict(event.attributes or {})
    assert attributes(span)["error.type"] == told["exception.type"] == "ValueError"
    assert "in tell" in str(told["exception.stacktrace"])
    assert ("4711-0815" in str(span.to_json())) == shown


def mask(message: Any) -> Any:
    return message


def test_attempts_and_a_redriven_message_stay_in_their_trace(spans: Spans) -> None:
    """The redriven message keeps its headers, also with an edited payload."""
    publish("orders", 1, headers={"h": 1})
    with registered("orders", fail, max_attempts=2, retry=FixedDelay(0)):
        run()
    letter = Row.objects.get(topic="orders_dlq")
    assert redrive("orders", edit=lambda message: 2) == 1
    seen = Seen()
    with registered("orders", seen):
        run()
    (message,) = seen.messages
    sent = spans.one("publish orders")
    assert (message.payload, message.headers) == (2, {"h": 1, "traceparent": traceparent(sent)})
    assert traceparent(sent) in str(letter.metadata)
    found = spans.named("process orders")
    assert len(found) == 3
    assert {context(span).trace_id for span in found} == {context(sent).trace_id}


async def async_handler(message: Message) -> None:
    trace.get_current_span().set_attribute("seen", True)


def test_an_async_handler_is_within_the_span(spans: Spans) -> None:
    publish("orders", 1)
    with registered("orders", async_handler):
        run()
    assert attributes(spans.one("process orders"))["seen"] is True


def test_inside_of_another_span_the_message_is_a_link(spans: Spans) -> None:
    """The OpenTelemetry conventions require a link here: ``drain`` runs within a test's own span."""
    publish("orders", 1)
    with trace.get_tracer("test").start_as_current_span("test") as around, registered("orders", Seen()):
        drain("orders", "g")
    sent, process = spans.one("publish orders"), spans.one("process orders")
    assert process.parent is not None
    assert process.parent.span_id == around.get_span_context().span_id
    assert linked(process) == [context(sent).span_id]


def test_a_poll_is_a_receive_span_with_links_and_only_if_it_finds_something(spans: Spans) -> None:
    publish_many("orders", [OutgoingMessage(n, key=f"k{n}") for n in range(2)])
    publish("orders", 2, key="k2")
    with Subscription("orders", "g", name="me") as subscription:
        deliveries = poll_until(subscription, 3)
        subscription.ack(deliveries)
        assert subscription.poll() == []
    span = spans.one("poll orders")
    many, one = spans.named("publish orders")
    assert (span.kind, span.parent) == (SpanKind.CLIENT, None)
    assert sorted(linked(span)) == sorted([context(many).span_id] * 2 + [context(one).span_id])
    assert attributes(span) == {
        "messaging.system": "django_mqueue",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "me",
        "messaging.batch.message_count": 3,
    }
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time < span.end_time


def test_a_span_of_ones_own_can_join_a_delivery(spans: Spans) -> None:
    publish("orders", 1)
    with Subscription("orders", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        with trace.get_tracer("mine").start_as_current_span("mine", context=context_of(delivery)):
            delivery.ack()
    assert context(spans.one("mine")).trace_id == context(spans.one("publish orders")).trace_id


def test_a_message_has_no_context_where_it_carries_none() -> None:
    publish("orders", 1)
    with Subscription("orders", "g") as subscription:
        (delivery,) = poll_until(subscription, 1)
        assert context_of(delivery) is None


def test_a_message_that_comes_later_is_in_the_trace_of_its_publish(spans: Spans) -> None:
    publish("orders", 1, delay=0.05)
    with registered("orders", Seen()):
        run(drain=False, max_messages=1)
    sent, process = spans.one("publish orders"), spans.one("process orders")
    assert linked(process) == [context(sent).span_id]
    assert "messaging.django_mqueue.message.offset" not in attributes(sent)
