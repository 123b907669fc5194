"""The facts that decide when a message is delivered: registrations, leases, subscribers, and earlier messages.

The number of statements does not depend on the number of groups, or on the size of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .. import conf
from ..policy.durations import moment
from ..policy.message_query import PENDING, WAITING
from ..service import actions
from ..service.actions import Action
from ..store import offsets
from ..store.connection import session
from ..store.offsets import Registration
from ..store.queries import group_rows, group_summaries
from ..store.queries import one_message as store
from ..store.queries.one_message import MessagesAhead
from .timeline import GroupState, MessageTimeline

ROWS = 1_000
"""The maximum number of earlier messages that are read for each group."""


@dataclass(frozen=True)
class Facts:
    """The facts about one group and one message.

    - ``now``: the database's time. ``since``: when the registration last changed, for example by a pause.
    - ``reads_log``: the group reads the log itself, and gets no deliveries.
    - ``pause``: the record of the pause, if the group is paused and the pause was recorded.
    - ``workers``: the number of live subscribers. ``last_seen``: (name, time) of the last one, if none is alive.
    - ``owner``, ``leased_at``, ``renewed_at``: the lease of the message's partition. ``is_expired``: it is held, but
      was not renewed in time.
    - ``is_handed``: a handler has the message. ``is_quarantined``: the delivery runs in quarantine. ``is_orphan``: its
      subscriber no longer holds the lease.
    - ``ahead``: the open messages before it in its partition, if there are any.
    """

    now: datetime
    since: datetime
    resetting: bool
    reads_log: bool
    pause: Action | None
    workers: int
    last_seen: tuple[str, datetime] | None
    owner: str
    leased_at: datetime | None
    renewed_at: datetime | None
    is_expired: bool
    is_handed: bool
    is_quarantined: bool
    is_orphan: bool
    ahead: MessagesAhead | None


def facts(using: str, found: MessageTimeline) -> dict[str, Facts]:
    """Return the facts about each group of a timeline whose delivery of the message is open, by group.

    Groups that were unregistered meanwhile are missing from the result.
    """
    states = {
        state.group: state
        for state in found.group_states
        if state.is_for and (state.message.done_at is None or state.parked_retry is not None)
    }
    if not states:
        return {}
    with session.raises_not_migrated(using):
        return _Reader(using, found, states).read()


def topic_facts(using: str, topic: str) -> tuple[datetime, int]:
    """Return the database's time, and the number of live subscribers of the topic, of all groups."""
    with session.raises_not_migrated(using):
        groups = list(offsets.registrations(using, topic))
        alive = group_summaries.alive(using, [(topic, group, conf.lease_ms(topic)) for group in groups])
        return moment(group_rows.now_ms(using)), sum(alive.values())


class _Reader:
    def __init__(self, using: str, found: MessageTimeline, states: Mapping[str, GroupState]) -> None:
        self.using, self.topic, self.states = using, found.stored_in, states
        self.partition, self.offset = found.partition, found.row_offset
        self.lease_ms = conf.lease_ms(self.topic)

    def read(self) -> dict[str, Facts]:
        registered = offsets.registrations(self.using, self.topic)
        groups = [group for group in self.states if group in registered]
        if not groups:
            return {}
        rows = store.places(self.using, self.topic, self.partition, self.offset, groups)
        alive = group_summaries.alive(self.using, [(self.topic, group, self.lease_ms) for group in groups])
        unseen = [group for group in groups if not alive.get((self.topic, group))]
        last_seen = store.last_seen(self.using, self.topic, unseen) if unseen else {}
        ahead = self._ahead(
            groups, {one: max(int(rows[one]["acked"]), registered[one].start) for one in groups}
        )
        pauses = self._pauses([group for group in groups if registered[group].paused])
        return {
            group: self._facts(
                registered[group], self.states[group], rows[group], alive.get((self.topic, group), 0),
                last_seen.get(group), ahead.get(group), pauses.get(group),
            )
            for group in groups
        }  # fmt: skip

    def _ahead(self, groups: Sequence[str], acked: Mapping[str, int]) -> dict[str, MessagesAhead]:
        undelivered = [group for group in groups if self.states[group].message.status in (PENDING, WAITING)]
        behind = [(group, acked[group]) for group in undelivered]
        if not behind:
            return {}
        return store.ahead(self.using, self.topic, self.partition, self.offset, behind, ROWS)

    def _pauses(self, groups: Sequence[str]) -> dict[str, Action]:
        if not groups:
            return {}
        recent = actions.recent(self.topic, limit=actions.READ, using=self.using)
        return {group: one for group in groups if (one := actions.last_pause(recent, group)) is not None}

    def _facts(
        self,
        registration: Registration,
        state: GroupState,
        row: Mapping[str, Any],
        workers: int,
        last_seen: tuple[str, int] | None,
        ahead: MessagesAhead | None,
        pause: Action | None,
    ) -> Facts:
        now, renewed, leased = (int(row[name] or 0) for name in ("now", "renewed_at", "leased_at"))
        owner, message = str(row["owner"]), state.message
        at = message.delivered_at
        is_current = owner == message.delivered_to and at is not None and moment(leased) <= at
        return Facts(
            now=moment(now),
            since=moment(registration.changed),
            resetting=registration.resetting,
            reads_log=registration.reads_log,
            pause=pause,
            workers=workers,
            last_seen=None if last_seen is None else (last_seen[0], moment(last_seen[1])),
            owner=owner,
            leased_at=moment(leased) if owner else None,
            renewed_at=moment(renewed) if owner else None,
            is_expired=bool(owner) and renewed <= now - self.lease_ms,
            is_handed=bool(row["handed"]),
            is_quarantined=bool(row["alone"]),
            is_orphan=not is_current,
            ahead=ahead,
        )
