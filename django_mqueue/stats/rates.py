"""Recent throughput and latency, computed from the log and its delivery history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .. import conf
from ..policy.durations import moment
from ..store.connection import session
from ..store.queries import group_positions, topic_index
from .results import ABOUT, AT_LEAST, EXACT, Latency, LatencyStep, Rates, Series
from .sampling import DONE, KEPT, Sampled, Stratum, Test, figure, percentiles, series, spread
from .surveying import Surveyor, size_for

Pair = tuple[str, str | None]
FINEST = 96
"""A sample divides the requested time into at least this many parts, or into the steps if these are shorter."""


class _Steps:
    """The steps of the requested time.

    A step begins at a whole multiple of its length, so that later calls have the same steps. The last step is not
    complete yet.
    """

    def __init__(self, now: int, span: int, points: int) -> None:
        self.now, self.points, self.step = now, points, span // points
        self.start = (now // self.step + 1 - points) * self.step
        # The same for rates and latencies, so that a page with both reads the same messages for them.
        self.finest = max(1, min(self.step, span // FINEST))

    def series(self, strata: Sequence[Stratum], test: Test, attribute: str, complete_from: int) -> Series:
        how = ABOUT if any(one.rest for one in strata) else AT_LEAST if complete_from > self.start else EXACT

        def time(row: Sampled) -> int:
            return int(getattr(row, attribute))

        error = figure(strata, lambda row: test(row) and time(row) >= self.start).error
        intervals = spread(strata, test, time)
        return series(intervals, self.start, self.step, self.points, how=how, error=error)


def rates(
    using: str, pairs: Sequence[Pair], span: int, points: int, exact: int | None = None
) -> dict[Pair, Rates]:
    """Return the messages published, finished and given up in each step of the last ``span`` milliseconds, by pair."""
    if not pairs:
        return {}
    with session.migration_errors(using):
        surveyor = Surveyor(using, size_for(len(pairs), exact))
        time = _Steps(surveyor.now, span, points)
        topics = sorted({topic for topic, _ in pairs})
        groups = sorted({group for _, group in pairs if group is not None})
        registered = group_positions.registrations(using, topics, groups) if groups else {}
        consumed = {topic for topic, _ in topic_index.registered(using, topics)}
        surveyor.prepare_times([*topics, *(conf.dead_letter_topic(topic) for topic in topics)], time.start)
        found = {}
        for topic, group in pairs:
            registration = registered.get((topic, group or ""))
            kept_from = surveyor.now - conf.retention_ms(topic) if topic in consumed else time.start
            found[topic, group] = _rates(
                surveyor, time, topic, group, registration, max(kept_from, time.start)
            )
        return found


def _rates(
    surveyor: Surveyor,
    time: _Steps,
    topic: str,
    group: str | None,
    registration: group_positions.Registered | None,
    kept_from: int,
) -> Rates:
    start = registration.start if registration else 0
    strata = surveyor.survey(topic, group, time.start, time.finest, whole=group is not None, start=start)
    young = strata
    if any(one.rest for one in strata):
        since = surveyor.offset_at(topic, time.start)
        young = [one for one in strata if one.high > since]
    finished = skipped = finished_from = None
    if group is not None:
        finished_from = max(
            _finished_from(strata, time, kept_from), _registered_from(strata, time, registration)
        )
        finished = time.series(strata, _is_done, "done_at", finished_from)
        skipped = time.series(strata, _is_skipped, "done_at", finished_from)
    dead = conf.dead_letter_topic(topic)
    letters = surveyor.survey(dead, None, time.start, time.step, whole=False)
    return Rates(
        topic, group, moment(time.start), timedelta(milliseconds=time.step),
        time.series(young, lambda row: row.status is not None, "published_at", kept_from),
        finished,
        time.series(letters, lambda row: group in (None, row.failed_group), "published_at", time.start),
        moment(kept_from),
        None if finished_from is None else moment(finished_from),
        moment(time.now), skipped,
    )  # fmt: skip


def _is_done(row: Sampled) -> bool:
    return row.status == DONE and row.done_at is not None and not row.skipped


def _is_skipped(row: Sampled) -> bool:
    return row.done_at is not None and row.skipped


def _finished_from(strata: Sequence[Stratum], time: _Steps, kept_from: int) -> int:
    """Return the time from which the records of finished messages are complete (epoch milliseconds).

    The log still holds all messages that were published from ``kept_from`` on. A message that was published earlier
    may have been deleted after it was finished.
    """
    if kept_from <= time.start:
        return time.start
    rows = [row for one in strata for row in one.rows if row.status is not None]
    if any(row.status not in (DONE, KEPT) and row.published_at < kept_from for row in rows):
        return time.now  # It works on messages past retention: they are deleted as soon as they are done.
    took = (row.done_at - row.published_at for row in rows if row.done_at and row.done_at >= time.start)
    return min(time.now, kept_from + max(took, default=0))


def _registered_from(
    strata: Sequence[Stratum], time: _Steps, registration: group_positions.Registered | None
) -> int:
    """Return the time from which there are records of messages that the group finished (epoch milliseconds).

    A reset deletes the records with the registration. A pause also changes the registration's row. A message that was
    finished before this change shows that the registration is older.
    """
    if registration is None:
        return time.now
    done = (row.done_at for one in strata for row in one.rows if row.done_at is not None)
    return min(registration.changed, min(done, default=time.now), time.now)


def latency(using: str, topic: str, group: str, span: int, points: int, exact: int | None = None) -> Latency:
    """Return the latency of the messages that a group finished in each step of the last ``span`` milliseconds."""
    with session.migration_errors(using):
        surveyor = Surveyor(using, size_for(1, exact))
        time = _Steps(surveyor.now, span, points)
        registration = group_positions.registrations(using, [topic], [group]).get((topic, group))
        start = registration.start if registration else 0
        strata = surveyor.survey(topic, group, time.start, time.finest, whole=True, start=start)
    rows = [
        (row, one.size / len(one.rows))
        for one in strata
        for row in one.rows
        if _is_done(row) and row.delivered_at is not None and (row.done_at or 0) >= time.start
    ]
    steps = []
    for number in range(points):
        begin = time.start + number * time.step
        mine = [(row, weight) for row, weight in rows if begin <= (row.done_at or 0) < begin + time.step]
        steps.append(_latency_step(begin, mine))
    how = ABOUT if any(one.rest for one in strata) else EXACT
    return Latency(
        topic, group, moment(time.start), timedelta(milliseconds=time.step), tuple(steps),
        _latency_step(time.start, rows), how,
    )  # fmt: skip


def _latency_step(begin: int, rows: Sequence[tuple[Sampled, float]]) -> LatencyStep:
    delivered = [
        (max((row.delivered_at or 0) - row.published_at, 0), weight) for row, weight in rows if row.once
    ]
    done = [(max((row.done_at or 0) - row.published_at, 0), weight) for row, weight in rows]
    return LatencyStep(moment(begin), percentiles(delivered), percentiles(done))
