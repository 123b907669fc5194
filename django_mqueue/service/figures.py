"""The numbers of topics and groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .. import conf
from ..policy.durations import moment
from ..policy.figures import (
    AT_LEAST,
    Figure,
    GroupFigures,
    Hold,
    Lag,
    Latency,
    LatencyStep,
    PartitionLag,
    Percentiles,
    Rates,
    Series,
    SubscriberFigures,
    TopicFigures,
)
from ..policy.history import DEAD, IN_FLIGHT, PENDING, SCHEDULED, WAITING, Counts, Wanted
from ..policy.names import SCHEDULED_SUFFIX, key_of
from ..store import figures, heartbeats, history, offsets, samples, session
from . import standing

Pair = tuple[str, str]
CAP = 1_000


def group_figures(using: str, pairs: Sequence[Pair]) -> dict[Pair, GroupFigures]:
    with session.explained(using):
        return {pair: _group(using, *pair) for pair in pairs}


def _group(using: str, topic: str, group: str) -> GroupFigures:
    now = samples.now_ms(using)
    registration = offsets.registration(using, group, topic)
    alive = heartbeats.members(using, group, topic, conf.lease_ms(topic))
    question = Wanted(topic, group, None, None, None, None, None, None, None)
    counts = standing.counts(using, question, CAP, 10 * CAP) if registration else Counts(0, 0, 0, 0, 0)
    number = {name: _figure(counts, name) for name in (PENDING, IN_FLIGHT, WAITING, SCHEDULED, DEAD)}
    mine = standing._standing(using, topic, group, 10 * CAP) if registration else None
    at = mine.oldest_published_at if mine else None
    return GroupFigures(
        topic, group, moment(now), registration is not None, bool(registration and registration.paused), len(alive),
        **number, oldest=mine.oldest if mine else None, oldest_published_at=at,
        oldest_age=moment(now) - at if at else None, oldest_is_exact=not (mine and mine.partial),
    )  # fmt: skip


def _figure(counts: Counts, name: str) -> Figure:
    value = getattr(counts, name)
    return Figure(value, AT_LEAST, 0, value) if name in counts.more else Figure(value, least=value)


def _capped(value: int, cap: int) -> Figure:
    return Figure(value, least=value) if value <= cap else Figure(cap, AT_LEAST, 0, cap)


def topic_figures(using: str, topics: Sequence[str]) -> dict[str, TopicFigures]:
    with session.explained(using):
        now = moment(samples.now_ms(using))
        if not topics:
            return {}
        parts = [t + suffix for t in topics for suffix in ("", SCHEDULED_SUFFIX)]
        parts += [conf.dead_letter_topic(t) for t in topics]
        sums = {
            name: sum(of.values()) for name, of in figures.targets(using, list(set(parts)), CAP + 1).items()
        }
        ends = figures.ends(using, topics)

    def number(name: str) -> Figure:
        return _capped(sums.get(name, 0), CAP)

    found = {}
    for topic in topics:
        end = ends.get(topic)
        found[topic] = TopicFigures(
            topic, now, number(topic), number(topic + SCHEDULED_SUFFIX), number(conf.dead_letter_topic(topic)),
            *((end.first, moment(end.first_at), end.last, moment(end.last_at)) if end else ()),
        )  # fmt: skip
    return found


def _rows(using: str, topic: str, group: str | None) -> list[samples.Times]:
    end = figures.ends(using, [topic]).get(topic)
    if end is None:
        return []
    rows = samples.at(using, topic, [(end.first, end.last + 1)], 10_000)
    mine = [row.offset for row in rows if group is None or row.target in ("", group)]
    times: list[samples.Times] = []
    for at in range(0, len(mine), 1_000):
        some = mine[at : at + 1_000]
        found = samples.times(using, some) if group is None else samples.times_of_group(using, group, some)
        times += found.values()
    return times


def _series(moments: Sequence[int | None], start: int, step: int, points: int) -> Series:
    values = [0] * points
    for at in moments:
        if at is not None and 0 <= (place := (at - start) // step) < points:
            values[place] += 1
    return Series(tuple(values), Figure(sum(values), least=sum(values)))


def rates(
    using: str, pairs: Sequence[tuple[str, str | None]], span: int, points: int
) -> dict[tuple[str, str | None], Rates]:
    found = {}
    with session.explained(using):
        for topic, group in pairs:
            now = samples.now_ms(using)
            step = span // points
            start = now - step * points + 1
            rows = _rows(using, topic, group)
            letters = [t.published_at for t in _rows(using, conf.dead_letter_topic(topic), None)]
            found[topic, group] = Rates(
                topic, group, moment(start), timedelta(milliseconds=step),
                _series([row.published_at for row in rows], start, step, points),
                _series([row.acked_at for row in rows if row.acked], start, step, points) if group is not None
                else None,
                _series(letters, start, step, points),
            )  # fmt: skip
    return found


def _percentiles(values: list[int]) -> Percentiles | None:
    if not values:
        return None
    values.sort()

    def rank(part: float) -> timedelta:
        return timedelta(milliseconds=values[min(len(values) - 1, int(part * len(values)))])

    return Percentiles(rank(0.5), rank(0.95), rank(0.99), len(values))


def latency(using: str, topic: str, group: str, span: int, points: int) -> Latency:
    with session.explained(using):
        now = samples.now_ms(using)
        step = span // points
        start = now - step * points + 1
        rows = [r for r in _rows(using, topic, group) if r.acked and r.acked_at and r.acked_at >= start]

    def told(begin: int, end: int) -> LatencyStep:
        mine = [r for r in rows if begin <= (r.acked_at or 0) < end]
        return LatencyStep(
            moment(begin),
            _percentiles([max((r.delivered_at or 0) - r.published_at, 0) for r in mine]),
            _percentiles([max((r.acked_at or 0) - r.published_at, 0) for r in mine]),
        )

    steps = tuple(told(start + n * step, start + (n + 1) * step) for n in range(points))
    return Latency(
        topic, group, moment(start), timedelta(milliseconds=step), steps, told(start, now + 1), "exact"
    )


def lag(using: str, topic: str, group: str, limit: int) -> Lag:
    with session.explained(using):
        registration = offsets.registration(using, group, topic)
        start = registration.start if registration else 0
        leases = {p: (name, at) for p, name, _, at in figures.held(using, group, topic, 10_000)}
        found = []
        names = history.partitions(using, topic, "", 10_000)
        for one in history.news(using, group, topic, start, "", names[-1]) if names else []:
            if one.newest > one.acked:
                count = len(history.undelivered(using, topic, [(one.partition, one.acked)], CAP + 1))
                name, at = leases.get(one.partition, ("", None))
                found.append(
                    PartitionLag(
                        one.partition, key_of(one.partition), _capped(count, CAP), one.acked, one.newest, name,
                        moment(at) if at is not None else None, None,
                    )
                )  # fmt: skip
        found.sort(key=lambda one: (-one.lag.value, one.partition))
        total = sum(one.lag.value for one in found)
        return Lag(
            topic, group, Figure(total, least=total), tuple(found[:limit]), len(found), len(names) == 10_000
        )


def holds(using: str, topic: str) -> list[Hold]:
    with session.explained(using):
        end = figures.ends(using, [topic]).get(topic)
        if end is None:
            return []
        now = samples.now_ms(using)
        overdue = now - end.first_at - conf.retention_ms(topic)
        reason = "retention" if overdue < 0 else "pending"
        if not standing.standings(using, topic, 1):
            reason = "no_group"
        return [
            Hold(
                topic, reason, None, None, None, None, end.first, moment(end.first_at),
                timedelta(milliseconds=overdue), None,
            )
        ]  # fmt: skip


def subscribers(using: str, topic: str, group: str) -> list[SubscriberFigures]:
    with session.explained(using):
        leases = figures.held(using, group, topic, 10_000)
        opened = figures.opened(using, group, topic, 10_000, 10_000)
        lease_ms = conf.lease_ms(topic)
        found = []
        for one in figures.members(using, [topic], [group]):
            left, beat = one["left_at"], int(one["heartbeat_at"])
            mine = [at for in_flight, name, at in opened if in_flight and name == one["name"]]
            status = "left" if left is not None else "alive" if beat > one["now"] - lease_ms else "silent"
            found.append(
                SubscriberFigures(
                    topic, group, one["name"], status, moment(beat), None if left is None else moment(int(left)),
                    sum(1 for _, _, holder, _ in leases if holder == one["incarnation"]),
                    Figure(len(mine), least=len(mine)), moment(min(mine)) if mine else None,
                )
            )  # fmt: skip
        return found
