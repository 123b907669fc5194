"""Take over from workers whose process has ended, without waiting for their leases to expire.

A worker's heartbeat names a lock that its session holds (``store.connection.session_lock``). A member is dead if this
lock is free and its last heartbeat is older than ``DISCOVERY_INTERVAL`` plus ``RECONNECT``. The lock is free as soon
as the process is killed. The age protects a worker that only lost its connection: it sent its last heartbeat up to one
interval before that, and has ``RECONNECT`` seconds to open a new connection and to take the lock again.

After an outage of the server or of a proxy, every lock is free and every heartbeat is old. The worker that returns
first must not replace all others. So a worker checks others only when its own connection is ``RECONNECT`` seconds old.
All workers try to connect at least once in that time.

One transaction locks the heartbeat row, checks again, and releases the leases. A heartbeat of the member changes the
same row. If the member commits a heartbeat first, it keeps its leases. Otherwise it has lost them, and the leases fence
it, as when they expire. A member that names no lock of this server, and a member whose session the server still holds
(a lost machine, a stopped process), is replaced when its leases expire.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import NamedTuple

from django.db.backends.utils import CursorWrapper

from ..store import heartbeats, leases
from ..store.connection import session, session_lock
from ..store.heartbeats import Member
from ..store.leases import Holder
from .consumer_state import ConsumerState

logger = logging.getLogger("django_mqueue")

RECONNECT = 2.0
"""Seconds in which a worker that has lost its connection can return without losing its leases."""
CHECK_AGAIN = 0.1
"""Seconds until the next discovery if a member was alive after all, or another worker has locked its row."""


class Members(NamedTuple):
    """The live members of a group that want a share of its partitions, sorted by name.

    ``takers``: the live members that take new partitions: those whose session lock is not free, or all while this
    worker's connection is new. ``next_check``: seconds until a member whose lock is free may be dead, or until the
    connection is no longer new; infinite if no lock is free.
    """

    live: list[str]
    takers: list[str]
    next_check: float


def release_dead_members(state: ConsumerState, members: Sequence[Member], interval: float) -> Members:
    """Release the leases of dead members. Return the others. ``interval``: seconds between two heartbeats."""
    lock = session_lock.of(state.using)
    if lock is None:
        names = [member.name for member in members if not member.is_leaving]
        return Members(names, names, math.inf)
    live, takers, next_check = list[str](), list[str](), math.inf
    is_new_for = RECONNECT - lock.age
    for member in members:
        due = math.inf
        if member.lock_is_free and member.incarnation != state.holder.incarnation:
            due = max(interval + RECONNECT - member.since_heartbeat_ms / 1000, is_new_for)
        if due > 0 and not member.is_leaving:
            live.append(member.name)
            if due == math.inf or is_new_for > 0:
                takers.append(member.name)
        elif due <= 0 and not _release(state, member, interval):
            due = CHECK_AGAIN
        if due > 0:
            next_check = min(next_check, is_new_for if due < math.inf and is_new_for > 0 else due)
    return Members(live, takers, next_check)


def _release(state: ConsumerState, member: Member, interval: float) -> bool:
    """Release the leases of a dead member. Return False if it is not dead, or if another worker has locked its row."""
    dead = Holder(state.group, state.topic, member.name, member.incarnation)

    def work(cursor: CursorWrapper) -> tuple[bool, bool]:
        if not heartbeats.lock_dead(cursor, dead, int((interval + RECONNECT) * 1000)):
            return False, False
        all_released = leases.release_unlocked(cursor, dead)
        if all_released:
            heartbeats.mark_dead(cursor, dead)
        return True, all_released

    is_dead, all_released = session.run(state.using, work)
    if all_released:  # Otherwise a later discovery releases the locked rest.
        logger.warning(
            "worker is dead, its leases are released: subscriber %s, group %s, topic %s",
            member.name, state.group, state.topic,
            extra=state.log_fields("worker_dead", dead=member.name),
        )  # fmt: skip
    return is_dead
