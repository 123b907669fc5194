"""What ``reset`` would do to a group, before it does."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .. import conf
from ..exceptions import NotRegistered
from ..policy import names
from ..policy.durations import moment
from ..policy.figures import ABOUT, AT_LEAST, Figure
from ..policy.places import ResetPreview, Stretch
from ..store import figures, heartbeats, history, log, offsets, places, samples, session
from .loading import batches
from .registration import Start, check_group, check_start, start_above, topic_limit
from .standing import oldest_open

COUNTED = 5_000
"""Rows of the log that are counted one by one, on either side of the new start; where there are more, samples are."""

WINDOWS, WIDTH = 40, 100
"""Samples: so many places, and so many offsets at each."""

ENDS = 200
"""Rows at either end that are looked through for the first and the last, where there are too many to count."""

CAP = 1_000
LEASES = PARTITIONS = 10_000
SETTLE_FOR = 0.3
"""Seconds that a preview looks for a quiet moment; ``reset`` itself looks longer."""


def preview_reset(topic: str, group: str, to: Start, *, using: str | None = None) -> ResetPreview:
    """What ``reset(topic, group, to)`` would do now: what would be delivered again, and what never.

    Nothing is changed. Counts up to 5,000 messages of the log on either side of the new start; where there are more,
    the figures are ``"about"``, estimated from samples. ``reset`` itself looks ``"latest"`` and a time up anew, and
    what is published or done meanwhile is in none of these figures. Raises ``NotRegistered``, ``TypeError`` or
    ``ValueError``.
    """
    names.check_topic(topic, topic_limit())
    check_group(group)
    check_start(to)
    alias = conf.database(using)
    with session.explained(alias):
        registration = offsets.registration(alias, group, topic)
        if registration is None:
            raise NotRegistered(topic, group)
        above, known = start_above(alias, topic, to, SETTLE_FOR)
        start = min(above, max(known, offsets.settled(alias, topic)))
        look = _Look(alias, topic, group, registration.start)
        end = figures.ends(alias, [topic]).get(topic)
        replayed, coming, skipped = (Stretch(Figure(0)),) * 3
        if end is not None:
            replayed, coming = look.between(max(start, end.first - 1), end.last)
            oldest, is_partial = oldest_open(alias, topic, group, registration.start, PARTITIONS)
            lowest = end.first if is_partial else oldest
            if lowest is not None:
                _, skipped = look.between(lowest - 1, min(start, end.last))
        first = log.published_at(alias, topic, start, 1)
        flying, waiting = places.open_counts(alias, group, topic, LEASES, LEASES)
        pair = (conf.dead_letter_topic(topic), group)
        dead = figures.letters(alias, [pair], CAP + 1).get(pair, 0)
        running = heartbeats.members(alias, group, topic, conf.lease_ms(topic))
        return ResetPreview(
            topic, group, moment(samples.now_ms(alias)), start, moment(first[0][1]) if first else None,
            replayed, skipped, coming,
            _capped(flying, flying + waiting, LEASES), _capped(waiting, flying + waiting, LEASES),
            _capped(min(dead, CAP), dead, CAP + 1), tuple(running), registration.paused, registration.life,
        )  # fmt: skip


def _capped(value: int, looked: int, limit: int) -> Figure:
    return Figure(value, AT_LEAST, 0, value) if looked >= limit else Figure(value, least=value)


@dataclass(frozen=True)
class _Look:
    """Messages of the log for the group, told apart: done and open."""

    alias: str
    topic: str
    group: str
    start: int

    def between(self, low: int, high: int) -> tuple[Stretch, Stretch]:
        """What is done, and what is not, of the offsets above ``low`` and up to ``high``."""
        if low >= high:
            return Stretch(Figure(0)), Stretch(Figure(0))
        rows = samples.at(self.alias, self.topic, [(low + 1, high + 1)], COUNTED + 1)
        if len(rows) > COUNTED:
            return self._sampled(low, high)
        done, others = self._told_apart((row.offset, row.partition, row.target) for row in rows)
        return tuple(self._stretch(Figure(len(one), least=len(one)), one) for one in (done, others))  # type: ignore[return-value]

    def _sampled(self, low: int, high: int) -> tuple[Stretch, Stretch]:
        """Of each part of the offsets a window at a random place: unbiased, however the topic's messages lie."""
        width = (high - low) / WINDOWS
        starts = [
            low + 1 + int(number * width + random.random() * max(width - WIDTH, 0))
            for number in range(WINDOWS)
        ]
        ranges = [(at, min(at + WIDTH, high + 1)) for at in starts]
        rows = samples.at(self.alias, self.topic, ranges, WIDTH)
        ends = [
            *history.log_page(self.alias, self.topic, None, (low, high + 1), ENDS, newest_first=False),
            *history.log_page(self.alias, self.topic, None, (low, high + 1), ENDS, newest_first=True),
        ]
        sides = self._told_apart({(row.offset, row.partition, row.target) for row in rows} | set(ends))
        found = []
        for seen in sides:
            per_window = [0] * WINDOWS
            for row in rows:
                per_window[row.place] += row.offset in seen
            found.append(self._stretch(_estimated(per_window, width / WIDTH, len(seen)), seen))
        return found[0], found[1]

    def _told_apart(self, rows: Iterable[tuple[int, str, str]]) -> tuple[set[int], set[int]]:
        """Offsets of those that are for the group: done, and not."""
        mine = {offset: name for offset, name, target in rows if target in ("", self.group)}
        passed: dict[str, int] = {}
        for some in batches(sorted(set(mine.values())), 1_000):
            for row in places.positions_of(self.alias, self.group, self.topic, some):
                passed[row["partition"]] = int(row["acked"])
        done = {o for o, name in mine.items() if o <= max(passed.get(name, 0), self.start)}
        rest: Sequence[tuple[str, int]] = sorted((name, o) for o, name in mine.items() if o not in done)
        for other in batches(rest, 500):
            done |= places.done_among(self.alias, self.group, self.topic, other)
        return done, mine.keys() - done

    def _stretch(self, count: Figure, seen: set[int]) -> Stretch:
        if not seen:
            return Stretch(count)
        first, last = min(seen), max(seen)
        times = samples.times(self.alias, [first, last])
        at = {offset: moment(one) for offset, one in times.items()}
        return Stretch(count, first, at.get(first), last, at.get(last))


def _estimated(windows: Sequence[int], scale: float, seen: int) -> Figure:
    """What the windows say of all, ``scale`` times as much. The error is that of successive differences (K. M. Wolter,
    Introduction to Variance Estimation, chapter 8), which rather overstates it."""
    spread = math.sqrt(sum((one - other) ** 2 for one, other in pairwise(windows)) / 2)
    value = max(round(sum(windows) * scale), seen)
    return Figure(value, ABOUT, math.ceil(2 * spread * scale), seen)
