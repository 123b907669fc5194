"""Recent throughput and latency, computed from the log and its delivery history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache

from .. import conf
from ..policy.durations import moment, moment_or_none
from ..policy.message_query import DONE
from ..store.connection import session
from ..store.offsets import Registration
from ..store.queries import group_summaries
from ..store.queries.group_rows import Row
from .recent import Recent, Slice, count_by_step, estimated_times
from .results import ABOUT, AT_LEAST, EXACT, Figure, Latency, LatencyStep, Rates, Series, percentiles

Pair = tuple[str, str | None]


class _Steps:
    """The steps of the requested time.

    A step begins at a whole multiple of its length, so that later calls have the same steps. The last step is not
    complete yet.
    """

    def __init__(self, now: int, span: int, points: int) -> None:
        self.now, self.points, self.step = now, points, span // points
        self.start = (now // self.step + 1 - points) * self.step

    def series(
        self,
        slices: Sequence[Slice],
        test: Callable[[Row], bool],
        time_of: Callable[[Row], int],
        known_from: int,
    ) -> Series:
        is_part = any(
            part.is_sampled
            or (part.rest and (time_of is not _published_at or part.rows[-1].published_at >= self.start))
            for part in slices
        )
        how = ABOUT if is_part else AT_LEAST if known_from > self.start else EXACT
        values = count_by_step(estimated_times(slices, test, time_of), self.start, self.step, self.points)
        return Series(values, Figure(sum(values), how))


def read_rates(
    using: str, pairs: Sequence[Pair], span: int, points: int, count_limit: int | None
) -> dict[Pair, Rates]:
    """Count the messages published, finished and dead-lettered in each step of the last ``span`` ms, by pair."""
    if not pairs:
        return {}
    with session.raises_not_migrated(using):
        topics = sorted({topic for topic, _ in pairs})
        groups = sorted({group for _, group in pairs if group is not None})
        names = [*topics, *map(conf.dead_letter_topic, topics)]
        recent = Recent(using, names, count_limit or limit_for(len(pairs)), len(pairs))
        steps = _Steps(recent.now, span, points)
        registered = group_summaries.registrations(using, topics, groups) if groups else {}
        consumed = {topic for topic, _ in group_summaries.registered(using, topics)}
        dead_letters = cache(lambda topic: recent.read(conf.dead_letter_topic(topic), None, 0, steps.start))
        found = {}
        for topic, group in pairs:
            registration = registered.get((topic, group or ""))
            kept_from = recent.now - conf.retention_ms(topic) if topic in consumed else steps.start
            slices = recent.read(topic, group, registration.start if registration else 0, steps.start)
            found[topic, group] = _rates(
                steps, topic, group, slices, dead_letters(topic), registration, max(kept_from, steps.start)
            )
        return found


def limit_for(pairs: int) -> int:
    """Return the number of messages of a pair up to which all are read."""
    return max(100, min(1_000, 2_000 // max(pairs, 1)))


def _rates(
    steps: _Steps,
    topic: str,
    group: str | None,
    slices: Sequence[Slice],
    dead_letters: Sequence[Slice],
    registration: Registration | None,
    kept_from: int,
) -> Rates:
    finished = skipped = finished_from = None
    if group is not None:
        rows = [row for part in slices for row in part.rows]
        finished_from = max(
            _finished_from(rows, steps, kept_from), _registered_from(rows, steps, registration)
        )
        finished = steps.series(slices, _is_done, _done_at, finished_from)
        skipped = steps.series(slices, lambda row: row.skipped, _done_at, finished_from)
    return Rates(
        topic, group, moment(steps.start), timedelta(milliseconds=steps.step),
        steps.series(slices, lambda row: row.status is not None, _published_at, kept_from),
        finished,
        steps.series(dead_letters, lambda row: group in (None, row.failed_group), _published_at, steps.start),
        moment(kept_from), moment_or_none(finished_from), moment(steps.now), skipped,
    )  # fmt: skip


def _published_at(row: Row) -> int:
    return row.published_at


def _done_at(row: Row) -> int:
    return row.done_at or 0


def _is_done(row: Row) -> bool:
    return row.status == DONE and row.done_at is not None and not row.skipped


def _finished_from(rows: Sequence[Row], steps: _Steps, kept_from: int) -> int:
    """Return the time from which the records of finished messages are complete (epoch milliseconds).

    The log still holds all messages that were published from ``kept_from`` on. A message that was published earlier
    may have been deleted after it was finished.
    """
    if kept_from <= steps.start:
        return steps.start
    if any(row.status not in (None, DONE) and row.published_at < kept_from for row in rows):
        return steps.now  # Messages past retention are deleted as soon as they are done.
    took = (row.done_at - row.published_at for row in rows if row.done_at and row.done_at >= steps.start)
    return min(steps.now, kept_from + max(took, default=0))


def _registered_from(rows: Sequence[Row], steps: _Steps, registration: Registration | None) -> int:
    """Return the time from which there are records of messages that the group finished (epoch milliseconds).

    A reset deletes the records with the registration. A pause also changes the registration's row. A message that was
    finished before this change shows that the registration is older.
    """
    if registration is None:
        return steps.now
    done = (row.done_at for row in rows if row.done_at is not None)
    return min(registration.changed, min(done, default=steps.now), steps.now)


def read_latency(
    using: str, topic: str, group: str, span: int, points: int, count_limit: int | None
) -> Latency:
    """Return the latency of the messages that a group finished in each step of the last ``span`` milliseconds."""
    with session.raises_not_migrated(using):
        recent = Recent(using, [topic], count_limit or limit_for(1), 1)
        steps = _Steps(recent.now, span, points)
        registration = group_summaries.registrations(using, [topic], [group]).get((topic, group))
        slices = recent.read(topic, group, registration.start if registration else 0, steps.start)
    rows = [
        (row, 1 + one.rest / len(one.rows))
        for one in slices
        for row in one.rows
        if _is_done(row) and row.delivered_at is not None and _done_at(row) >= steps.start
    ]
    by_step = []
    for begin in range(steps.start, steps.start + points * steps.step, steps.step):
        done = [(row, weight) for row, weight in rows if begin <= _done_at(row) < begin + steps.step]
        by_step.append(_latency_step(begin, done))
    return Latency(
        topic, group, moment(steps.start), timedelta(milliseconds=steps.step), tuple(by_step),
        _latency_step(steps.start, rows), ABOUT if any(one.rest or one.is_sampled for one in slices) else EXACT,
    )  # fmt: skip


def _latency_step(begin: int, rows: Sequence[tuple[Row, float]]) -> LatencyStep:
    delivered = [
        (max((row.delivered_at or 0) - row.published_at, 0), weight) for row, weight in rows if row.once
    ]
    finished = [(max(_done_at(row) - row.published_at, 0), weight) for row, weight in rows]
    return LatencyStep(moment(begin), percentiles(delivered), percentiles(finished))
