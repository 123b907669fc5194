"""A preview of the effect of ``reset`` on a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import conf
from ...policy.durations import moment
from ...policy.message_query import DONE
from ...service.registration import Start, check_names, check_start, require_registration, start_above
from ...store import heartbeats, offsets
from ...store.connection import session
from ...store.queries import bounded_counts, group_rows, partition_progress
from ...store.queries.group_rows import Range, Row
from ..results import AT_LEAST, EXACT, Figure, capped
from .backlog import oldest_open
from .group_states import ResetPreview, Stretch

ROWS = 2_000
"""The maximum number of oldest rows, and of newest rows, that are read on each side of the new start."""
CAP = 1_000
LEASES = PARTITIONS = 10_000
SETTLE_FOR = 0.3
"""The maximum seconds that a preview waits until all rows are settled. ``reset`` itself waits longer."""


def preview_reset(topic: str, group: str, to: Start, *, using: str | None = None) -> ResetPreview:
    """Return the effect of ``reset(topic, group, to)`` now: which messages would be delivered again, and which never.

    The preview does not change the group. On each side of the new start it reads the 2,000 oldest and the 2,000 newest
    messages of the log. If there are more, the figures are ``"at_least"``. ``reset`` itself determines the offset of
    ``"latest"`` or of a time again. The figures do not include messages that are published or done in between.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    check_names(topic, group)
    check_start(to)
    alias = conf.database(using)
    with session.raises_not_migrated(alias):
        registration = require_registration(alias, topic, group)
        above, known = start_above(alias, topic, to, SETTLE_FOR)
        start = min(above, max(known, offsets.settled(alias, topic)))
        now, ends = group_rows.now_ms(alias), bounded_counts.ends(alias, [topic]).get(topic)
        after = _Side(alias, Range(topic, group, registration.start, start + 1))
        skipped = Stretch(Figure(0))
        oldest, is_partial = oldest_open(alias, topic, group, registration.start, PARTITIONS)
        low = 0 if is_partial else oldest
        if low is not None and low <= start:
            skipped = _Side(alias, Range(topic, group, registration.start, low, start + 1)).stretch(_is_open)
        in_flight, waiting = partition_progress.open_counts(alias, group, topic, LEASES, LEASES)
        (leased,) = partition_progress.leased(alias, [(topic, group)], LEASES + 1)
        how = AT_LEAST if in_flight + waiting >= LEASES or len(leased) > LEASES else EXACT
        pair = (conf.dead_letter_topic(topic), group)
        dead = bounded_counts.dead_letters(alias, [pair], CAP + 1).get(pair, 0)
        running = heartbeats.members(alias, group, topic, conf.lease_ms(topic))
        return ResetPreview(
            topic, group, moment(now), start, moment(after.rows[0].published_at) if after.rows else None,
            ends.last if ends is not None else None, after.stretch(_is_done), skipped, after.stretch(_is_open),
            Figure(in_flight, how), Figure(waiting, how),
            capped(dead, CAP), tuple(running), registration.paused, registration.generation,
        )  # fmt: skip


def _is_done(row: Row) -> bool:
    return row.status == DONE


def _is_open(row: Row) -> bool:
    """Return whether the message is for the group, and the group is not done with it."""
    return row.status not in (None, DONE)


class _Side:
    """The messages on one side of the new start: all, or those at both ends."""

    def __init__(self, using: str, log_range: Range) -> None:
        (self.rows,) = group_rows.rows(using, [log_range], ROWS + 1)
        self.is_partial = len(self.rows) > ROWS
        if self.is_partial:
            seen: dict[int, Row] = {row.offset: row for row in self.rows}
            (newest,) = group_rows.rows(using, [log_range._replace(newest_first=True)], ROWS)
            self.rows = [*self.rows, *(row for row in newest if row.offset not in seen)]

    def stretch(self, test: Callable[[Row], bool]) -> Stretch:
        found: Sequence[Row] = [row for row in self.rows if test(row)]
        count = Figure(len(found), AT_LEAST if self.is_partial else EXACT)
        if not found:
            return Stretch(count)
        first, last = found[0], found[-1]
        return Stretch(
            count, first.offset, moment(first.published_at), last.offset, moment(last.published_at)
        )
