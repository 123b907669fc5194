"""A group's position and lease in each partition, and its deliveries in flight.

The functions are public in ``django_mqueue.inspect``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ... import conf
from ...exceptions import NotRegistered
from ...policy import names
from ...policy.durations import moment
from ...policy.names import check_partition, key_of
from ...service import message_views
from ...service.registration import check_group, topic_limit
from ...service.subscription import check_count
from ...store import leases, offsets
from ...store.connection import session
from ...store.queries import group_rows, message_pages, partition_progress
from ..results import AT_LEAST, EXACT, Figure
from .backlog import in_hand
from .group_states import EXPIRED, FREE, HELD, OpenDeliveries, OpenDelivery, PartitionPlace, PartitionPlaces

PAGE_MAX = 200
COUNTED = 25_000
"""The maximum number of rows that a page reads to count the lags of its partitions."""

DELIVERIES_MAX = 1_000


def partitions(
    topic: str,
    group: str,
    *,
    subscriber: str | None = None,
    partition: str | None = None,
    after: str = "",
    limit: int = 50,
    using: str | None = None,
) -> PartitionPlaces:
    """Return the next ``limit`` partitions (up to 200) after the name ``after``, and the group's position in each.

    A partition is listed if the log holds it, or if the group has a position or a lease row for it. ``subscriber``:
    only the partitions that this subscriber holds. ``partition``: only this partition. Lags are counted up to a limit:
    25,000 rows for the whole page. A lag that reaches its limit is ``"at_least"`` the count.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    _checked(topic, group, subscriber)
    if partition is not None:
        check_partition(partition)
    if not isinstance(after, str):
        raise TypeError(f"after must be a str, not {type(after).__name__}")
    check_count("limit", limit, PAGE_MAX)
    alias = conf.database(using)
    with session.migration_errors(alias):
        registration = offsets.registration(alias, group, topic)
        if registration is None:
            raise NotRegistered(topic, group)
        if partition is not None:
            found = [partition]
        elif subscriber is not None:
            held = leases.find_held(alias, group, topic, None, subscriber, None)
            found = [one.partition for one in held if one.partition > after][: limit + 1]
        else:
            found = _names(alias, topic, group, after, limit + 1)
        rows = _places(alias, topic, group, registration.start, found[:limit])
    return PartitionPlaces(tuple(rows), found[limit - 1] if len(found) > limit else None)


def _names(alias: str, topic: str, group: str, after: str, limit: int) -> list[str]:
    """Return the next partition names of log, positions and leases. Servers and Python sort names in the same order."""
    known = partition_progress.known_names(alias, group, topic, after, limit)
    return sorted(known.union(message_pages.partitions(alias, topic, after, limit)))[:limit]


def _places(alias: str, topic: str, group: str, start: int, found: list[str]) -> list[PartitionPlace]:
    if not found:
        return []
    places = partition_progress.places(alias, group, topic, found)
    acked = {name: max(places[name].acked, start) for name in found}
    cap = COUNTED // max(len(found), 25)
    counted = partition_progress.behind(alias, group, topic, list(acked.items()), cap)
    flying = partition_progress.in_flight(alias, group, topic, found)
    now, lease_ms = group_rows.now_ms(alias), conf.lease_ms(topic)
    rows = []
    for name in found:
        count, place = counted.get(name, partition_progress.Counted()), places[name]
        lag = Figure(count.opened, AT_LEAST if count.looked == cap else EXACT)
        rows.append(
            PartitionPlace(
                topic, group, name, key_of(name), lag, acked[name], max(place.scanned, acked[name]),
                _moment(place.moved_at), _lease_state(place, now, lease_ms), place.owner, place.holder,
                _moment(place.leased_at), _moment(place.renewed_at),
                None if place.renewed_at is None else timedelta(milliseconds=max(now - place.renewed_at, 0)),
                flying.get(name, 0),
            )
        )  # fmt: skip
    return rows


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment(ms)


def _lease_state(place: partition_progress.Place, now: int, lease_ms: int) -> str | None:
    if place.renewed_at is None:
        return None
    return FREE if not place.holder else HELD if place.renewed_at > now - lease_ms else EXPIRED


def deliveries(
    topic: str, group: str, *, subscriber: str | None = None, limit: int = 100, using: str | None = None
) -> OpenDeliveries:
    """Return the messages in flight of a group, or of one subscriber, the longest in flight first.

    ``limit``: at most 1,000. If more than 1,000 messages are in flight, about 1,000 of them are read, and older ones
    may be missing. Raises ``TypeError`` or ``ValueError``.
    """
    _checked(topic, group, subscriber)
    check_count("limit", limit, DELIVERIES_MAX)
    alias = conf.database(using)
    with session.migration_errors(alias):
        rows = in_hand(alias, topic, group, subscriber, DELIVERIES_MAX + 1)
        rows.sort(key=lambda row: (row["delivered_at"], row["offset"]))
        shown = rows[:limit]
        messages = message_pages.rows(alias, [int(row["offset"]) for row in shown]) if shown else {}
    return OpenDeliveries(
        tuple(_delivery(topic, group, row, messages.get(int(row["offset"]))) for row in shown),
        len(rows) > limit,
    )


def _delivery(topic: str, group: str, row: dict[str, Any], message: dict[str, Any] | None) -> OpenDelivery:
    now, at = int(row["now"]), int(row["delivered_at"])
    mine = row["holder"] and row["owner"] == row["delivered_to"] and int(row["leased_at"]) <= at
    return OpenDelivery(
        int(row["offset"]), topic, group, row["partition"], key_of(row["partition"]),
        (message["original_id"] or message["id"]) if message else None,
        message_views.metadata(message["metadata"])["kind"] if message else None,
        int(row["retry_count"]) + 1, row["delivered_to"], moment(at), timedelta(milliseconds=max(now - at, 0)),
        moment(int(row["invisible_until"])), int(row["invisible_until"]) <= now, bool(row["handed"]),
        bool(row["alone"]), row["holder"], not mine,
    )  # fmt: skip


def _checked(topic: str, group: str, subscriber: str | None) -> None:
    names.check_topic(topic, topic_limit())
    check_group(group)
    if subscriber is not None:
        names.check_name("subscriber", subscriber, names.SUBSCRIBER_MAX)
