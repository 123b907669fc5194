"""OpenTelemetry spans for published and handled messages, joined by the W3C trace context in the headers.

Spans exist if the package ``opentelemetry-api`` is installed (the extra ``opentelemetry``). They follow
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/, version 1.43, which leaves these points open:

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
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from . import conf
from .exceptions import Postpone
from .messages import Message, OutgoingMessage, Published

if TYPE_CHECKING:
    from opentelemetry.context import Context

logger = logging.getLogger("django_mqueue")

HEADERS = ("traceparent", "tracestate")
"""Reserved names of headers, from the W3C Trace Context."""

TYPES = {"publish": ("send", "PRODUCER"), "process": ("process", "CONSUMER"), "poll": ("receive", "CLIENT")}
"""The operation's type and the span's kind, by the operation's name."""

P = ParamSpec("P")
R = TypeVar("R")
_complained: set[str] = set()


@functools.cache
def _api() -> Any:
    """Return the parts of OpenTelemetry's API that this module uses; None if it is not installed."""
    try:
        from opentelemetry import context, metrics, trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        return SimpleNamespace(
            context=context,
            metrics=metrics,
            trace=trace,
            propagator=TraceContextTextMapPropagator(),
            version=import_module("django_mqueue").__version__,
        )
    except ImportError:
        return None
    except Exception:
        logger.exception("OpenTelemetry is installed, but cannot be used")
        return None


@contextmanager
def _logging_once(what: str) -> Iterator[None]:
    """Log exceptions of the block once, because a broken tracer fails for every message. Do not raise them."""
    try:
        yield
    except Exception:
        if what not in _complained:
            _complained.add(what)
            logger.exception("tracing: %s; this is not logged again", what)


def carried(headers: Any) -> dict[str, str]:
    """Return trace headers to add to a new message. If it already has some, link the span to them and add none."""
    api = _api()
    carrier: dict[str, Any] = {}
    if api is None:
        return {}
    with _logging_once("the trace context could not be put into a message's headers"):
        if not _given(headers):
            api.propagator.inject(carrier)
        elif context := _extracted(headers):
            api.trace.get_current_span().add_link(api.trace.get_current_span(context).get_span_context())
    return {name: value for name, value in carrier.items() if name in HEADERS and isinstance(value, str)}


def flush() -> None:
    """Export the spans and measurements that OpenTelemetry has kept for later, within five seconds each.

    For a process that skips the functions of ``atexit``, which OpenTelemetry uses to export.
    """
    api = _api()
    if api is None:
        return
    providers = {"spans": api.trace.get_tracer_provider, "measurements": api.metrics.get_meter_provider}
    for what, provider_of in providers.items():
        with _logging_once(f"the last {what} could not be exported"):
            provider = provider_of()
            if hasattr(provider, "force_flush"):  # The provider of the API alone has no such method.
                provider.force_flush(5_000)


def context_of(message: Message) -> Context | None:
    """Return the context in which a message was published, for your own spans: ``start_span(…, context=…)``.

    Returns None if the message carries no context, or if OpenTelemetry is not installed.
    """
    return _extracted(message.headers)


def _given(headers: Any) -> bool:
    return isinstance(headers, Mapping) and any(
        isinstance(name, str) and name.lower() in HEADERS for name in headers
    )


def _extracted(headers: Any) -> Context | None:
    api = _api()
    if api is None or not _given(headers):
        return None
    carrier = {str(name).lower(): value for name, value in headers.items() if isinstance(value, str)}
    found: Context | None = None
    with _logging_once("the trace context in a message's headers could not be read"):
        context = api.propagator.extract(carrier, context=api.context.Context())
        if api.trace.get_current_span(context).get_span_context().is_valid:
            found = context
    return found


