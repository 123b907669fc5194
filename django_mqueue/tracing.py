"""OpenTelemetry spans for published and handled messages, joined by the W3C trace context in the headers.

Spans exist if the package ``opentelemetry-api`` is installed (the extra ``opentelemetry``). The headers follow
https://www.w3.org/TR/trace-context/. Spans follow OpenTelemetry's semantic conventions for messaging spans, version
1.43 (https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/, status "development"; the names of the
attributes are the same since 1.27). The conventions leave these points open:

- Each call of ``publish`` and ``publish_many`` has one "send" span and no "create" spans. Each message carries the
  context of this span. A message with a ``traceparent`` in its headers keeps it, and the span links to it.
- The "process" span of a handler for one message has the message's context as its parent and as a link. Inside another
  span (such as a test's span around ``drain``), that span is the parent, and the message's context is a link.
- The "receive" span of a poll has links only. A poll that finds nothing has no span.

Exceptions of a tracer are logged once and not raised.
"""

from __future__ import annotations

import functools
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import conf
from .exceptions import Postpone
from .messages import Message, Published

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind, Tracer

logger = logging.getLogger("django_mqueue")

HEADERS = ("traceparent", "tracestate")
"""Reserved names of headers, from the W3C Trace Context."""

P = ParamSpec("P")
R = TypeVar("R")
_complained: set[str] = set()


class _Api:
    """The parts of OpenTelemetry's API that this module uses, imported on first use."""

    def __init__(self) -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.context, self.trace, self.propagator = context, trace, TraceContextTextMapPropagator()
        self._provider: object = None
        self._tracer: Tracer | None = None

    @property
    def tracer(self) -> Tracer:
        """Return the tracer of the provider that is set now."""
        provider = self.trace.get_tracer_provider()
        if self._tracer is None or provider is not self._provider:
            self._tracer = provider.get_tracer("django_mqueue", import_module("django_mqueue").__version__)
            self._provider = provider
        return self._tracer


@functools.cache
def _api() -> _Api | None:
    """Return the API; None if OpenTelemetry is not installed."""
    try:
        return _Api()
    except ImportError:
        return None
    except Exception:
        logger.exception("OpenTelemetry is installed, and cannot be used")
        return None


def carried(headers: Any) -> dict[str, str]:
    """Return the trace headers of the current span for a new message.

    If the given headers already hold a trace context, return nothing and link the span to that context.
    """
    api = _api()
    if api is None:
        return {}
    carrier: dict[str, str] = {}
    try:
        if _given(headers):
            if context := _extracted(api, headers):
                api.trace.get_current_span().add_link(api.trace.get_current_span(context).get_span_context())
            return {}
        api.propagator.inject(carrier)
    except Exception:
        _complain("the trace context could not be put into a message's headers")
        return {}
    return {name: value for name, value in carrier.items() if name in HEADERS and isinstance(value, str)}


def context_of(message: Message) -> Context | None:
    """Return the context in which a message was published, for your own spans: ``start_span(…, context=…)``.

    Returns None if the message carries no context, or if OpenTelemetry is not installed.
    """
    api = _api()
    return None if api is None else _extracted(api, message.headers)


def _given(headers: Any) -> bool:
    return isinstance(headers, Mapping) and any(
        isinstance(name, str) and name.lower() in HEADERS for name in headers
    )


def _extracted(api: _Api, headers: Any) -> Context | None:
    if not _given(headers):
        return None
    carrier = {str(name).lower(): value for name, value in headers.items() if isinstance(value, str)}
    try:
        context = api.propagator.extract(carrier, context=api.context.Context())
        return context if api.trace.get_current_span(context).get_span_context().is_valid else None
    except Exception:
        _complain("the trace context in a message's headers could not be read")
        return None


