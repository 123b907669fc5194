"""Hand a long redrive or purge over to a worker, and find the operations that workers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import inspect
from ...exceptions import NotRegistered
from ...inspect import Inspected
from ...policy.message_query import IN_FLIGHT, PENDING, WAITING
from ...policy.names import OPERATIONS_TOPIC
from ...service.bulk_work import GROUP
from ...stats.results import ALIVE

UNDER_WAY = (PENDING, WAITING, IN_FLIGHT)
READ = 100
"""The maximum number of newest steps that are read to find the operations under way."""


@dataclass(frozen=True)
class Work:
    """The payload of a step.

    ``operation``: the page of the operation. ``form``: the confirmed form. ``carried``: the state after the previous
    step (``Run``). ``entry``: the primary key of the entry in the log of actions. ``logs``: the texts that the entry
    may have: before and after the result of the previous step is written. ``stop``: the text of the entry if a user
    stopped the operation during the previous step. ``pause``: seconds from the previous step to this one. ``reason``:
    the reason that the user gave. ``language`` and ``zone``: of the user who began the operation; None: the default.
    """

    operation: str
    form: Mapping[str, list[str]]
    carried: Mapping[str, Any]
    entry: int
    logs: Sequence[str]
    stop: str = ""
    pause: float = 0
    reason: str = ""
    language: str | None = None
    zone: str | None = None

    @property
    def is_last(self) -> bool:
        """Return whether no step follows: the message only writes the result of the last step."""
        return self.carried["position"] is None


def has_live_worker(using: str) -> bool:
    """Return whether a live worker does the steps of operations."""
    members = inspect.subscribers(OPERATIONS_TOPIC, GROUP, using=using)
    return any(one.status == ALIVE for one in members)


def newest(using: str, key: str) -> tuple[Work, str | None] | None:
    """Return the newest step of an operation and the status of its message; None if it is no longer in the log."""
    found = _messages(using, key=key, limit=1)
    return (Work(**found[0].payload), found[0].status) if found else None


def under_way(using: str, topic: str) -> list[Work]:
    """Return the newest steps of the operations on a topic's dead letters that have not ended, newest first."""
    found: dict[str | None, Work] = {}
    for message in _messages(using, limit=READ):
        if message.status in UNDER_WAY and message.key not in found:
            found[message.key] = Work(**message.payload)
    return [
        work for work in found.values() if list(work.form.get("topic", ())) == [topic] and not work.is_last
    ]


def _messages(using: str, **query: Any) -> list[Inspected]:
    try:
        return inspect.messages(
            OPERATIONS_TOPIC, group=GROUP, newest_first=True, using=using, **query
        ).messages
    except NotRegistered:  # No worker has run the handler yet.
        return []
