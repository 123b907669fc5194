"""A tracer that keeps its spans, for one test."""

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
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # set_tracer_provider is for once in a process
    yield Spans(exporter)
    provider.shutdown()


@pytest.fixture(autouse=True)
def complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test hears them anew."""
    monkeypatch.setattr(tracing, "_complained", set())
