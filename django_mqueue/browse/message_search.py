"""Search for messages: walk over a source, read the rows, compare them with the query, and return the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from .. import conf
from ..exceptions import NotRegistered
from ..policy.batching import batches_by_weight
from ..policy.message_query import (
    DEAD,
    DONE,
    IN_FLIGHT,
    PENDING,
    WAITING,
    Cut,
    Inspected,
    MessageQuery,
    Page,
    Unreadable,
    check_position,
    cursor_of,
    position_of,
)
from ..service import message_views
from ..store import offsets
from ..store.connection import session
from ..store.message_rows import own_id
from ..store.offsets import Registration
from ..store.queries import message_pages
from ..store.queries.partition_walk import OFFSET_END, Chunk, Found
from .sources import Source, above_by_time, below_by_time, source_of

CHUNK = 500
"""The maximum number of messages in one statement."""
BYTES_AT_ONCE = 4 * 1_048_576
PAGE_BYTES = 32 * 1_048_576
"""The size of the payloads after which a page ends, in bytes. The next page continues there."""
READ_BYTES = 32 * 1_048_576
"""The size of the payloads read after which a page ends, in bytes, even if they do not match the filter."""
WEIGHED = 250
"""The maximum number of messages whose payload sizes one statement reads, before the payloads are read."""

Row = dict[str, Any]


def page(
    using: str,
    wanted: MessageQuery,
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
    with session.migration_errors(using):
        look = Search(using, wanted, newest_first=newest_first, payload_limit=payload_limit)
        position = position_of(look.source.name, start)
        chunk = min(CHUNK, scan_limit, max(limit, 10) if wanted.takes_all else CHUNK)
        messages: list[Inspected] = []
        scanned = weight = 0
        for step in look.source.walk(position, chunk):
            position = step.position
            over = False
            for found, _, message in look.read(step):
                messages.append(message)
                weight += look.weight(message)
                if len(messages) == limit or weight >= PAGE_BYTES:
                    position, over = found.position, True
                    break
            scanned += len(step.found) + step.looked
            if look.tired_at is not None and not over:
                position, over = look.tired_at.position, True
            if look.past_its_time and not over:
                return Page(messages, None, scanned)
            if over or scanned >= scan_limit:
                assert position is not None
                return Page(messages, cursor_of(look.source.name, position), scanned)
        return Page(messages, None, scanned)


class Search:
    """One search: its query, its source, and how far it has read."""

    def __init__(
        self, using: str, wanted: MessageQuery, *, newest_first: bool, payload_limit: int | None = None
    ) -> None:
        self.using, self.wanted, self.newest_first = using, wanted, newest_first
        self.payload_limit = payload_limit
        self.registration = registration(using, wanted)
        start = self.registration.start if self.registration else 0
        self.source: Source = source_of(using, wanted, start, newest_first=newest_first)
        self.past_its_time = False
        """True if the walk has passed the wanted time: no later row can match."""
        self.tired_at: Found | None = None
        """The last row that ``read`` compared before it stopped after ``READ_BYTES``."""
        self._bytes = 0

    def weight(self, message: Inspected) -> int:
        """Return the number of bytes of a message's payload that the search returns."""
        return message.size if self.payload_limit is None else min(message.size, self.payload_limit)

    def read(self, step: Chunk, *, payloads: bool = True) -> Iterator[tuple[Found, Row, Inspected]]:
        """Yield the rows of a step that match the query.

        Payloads are read if a filter needs them or ``payloads`` is true, a few megabytes at a time. If ``payloads`` is
        true, the method stops after ``READ_BYTES`` and sets ``tired_at``.
        """
        rows = self._rows([found.offset for found in step.found])
        chosen = [(found, rows[found.offset]) for found in step.found if found.offset in rows]
        if self.source.by_time and chosen:
            self._look_at_the_clock(chosen[-1][0].offset, int(chosen[-1][1]["published_at"]))
        chosen = [(found, row) for found, row in chosen if self._fits(found, row)]
        if not payloads and self.wanted.test is None:
            yield from ((found, row, self._told(row, None)) for found, row in chosen)
            return
        whole = self.wanted.test is not None
        most = None if whole else self.payload_limit
        for some in self._light(chosen, most):
            bodies = message_pages.payloads(self.using, [found.offset for found, _ in some], most)
            for found, row in some:
                if found.offset in bodies:
                    body, row["size"] = bodies[found.offset]
                    message = self._told(row, body)
                    if self.wanted.test is None or self.wanted.test(message):
                        yield found, row, self._cut(message, body) if whole else message
            self._bytes += sum(len(body) for body, _ in bodies.values())
            if self._bytes >= READ_BYTES and payloads and some[-1] is not chosen[-1]:
                self.tired_at = some[-1][0]
                return

    def _light(
        self, chosen: Sequence[tuple[Found, Row]], most: int | None
    ) -> Iterator[list[tuple[Found, Row]]]:
        """Split the rows into parts with up to ``BYTES_AT_ONCE`` bytes of payloads. ``most``: bytes read of each."""
        at_once = WEIGHED if most is None else max(1, BYTES_AT_ONCE // most)
        for first in range(0, len(chosen), at_once):
            part = chosen[first : first + at_once]
            if most is not None:
                yield list(part)
                continue
            sizes = message_pages.sizes(self.using, [found.offset for found, _ in part])
            weighed = [(each, sizes.get(each[0].offset, 0)) for each in part]
            for some in batches_by_weight(weighed, itemgetter(1), BYTES_AT_ONCE):
                yield [each for each, _ in some]

    def _cut(self, message: Inspected, body: bytes) -> Inspected:
        """Cut the payload to ``payload_limit`` after a filter has used the whole payload."""
        if self.payload_limit is None or len(body) <= self.payload_limit:
            return message
        is_json = not isinstance(message.payload, bytes) or isinstance(message.payload, Unreadable)
        return replace(message, payload=Cut(body[: self.payload_limit], is_json))

    def _look_at_the_clock(self, last: int, published_at: int) -> None:
        """Set ``past_its_time`` if the last row lies after the wanted time.

        The clock may have been wrong for this row, so its own time only decides whether to search for ``_end``.
        """
        after, before = self.wanted.after, self.wanted.before
        if self.newest_first:
            self.past_its_time = after is not None and published_at < after and last <= self._end
        else:
            self.past_its_time = before is not None and published_at >= before and last >= self._end

    @cached_property
    def _end(self) -> int:
        """The offset at which a walk in the order of publication has read all messages of the wanted time."""
        after, before, topic = self.wanted.after, self.wanted.before, self.source.by_time
        assert topic is not None
        if self.newest_first:
            return above_by_time(self.using, topic, after or 0)
        return below_by_time(self.using, topic, before or 0) - 1

    def _rows(self, offsets_: list[int]) -> dict[int, Row]:
        """Read the rows at the offsets, decode their metadata, and set their status."""
        if not offsets_:
            return {}
        group = self.wanted.group
        if group is None or self.source.place != "log":
            rows = message_pages.rows(self.using, offsets_)
        else:
            dead = conf.dead_letter_topic(self.wanted.topic)
            rows = message_pages.rows_of_group(self.using, group, dead, offsets_)
            self._note_status(rows)
        for row in rows.values():
            message_views.decode_row(row, self.source.place)
        return rows

    def _note_status(self, rows: Mapping[int, Row]) -> None:
        wanted, group = self.wanted, self.wanted.group
        assert group is not None
        assert self.registration is not None
        fresh = sorted({row["partition"] for row in rows.values() if row["acked"] is None})
        places = (
            offsets.positions(self.using, group, wanted.topic, fresh, self.registration.start)
            if fresh
            else {}
        )
        for row in rows.values():
            if row["acked"] is None:
                done = row["offset"] <= places[row["partition"]].acked
                row["status"] = DONE if done else PENDING
                row["is_early"] = row["offset"] <= self.registration.start
            elif row["acked"]:
                row["status"] = DONE if row["letter"] is None else DEAD
            else:
                row["status"] = IN_FLIGHT if row["in_flight"] else WAITING

    def _fits(self, found: Found, row: Row) -> bool:
        wanted = self.wanted
        if self.source.place == DEAD:
            if row["failed_group"] is None or wanted.group not in (None, row["failed_group"]):
                return False
        elif wanted.group is not None and row["target"] not in ("", wanted.group):
            return False
        return (
            (wanted.status is None or row["status"] == wanted.status)
            and (wanted.id is None or wanted.id == own_id(row, row["metadata"]))
            and (wanted.kinds is None or row["metadata"]["kind"] in wanted.kinds)
            and wanted.fits_time(int(row["published_at"]))
        )

    def _told(self, row: Row, body: bytes | None) -> Inspected:
        wanted = self.wanted
        return message_views.to_inspected(
            row, body, topic=wanted.topic, group=wanted.group, place=self.source.place
        )


def registration(using: str, wanted: MessageQuery) -> Registration | None:
    """Return the registration of the wanted group; None without a group.

    Raises ``NotRegistered`` if the group is not registered. A search for dead letters returns None instead, because
    dead letters outlive registrations.
    """
    if wanted.group is None:
        return None
    found = offsets.registration(using, wanted.group, wanted.topic)
    if found is None and wanted.status != DEAD:
        raise NotRegistered(wanted.topic, wanted.group)
    return found


NEWEST_OF_ALL = "newest of all"


def newest_of_all(using: str, *, limit: int, start: str | None, payload_limit: int) -> Page:
    """Return a page with up to ``limit`` messages of all topics, highest offset first.

    The topic of each message is the topic that its row is stored in. ``start``: the ``next`` of an earlier page, or
    None. ``payload_limit``: the maximum number of bytes that are read of each payload.

    Raises ``TypeError`` or ``ValueError`` if ``start`` is not the ``next`` of such a page.
    """
    position = position_of(NEWEST_OF_ALL, start)
    (below,) = (OFFSET_END,) if position is None else check_position(position, int)
    with session.migration_errors(using):
        topics = message_pages.newest_of_all(using, below, limit)
        rows = message_pages.rows(using, list(topics)) if topics else {}
        bodies = message_pages.payloads(using, list(rows), payload_limit) if rows else {}
    messages = []
    for offset, topic in topics.items():
        if offset in bodies:
            row = rows[offset]
            body, row["size"] = bodies[offset]
            place = message_views.LOG if row["failed_group"] is None else DEAD
            message_views.decode_row(row, place)
            messages.append(message_views.to_inspected(row, body, topic=topic, group=None, place=place))
    last = min(topics, default=0)
    return Page(messages, cursor_of(NEWEST_OF_ALL, (last,)) if len(topics) == limit else None, len(topics))
