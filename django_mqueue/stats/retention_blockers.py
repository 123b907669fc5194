"""Retention blockers: the reasons why the oldest messages of a topic are not deleted yet."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from .. import conf
from ..policy.durations import moment
from ..policy.message_query import DONE
from ..policy.names import key_of
from ..store import garbage, offsets, watermarks
from ..store.connection import session
from ..store.queries import group_positions, group_rows, message_pages
from ..store.queries.bounded_counts import Ends, ends
from ..store.queries.group_rows import Range
from ..store.queries.message_pages import Place
from ..store.queries.partition_walk import OFFSET_END
from .results import Hold

FIRST = 200
"""The maximum number of oldest rows that are checked. A row blocks deletion if a group is not done with it."""
MEMBERS = 500


def holds(using: str, topic: str) -> list[Hold]:
    """Return the retention blockers of a topic, the oldest message first; none if the topic is empty."""
    with session.migration_errors(using):
        end = ends(using, [topic]).get(topic)
        return [] if end is None else _Blockers(using, topic, end).found()


class _Blockers:
    def __init__(self, using: str, topic: str, end: Ends) -> None:
        self.using, self.topic, self.end = using, topic, end
        self.now = group_rows.now_ms(using)
        self.retention, self.lease = conf.retention_ms(topic), conf.lease_ms(topic)

    def found(self) -> list[Hold]:
        groups = session.single(self.using, lambda cursor: garbage.groups(cursor, self.topic))
        if not groups.starts:
            return [self._hold("no_group", self.end.first, self.end.first_at)]
        if self.end.first_at > self.now - self.retention:
            return [self._hold("retention", self.end.first, self.end.first_at)]
        rows = message_pages.log_page(
            self.using, self.topic, None, (0, OFFSET_END), FIRST, newest_first=False
        )
        names = sorted({name for _, name, _ in rows})
        marks = session.single(self.using, lambda cursor: garbage.watermarks(cursor, self.topic, names))
        held: list[tuple[Place, str, int]] = []
        for group, start in sorted(groups.starts.items()):
            for row in rows:
                done = 0 if group in groups.resetting else marks.get((row[1], group), 0)
                acked = max(start, done)
                if row[0] > acked and group in groups.blocking(row[2]):
                    held.append((row, group, acked))
                    break
        held.sort()
        if not held:
            alive = self._alive(list(groups.starts))
            reason = "collecting" if any(alive.values()) else "no_collector"
            return [self._hold(reason, self.end.first, self.end.first_at)]
        alive = self._alive([group for _, group, _ in held])
        registered = group_positions.registrations(self.using, [self.topic], [group for _, group, _ in held])
        times = group_rows.published(self.using, sorted({row[0] for row, _, _ in held}))
        found = []
        for row, group, acked in held:
            published = times.get(row[0])
            if published is None:
                continue  # The message was deleted meanwhile.
            one = registered.get((self.topic, group))
            since: int | None = None
            if published > self.now - self.retention:
                reason = "retention"
            elif one is not None and one.resetting:
                reason, since = "resetting", one.changed
            elif one is not None and one.paused:
                reason, since = "paused", one.changed
            elif not alive[group]:
                reason, since = "no_worker", self._last_seen(group)
            else:
                reason, since = self._work(row, group, acked)
            found.append(
                self._hold(reason, row[0], published, group=group, partition=row[1], acked=acked, since=since)
            )
        return found

    def _alive(self, groups: list[str]) -> dict[str, int]:
        counts = group_positions.alive(self.using, [(self.topic, group, self.lease) for group in groups])
        return {group: counts.get((self.topic, group), 0) for group in groups}

    def _last_seen(self, group: str) -> int | None:
        members = group_positions.members(self.using, group, self.topic, MEMBERS)
        return max((max(one.heartbeat_at, one.left_at or 0) for one in members), default=None)

    def _work(self, row: Place, group: str, acked: int) -> tuple[str, int | None]:
        """Return why a group with a live worker does not advance its watermark, and since when."""
        offset, partition, _ = row
        above = [(partition, acked)]
        first_open = partial(
            watermarks.first_open, group=group, topic=self.topic, above=above, settled=OFFSET_END
        )
        first = session.single(self.using, first_open).get(partition)
        if first is None or (offset < first and first > offsets.settled(self.using, self.topic)):
            return "settling", None
        (found,) = group_rows.rows(self.using, [Range(self.topic, group, 0, first, first + 1)], 1)
        status = found[0].status if found else DONE
        return ("settling", None) if status in (None, DONE) else (str(status), found[0].delivered_at)

    def _hold(
        self,
        reason: str,
        offset: int,
        published: int,
        *,
        group: str | None = None,
        partition: str | None = None,
        acked: int | None = None,
        since: int | None = None,
    ) -> Hold:
        return Hold(
            self.topic, reason, group, partition, None if partition is None else key_of(partition), acked, offset,
            moment(published), timedelta(milliseconds=self.now - published - self.retention),
            None if since is None else moment(since),
        )  # fmt: skip
