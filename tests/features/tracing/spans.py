"""The spans that a test has made."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext


class Spans:
    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        found = self.named(name)
        assert len(found) == 1, [span.name for span in self.exporter.get_finished_spans()]
        return found[0]


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def traceparent(span: ReadableSpan) -> str:
    """Return the header of W3C Trace Context for a span: version, trace, span, flags."""
    found = context(span)
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def linked(span: ReadableSpan) -> list[int]:
    """Return the ids of the spans that the span links to."""
    return [link.context.span_id for link in span.links]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})
