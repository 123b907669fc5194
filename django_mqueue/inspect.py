"""Messages as they stand: searched, counted, taken out, sent to the front. In bounded time, however long the tables
are. The numbers of topics and groups are in ``service.numbers``, and are imported from here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from . import conf
from .policy import names
from .policy.figures import (
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
from .policy.history import (
    LIMIT_MAX,
    Counts,
    Cut,
    FailedAttempt,
    Inspected,
    Page,
    Standing,
    Unreadable,
    wanted,
)
from .policy.places import (
    OpenDeliveries,
    OpenDelivery,
    PartitionPlace,
    PartitionPlaces,
    ResetPreview,
    Stretch,
)
from .service import inspecting, moving, standing
from .service.numbers import group_figures, holds, lag, latency, rates, subscribers, topic_figures, topics
from .service.places import deliveries, partitions
from .service.previewing import preview_reset
from .service.registration import topic_limit
from .service.subscription import check_count

__all__ = [
    "Counts", "Cut", "FailedAttempt", "Figure", "GroupFigures", "Hold", "Inspected", "KnownTopic", "Lag", "Latency",
    "LatencyStep", "OpenDeliveries", "OpenDelivery", "Page", "PartitionLag", "PartitionPlace", "PartitionPlaces",
    "Percentiles", "Rates", "ResetPreview", "Series", "Standing", "Stretch", "SubscriberFigures", "TopicFigures",
    "Topics", "Unreadable", "counts", "deliveries", "group_figures", "groups", "holds", "lag", "latency",
    "messages", "partitions", "preview_reset", "rates", "remove", "send_to_front", "subscribers", "topic_figures",
    "topics",
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
    """Messages of a topic, and how they stand with a group; all that is given must fit.

    ``status`` is ``"pending"`` (never delivered), ``"in_flight"``, ``"waiting"`` (for a retry), ``"done"``, ``"dead"``
    or ``"scheduled"``; None: all that the log holds. ``after`` (included) and ``before`` (not included) compare
    ``published_at``. ``kind`` may be a collection. A place in the payload is named as in ``payload__customer__id=7``;
    ``filter`` is a mapping of headers and such places, or a callable that takes the message. ``offset`` is where it is
    stored: the one message of the log; with status ``"scheduled"`` among these, with ``"dead"`` the letter's own.

    Of a payload longer than ``payload_limit`` bytes a ``Cut`` with the beginning is told. Looks at about ``scan_limit``
    messages and partitions at most, and reads about 32 MiB of payloads: a page that found less than ``limit`` may have
    a ``next`` all the same, which is the ``start`` to go on with. Raises ``NotRegistered`` for a group that is not, and
    ``TypeError`` or ``ValueError`` for what cannot be asked.
    """
    given = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter,
    }  # fmt: skip
    question = wanted(topic, given, payload, topic_limit=topic_limit())
    return inspecting.page(
        conf.database(using),
        question,
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
    """How many messages of a topic, or of one key, are pending, in flight, waiting, scheduled and dead for a group.

    Counts up to ``cap`` of each, and looks at about ``scan_limit`` messages and partitions for it at most: where there
    may be more, the status is in ``more``. Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    given = dict.fromkeys(("status", "id", "kind", "after", "before", "filter"))
    if group is None:
        raise TypeError("group must be a str: each group has counts of its own")
    question = wanted(topic, {**given, "group": group, "key": key}, {}, topic_limit=topic_limit())
    check_count("cap", cap)
    return standing.counts(conf.database(using), question, cap, check_count("scan_limit", scan_limit))


def groups(topic: str, *, scan_limit: int = 10_000, using: str | None = None) -> list[Standing]:
    """The groups that are registered for a topic, by name: where each began, who is alive, its oldest open message.

    Looks at ``scan_limit`` keys at most for each of them.
    """
    names.check_topic(topic, topic_limit())
    return standing.standings(conf.database(using), topic, check_count("scan_limit", scan_limit))


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
    using: str | None = None,
    **payload: Any,
) -> int:
    """Take messages out of a group's way: it will not be given them. Returns how many; ``dry_run`` only counts.

    What is pending or waits for a retry is done for the group, with a note among its errors; what is scheduled for
    the group alone, and with ``status="dead"`` its dead letters, are deleted. What is in flight is left alone: a
    handler has it. ``group=None``: for every registered group, and what is scheduled for all; a message counts once
    for each group.

    The other arguments are those of ``messages``. One transaction for each few hundred messages, so a run that was cut
    short can be repeated. Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    given = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter,
    }  # fmt: skip
    return _move(moving.REMOVE, topic, given, payload, limit, dry_run, using)


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
    using: str | None = None,
    **payload: Any,
) -> int:
    """Let messages be the next of their keys that a group is given. Returns how many.

    What is pending is delivered before all else that is pending; what waits for a retry, or is scheduled, is due now.
    Of several the oldest goes first. To a handler that is ``strict`` order goes before: it gets a message when all
    before it are done, however it was sent, and only a wait for a retry or a due time ends. Workers find out within
    ``DISCOVERY_INTERVAL``. Arguments and the rest are as for ``remove``.
    """
    given = {
        "group": group, "status": status, "key": key, "id": id, "offset": offset, "kind": kind, "after": after,
        "before": before, "filter": filter,
    }  # fmt: skip
    return _move(moving.TO_FRONT, topic, given, payload, limit, dry_run, using)


def _move(
    verb: moving.Verb,
    topic: str,
    given: dict[str, Any],
    paths: dict[str, Any],
    limit: int | None,
    dry_run: bool,
    using: str | None,
) -> int:
    status = given.pop("status")
    if status is not None and status not in verb.statuses:
        raise ValueError(
            f"status must be one of {', '.join(verb.statuses)}, or None for all but dead, not {status!r}"
        )
    question = wanted(topic, {**given, "status": None}, paths, topic_limit=topic_limit())
    if limit is not None:
        check_count("limit", limit)
    alias = conf.database(using)
    return moving.move(alias, verb, question, status, limit=limit, dry_run=bool(dry_run))
