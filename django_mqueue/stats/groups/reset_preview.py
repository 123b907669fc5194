"""A preview of the effect of ``reset`` on a group."""

from __future__ import annotations

from collections.abc import Callable

from ... import conf
from ...exceptions import NotRegistered
from ...policy import names
from ...policy.durations import moment
from ...service.registration import Start, check_group, check_start, start_above, topic_limit
from ...store import heartbeats, log, offsets
from ...store.connection import session
from ...store.queries import bounded_counts, partition_progress
from ..results import AT_LEAST, Figure
from ..sampling import DONE, Sampled, figure
from ..surveying import Between, Size, Surveyor
from .group_states import ResetPreview, Stretch
from .oldest_age import oldest_open

SIZE = Size(strata=48, rounds=2, exact=2_001)
"""Up to 2,000 rows of the log on each side of the new start are counted one by one. If there are more, samples are
counted.
"""

ENDS = 200
"""The number of rows at each end that are searched for the first and the last message, if there are too many."""

CAP = 1_000
LEASES = PARTITIONS = 10_000
SETTLE_FOR = 0.3
"""The maximum seconds that a preview waits until all rows are settled. ``reset`` itself waits longer."""


def preview_reset(topic: str, group: str, to: Start, *, using: str | None = None) -> ResetPreview:
    """Return the effect of ``reset(topic, group, to)`` now: which messages would be delivered again, and which never.

    The preview does not change the group. It counts up to 2,000 messages of the log on each side of the new start. If
    there are more, the figures are ``"about"``: estimated from samples. ``reset`` itself determines the offset of
    ``"latest"`` or of a time again. The figures do not include messages that are published or done in between.

    Raises ``NotRegistered``, ``TypeError`` or ``ValueError``.
    """
    names.check_topic(topic, topic_limit())
    check_group(group)
    check_start(to)
    alias = conf.database(using)
    with session.migration_errors(alias):
        registration = offsets.registration(alias, group, topic)
        if registration is None:
            raise NotRegistered(topic, group)
        above, known = start_above(alias, topic, to, SETTLE_FOR)
        start = min(above, max(known, offsets.settled(alias, topic)))
        look = Surveyor(alias, SIZE)
        end = look.ends(topic)
        replayed, coming, skipped = (Stretch(Figure(0)),) * 3

        def between(low: int, high: int) -> Between:
            return look.between(topic, group, low, high, registration.start, ENDS)

        if end is not None:
            after = between(max(start + 1, end.first), end.last + 1)
            replayed, coming = _stretch(after, _done), _stretch(after, _open)
            oldest, is_partial = oldest_open(alias, topic, group, registration.start, PARTITIONS)
            lowest = end.first if is_partial else oldest
            if lowest is not None and lowest <= start:
                skipped = _stretch(between(lowest, min(start, end.last) + 1), _open)
        first = log.published_at(alias, topic, start, 1)
        flying, waiting = partition_progress.open_counts(alias, group, topic, LEASES, LEASES)
        pair = (conf.dead_letter_topic(topic), group)
        dead = bounded_counts.letters(alias, [pair], CAP + 1).get(pair, 0)
        running = heartbeats.members(alias, group, topic, conf.lease_ms(topic))
        return ResetPreview(
            topic, group, moment(look.now), start, moment(first[0][1]) if first else None,
            end.last if end is not None else None, replayed, skipped, coming,
            _capped(flying, flying + waiting, LEASES), _capped(waiting, flying + waiting, LEASES),
            _capped(min(dead, CAP), dead, CAP + 1), tuple(running), registration.paused, registration.generation,
        )  # fmt: skip


def _capped(value: int, looked: int, limit: int) -> Figure:
    return Figure(value, AT_LEAST, 0, value) if looked >= limit else Figure(value, least=value)


def _done(row: Sampled) -> bool:
    return row.status == DONE


def _open(row: Sampled) -> bool:
    """Return whether the message is for the group, and the group is not done with it."""
    return row.status not in (None, DONE)


def _stretch(found: Between, test: Callable[[Sampled], bool]) -> Stretch:
    mine = [row for row in found.seen if test(row)]
    count = figure(found.strata, test)
    if not mine:
        return Stretch(count)
    first, last = mine[0], mine[-1]
    return Stretch(count, first.offset, moment(first.published_at), last.offset, moment(last.published_at))
