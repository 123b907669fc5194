"""Spans of publishing, and the trace context in the headers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from django_mqueue import OutgoingMessage, Published, publish, publish_many
from django_mqueue.policy.encoding import HEADERS_MAX_BYTES
from django_mqueue.service.publish import check, publish_once
from django_mqueue.testing import published
from tests.support.statements import counted

from .spans import Spans, attributes, context, linked, traceparent

pytestmark = pytest.mark.django_db

GIVEN = "00-11111111111111111111111111111111-2222222222222222-01"


def headers() -> list[dict[str, object]]:
    return [message.headers for message in published()]


def test_a_publish_is_a_producer_span_whose_context_the_message_carries(spans: Spans) -> None:
    stored = publish("orders", 1, key="ada", id="one", headers={"h": 1})
    span = spans.one("publish orders")
    assert (span.kind, span.parent) == (SpanKind.PRODUCER, None)
    assert attributes(span) == {
        "messaging.system": "django_mqueue",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "ada",
        "messaging.message.id": "one",
        "messaging.django_mqueue.message.offset": stored.offset,
    }
    assert headers() == [{"h": 1, "traceparent": traceparent(span)}]


def test_a_delay_of_zero_is_no_delay(spans: Spans) -> None:
    stored = publish("orders", 1, delay=0)
    assert attributes(spans.one("publish orders"))["messaging.django_mqueue.message.offset"] == stored.offset


def test_it_belongs_to_the_span_around_it_with_its_state(spans: Spans) -> None:
    state = trace.TraceState([("vendor", "x")])
    origin = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(origin)):
        publish("orders", b"\x00")
    span = spans.one("publish orders")
    assert span.parent is not None
    assert (context(span).trace_id, span.parent.span_id) == (1, 2)
    assert headers() == [{"traceparent": traceparent(span), "tracestate": "vendor=x"}]


def test_without_a_tracer_nothing_is_added() -> None:
    """Only the OpenTelemetry API is installed, and there is no span."""
    publish("orders", 1)
    publish_many("orders", [2])
    assert headers() == [{}, {}]


def test_without_a_tracer_a_context_from_elsewhere_is_handed_on() -> None:
    origin = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(origin)):
        publish("orders", 1)
    assert headers() == [{"traceparent": f"00-{1:032x}-{2:016x}-01"}]


@pytest.mark.parametrize("name", ["traceparent", "Traceparent"])
def test_a_header_of_the_users_own_wins(spans: Spans, name: str) -> None:
    """The span links to the context in the header."""
    publish("orders", 1, headers={name: GIVEN})
    assert headers() == [{name: GIVEN}]
    assert linked(spans.one("publish orders")) == [0x2222222222222222]


@pytest.mark.parametrize("value", ["nonsense", 7, None, ""])
def test_a_header_that_is_no_trace_context_stays_as_it_is(spans: Spans, value: object) -> None:
    publish("orders", 1, headers={"traceparent": value})
    assert headers() == [{"traceparent": value}]
    assert linked(spans.one("publish orders")) == []


def test_publish_many_is_one_span_that_all_messages_carry(spans: Spans) -> None:
    publish_many("orders", [1, OutgoingMessage(2, headers={"traceparent": GIVEN}), OutgoingMessage(b"3")])
    span = spans.one("publish orders")
    own = {"traceparent": traceparent(span)}
    assert headers() == [own, {"traceparent": GIVEN}, own]
    assert linked(span) == [0x2222222222222222]
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes(span)


def test_headers_that_have_no_room_for_more_are_published_as_they_are(spans: Spans) -> None:
    """Headers that fit without a tracer also fit with one."""
    most = {"h": "x" * (HEADERS_MAX_BYTES - 60)}
    publish("orders", 1, headers=most)
    assert headers() == [most]


def test_a_publish_that_fails_is_an_error(spans: Spans) -> None:
    with pytest.raises(TypeError):
        publish("orders", object())
    with pytest.raises(ValueError, match="topic"):
        publish_many("", [1])
    failed = spans.one("publish orders")
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "TypeError"
    assert [event.name for event in failed.events] == ["exception"]
    assert len(spans.exporter.get_finished_spans()) == 2


def test_a_duplicate_is_marked(spans: Spans) -> None:
    answers = [publish("orders", n, key="k", id="one") for n in range(2)]
    assert [answer.created for answer in answers] == [True, False]
    first, second = spans.named("publish orders")
    assert "messaging.django_mqueue.duplicate" not in attributes(first)
    assert attributes(second)["messaging.django_mqueue.duplicate"] is True


def test_a_scheduled_message_has_no_offset_in_its_span(spans: Spans) -> None:
    due = timezone.now() + timedelta(hours=1)
    publish_once("orders", OutgoingMessage(1, id="one", at=due), "k", "default")
    publish_once("orders", OutgoingMessage(1, id="two"), "k", "default")
    first, second = spans.named("publish orders")
    assert "messaging.django_mqueue.message.offset" not in attributes(first)
    assert "messaging.django_mqueue.message.offset" in attributes(second)


def test_a_check_leaves_the_span_of_the_caller_as_it_is(spans: Spans) -> None:
    with trace.get_tracer("view").start_as_current_span("view"):
        check("orders", OutgoingMessage(1, headers={"traceparent": GIVEN}))
    assert linked(spans.one("view")) == []


def test_a_span_costs_no_statement(spans: Spans) -> None:
    with counted() as cost:
        publish("orders", 1)
    assert cost.count == 1


def test_publish_is_what_it_was() -> None:
    """The decorated function keeps its name, its module and its return type."""
    assert isinstance(publish("orders", 1), Published)
    assert (publish.__name__, publish.__module__) == ("publish", "django_mqueue.service.publish")
