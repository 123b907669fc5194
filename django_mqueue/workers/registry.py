"""The handlers of a project: the decorator ``@consumer``, and the registry."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from django.utils.module_loading import autodiscover_modules

from ..exceptions import HandlerError
from ..messages import Message
from ..policy.backoff import ExponentialBackoff, Policy, RetryPolicy, policy_of
from ..policy.durations import to_ms
from ..policy.filters import Filter, filter_of
from ..policy.names import OPERATIONS_TOPIC
from ..protocol.delivery import Options
from ..service.registration import Start, check_names, check_start
from ..service.subscription import BATCH_MAX, check_count
from ..service.topics import Topic
from .kinds import Kinds, Parser, kinds_of

BATCH, IN_FLIGHT = 10, 500
"""Default of ``batch_size`` with ``batch``, and without it."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Limits:
    """The limits of one message's attempts; ``max_runtime`` in seconds. ``atomic``: the handler and the ack commit
    together."""

    max_attempts: int
    retry: Policy
    max_runtime: float | None = None
    atomic: bool = False


@dataclass(frozen=True)
class Handler:
    """A registered handler and its options; ``max_runtime`` in seconds.

    ``limits_of``: returns the limits of a message, which must not be above those of the handler. None: the handler's.
    ``each_minute``: a worker calls it before it takes the first message, and then each minute. ``after_failure``: as in
    ``Options``. ``weight``: with several handlers, its share of the threads' time.
    """

    function: Callable[[Any], Any]
    topic: str
    group: str
    name: str
    batch_size: int
    concurrency: int | None
    strict: bool
    max_attempts: int
    retry: Policy
    visible_ms: int
    start: Start
    atomic: bool = False
    batch: bool = False
    max_runtime: float | None = None
    filter: Callable[[Message], bool] | None = None
    kinds: dict[str, Parser | None] | None = None
    low_priority_share: float = 0.0
    limits_of: Callable[[Message], Limits] | None = None
    each_minute: Callable[[], None] | None = None
    after_failure: Callable[[str, int, bool], None] | None = None
    weight: int = 1

    def limits(self, message: Message) -> Limits:
        if self.limits_of is not None:
            return self.limits_of(message)
        return Limits(self.max_attempts, self.retry, self.max_runtime, self.atomic)

    def is_atomic(self, message: Message) -> bool:
        return self.limits(message).atomic

    def options(self, using: str, *, batch_size: int | None = None, eager: bool = False) -> Options:
        """Return the options of a subscriber. ``batch_size`` replaces the handler's. ``eager``: for tests."""
        return Options(
            using, batch_size or self.batch_size, self.strict, self.max_attempts, self.visible_ms, eager=eager,
            batch=self.batch, low_priority_share=self.low_priority_share, after_failure=self.after_failure,
        )  # fmt: skip


def _definition(function: Any) -> object:
    """Return a value that is equal if the same function is imported twice."""
    function = inspect.unwrap(function)  # Functions that one decorator wraps share its code.
    code = getattr(function, "__code__", None)
    return (code.co_filename, function.__qualname__, code.co_firstlineno) if code else object()


