"""Search for messages: walk over a source, read the rows, compare them with the query, and return the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from .. import conf
from ..exceptions import NotRegistered
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..policy.message_query import (
    DEAD,
    IN_FLIGHT,
    OFFSET_MAX,
    PENDING,
    SCHEDULED,
    WAITING,
    MessageQuery,
    check_position,
    cursor_of,
    position_of,
    status_of,
)
from ..results import Counts, Cut, FailedAttempt, Inspected, Page, Unreadable
from ..service import message_views
from ..store import offsets, positions
from ..store.connection import session
from ..store.offsets import Registration
from ..store.queries import group_summaries, message_pages
from ..store.queries.message_rows import own_id
from ..store.queries.partition_walk import Chunk, Found
from .sources import Source, above_by_time, below_by_time, source_of

CHUNK = 500
"""The maximum number of messages in one statement."""
PAGE_BYTES = 32 * 1_048_576
"""A page ends after it has returned this number of payload bytes. The next page continues there."""
READ_BYTES = 32 * 1_048_576
"""A page ends after it has read this number of payload bytes, also of messages that do not match the filter."""
SIZES_AT_ONCE = 250
"""The maximum number of messages whose payload sizes one statement reads, before the payloads are read."""

Row = dict[str, Any]


def page(
    using: str,
    query: MessageQuery,
    *,
    limit: int,
    start: str | None,
    newest_first: bool,
    scan_limit: int,
    payload_limit: int | None = None,
) -> Page:
    """Return a page with up to ``limit`` messages. Read at most about ``scan_limit`` rows and partitions for it.

    ``start``: the ``next`` of an earlier page, or None. ``payload_limit``: in bytes. Of a longer payload, only the
    beginning is returned. Only the beginning is read, unless a filter needs the whole payload.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    with session.raises_not_migrated(using):
        search = Search(using, query, newest_first=newest_first, payload_limit=payload_limit)
        position = position_of(search.source.name, start)
        chunk = min(CHUNK, scan_limit, max(limit, 10) if query.takes_all else CHUNK)
        messages: list[Inspected] = []
        scanned = size = 0
        for step in search.source.walk(position, chunk):
            scanned += len(step.found) + step.empty
            end = None  # Where the next page continues.
            for found, _, message in search.read(step):
                messages.append(message)
                size += message.size if payload_limit is None else min(message.size, payload_limit)
                if len(messages) == limit or size >= PAGE_BYTES:
                    end = found.position
                    break
            else:
                if search.stopped_at is not None:
                    end = search.stopped_at.position
                elif search.is_past_time:
                    break
                elif scanned >= scan_limit or search.has_read_enough:
                    end = step.position
            if end is not None:
                return Page(messages, cursor_of(search.source.name, end), scanned)
        return Page(messages, None, scanned)


