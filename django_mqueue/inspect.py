"""Search and count messages, and operate on them: remove, delay, hold, redeliver, send to the front.

Searches and counts read a bounded number of rows, also in large tables. Operations run until all matching messages are
changed, in transactions of a few hundred. This module also exports the statistics of topics and groups, which ``stats``
implements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from . import conf
from .browse import message_search, operations
from .browse.erasing import ErasedTopic, erase
from .policy import names
from .policy.durations import moment_ms
from .policy.message_query import LIMIT_MAX, message_query
from .results import Counts, Cut, FailedAttempt, Inspected, Page, Standing, Unreadable
from .service.actions import Author, BulkRecord
from .service.subscription import check_count
from .stats.groups import group_summary
from .stats.groups.group_progress import deliveries, partitions
from .stats.groups.group_states import (
    OpenDeliveries,
    OpenDelivery,
    PartitionPlace,
    PartitionPlaces,
    ResetPreview,
    Stretch,
)
from .stats.groups.reset_preview import preview_reset
from .stats.numbers import group_figures, holds, lag, latency, rates, subscribers, topic_figures, topics
from .stats.results import (
    Figure,
    GroupFigures,
    Hold,
    KnownTopic,
    Lag,
    Latency,
    LatencyStep,
    PartitionLag,
    Percentiles,
    Rates,
    Series,
    SubscriberFigures,
    TopicFigures,
    Topics,
)

__all__ = [
    "Counts", "Cut", "ErasedTopic", "FailedAttempt", "Figure", "GroupFigures", "Hold", "Inspected", "KnownTopic",
    "Lag", "Latency", "LatencyStep", "OpenDeliveries", "OpenDelivery", "Page", "PartitionLag", "PartitionPlace",
    "PartitionPlaces", "Percentiles", "Rates", "ResetPreview", "Series", "Standing", "Stretch", "SubscriberFigures",
    "TopicFigures", "Topics", "Unreadable", "counts", "delay", "deliveries", "erase", "group_figures", "groups",
    "hold", "holds", "lag", "latency", "messages", "partitions", "preview_reset", "rates", "redeliver", "remove",
    "send_to_front", "subscribers", "topic_figures", "topics", "unhold",
]  # fmt: skip

Filter = Mapping[str, Any] | Callable[[Inspected], Any]


def messages(
    topic: str,
    *,
    group: str | None = None,
    status: str | None = None,
    key: str | None = None,
    id: str | None = None,
    offset: int | None = None,
    kind: str | Collection[str] | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
    filter: Filter | None = None,
    limit: int = 100,
    start: str | None = None,
    newest_first: bool = False,
    scan_limit: int = 10_000,
    payload_limit: int | None = None,
    using: str | None = None,
    **payload: Any,
) -> Page:
    """Return a page of a topic's messages, with their state for a group. All given filters must match.

    ``status``: ``"pending"`` (never delivered), ``"in_flight"``, ``"waiting"`` (for a retry), ``"done"``, ``"dead"`` or
    ``"scheduled"``; None: all messages in the log. ``after`` (included) and ``before`` (not included) compare
    ``published_at``. ``kind``: one kind or a collection of kinds. ``offset``: the message at this offset of the log.
    With status ``"scheduled"`` or ``"dead"``, it is the offset of the scheduled message or of the dead letter.

    A path into the payload is an argument such as ``payload__customer__id=7``. ``filter``: a mapping of headers and
    such paths, or a callable that takes the message.

    The result holds a ``Cut`` in place of a payload that is longer than ``payload_limit`` bytes. The search reads about
    ``scan_limit`` messages and partitions, and about 32 MiB of payloads. So a page with fewer than ``limit`` messages
    may have a ``next``. Pass it as ``start`` to continue.

    Raises ``NotRegistered`` if the group is not registered, and ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    filters = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter, **payload,
    }  # fmt: skip
    query = message_query(topic, filters)
    return message_search.page(
        conf.database(using),
        query,
        limit=check_count("limit", limit, LIMIT_MAX),
        start=start,
        newest_first=bool(newest_first),
        scan_limit=check_count("scan_limit", scan_limit),
        payload_limit=None if payload_limit is None else check_count("payload_limit", payload_limit),
    )


