"""A group's position and lease in each partition, and its deliveries in flight.

The functions are public in ``django_mqueue.inspect``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ... import conf
from ...policy import names
from ...policy.durations import moment, moment_or_none
from ...policy.names import check_partition, key_of
from ...service import message_views
from ...service.registration import check_names, require_registration
from ...service.subscription import check_count
from ...store import leases
from ...store.connection import session
from ...store.queries import group_rows, message_pages, partition_progress, skip_scan
from ...store.queries.partition_progress import PartitionSearch, PartitionState
from ..results import AT_LEAST, EXACT, Figure
from .backlog import deliveries_in_flight
from .group_states import OpenDeliveries, OpenDelivery, PartitionPlace, PartitionPlaces

LEASE_HELD, EXPIRED, FREE = ("held", "expired", "free")
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
    expired: bool = False,
    after: str = "",
    limit: int = 50,
    using: str | None = None,
) -> PartitionPlaces:
    """Return the next ``limit`` partitions (up to 200) after the name ``after``, and the group's position in each.

    A partition is listed if the log holds it, or if the group has a position or a lease row for it. ``subscriber``:
    only the partitions that this subscriber holds. ``partition``: only this partition. ``expired``: only partitions
    whose lease was not renewed in time. Lags are counted up to a limit: 25,000 rows for the whole page. A lag that
    reaches its limit is ``"at_least"`` the count.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    _check_names(topic, group, subscriber)
    if partition is not None:
        check_partition(partition)
    if not isinstance(after, str):
        raise TypeError(f"after must be a str, not {type(after).__name__}")
    check_count("limit", limit, PAGE_MAX)
    alias = conf.database(using)
    with session.raises_not_migrated(alias):
        registration = require_registration(alias, topic, group)
        if partition is not None:
            found = [partition]
        elif expired:
            found = leases.expired(alias, group, topic, conf.lease_ms(topic), subscriber, after, limit + 1)
        elif subscriber is not None:
            held = leases.find_held(alias, group, topic, None, subscriber, None)
            found = [one.partition for one in held if one.partition > after][: limit + 1]
        else:
            found = _names(alias, topic, group, after, limit + 1)
        rows = _progress(alias, topic, group, registration.start, found[:limit])
        if partition is not None and rows[0].lease is None and rows[0].moved_at is None:
            (in_log,) = partition_progress.progress(alias, [(topic, group, 0, found)])
            rows = rows if in_log else []
    if expired:
        rows = [one for one in rows if one.lease == EXPIRED]
    if subscriber is not None:
        rows = [one for one in rows if one.owner == subscriber]
    return PartitionPlaces(tuple(rows), found[limit - 1] if len(found) > limit else None)


def _names(alias: str, topic: str, group: str, after: str, limit: int) -> list[str]:
    """Return the next partition names of log, positions and leases. Servers and Python sort names in the same order."""
    known = partition_progress.known_names(alias, group, topic, after, limit)
    return sorted(known.union(skip_scan.partitions(topic).next(alias, after, limit)))[:limit]


def _progress(alias: str, topic: str, group: str, start: int, names: list[str]) -> list[PartitionPlace]:
    if not names:
        return []
    states = partition_progress.partition_states(alias, group, topic, names)
    acked = {name: max(states[name].acked, start) for name in names}
    limit = COUNTED // max(len(names), 25)
    searches = [(PartitionSearch(topic, group, name, offset), limit) for name, offset in acked.items()]
    counted = partition_progress.count_open(alias, searches)
    in_flight = partition_progress.in_flight(alias, group, topic, names)
    now, lease_ms = group_rows.now_ms(alias), conf.lease_ms(topic)
    rows = []
    for name, count in zip(names, counted, strict=True):
        state = states[name]
        lag = Figure(count.opened, AT_LEAST if count.rows_read == limit else EXACT)
        rows.append(
            PartitionPlace(
                topic, group, name, key_of(name), lag, acked[name], max(state.scanned, acked[name]),
                moment_or_none(state.moved_at), _lease_status(state, now, lease_ms), state.owner, state.holder,
                moment_or_none(state.leased_at), moment_or_none(state.renewed_at),
                None if state.renewed_at is None else timedelta(milliseconds=max(now - state.renewed_at, 0)),
                in_flight.get(name, 0),
            )
        )  # fmt: skip
    return rows


def _lease_status(state: PartitionState, now: int, lease_ms: int) -> str | None:
    if state.renewed_at is None:
        return None
    return FREE if not state.holder else LEASE_HELD if state.renewed_at > now - lease_ms else EXPIRED


def deliveries(
    topic: str, group: str, *, subscriber: str | None = None, limit: int = 100, using: str | None = None
) -> OpenDeliveries:
    """Return the messages in flight of a group, or of one subscriber, the longest in flight first.

    ``limit``: at most 1,000. If more than 1,000 messages are in flight, about 1,000 of them are read, and older ones
    may be missing. Raises ``TypeError`` or ``ValueError``.
    """
    _check_names(topic, group, subscriber)
    check_count("limit", limit, DELIVERIES_MAX)
    alias = conf.database(using)
    with session.raises_not_migrated(alias):
        rows = deliveries_in_flight(alias, topic, group, subscriber, DELIVERIES_MAX + 1)
        rows.sort(key=lambda row: (row["delivered_at"], row["offset"]))
        shown = rows[:limit]
        messages = message_pages.rows(alias, [int(row["offset"]) for row in shown]) if shown else {}
    return OpenDeliveries(
        tuple(_delivery(topic, group, row, messages.get(int(row["offset"]))) for row in shown),
        len(rows) > limit,
    )


def _delivery(topic: str, group: str, row: dict[str, Any], message: dict[str, Any] | None) -> OpenDelivery:
    now, at = int(row["now"]), int(row["delivered_at"])
    is_current = row["holder"] and row["owner"] == row["delivered_to"] and int(row["leased_at"]) <= at
    return OpenDelivery(
        int(row["offset"]), topic, group, row["partition"], key_of(row["partition"]),
        (message["original_id"] or message["id"]) if message else None,
        message_views.metadata(message["metadata"])["kind"] if message else None,
        int(row["retry_count"]) + 1, row["delivered_to"], moment(at), timedelta(milliseconds=max(now - at, 0)),
        moment(int(row["invisible_until"])), int(row["invisible_until"]) <= now, bool(row["handed"]),
        bool(row["alone"]), row["holder"], not is_current,
    )  # fmt: skip


def _check_names(topic: str, group: str, subscriber: str | None) -> None:
    check_names(topic, group)
    if subscriber is not None:
        names.check_name("subscriber", subscriber, names.SUBSCRIBER_MAX)
