"""``Topic``: a declared topic, with the type of its payloads, their key, and the topic's retention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Generic, Unpack

from .. import conf
from ..exceptions import MQueueError
from ..messages import OutgoingMessage, Payload, Published
from ..policy import names
from ..policy.durations import to_ms
from .publish import TopicOptions, apublish, publish, publish_many

_declared: dict[str, Topic[Any]] = {}
internal_topics: set[str] = set()
"""Topics of job queues, worklists and the admin's operations. A project need not declare them."""


class Topic(Generic[Payload]):
    """A topic of the project, for ``@consumer(topic, …)`` and for ``topic.publish(…)``.

    ``schema``: the type of the payloads, a dataclass or a pydantic model. ``publish`` takes only instances of it, and
    handlers get instances. ``key``: a function that returns the key of a payload. ``retention``: seconds or a
    ``timedelta``, instead of the setting ``RETENTION``; an entry in ``TOPICS`` takes precedence.

    If a project declares a topic, ``runconsumer`` refuses handlers of topics that are not declared.

    Raises ``TypeError`` or ``ValueError`` for invalid values, and ``MQueueError`` if the topic is declared already with
    another schema or retention.
    """

    def __init__(
        self,
        name: str,
        *,
        schema: type[Payload] | None = None,
        key: Callable[[Payload], str | None] | None = None,
        retention: float | timedelta | None = None,
    ) -> None:
        self.name = names.check_publish_topic(name, conf.dead_letter_suffixes())
        if schema is not None and not (
            isinstance(schema, type) and (is_dataclass(schema) or hasattr(schema, "model_validate"))
        ):
            raise TypeError(f"schema must be a dataclass or a pydantic model, not {schema!r}")
        if key is not None and not callable(key):
            raise TypeError(f"key must be a function of the payload, not {type(key).__name__}")
        self.schema, self.key = schema, key
        self.retention = None if retention is None else to_ms("retention", retention) / 1000
        before = _declared.setdefault(name, self)
        if (before.schema, before.retention) != (schema, self.retention):
            raise MQueueError(f"topic {name!r} is declared already, with another schema or retention")
        if self.retention is not None:
            conf.declared.setdefault(name, {"RETENTION": self.retention})

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    def publish(self, payload: Payload, **options: Unpack[TopicOptions]) -> Published:
        """Publish a payload, in the caller's transaction. ``options``: as for ``django_mqueue.publish``.

        Raises ``TypeError`` for a payload of another type, and what ``django_mqueue.publish`` raises.
        """
        return publish(self.name, self._encoded(payload), **self._with_key(payload, options))

    async def apublish(self, payload: Payload, **options: Unpack[TopicOptions]) -> Published:
        """Do the same as ``publish``, for asynchronous callers."""
        return await apublish(self.name, self._encoded(payload), **self._with_key(payload, options))

    def publish_many(
        self,
        payloads: Iterable[Payload],
        *,
        require_transaction: bool | None = None,
        using: str | None = None,
    ) -> list[Published]:
        """Publish payloads, all or none. Raises what ``publish`` and ``django_mqueue.publish_many`` raise."""
        outgoing = [
            OutgoingMessage(self._encoded(payload), key=self._with_key(payload, {}).get("key"))
            for payload in payloads
        ]
        return publish_many(self.name, outgoing, require_transaction=require_transaction, using=using)

    def _encoded(self, payload: Any) -> Any:
        """Return the payload as ``publish`` takes it."""
        if self.schema is None:
            return payload
        if not isinstance(payload, self.schema):
            wanted, given = self.schema.__name__, type(payload).__name__
            raise TypeError(f"the payload for topic {self.name!r} must be a {wanted}, not {given}")
        if hasattr(payload, "model_dump"):  # pydantic's
            return payload.model_dump(mode="json")
        return asdict(payload)  # type: ignore[call-overload]

    def _with_key(self, payload: Payload, options: TopicOptions) -> TopicOptions:
        return options if self.key is None or "key" in options else {**options, "key": self.key(payload)}


def problem_of(topic: str) -> str | None:
    """Return a problem if the project declares topics, but not this one (probably mistyped); else None."""
    known_topics = internal_topics | _declared.keys()
    if not _declared or conf.original_topic(topic) in known_topics or topic in conf.topics():
        return None
    close = get_close_matches(topic, _declared, 1)
    known = f"did you mean {close[0]!r}?" if close else f"declared: {', '.join(sorted(_declared))}"
    return f"topic {topic!r} is not declared; {known}"
