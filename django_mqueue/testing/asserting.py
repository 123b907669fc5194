"""List and check what a test has published, and make messages for handlers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction

from .. import conf
from ..messages import Message, ScheduledMessage
from ..models import Message as Row
from ..policy import encoding
from ..policy.requests import REPLY_TO
from ..service.scheduling import scheduled
from ..store.queries.message_rows import to_message
from .draining import drain

if TYPE_CHECKING:
    from ..tasks.compat import Task, TaskResult

COMPARED = ("key", "id", "kind", "headers", "group", "priority")
"""The fields by which ``assert_published`` selects messages."""


def published(topic: str | None = None, *, using: str | None = None) -> list[Message]:
    """Return the messages of a topic in the log (None: of all topics), by offset.

    Dead letters are messages of ``<topic>_dlq``, and scheduled messages of ``<topic>_scheduled``. The field
    ``group`` is the only group that a message was published for; '' for all groups.
    """
    rows = Row.objects.using(conf.database(using)).order_by("offset")
    return [_message(row) for row in (rows if topic is None else rows.filter(topic=topic))]


def assert_published(
    topic: str, payload: Any = ANY, *, count: int = 1, using: str | None = None, **fields: Any
) -> list[Message | ScheduledMessage]:
    """Fail unless ``count`` messages of the topic have this payload and these fields. Return them.

    It looks at the log, and at scheduled messages. ``payload``: by default any. ``fields``: ``key``, ``id``, ``kind``,
    ``headers``, ``group``, ``priority``. Raises ``AssertionError`` that lists what was published, and ``TypeError`` for
    an unknown field.
    """
    if unknown := sorted(fields.keys() - set(COMPARED)):
        raise TypeError(f"unknown field {unknown[0]!r}; the fields are: {', '.join(COMPARED)}")
    there = _all(topic, using)
    found = [
        message
        for message in there
        if message.payload == payload
        and all(getattr(message, name) == value for name, value in fields.items())
    ]
    if len(found) != count:
        wanted = ", ".join(f"{name}={value!r}" for name, value in {"payload": payload, **fields}.items())
        lines = [
            f"  payload={one.payload!r}, key={one.key!r}, id={one.id!r}, kind={one.kind!r}" for one in there
        ]
        first = f"{len(found)} messages of {topic!r} have {wanted}, not {count}. Published were:"
        raise AssertionError("\n".join([first, *lines]))
    return found


def assert_enqueued(task: Task[..., Any], *args: Any, count: int = 1, **kwargs: Any) -> list[TaskResult[Any]]:
    """Fail unless ``count`` jobs of the task have these arguments. Return their results.

    Without ``args`` and ``kwargs``, any arguments count. The queue and the priority of ``task`` do not matter. It looks
    at all jobs that the queue still has, also at those that have run. Raises ``AssertionError`` that lists the jobs,
    and ``ImproperlyConfigured`` if there are none and the task does not use ``MQueueBackend``.
    """
    from ..tasks.compat import (  # On Django 5.2 it needs the package django-tasks.
        normalize_json,
        task_backends,
    )
    from ..tasks.results import BACKEND

    there = [message for message in _jobs() if message.kind == task.module_path]
    wanted = {"args": normalize_json(list(args)), "kwargs": normalize_json(kwargs)}
    found = [
        message
        for message in there
        if not (args or kwargs) or all(message.payload[name] == value for name, value in wanted.items())
    ]
    if len(found) != count:
        if not there:
            _check_backend(task)
        shown = "any arguments" if not (args or kwargs) else _call(wanted)
        lines = [f"  {_call(message.payload)}" for message in there]
        first = f"{len(found)} jobs of {task.module_path} have {shown}, not {count}. Enqueued were:"
        raise AssertionError("\n".join([first, *lines]))
    return [task_backends[message.headers[BACKEND]].get_result(message.id) for message in found]


def perform_job(task: Task[..., Any], *args: Any, **kwargs: Any) -> TaskResult[Any]:
    """Enqueue a job, run the jobs of its queue as ``drain`` does, and return its result.

    Raises ``ImproperlyConfigured`` if the task does not use ``MQueueBackend``.
    """
    _check_backend(task)
    with transaction.atomic(using=conf.database()):
        result = task.enqueue(*args, **kwargs)
    drain(f"tasks.{task.queue_name}")
    result.refresh()
    return result


def make_message(payload: Any = None, *, topic: str = "topic", **fields: Any) -> Message:
    """Return a message for a call of a handler: with this payload, as JSON represents it, and usual values.

    ``fields`` replace fields of ``Message``. Nothing is stored. Raises ``TypeError`` for a payload that cannot be
    encoded, and for unknown fields.
    """
    stored = encoding.encode(payload, "", None, conf.get("MAX_PAYLOAD_BYTES", topic))
    decoded = encoding.decode(stored.body, json.loads(stored.metadata)["encoding"])
    usual = {
        "offset": 1, "id": "1", "key": None, "kind": "", "group": "group", "attempt": 1,
        "published_at": datetime.now(UTC),
    }  # fmt: skip
    return Message(**{**usual, "topic": topic, "payload": decoded, **fields})


def _all(topic: str, using: str | None) -> list[Message | ScheduledMessage]:
    """Return the messages in the log, and then the scheduled ones. Derived topics have none that are scheduled."""
    return [
        *published(topic, using=using),
        *(() if conf.is_derived(topic) else scheduled(topic, using=using)),
    ]


def _check_backend(task: Task[..., Any]) -> None:
    from ..tasks.backend import MQueueBackend
    from ..tasks.compat import task_backends

    if not isinstance(backend := task_backends[task.backend], MQueueBackend):
        raise ImproperlyConfigured(
            f"the backend {task.backend!r} of {task.module_path} is {type(backend).__name__}, not MQueueBackend: set it"
            " in TASKS"
        )


def _jobs() -> list[Message | ScheduledMessage]:
    """Return the jobs that are in the log or scheduled, each once."""
    from ..tasks.queues import backends
    from ..tasks.results import BACKEND

    found: dict[str, Message | ScheduledMessage] = {}
    for backend in backends():
        for queue in sorted(backend.queues):
            topic = f"tasks.{queue}"
            for message in _all(topic, backend.using):
                if message.headers.get(BACKEND) == backend.alias:
                    found[message.id] = message
    return list(found.values())


def _call(payload: Mapping[str, Any]) -> str:
    named = [f"{name}={value!r}" for name, value in payload["kwargs"].items()]
    return f"({', '.join([*map(repr, payload['args']), *named])})"


def _message(row: Row) -> Message:
    metadata = row.metadata if isinstance(row.metadata, dict) else json.loads(row.metadata)
    payload = encoding.decode(bytes(row.payload), metadata["encoding"])
    is_request = REPLY_TO in metadata["headers"]
    columns = {**vars(row), "id": row.message_id, "partition": row.partition_key}
    return to_message(
        columns,
        metadata,
        payload,
        topic=row.topic,
        group=row.consumer_group,
        attempt=0,
        is_request=is_request,
    )