class Span:
    """A span around a block, and the current span inside it. The block runs even if the tracer fails."""

    def __init__(
        self,
        kind: str,
        operation: str,
        topic: str,
        attributes: Mapping[str, Any],
        origins: Iterable[Any] = (),
        *,
        joins: bool = False,
        started: int | None = None,
    ) -> None:
        """Start the span. ``origins``: headers of messages to link to. ``joins``: a single origin may be the parent."""
        self._span: Any = None
        self._token: Any = None
        self._topic = topic
        self._api = api = _api()
        if api is None:
            return
        try:
            contexts = [context for each in origins if (context := _extracted(api, each))]
            spans = [api.trace.get_current_span(context).get_span_context() for context in contexts]
            ambient = api.trace.get_current_span().get_span_context().is_valid
            self._span = api.tracer.start_span(
                f"{operation} {topic}",
                context=contexts[0] if joins and len(contexts) == 1 and not ambient else None,
                kind=_kind(api, kind),
                attributes={
                    "messaging.system": "django_mqueue",
                    "messaging.operation.name": operation,
                    "messaging.operation.type": kind,
                    "messaging.destination.name": topic,
                    **attributes,
                },
                links=[api.trace.Link(span) for span in spans],
                start_time=started,
            )
        except Exception:
            _complain("a span could not be started")

    def __enter__(self) -> Span:
        if self._api is not None and self._span is not None:
            try:
                self._token = self._api.context.attach(self._api.trace.set_span_in_context(self._span))
            except Exception:
                _complain("a span could not be made the current one")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.failed(error)
        self.end()

    def end(self) -> None:
        """End the span. It is no longer the current span."""
        if self._api is None or self._span is None:
            return
        try:
            if self._token is not None:
                self._api.context.detach(self._token)
        except Exception:
            _complain("a span could not be left")
        try:
            self._span.end()
        except Exception:
            _complain("a span could not be ended")

    def set(self, **attributes: Any) -> None:
        """Set attributes: ``message__id`` is ``messaging.message.id``. None values are left out."""
        if self._span is None:
            return
        try:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(f"messaging.{name.replace('__', '.')}", value)
        except Exception:
            _complain("an attribute of a span could not be set")

    def failed(self, error: BaseException) -> None:
        """Record an exception and set the status to error."""
        if self._api is None or self._span is None:
            return
        try:
            if _is_masked(self._topic):
                self._span.add_event("exception", _without_text(error))
            else:
                self._span.record_exception(error)
            self._span.set_attribute("error.type", _name_of(type(error)))
            self._span.set_status(self._api.trace.StatusCode.ERROR, _name_of(type(error)))
        except Exception:
            _complain("an exception could not be noted in a span")

    def outcome(self, verb: str, delay: float, *, last: bool) -> None:
        """Record the outcome of a message. ``verb``: how it is settled. ``last``: no attempt is left.

        ``delay``: seconds until the next attempt.
        """
        again = verb == "postpone" or (verb == "nack" and not last)
        what = {"nack": "retry"}.get(verb, verb) if again or verb == "ack" else "dead_letter"
        self.set(django_mqueue__outcome=what, django_mqueue__retry_in=delay if again else None)

    def watch(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and record the exception that it raises, unless it is ``Postpone``."""
        try:
            return function(*args, **kwargs)
        except Postpone:
            raise
        except BaseException as error:
            self.failed(error)
            raise


def sending(publish: Callable[P, Published]) -> Callable[P, Published]:
    """Wrap ``publish`` in a "send" span."""

    @functools.wraps(publish)
    def traced(*args: P.args, **kwargs: P.kwargs) -> Published:
        if _api() is None:
            return publish(*args, **kwargs)
        with Span("send", "publish", _topic_of(args, kwargs), {}) as span:
            published = publish(*args, **kwargs)
            span.set(message__id=published.id, destination__partition__id=published.key)
            if (
                kwargs.get("delay") is None and kwargs.get("at") is None
            ):  # Else it has no offset in the log yet.
                span.set(django_mqueue__message__offset=published.offset)
            if not (published.created or published.replaced):
                span.set(django_mqueue__duplicate=True)
            return published

    return traced


def sending_many(publish_many: Callable[P, list[Published]]) -> Callable[P, list[Published]]:
    """Wrap ``publish_many`` in a "send" span. All messages of the call carry its context."""

    @functools.wraps(publish_many)
    def traced(*args: P.args, **kwargs: P.kwargs) -> list[Published]:
        if _api() is None:
            return publish_many(*args, **kwargs)
        with Span("send", "publish", _topic_of(args, kwargs), {}) as span:
            published = publish_many(*args, **kwargs)
            span.set(batch__message_count=len(published))
            return published

    return traced


def processing(messages: Sequence[Message], partition: str, worker: str) -> Span:
    """Return the "process" span of a handler, for one message or a batch."""
    first = messages[0]
    span = Span(
        "process",
        "process",
        first.topic,
        {
            "messaging.consumer.group.name": first.group,
            "messaging.destination.partition.id": partition,
            "messaging.client.id": worker,
        },
        [message.headers for message in messages],
        joins=len(messages) == 1,
    )
    if len(messages) == 1:
        span.set(message__id=first.id, django_mqueue__message__offset=first.offset)
        span.set(django_mqueue__message__attempt=first.attempt)
    return span


def now() -> int:
    """Return the start time of a span that ``received`` may create later, in nanoseconds."""
    return time.time_ns()


def received(messages: Sequence[Message], worker: str, started: int) -> None:
    """Create the "receive" span of a poll that returned these messages and began at ``started``."""
    if not messages or _api() is None:
        return
    attributes = {
        "messaging.consumer.group.name": messages[0].group,
        "messaging.client.id": worker,
        "messaging.batch.message_count": len(messages),
    }
    headers = [message.headers for message in messages]
    Span("receive", "poll", messages[0].topic, attributes, headers, started=started).end()


def _kind(api: _Api, operation: str) -> SpanKind:
    kinds = api.trace.SpanKind
    found: SpanKind = {"send": kinds.PRODUCER, "process": kinds.CONSUMER, "receive": kinds.CLIENT}[operation]
    return found


def _topic_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return str(args[0] if args else kwargs.get("topic", ""))


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _is_masked(topic: str) -> bool:
    """Return whether error texts of a topic may hold values that its ``MASK`` hides. True if ``MASK`` is invalid."""
    try:
        return conf.mask(topic) is not None
    except Exception:
        return True


def _without_text(error: BaseException) -> dict[str, str]:
    """Return the attributes of an exception's event: its type and the lines of code, without the error's text."""
    code = "".join(traceback.format_tb(error.__traceback__))
    return {"exception.type": _name_of(type(error)), "exception.stacktrace": code}


def _complain(what: str) -> None:
    """Log each problem once, because a broken tracer fails for every message."""
    if what not in _complained:
        _complained.add(what)
        logger.exception("tracing: %s; this is not told again", what)