def counts(
    topic: str,
    *,
    group: str,
    key: str | None = None,
    cap: int = 1_000,
    scan_limit: int = 10_000,
    using: str | None = None,
) -> Counts:
    """Count the messages of a topic, or of one key, by their status for a group.

    The statuses are pending, in flight, waiting, scheduled and dead. The function counts up to ``cap`` messages of
    each, and reads about ``scan_limit`` messages and partitions. ``more`` names each status that may have more
    messages.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    if group is None:
        raise TypeError("group must be a str: each group has counts of its own")
    query = message_query(topic, {"group": group, "key": key})
    check_count("cap", cap)
    return message_search.counts(conf.database(using), query, cap, check_count("scan_limit", scan_limit))


def groups(topic: str, *, scan_limit: int = 10_000, using: str | None = None) -> list[Standing]:
    """Return the registered groups of a topic by name: start, live subscribers and oldest open message.

    The function reads at most ``scan_limit`` keys for each group. Raises ``TypeError`` or ``ValueError``.
    """
    names.check_topic(topic)
    return group_summary.group_states(conf.database(using), topic, check_count("scan_limit", scan_limit))


def remove(
    topic: str,
    *,
    group: str | None,
    status: str | None = None,
    key: str | None = None,
    id: str | None = None,
    offset: int | None = None,
    kind: str | Collection[str] | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
    filter: Filter | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **payload: Any,
) -> int:
    """Remove messages from a group, so that they are not delivered to it. Return the number of messages.

    Messages that are pending or wait for a retry become done for the group, with a note among their errors. Messages
    that are scheduled for this group only are deleted. With ``status="dead"``, the group's dead letters are deleted.
    Messages in flight do not change, because a handler has them.

    ``group=None``: for every registered group, and also messages that are scheduled for all groups. A message then
    counts once for each group. Groups that read the log themselves have no messages to remove. ``dry_run``: only count.
    ``by``, ``why``: the author and the reason, for the record of actions; ``by=""``: this process. The other arguments
    are the same as for ``messages``.

    Each transaction changes a few hundred messages, so an interrupted call can be repeated. Raises ``NotRegistered``,
    ``TypeError`` or ``ValueError``.
    """
    filters = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter, **payload,
    }  # fmt: skip
    return _move(operations.REMOVE, topic, filters, limit, dry_run, Author(by, why), using)


def send_to_front(
    topic: str,
    *,
    group: str | None,
    status: str | None = None,
    key: str | None = None,
    id: str | None = None,
    offset: int | None = None,
    kind: str | Collection[str] | None = None,
    after: datetime | None = None,
    before: datetime | None = None,
    filter: Filter | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **payload: Any,
) -> int:
    """Make messages the next that a group gets for their keys. Return the number of messages.

    A pending message is delivered before all other pending messages of its key. A message that waits for a retry, or is
    scheduled, becomes due now. If several messages of a key are selected, the oldest goes first.

    A ``strict`` handler keeps its order: it gets a message when all earlier messages of the key are done. For such a
    handler, the call only ends the wait for a retry or a due time.

    Workers notice the change within ``DISCOVERY_INTERVAL``. Arguments, transactions and exceptions are the same as for
    ``remove``.
    """
    filters = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter, **payload,
    }  # fmt: skip
    return _move(operations.TO_FRONT, topic, filters, limit, dry_run, Author(by, why), using)


def delay(
    topic: str,
    until: datetime,
    *,
    group: str | None,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **filters: Any,
) -> int:
    """Set the time from which messages are delivered to a group, an aware datetime. Return the number of messages.

    This may also make a message due earlier, and ends a hold.

    The messages are pending, wait for a retry, or are scheduled for this group only. A message of a ``strict`` handler
    holds back the later messages of its key. Until the message is done, later messages of its partition are not
    deleted. ``filters``: ``status``, ``key``, ``id``, ``offset``, ``kind``, ``after``, ``before``, ``filter`` and
    paths, as for ``messages``. The other arguments, transactions and exceptions are the same as for ``remove``.
    """
    verb = operations.delay(moment_ms("until", until))
    return _move(verb, topic, {"group": group, **filters}, limit, dry_run, Author(by, why), using)


def hold(
    topic: str,
    *,
    group: str | None,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **filters: Any,
) -> int:
    """Hold messages, so that they are not delivered before ``unhold``. Return the number of messages.

    The arguments, transactions and exceptions are the same as for ``delay``.
    """
    return _move(operations.HOLD, topic, {"group": group, **filters}, limit, dry_run, Author(by, why), using)


def unhold(
    topic: str,
    *,
    group: str | None,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **filters: Any,
) -> int:
    """End a ``hold``: the messages are due now. Other messages do not change. Return the number of messages."""
    return _move(
        operations.UNHOLD, topic, {"group": group, **filters}, limit, dry_run, Author(by, why), using
    )


def redeliver(
    topic: str,
    *,
    group: str,
    limit: int | None = None,
    dry_run: bool = False,
    by: str = "",
    why: str = "",
    using: str | None = None,
    **filters: Any,
) -> int:
    """Deliver messages again that a group is done with, while the log holds them. Return the number of messages.

    The call appends a copy of each message to the log, for this group alone, with the same id, key, kind, headers and
    payload. Its attempts start at 1. The copies follow the messages that the log holds already. A second call appends
    second copies. Copies are not copied, unless ``offset`` selects one. A message whose retry is parked is also copied.
    Its retry is delivered as well. For dead letters, use ``redrive``. Arguments, transactions and exceptions are the
    same as for ``delay``.
    """
    if group is None:
        raise TypeError("group must be a str: messages are delivered again to one group")
    return _move(
        operations.REDELIVER, topic, {"group": group, **filters}, limit, dry_run, Author(by, why), using
    )


def _move(
    verb: operations.Operation,
    topic: str,
    filters: dict[str, Any],
    limit: int | None,
    dry_run: bool,
    author: Author,
    using: str | None,
) -> int:
    record = BulkRecord(
        author, verb.name, topic, filters["group"] or "", limit=limit,
        filters={
            name: _recorded(name, value)
            for name, value in filters.items()
            if name != "group" and value is not None
        },
    )  # fmt: skip
    status = filters.pop("status", None)
    if status is not None and status not in verb.statuses:
        raise ValueError(
            f"status must be one of {', '.join(verb.statuses)}, not {status!r}; None: all of these except dead"
        )
    query = message_query(topic, filters)
    if limit is not None:
        check_count("limit", limit)
    alias = conf.database(using)
    return operations.move(alias, verb, query, status, limit=limit, dry_run=bool(dry_run), record=record)


def _recorded(name: str, value: Any) -> Any:
    """Return a filter for the record of actions, which is kept forever: without values of payloads and headers."""
    if name == "filter" or name.startswith("payload__"):
        return "…"
    return value if isinstance(value, (str, int)) else str(value)[:200]
