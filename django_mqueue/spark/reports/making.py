"""Make a report: turn the counted rows into its tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING

from ...policy.durations import moment
from ..archives.requests import TABLES
from ..configuring import session_settings
from . import counting
from .backlogs import Backlogs, Row, by, by_step, total
from .counting import AFTER, BEFORE
from .extents import Extent
from .figures import (
    ACCURACY,
    EXACT_BELOW,
    ErrorFigures,
    GroupTotals,
    ItemFigures,
    KeyFigures,
    StepFigures,
    Times,
    TopicTotals,
)  # fmt: skip
from .reading import ONCE, Read, read
from .requests import ReportRequest, report_request
from .result import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLES = "spark.sql.shuffle.partitions"
ROWS_IN_PART = 50_000

PARTS = len(TABLES) + len(fields(counting.Counted))
"""The number of tables that are read, plus the number of tables that are counted."""

_EVERYWHERE = ("finished", "dead", "removed", "failures", "attempts", "retried")
_IN_TOTAL = (*_EVERYWHERE, "errors_not_kept", "several_deliveries", "in_flight", "waiting")
"""Counts that are columns of groups. The counts in ``_EVERYWHERE`` are also columns of steps."""


def report(
    spark: SparkSession,
    topics: str | Iterable[str] | None = None,
    *,
    pattern: str | None = None,
    archive: str | os.PathLike[str] | None = None,
    as_of: int | datetime | None = None,
    live: bool = True,
    since: datetime | None = None,
    until: datetime | None = None,
    by: str = "hour",
    top: int = 10,
    options: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
) -> Report:
    """Return a report on topics, from the live log, from an archive (``live=False``), or from both as one.

    * ``topics``: a name or several names.
    * ``pattern``: a regular expression, instead of names.
    * ``archive``: the path or URI of an archive.
    * ``as_of``: the state of the archive, as a version of its table of messages or as a time; only without the live
      log.
    * ``since`` and ``until``: count only what happened at ``since`` or later, and before ``until``.
    * ``by``: the length of a step, ``"hour"`` or ``"day"``, in UTC.
    * ``top``: the maximum number of errors for each group, and of keys for each topic.
    * ``options``: the connection options of ``format("mqueue")``.
    * ``fail_on_data_loss``: raise ``LogGap`` if messages above the archive may be missing. Otherwise the report has a
      note about them.

    All counts are exact. A note says if percentiles are estimates; see docs/reference/report.md.

    Raises ``OptionError``, ``NoSuchTopic``, ``NoConnection``, ``NoArchive``, or ``LogGap``, also if the archive grew
    while the report read it.
    """
    request = report_request(
        topics, pattern, archive, live, since, until, by, top, options, fail_on_data_loss, as_of
    )
    return build_report(spark, request)


def build_report(
    spark: SparkSession, request: ReportRequest, step: Callable[[], None] = lambda: None
) -> Report:
    """Return the report. Call ``step`` after each of the ``PARTS``; an exception that it raises ends the work."""
    found = read(spark, request, step)
    # For a small log, Spark's default of 200 shuffle partitions takes longer than the counting.
    most = int(spark.conf.get(SHUFFLES) or 200)
    with session_settings(spark, {SHUFFLES: str(min(most, max(2, found.rows // ROWS_IN_PART)))}):
        counts = counting.counted(spark, found, request, step)
    return _ReportBuilder(request, found, counts).report()


class _ReportBuilder:
    def __init__(self, request: ReportRequest, found: Read, counts: counting.Counted) -> None:
        self.request, self.extents, self.counts = request, found.extents, counts
        self.gaps = found.gaps
        self.at = datetime.now(UTC) if found.at is None else moment(found.at)
        self.published = by(counts.published, "topic")
        self.events = by(counts.events, "topic", "reader")
        self.times = by(counts.times, "topic", "reader")
        self.key_totals = by(counts.key_totals, "topic")
        self.parked = Counter((topic, group) for topic, _, group in found.parked)
        self.backlogs = Backlogs(found.extents, self.published, self.events)
        registered = {(topic, group) for topic, extent in self.extents.items() for group in extent.groups}
        self.pairs = sorted(registered | self.events.keys())

    def report(self) -> Report:
        request = self.request
        topics = [self._topic(topic, extent) for topic, extent in self.extents.items()]
        groups = [self._group(*pair) for pair in self.pairs]
        steps = [one for pair in self._pairs_with_steps() for one in self._steps(*pair)]
        errors = sorted(self.counts.errors, key=itemgetter("topic", "reader", "rank"))
        return Report(
            at=self.at,
            by=request.by,
            since=None if request.since is None else moment(request.since),
            until=None if request.until is None else moment(request.until),
            archive=request.archive,
            live=request.live,
            topics=topics,
            groups=groups,
            steps=steps,
            errors=[_error(row) for row in errors],
            keys=self._keys({one.topic: one.published for one in topics}),
            items=self._items(),
            notes=self._notes(groups, steps),
        )

    def _topic(self, topic: str, extent: Extent) -> TopicTotals:
        rows = [row for row in self.published.get(topic, ()) if row["step"] >= 0]
        firsts = [row for row in rows if row["origin"] in ONCE]
        (keys,) = self.key_totals.get(topic, [{"keys": 0, "without_key": 0}])
        archived, live = extent.archived.get("messages"), extent.live.get("messages")
        return TopicTotals(
            topic,
            published=total(firsts),
            targeted=total(row for row in firsts if row["target"] and row["origin"] != "redriven"),
            redriven=total(row for row in firsts if row["origin"] == "redriven"),
            retries=total(row for row in rows if row["origin"] == "retry"),
            first_published=moment(min(row["low"] for row in firsts)) if firsts else None,
            last_published=moment(max(row["high"] for row in firsts)) if firsts else None,
            keys=keys["keys"],
            without_key=keys["without_key"],
            archived_upto=archived,
            live_above=None if live is None else archived or 0,
            live_upto=live,
            copies=total(row for row in rows if row["origin"] == "copy"),
        )

    def _group(self, topic: str, group: str) -> GroupTotals:
        registered = self.extents[topic].groups.get(group)
        received = [
            row for row in self.backlogs.received(topic, group) if row["step"] >= 0 and row["origin"] in ONCE
        ]
        rows = [row for row in self.events.get((topic, group), ()) if row["step"] is None or row["step"] >= 0]
        counts = {name: sum(row[name] for row in rows) for name in _IN_TOTAL}
        counts["waiting"] += self.parked[topic, group]
        (times,) = self.times.get((topic, group), [{}])
        return GroupTotals(
            topic,
            group,
            registered=registered is not None if self.request.live else None,
            reads_log=registered is not None and registered.reads_log,
            published=total(received),
            targeted=total(row for row in received if row["target"]),
            most_attempts=max((row["most_attempts"] for row in rows), default=0),
            first_delivery=_times(times, "first_delivery"),
            ack=_times(times, "ack"),
            lag=self.backlogs.lag((topic, group)),
            **counts,
        )

    def _pairs_with_steps(self) -> list[tuple[str, str | None]]:
        """Return (topic, group) for all steps of the report. The group is None for a topic without groups."""
        groups = [
            (topic, group)
            for topic, group in self.pairs
            if (found := self.extents[topic].groups.get(group)) is None or not found.reads_log
        ]
        topics = self.extents.keys() - {topic for topic, _ in groups}
        return sorted(
            [*groups, *((topic, None) for topic in topics)], key=lambda pair: (pair[0], pair[1] or "")
        )

    def _steps(self, topic: str, group: str | None) -> Iterable[StepFigures]:
        """Yield the steps in which anything happened, each with the backlog at its end."""
        pair = topic, group or ""
        events = {row["step"]: row for row in self.events.get(pair, ()) if row["shown"]}
        published = by_step(row for row in self.backlogs.received(topic, group) if row["origin"] in ONCE)
        steps = {*events, *published, *self.backlogs.changes(pair)} - {None, BEFORE, AFTER}
        backlogs = self.backlogs.backlogs(pair, steps)
        for step in sorted(steps):
            row = events.get(step)
            yield StepFigures(
                topic,
                group,
                start=moment(step * self.request.step),
                published=published[step],
                first_delivery=_times(row, "first_delivery"),
                ack=_times(row, "ack"),
                backlog=backlogs[step],
                **({name: row[name] for name in (*_EVERYWHERE, "most_attempts")} if row else {}),
            )

    def _keys(self, published: Mapping[str, int]) -> list[KeyFigures]:
        return [
            KeyFigures(row["topic"], row["key"], row["count"], row["count"] / published[row["topic"]])
            for row in sorted(self.counts.keys, key=itemgetter("topic", "rank"))
        ]

    def _items(self) -> list[ItemFigures]:
        return [
            ItemFigures(
                row["topic"], row["kind"], moment(row["week"] * counting.WEEK_MS - counting.MONDAY_MS), row["count"],
                row["by_handler"], row["by_handler"] / row["count"], round(row["seconds"] or 0, 3),
            )
            for row in sorted(self.counts.items, key=itemgetter("topic", "week", "kind"))
        ]  # fmt: skip

    def _notes(self, groups: Sequence[GroupTotals], steps: Sequence[StepFigures]) -> list[str]:
        notes = list(self.gaps)
        rows: list[GroupTotals | StepFigures] = [*groups, *steps]
        if not all(one.ack.exact and one.first_delivery.exact for one in rows):
            notes.append(
                f"Percentiles of {EXACT_BELOW:,} times and more are estimates. Their rank differs from the exact rank"
                f" by at most 1/{ACCURACY:,} of the number of times, rounded up. All others are exact."
            )
        if several := sum(one.several_deliveries for one in groups):
            notes.append(
                f"{several:,} messages were delivered more than once. The time of their first delivery is unknown, so"
                " the times to first delivery leave them out."
            )
        if lost := sum(one.errors_not_kept for one in groups):
            notes.append(
                f"The errors of {lost:,} failed attempts are missing: newer errors of the same message replaced them."
            )
        if any(one.reads_log for one in groups):
            notes.append(
                "Groups that read the log by themselves have no deliveries: only their lag is known."
            )
        given = [(one.topic, one.group) for one in groups if not one.reads_log]
        if unknown := sum(sum(self.backlogs.unknown(pair).values()) for pair in given):
            notes.append(
                f"{unknown:,} messages were archived with incomplete history and then deleted. It is unknown when a"
                " group was done with them, or whether it received them. The backlog of such a group is unknown from"
                " the first of these messages on."
            )
        if self.request.archive is None:
            notes.append("The report covers only what the log still holds: deleted messages are not counted.")
        elif not self.request.live:
            notes.append(
                "The report covers only the archive: lag is unknown, and deliveries have the state in which they"
                " were archived."
            )
        return notes


def _error(row: Row) -> ErrorFigures:
    return ErrorFigures(
        row["topic"], row["reader"], row["error"], row["is_class"], row["count"], moment(row["first"]),
        moment(row["last"]), row["example"],
    )  # fmt: skip


def _times(row: Row | None, name: str) -> Times:
    if not row or not row[name]:
        return Times()
    p50, p95, p99 = row[name]
    return Times(p50, p95, p99, row[f"{name}_of"])
