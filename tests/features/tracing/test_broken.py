"""Tracers that are broken or not installed: publishing and handling continue."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_mqueue import Subscription, publish, publish_many, tracing
from django_mqueue.models import DeliveryState
from django_mqueue.testing import published
from tests.support.running import Seen, registered, run
from tests.support.subscribers import poll_until


class Broken:
    """An object whose attributes all raise, except the given ones."""

    def __init__(self, **works: Any) -> None:
        self.__dict__.update(works)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"broken: {name}")


class BrokenSpan(Broken, trace.NonRecordingSpan):
    """A span that has a context. All other methods raise."""

    def __init__(self) -> None:
        self._context = trace.SpanContext(1, 2, is_remote=False, trace_flags=trace.TraceFlags(1))

    def _fails(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken span")

    set_attribute = set_status = record_exception = add_event = end = add_link = _fails


PROVIDERS = {
    "provider": lambda: Broken(),
    "tracer": lambda: Broken(get_tracer=lambda *args, **kwargs: Broken()),
    "span": lambda: Broken(
        get_tracer=lambda *args, **kwargs: Broken(start_span=lambda *a, **k: BrokenSpan())
    ),
    "no span": lambda: Broken(get_tracer=lambda *args, **kwargs: Broken(start_span=lambda *a, **k: None)),
}


@pytest.fixture(params=[*PROVIDERS, "propagator", "context"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("broken")

    if request.param == "propagator":
        monkeypatch.setattr(TraceContextTextMapPropagator, "inject", fail)
        monkeypatch.setattr(TraceContextTextMapPropagator, "extract", fail)
    elif request.param == "context":
        api = tracing._api()
        assert api is not None
        monkeypatch.setattr(api, "context", Broken())
    else:
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", PROVIDERS[request.param]())
    return str(request.param)


@pytest.mark.django_db(transaction=True)
def test_whatever_a_tracer_raises_messages_are_published_and_handled(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kind of failure is logged once, not once per message."""
    given = "00-11111111111111111111111111111111-2222222222222222-01"

    def handle(message: Any) -> None:
        seen(message)
        if message.payload == 3 and message.attempt == 1:
            raise ValueError

    seen = Seen()
    for n in range(3):
        publish("orders", n, headers={"traceparent": given})
    publish_many("orders", [3, 4])
    with pytest.raises(TypeError):
        publish("orders", object())
    with registered("orders", handle, retry=[0]):
        run()
    with Subscription("orders", "by hand") as subscription:
        subscription.ack(poll_until(subscription, 5))
    assert sorted(seen.payloads) == [0, 1, 2, 3, 3, 4]
    assert DeliveryState.objects.filter(acked=True).count() == 10
    assert len(published("orders")) == 5
    told = [record.getMessage() for record in caplog.records if "tracing:" in record.getMessage()]
    assert told or broken == "no span"
    assert len(told) == len(set(told))


def test_where_it_is_not_installed_nothing_is_imported_and_nothing_added() -> None:
    """The test runs a separate process, where the import of OpenTelemetry fails."""
    program = """
    import sys
    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "opentelemetry":
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Missing())
    from django_mqueue import tracing
    from django_mqueue.messages import Published
    assert tracing.carried({}) == {}
    done = tracing.sending(lambda topic: Published(1, "one", topic, None, True))("t")
    assert done.offset == 1
    with tracing.Span("publish", "t") as span:
        span.set(message__id="one")
        span.outcome("ack", 0, last=False)
    tracing.received([], "me", 0)
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    """
    subprocess.run([sys.executable, "-W", "error", "-c", textwrap.dedent(program)], check=True, timeout=60)


def test_where_it_is_installed_it_is_imported_with_the_first_message() -> None:
    program = """
    import sys
    import django_mqueue, django_mqueue.tracing as tracing, django_mqueue.signals
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    tracing.carried({})
    assert "opentelemetry.trace" in sys.modules
    assert not [name for name in sys.modules if name.startswith("opentelemetry.sdk")]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
