"""Read the messages from which rates and latencies are computed.

If there are few messages, all are read. Otherwise a few rows are read at evenly spaced places in the log: a sample of
all messages up to the next place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

from ..store.queries import bounded_counts, group_rows
from ..store.queries.group_rows import Range, Row

SLICES, NEIGHBOURS = 96, 8
"""The number of places in the log, and the number of rows that are read at each."""
FEW, COUNTED, FEWER = 3, 50, 16
"""The number of rows that are counted at each place: ``COUNTED`` for up to ``FEW`` pairs, else ``FEWER``."""
COARSE = 16
"""The number of places in the first pass over older messages."""
PROBES = 20
"""The number of places in each step of a search by time."""


@dataclass(frozen=True)
class Slice:
    """The first rows of a range of offsets.

    ``rest``: about how many rows follow them in the range. ``is_sampled``: the range has more rows, which
    the estimates leave out.
    """

    low: int
    high: int
    rows: Sequence[Row]
    rest: float = 0
    is_sampled: bool = False


class Recent:
    """The recent messages of topics, for one call. ``now``: the database's time in epoch milliseconds."""

    def __init__(self, using: str, topics: Sequence[str], limit: int, pairs: int) -> None:
        self.using, self.limit = using, limit
        self.counted = COUNTED if pairs <= FEW else FEWER
        self.slices = max(COARSE, min(SLICES, 600 // max(pairs, 1)))
        self.now = group_rows.now_ms(using)
        self.ends = bounded_counts.ends(using, sorted(set(topics)))
        self._lengths = cache(partial(bounded_counts.lengths, using))
        self._offsets: dict[str, int] = {}

    def read(self, topic: str, group: str | None, start: int, since: int) -> list[Slice]:
        """Return the messages published since a time, in offset order; with a group, also older ones finished since.

        A short topic is returned as a whole.
        ``start``: the offset above which the group began. ``since``: epoch milliseconds, the same in each call.
        """
        end = self.ends.get(topic)
        if end is None:
            return []
        log_range = Range(topic, group, start)
        if whole := self._whole(log_range, end.first, end.last + 1):
            return whole
        middle = self._offset_at(topic, since)
        found = self._part(log_range, middle, end.last + 1, self.slices)
        return found if group is None else self._finished_since(log_range, end.first, middle, since) + found

    def _whole(self, log_range: Range, low: int, high: int) -> list[Slice]:
        """Return all rows of a range as one slice; an empty list if they are too many."""
        ((count, _),) = self._lengths(log_range.topic, ((low, high),), self.limit + 1)
        if count > self.limit:
            return []
        (rows,) = group_rows.rows(self.using, [log_range._replace(low=low, high=high)], self.limit)
        return [Slice(low, high, rows)]

    def _part(self, log_range: Range, start: int, end: int, parts: int) -> list[Slice]:
        """Return the rows of a range, or slices of it."""
        if start >= end:
            return []
        if whole := self._whole(log_range, start, end):
            return whole
        ranges = cut(start, end, parts)
        read = group_rows.rows(self.using, [log_range._replace(low=a, high=b) for a, b in ranges], NEIGHBOURS)
        lengths = self._lengths(log_range.topic, tuple(ranges), self.counted)
        found = []
        for (low, high), rows, (count, last) in zip(ranges, read, lengths, strict=True):
            more: float = max(count - len(rows), 0) if rows else 0
            if rows and count == self.counted:  # Assume the same density up to the end of the range.
                more += (high - 1 - last) * (count - 1) / (last - low)
            found.append(Slice(low, high, rows, more))
        return found

    def _finished_since(self, log_range: Range, low: int, high: int, since: int) -> list[Slice]:
        """Return slices of older messages: smaller where the group finished messages since then."""
        coarse = self._part(log_range, low, high, COARSE)
        if len(coarse) < 2:
            return coarse
        hits = [n for n, part in enumerate(coarse) if any((row.done_at or 0) >= since for row in part.rows)]
        first, last = max(min(hits, default=len(coarse)) - 1, 0), max(hits, default=len(coarse) - 2) + 1
        fine = self._part(log_range, coarse[first].low, coarse[min(last, len(coarse) - 1)].high, self.slices)
        # No row that was read outside ``fine`` was finished since then. Assume the same for the others.
        outside = [replace(part, rest=0, is_sampled=bool(part.rest)) for part in coarse]
        return [*outside[:first], *fine, *outside[last + 1 :]]

    def _offset_at(self, topic: str, moment: int) -> int:
        """Return the offset of the first message published at ``moment`` or later; one above the last if none was."""
        if topic not in self._offsets:
            end = self.ends[topic]
            low, high = end.first, end.last + 1
            if end.first_at >= moment:
                high = low
            while high - low > 1:  # ``low`` was published before the moment, ``high`` was not.
                ranges = [Range(topic, low=a, high=b) for a, b in cut(low + 1, high, PROBES)]
                rows = [row for found in group_rows.rows(self.using, ranges, 1) for row in found]
                if not rows:
                    break
                high = next((row.offset for row in rows if row.published_at >= moment), high)
                low = max((row.offset for row in rows if row.offset < high), default=low)
            self._offsets[topic] = high
        return self._offsets[topic]


def cut(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """Cut a range of offsets into ``parts`` ranges of about the same length, or fewer."""
    parts = max(1, min(parts, high - low))
    bounds = [low + (high - low) * number // parts for number in range(parts + 1)]
    return [(a, b) for a, b in pairwise(bounds) if a < b]


Interval = tuple[float, float, float]
"""Messages spread evenly over a time: its begin, its end, how many."""


def estimated_times(
    slices: Sequence[Slice], test: Callable[[Row], bool], time_of: Callable[[Row], int]
) -> list[Interval]:
    """Return the times of the messages that pass a test. ``time_of``: returns the time of a row.

    The rest of a slice lies between the times of its rows and the times of the next slice's rows.
    """
    found: list[Interval] = []
    times = [sorted(time_of(row) for row in part.rows if test(row)) for part in slices]
    for number, (part, own_times) in enumerate(zip(slices, times, strict=True)):
        found += [(at, at, 1) for at in own_times]
        if part.rest and own_times:
            following = next((later for later in times[number + 1 :] if later), own_times)
            for n, at in enumerate(own_times):
                later_time = following[n * len(following) // len(own_times)]
                found.append((min(at, later_time), max(at, later_time), part.rest / len(part.rows)))
    return found


def count_by_step(intervals: Sequence[Interval], start: int, step: int, points: int) -> tuple[int, ...]:
    """Return how many messages fall into each of ``points`` steps from ``start`` on."""
    values = [0.0] * points
    for begin, end, count in intervals:
        first, last = (begin - start) / step, (end - start) / step
        if last < 0 or first >= points:
            continue
        if end == begin:
            values[int(first)] += count
            continue
        for number in range(max(0, int(first)), min(points, int(last) + 1)):
            overlap = min(last, number + 1) - max(first, number)
            values[number] += count * max(overlap, 0.0) / (last - first)
    return tuple(map(round, values))
