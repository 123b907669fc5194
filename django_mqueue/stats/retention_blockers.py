"""Retention blockers: the reasons why the oldest messages of a topic are not deleted yet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from .. import conf
from ..policy.durations import moment, moment_or_none
from ..policy.message_query import DONE, OFFSET_MAX
from ..policy.names import key_of
from ..protocol.retention.garbage_collection import is_kept
from ..service import actions
from ..store import garbage, offsets
from ..store.connection import session
from ..store.offsets import Registration
from ..store.queries import group_rows, group_summaries, message_pages, partition_progress
from ..store.queries.bounded_counts import Ends, ends
from ..store.queries.group_rows import Range
from ..store.queries.partition_progress import PartitionSearch
from .results import Hold

FIRST = 200
"""The maximum number of oldest rows that are checked. A row blocks deletion if a group is not done with it."""
MEMBERS = 500


def holds(using: str, topic: str) -> list[Hold]:
    """Return the retention blockers of a topic, the oldest message first; none if it is empty, or has no retention."""
    if is_kept(topic):
        return []
    with session.raises_not_migrated(using):
        end = ends(using, [topic]).get(topic)
        return [] if end is None else _Blockers(using, topic, end).all()


class _Kept(NamedTuple):
    """The oldest message that a group is not done with, and the group's watermark in its partition."""

    offset: int
    partition: str
    group: str
    watermark: int


class _Blockers:
    def __init__(self, using: str, topic: str, end: Ends) -> None:
        self.using, self.topic, self.end = using, topic, end
        self.now = group_rows.now_ms(using)
        self.retention, self.lease = conf.retention_ms(topic), conf.lease_ms(topic)

    @cached_property
    def _actions(self) -> list[actions.Action]:
        return actions.recent(self.topic, limit=actions.READ, using=self.using)

    def all(self) -> list[Hold]:
        groups = session.run_statement(self.using, lambda cursor: garbage.groups(cursor, self.topic))
        if not groups.starts:
            return [self._of_topic("no_group")]
        if self.end.first_at > self.now - self.retention:
            return [self._of_topic("retention")]
        if kept := self._kept(groups):
            return self._of_groups(kept)
        is_alive = any(self._alive(groups.starts).values())
        return [self._of_topic("collecting" if is_alive else "no_collector")]

    def _kept(self, groups: garbage.Groups) -> list[_Kept]:
        """Return the oldest message that each group keeps, if it is among the oldest rows of the topic."""
        rows = message_pages.log_page(
            self.using, self.topic, None, (0, OFFSET_MAX), FIRST, newest_first=False
        )
        if not rows:
            return []  # They were deleted meanwhile.
        names = sorted({name for _, name, _ in rows})
        watermarks = session.run_statement(self.using, lambda c: garbage.watermarks(c, self.topic, names))
        kept = []
        for group, start in groups.starts.items():
            for offset, partition, target in rows:
                stored = 0 if group in groups.resetting else watermarks.get((partition, group), 0)
                watermark = max(start, stored)
                if offset > watermark and group in groups.blocking(target):
                    kept.append(_Kept(offset, partition, group, watermark))
                    break
        return sorted(kept)

    def _of_groups(self, kept: list[_Kept]) -> list[Hold]:
        names = [one.group for one in kept]
        alive = self._alive(names)
        registered = group_summaries.registrations(self.using, [self.topic], names)
        published = group_rows.published(self.using, sorted({one.offset for one in kept}))
        found = []
        for one in kept:
            if (at := published.get(one.offset)) is not None:  # None: the message was deleted meanwhile.
                reason, since = self._reason(
                    one, at, registered.get((self.topic, one.group)), alive[one.group]
                )
                found.append(
                    Hold(
                        self.topic, reason, one.group, one.partition, key_of(one.partition), one.watermark, one.offset,
                        moment(at), self._overdue(at), moment_or_none(since),
                    )
                )  # fmt: skip
        return found

    def _reason(
        self, kept: _Kept, published_at: int, registration: Registration | None, alive: int
    ) -> tuple[str, int | None]:
        """Return why a group keeps a message, and since when, in epoch milliseconds."""
        if published_at > self.now - self.retention:
            return "retention", None
        if registration is not None and registration.resetting:
            return "resetting", registration.changed
        if registration is not None and registration.is_suspended:
            pause = actions.last_pause(self._actions, kept.group)
            return "paused", None if pause is None else int(pause.at.timestamp() * 1000)
        if not alive and not (registration and registration.reads_log):
            members = group_summaries.members(self.using, kept.group, self.topic, MEMBERS)
            last_seen = (max(one.heartbeat_at, one.left_at or 0) for one in members)
            return "no_worker", max(last_seen, default=None)
        return self._reason_with_workers(kept)

    def _reason_with_workers(self, kept: _Kept) -> tuple[str, int | None]:
        """Return why a group with a live worker does not advance its watermark, and since when."""
        above = PartitionSearch(self.topic, kept.group, kept.partition, kept.watermark)
        (first,) = partition_progress.first_open(self.using, [above])
        if first is None or (kept.offset < first and first > offsets.settled(self.using, self.topic)):
            return "settling", None
        (rows,) = group_rows.rows(self.using, [Range(self.topic, kept.group, 0, first, first + 1)], 1)
        for row in rows:
            if row.status not in (None, DONE):
                return str(row.status), row.delivered_at
        return "settling", None

    def _alive(self, groups: Collection[str]) -> dict[str, int]:
        counts = group_summaries.alive(self.using, [(self.topic, group, self.lease) for group in groups])
        return {group: counts.get((self.topic, group), 0) for group in groups}

    def _of_topic(self, reason: str) -> Hold:
        """Return a retention blocker without a group. It keeps the oldest message of the topic."""
        at = self.end.first_at
        return Hold(
            self.topic, reason, None, None, None, None, self.end.first, moment(at), self._overdue(at), None
        )

    def _overdue(self, published_at: int) -> timedelta:
        return timedelta(milliseconds=self.now - published_at - self.retention)