class Search:
    """One search: its query, its source, and how far it has read."""

    def __init__(
        self, using: str, query: MessageQuery, *, newest_first: bool, payload_limit: int | None = None
    ) -> None:
        self.using, self.query, self.newest_first = using, query, newest_first
        self.payload_limit = payload_limit
        self.registration = registration(using, query)
        start = self.registration.start if self.registration else 0
        self.source: Source = source_of(using, query, start, newest_first=newest_first)
        self.is_past_time = False
        """True if the walk has passed the query's time: no later row can match."""
        self.stopped_at: Found | None = None
        """The last row that ``read`` compared before it stopped after ``READ_BYTES``."""
        self._bytes = 0

    @property
    def has_read_enough(self) -> bool:
        """True after ``READ_BYTES`` bytes of payloads: the page ends, although it may not be full."""
        return self._bytes >= READ_BYTES

    def read(self, step: Chunk, *, payloads: bool = True) -> Iterator[tuple[Found, Row, Inspected]]:
        """Yield the rows of a step that match the query.

        Payloads are read if a filter needs them or ``payloads`` is true, a few megabytes at a time. If ``payloads`` is
        true, the method stops after ``READ_BYTES`` and sets ``stopped_at``.
        """
        rows = self._rows([found.offset for found in step.found])
        chosen = [(found, rows[found.offset]) for found in step.found if found.offset in rows]
        if self.source.by_time and chosen:
            self._note_time(chosen[-1][0].offset, int(chosen[-1][1]["published_at"]))
        chosen = [(found, row) for found, row in chosen if self._matches(found, row)]
        if not payloads and self.query.test is None:
            yield from ((found, row, self._inspected(row, None)) for found, row in chosen)
            return
        whole = self.query.test is not None
        most = None if whole else self.payload_limit
        for some in self._in_parts(chosen, most):
            bodies = message_pages.payloads(self.using, [found.offset for found, _ in some], most)
            for found, row in some:
                if found.offset in bodies:
                    body, row["size"] = bodies[found.offset]
                    message = self._inspected(row, body)
                    if self.query.test is None or self.query.test(message):
                        yield found, row, self._cut(message, body) if whole else message
            self._bytes += sum(len(body) for body, _ in bodies.values())
            if self.has_read_enough and payloads and some[-1] is not chosen[-1]:
                self.stopped_at = some[-1][0]
                return

    def _in_parts(
        self, chosen: Sequence[tuple[Found, Row]], most: int | None
    ) -> Iterator[list[tuple[Found, Row]]]:
        """Split the rows into parts, each with payloads for one statement. ``most``: bytes read of each."""
        rows_at_once = SIZES_AT_ONCE if most is None else max(1, BYTES_PER_STATEMENT // most)
        for first in range(0, len(chosen), rows_at_once):
            part = chosen[first : first + rows_at_once]
            if most is not None:
                yield list(part)
                continue
            sizes = message_pages.sizes(self.using, [found.offset for found, _ in part])
            with_sizes = [(each, sizes.get(each[0].offset, 0)) for each in part]
            for some in batches_by_weight(with_sizes, itemgetter(1), BYTES_PER_STATEMENT):
                yield [each for each, _ in some]

    def _cut(self, message: Inspected, body: bytes) -> Inspected:
        """Cut the payload to ``payload_limit`` after a filter has used the whole payload."""
        if self.payload_limit is None or len(body) <= self.payload_limit:
            return message
        is_json = not isinstance(message.payload, bytes) or isinstance(message.payload, Unreadable)
        return replace(message, payload=Cut(body[: self.payload_limit], is_json))

    def _note_time(self, last: int, published_at: int) -> None:
        """Set ``is_past_time`` if the walk has passed the query's time.

        Rows that are close in time may be out of order, so the offset ``_end`` decides.
        """
        after, before = self.query.after, self.query.before
        if self.newest_first:
            self.is_past_time = after is not None and published_at < after and last <= self._end
        else:
            self.is_past_time = before is not None and published_at >= before and last >= self._end

    @cached_property
    def _end(self) -> int:
        """The offset after which the walk finds no more messages of the query's time."""
        after, before, topic = self.query.after, self.query.before, self.source.by_time
        assert topic is not None
        if self.newest_first:
            return above_by_time(self.using, topic, after or 0)
        return below_by_time(self.using, topic, before or 0) - 1

    def _rows(self, offsets_: list[int]) -> dict[int, Row]:
        """Read the rows at the offsets, decode their metadata, and set their status."""
        if not offsets_:
            return {}
        group = self.query.group
        if group is None or self.source.location != "log":
            rows = message_pages.rows(self.using, offsets_)
        else:
            dead = conf.dead_letter_topic(self.query.topic)
            rows = message_pages.rows_of_group(self.using, group, dead, offsets_)
            self._note_status(rows)
        for row in rows.values():
            message_views.decode_row(row, self.source.location)
        return rows

    def _note_status(self, rows: Mapping[int, Row]) -> None:
        query, group = self.query, self.query.group
        assert group is not None
        assert self.registration is not None
        stateless = sorted({row["partition"] for row in rows.values() if row["acked"] is None})
        reached = (
            positions.positions(self.using, group, query.topic, stateless, self.registration.start)
            if stateless
            else {}
        )
        for row in rows.values():
            position = reached.get(row["partition"])
            row["status"] = status_of(row, position.acked if position else 0)
            row["is_early"] = row["offset"] <= self.registration.start

    def _matches(self, found: Found, row: Row) -> bool:
        query = self.query
        if self.source.location == DEAD:
            if row["failed_group"] is None or query.group not in (None, row["failed_group"]):
                return False
        elif query.group is not None and row["target"] not in ("", query.group):
            return False
        return (
            (query.status is None or row["status"] == query.status)
            and (query.id is None or query.id == own_id(row, row["metadata"]))
            and (query.kinds is None or row["metadata"]["kind"] in query.kinds)
            and query.fits_time(int(row["published_at"]))
        )

    def _inspected(self, row: Row, body: bytes | None) -> Inspected:
        query = self.query
        return message_views.to_inspected(
            row, body, topic=query.topic, group=query.group, location=self.source.location
        )


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


def registration(using: str, query: MessageQuery) -> Registration | None:
    """Return the registration of the query's group; None without a group.

    Raises ``NotRegistered`` if the group is not registered. A search for dead letters returns None instead, because
    dead letters outlive registrations.
    """
    if query.group is None:
        return None
    found = offsets.registration(using, query.group, query.topic)
    if found is None and query.status != DEAD:
        raise NotRegistered(query.topic, query.group)
    return found


NEWEST_OF_ALL = "newest of all"
NEWEST_READ = 2_000
"""The maximum number of rows that a page of the newest messages reads."""
GROUPS_READ = 20
"""The maximum number of groups whose errors a list shows."""


def newest_of_all(
    using: str, *, limit: int, start: str | None, payload_limit: int, with_derived: bool = True
) -> Page:
    """Return a page with up to ``limit`` messages of all topics, highest offset first.

    The topic of each message is the topic that its row is stored in. ``start``: the ``next`` of an earlier page, or
    None. ``payload_limit``: the maximum number of bytes that are read of each payload. ``with_derived``: False leaves
    out dead letters, scheduled messages, replies and records of the queue. A page then reads up to ``NEWEST_READ``
    rows, and may have fewer messages and a ``next``.

    Raises ``TypeError`` or ``ValueError`` if ``start`` is not the ``next`` of such a page.
    """
    position = position_of(NEWEST_OF_ALL, start)
    (below,) = (OFFSET_MAX,) if position is None else check_position(position, int)
    topics: dict[int, str] = {}
    read, is_end = 0, False
    with session.raises_not_migrated(using):
        while len(topics) < limit and read < NEWEST_READ and not is_end:
            some = message_pages.newest_of_all(using, below, limit if with_derived else CHUNK)
            is_end = len(some) < (limit if with_derived else CHUNK)
            read += len(some)
            for offset, topic in some.items():
                below = offset
                if with_derived or not conf.is_derived(topic):
                    topics[offset] = topic
                    if len(topics) == limit:
                        is_end = is_end and offset == min(some)
                        break
        rows = message_views.read(using, list(topics), payload_limit)
    messages = []
    for offset, topic in topics.items():
        if offset in rows:
            row, body = rows[offset]
            location = message_views.LOG if row["failed_group"] is None else DEAD
            messages.append(message_views.decode(row, body, topic=topic, location=location))
    return Page(messages, None if is_end else cursor_of(NEWEST_OF_ALL, (below,)), read)


def last_failures(using: str, offsets_: Sequence[int]) -> dict[int, tuple[str, tuple[FailedAttempt, ...]]]:
    """Return (group, errors) for each message of the log with failed attempts. The group is the one that failed last.

    Only the first ``GROUPS_READ`` groups by name are searched, of all topics together.
    """
    if not offsets_:
        return {}
    with session.raises_not_migrated(using):
        topics = message_pages.topics_at(using, offsets_)
        groups = sorted({group for _topic, group in group_summaries.registered(using, topics)})[:GROUPS_READ]
        rows = message_pages.errors_of_groups(using, groups, offsets_) if groups else []
    found: dict[int, tuple[str, tuple[FailedAttempt, ...]]] = {}
    for group, offset, text in rows:
        errors = message_views.failed_attempts(text)
        if errors and (offset not in found or found[offset][1][-1].at < errors[-1].at):
            found[offset] = (group, errors)
    return found
