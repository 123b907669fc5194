"""Bounded statistics of the groups of a topic."""

from __future__ import annotations

from dataclasses import replace

from ... import conf
from ...browse.message_search import CHUNK, Search
from ...policy.durations import moment_or_none
from ...policy.message_query import (
    DEAD,
    IN_FLIGHT,
    PENDING,
    SCHEDULED,
    WAITING,
    Counts,
    MessageQuery,
    Standing,
)
from ...store import heartbeats, offsets
from ...store.connection import session
from ...store.offsets import Registration
from ...store.queries import group_rows
from .backlog import oldest_open


def counts(using: str, query: MessageQuery, cap: int, scan_limit: int) -> Counts:
    """Count the messages that match, by status, up to ``cap`` for each.

    ``scan_limit``: about how many messages and partitions are read for each status. Raises ``NotRegistered``.
    """
    found: dict[str, int] = {}
    more: set[str] = set()
    with session.raises_not_migrated(using):
        for status in (PENDING, IN_FLIGHT, WAITING, SCHEDULED, DEAD):
            found[status], over = _count(using, replace(query, status=status), cap, scan_limit)
            if over:
                more.add(status)
    return Counts(**found, more=frozenset(more))


def _count(using: str, query: MessageQuery, cap: int, scan_limit: int) -> tuple[int, bool]:
    """Return the number of matching messages, and whether there may be more."""
    search, count, scanned = Search(using, query, newest_first=False), 0, 0
    for step in search.source.walk(None, min(CHUNK, cap + 1, scan_limit)):
        count += sum(1 for _ in search.read(step, payloads=False))
        scanned += len(step.found) + step.empty
        if count > cap or scanned >= scan_limit:
            return min(count, cap), True
        if search.is_past_time:
            break
    return count, False


def group_states(using: str, topic: str, partitions: int) -> list[Standing]:
    """Return the state of all registered groups by name. Read at most ``partitions`` partitions for each group."""
    with session.raises_not_migrated(using):
        return [
            _group_state(using, topic, group, registration, partitions)
            for group, registration in offsets.registrations(using, topic).items()
        ]


def _group_state(using: str, topic: str, group: str, registration: Registration, partitions: int) -> Standing:
    alive = heartbeats.members(using, group, topic, conf.lease_ms(topic))
    oldest, is_partial = oldest_open(using, topic, group, registration.start, partitions)
    at = group_rows.published(using, [oldest]).get(oldest) if oldest is not None else None
    return Standing(
        group, registration.start, registration.paused, tuple(alive), oldest,
        moment_or_none(at), is_partial,
    )  # fmt: skip
