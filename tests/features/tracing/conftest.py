"""A tracer that keeps the spans of one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_mqueue import tracing

from .spans import Spans


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # set_tracer_provider works once per process
    yield Spans(exporter)
    provider.shutdown()


@pytest.fixture(autouse=True)
def complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the record of logged complaints, so that each test logs its own."""
    monkeypatch.setattr(tracing, "_complained", set())
