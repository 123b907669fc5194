"""Register a handler for each queue of the backends in ``TASKS``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from django.conf import settings

from ..exceptions import HandlerError
from ..policy.backoff import NoRetry, policy_of
from ..service.topics import internal_topics
from ..signals import dead_lettered
from ..workers import registry
from .backend import MQueueBackend
from .compat import task_backends
from .hooks import after_failure
from .job_ids import GROUP, topic_of
from .options import ATTEMPTS_MAX
from .recurring import RecurringJob, enqueue_firings, jobs_of
from .running import limits_of, report_failure, run_job

VISIBLE_MS = 60_000
WEIGHT_MAX = 1000


def backends() -> list[MQueueBackend]:
    """Return each ``MQueueBackend`` in ``TASKS``, in the order of their aliases."""
    aliases = sorted(getattr(settings, "TASKS", None) or ())
    return [found for alias in aliases if isinstance(found := task_backends[alias], MQueueBackend)]


def register_queues() -> dict[str, str]:
    """Register a handler for each queue, in place of those registered before. Return {queue: topic}.

    If several backends have a queue, the options of the first one count for the handler.
    """
    for handler in registry.handlers():
        if handler.function is run_job:
            registry.unregister(handler.topic, handler.group)
            dead_lettered.disconnect(report_failure, handler.topic)
    found: dict[str, str] = {}
    for backend in backends():
        for queue in sorted(backend.queues - found.keys()):
            found[queue] = topic_of(queue)
            internal_topics.add(found[queue])
            registry.add(_handler(queue, backend))
            dead_lettered.connect(report_failure, found[queue])
    return found


def selected(names: Iterable[str], known: dict[str, str]) -> list[str]:
    """Return ``TOPIC:GROUP`` for each named queue; without ``names``, for each queue.

    A name may end in ``=`` and a weight. This function then registers the queue's handler again with this weight.
    Raises ``HandlerError`` for an invalid weight, for an unknown queue, and if there is no queue.
    """
    queues = []
    for given in list(names) or sorted(known):
        name, equals, weight = (given, "", "1") if given in known else given.rpartition("=")
        queues.append(name or given)
        if equals and name in known:
            if not (weight.isascii() and weight.isdecimal() and 1 <= int(weight) <= WEIGHT_MAX):
                raise HandlerError(
                    f"--tasks {given}: the weight must be from 1 to {WEIGHT_MAX}, not {weight!r}"
                )
            registry.add(replace(registry.handlers([f"{known[name]}:{GROUP}"])[0], weight=int(weight)))
    for name in queues:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise HandlerError(
                f"no backend in TASKS that uses MQueueBackend has the queue {name!r}; queues: {there}"
            )
    if not queues:
        raise HandlerError("no backend in TASKS uses django_mqueue.tasks.MQueueBackend")
    return [f"{known[name]}:{GROUP}" for name in queues]


def recurring_jobs() -> list[RecurringJob]:
    """Return the recurring jobs of each ``MQueueBackend``, by backend and name."""
    return [job for backend in backends() for job in jobs_of(backend)]


def _handler(queue: str, backend: MQueueBackend) -> registry.Handler:
    return registry.Handler(
        function=run_job,
        topic=topic_of(queue),
        group=GROUP,
        name=f"tasks of queue {queue}",
        batch_size=registry.IN_FLIGHT,
        concurrency=None,
        strict=False,
        max_attempts=ATTEMPTS_MAX,
        retry=policy_of(NoRetry()),
        visible_ms=VISIBLE_MS,
        start="earliest",
        low_priority_share=backend.mqueue_options.low_priority_share,
        limits_of=limits_of,
        each_minute=partial(_enqueue_firings, queue),
        after_failure=after_failure,
    )


def _enqueue_firings(queue: str) -> None:
    for backend in backends():
        enqueue_firings(backend, queue)