def _place(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


_handlers: dict[tuple[str, str], Handler] = {}


def consumer(
    topic: str | Topic[Any],
    *,
    group: str,
    name: str | None = None,
    batch_size: int | None = None,
    concurrency: int | None = None,
    strict: bool = False,
    atomic: bool = False,
    batch: bool = False,
    max_attempts: int = 3,
    retry: RetryPolicy | Sequence[float | timedelta] | None = ExponentialBackoff(),  # noqa: B008
    visibility_timeout: float | timedelta = 60,
    max_runtime: float | timedelta | None = None,
    filter: Filter | None = None,
    kinds: Kinds | None = None,
    low_priority_share: float = 0,
    start: Start = "earliest",
) -> Callable[[Function], Function]:
    """Register a function as the handler of a topic's messages for a group. ``runconsumer`` runs the handler.

    The function takes one ``Delivery`` (a ``Message`` with ``extend``), and may be ``async``. When it returns, the
    message is acknowledged. When it raises, the message is retried; after ``max_attempts`` failed attempts it is
    dead-lettered. It may raise ``Retry``, ``Reject`` or ``Postpone`` for another outcome.

    - ``topic``: a name, or a declared ``Topic``. If that has a schema, the payload is an instance of it, and a message
      that does not parse is dead-lettered.
    - ``name``: the handler's name in logs.
    - ``batch_size``: the maximum number of messages of one partition that are in flight; default: 10 with ``batch``,
      otherwise 500. Not used with ``strict``.
    - ``concurrency``: the maximum number of calls at the same time in a process; default: the number of threads. Calls
      past ``max_runtime`` do not count.
    - ``strict``: deliver one message of a key at a time, in order.
    - ``atomic``: the handler's writes to the queue's database, its publishes and the ack are one commit. So its effects
      happen once.
    - ``batch``: the function takes a list of up to ``batch_size`` messages of one partition. They succeed or fail
      together, unless the function raises ``BatchFailure``.
    - ``retry``: a policy, which takes the attempt's number and optionally the exception. It returns the wait in seconds
      or as a ``timedelta``, or None for no retry. Instead of a policy, ``retry`` may be a list of waits, or None for no
      retry.
    - ``visibility_timeout``: seconds (or a ``timedelta``) for ``invisible_until`` of a delivery. The worker extends it
      while the handler runs, unless it is ``atomic``. Another worker gets the message when it takes over the partition,
      whether this time is over or not.
    - ``max_runtime``: seconds (or a ``timedelta``) after which the attempt has failed; None: no limit. An ``async``
      handler is cancelled. Any other handler continues, but can no longer settle its message.
    - ``filter``: headers and paths into the payload that must match, or a callable. Other messages are acknowledged
      unread.
    - ``kinds``: the kinds that the handler takes, with parsers of their payloads. Other kinds are dead-lettered.
    - ``low_priority_share``: the share of messages, from 0 to below 1, that is claimed from the lowest priority. So
      these make progress while there are always messages with a higher priority.
    - ``start``: where a new group begins, as for ``subscribe``.

    Raises ``TypeError`` or ``ValueError`` for invalid options, and ``HandlerError`` if the group has another handler
    for the topic.
    """
    if isinstance(topic, Topic):
        if topic.schema is not None:
            if kinds is not None:
                raise ValueError(f"kinds and the schema of {topic!r} exclude each other: leave out kinds")
            kinds = {"": topic.schema}
        topic = topic.name
    check_names(topic, group)
    check_start(start)
    size = (BATCH if batch else IN_FLIGHT) if batch_size is None else batch_size
    check_count("batch_size", size, BATCH_MAX)
    check_count("max_attempts", max_attempts)
    if concurrency is not None:
        check_count("concurrency", concurrency)
    if batch and strict:
        raise ValueError(
            "batch=True and strict=True exclude each other: strict=True handles one message of a key at a time, so"
            " there is no batch. Leave out one of them"
        )
    check_share(low_priority_share)
    limit = None if max_runtime is None else to_ms("max_runtime", max_runtime, least=0.001) / 1000
    policy, wants, takes = policy_of(retry), filter_of(filter), kinds_of(kinds)
    visible_ms = to_ms("visibility_timeout", visibility_timeout, least=0.001)

    def register(function: Function) -> Function:
        if not callable(function):
            raise TypeError(f"a handler must be callable, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"a handler must not be a generator, because its body would never run: {function!r}"
            )
        shown = name or f"{function.__module__}.{getattr(function, '__qualname__', function)}"
        handler = Handler(
            function, topic, group, shown, batch_size=size, concurrency=concurrency, strict=bool(strict),
            max_attempts=max_attempts, retry=policy, visible_ms=visible_ms, start=start, atomic=bool(atomic),
            batch=bool(batch), max_runtime=limit, filter=wants, kinds=takes, low_priority_share=low_priority_share,
        )  # fmt: skip
        add(handler)
        return function

    return register


def add(handler: Handler) -> None:
    """Register a handler. Raises ``HandlerError`` if the topic and group have another one."""
    topic, group, function = handler.topic, handler.group, handler.function
    before = _handlers.get((topic, group))
    if before is not None and _definition(before.function) != _definition(function):
        raise HandlerError(
            f"topic {topic!r} has a handler for group {group!r} already: {before.name}{_place(before.function)};"
            f" {handler.name}{_place(function)} needs another group"
        )
    _handlers[topic, group] = handler


def check_share(value: object) -> None:
    """Raise ``ValueError`` if ``value`` is no ``low_priority_share``."""
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise ValueError(f"low_priority_share must be a number from 0 to below 1, not {value!r}")


def unregister(topic: str, group: str) -> None:
    """Remove a handler from the registry, if any."""
    _handlers.pop((topic, group), None)


def autodiscover() -> None:
    """Import ``topics`` and ``consumers`` of every installed app, as Django's admin does with ``admin``."""
    autodiscover_modules("topics", "consumers")


def handlers(chosen: list[str] | None = None) -> list[Handler]:
    """Return all handlers, or the handlers that ``chosen`` names as ``TOPIC`` or ``TOPIC:GROUP``, in a fixed order.

    The queue's own handler for operations of the admin is returned only if it is named. Raises ``HandlerError`` for a
    name that no handler has.
    """
    known = dict(sorted(_handlers.items()))
    picked: dict[tuple[str, str], Handler] = {}
    for name in chosen or ():
        found = {key: handler for key, handler in known.items() if name in (key[0], ":".join(key))}
        if not found:
            there = ", ".join(map(":".join, known)) or "none"
            raise HandlerError(f"no handler is registered for {name!r}; registered are: {there}")
        picked |= found
    own = {key: handler for key, handler in known.items() if key[0] != OPERATIONS_TOPIC}
    return list((picked if chosen else own).values())