class Span:
    """A span around a block, and the current span inside it. The block runs even if the tracer fails."""

    def __init__(
        self,
        operation: str,
        topic: str,
        attributes: Mapping[str, Any] | None = None,
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
        with _logging_once("a span could not be started"):
            contexts = [context for each in origins if (context := _extracted(each))]
            spans = [api.trace.get_current_span(context).get_span_context() for context in contexts]
            ambient = api.trace.get_current_span().get_span_context().is_valid
            type_, kind = TYPES[operation]
            tracer = api.trace.get_tracer("django_mqueue", api.version)
            self._span = tracer.start_span(
                f"{operation} {topic}",
                context=contexts[0] if joins and len(contexts) == 1 and not ambient else None,
                kind=api.trace.SpanKind[kind],
                attributes={
                    "messaging.system": "django_mqueue",
                    "messaging.operation.name": operation,
                    "messaging.operation.type": type_,
                    "messaging.destination.name": topic,
                    **(attributes or {}),
                },
                links=[api.trace.Link(span) for span in spans],
                start_time=started,
            )

    @property
    def exists(self) -> bool:
        """Return False without OpenTelemetry, or if its tracer has failed. Then attributes are not kept."""
        return self._span is not None

    def __enter__(self) -> Span:
        if self._span is not None:
            with _logging_once("a span could not be made the current one"):
                self._token = self._api.context.attach(self._api.trace.set_span_in_context(self._span))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.failed(error)
        self.end()

    def end(self) -> None:
        """End the span. It is no longer the current span."""
        if self._token is not None:
            with _logging_once("a span could not be left"):
                self._api.context.detach(self._token)
        if self._span is not None:
            with _logging_once("a span could not be ended"):
                self._span.end()

    def set(self, **attributes: Any) -> None:
        """Set attributes: ``message__id`` is ``messaging.message.id``. None values are left out."""
        if self._span is None:
            return
        with _logging_once("an attribute of a span could not be set"):
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(f"messaging.{name.replace('__', '.')}", value)

    def failed(self, error: BaseException) -> None:
        """Record an exception and set the status to error, unless the exception is ``Postpone``."""
        if self._span is None or isinstance(error, Postpone):
            return
        with _logging_once("an exception could not be noted in a span"):
            name = name_of(type(error))
            if conf.is_masked(self._topic):
                code = "".join(traceback.format_tb(error.__traceback__))
                self._span.add_event("exception", {"exception.type": name, "exception.stacktrace": code})
            else:
                self._span.record_exception(error)
            self._span.set_attribute("error.type", name)
            self._span.set_status(self._api.trace.StatusCode.ERROR, name)

    def outcome(self, verb: str, delay: float, *, last: bool) -> None:
        """Record the outcome of a message. ``delay``: seconds until the next attempt. ``last``: no attempt is left."""
        again = verb == "postpone" or (verb == "nack" and not last)
        what = {"nack": "retry"}.get(verb, verb) if again or verb == "ack" else "dead_letter"
        self.set(django_mqueue__outcome=what, django_mqueue__retry_in=delay if again else None)


def sending(publish: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``publish`` or ``publish_many`` in a "send" span. All messages of the call carry its context."""

    @functools.wraps(publish)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        if _api() is None:
            return publish(*args, **kwargs)
        with Span("publish", str(args[0] if args else kwargs.get("topic", ""))) as span:
            result = publish(*args, **kwargs)
            if isinstance(result, list):
                span.set(batch__message_count=len(result))
            elif isinstance(result, Published):
                span.set(message__id=result.id, destination__partition__id=result.key)
                message = args[1] if len(args) > 1 and isinstance(args[1], OutgoingMessage) else None
                due = kwargs.get("at") if message is None else message.at
                if due is None and not kwargs.get("delay"):
                    span.set(django_mqueue__message__offset=result.offset)
                if not (result.created or result.replaced):
                    span.set(django_mqueue__duplicate=True)
            return result

    return traced


def processing(messages: Sequence[Message], partition: str, worker: str) -> Span:
    """Return the "process" span of a handler, for one message or a batch."""
    first = messages[0]
    if _api() is None:
        return Span("process", first.topic)
    attributes: dict[str, Any] = {
        "messaging.consumer.group.name": first.group,
        "messaging.destination.partition.id": partition,
        "messaging.client.id": worker,
    }
    if len(messages) == 1:
        attributes["messaging.message.id"] = first.id
        attributes["messaging.django_mqueue.message.offset"] = first.offset
        attributes["messaging.django_mqueue.message.attempt"] = first.attempt
    headers = [message.headers for message in messages]
    return Span("process", first.topic, attributes, headers, joins=len(messages) == 1)


def received(messages: Sequence[Message], worker: str, started: int) -> None:
    """Create the "receive" span of a poll that returned these messages and began at ``started`` (epoch nanoseconds)."""
    if not messages or _api() is None:
        return
    attributes = {
        "messaging.consumer.group.name": messages[0].group,
        "messaging.client.id": worker,
        "messaging.batch.message_count": len(messages),
    }
    headers = [message.headers for message in messages]
    Span("poll", messages[0].topic, attributes, headers, started=started).end()


def name_of(kind: type) -> str:
    """Return the name of an exception's class, for the attribute ``error.type``."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
