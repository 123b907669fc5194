"""Make a report: turn the counted rows into its tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..configuring import session_settings
from .backlogs import AFTER, BEFORE, Backlogs, Pair, Row, by, total
from .figures import (
    ACCURACY,
    EXACT_BELOW,
    ErrorFigures,
    GroupTotals,
    KeyFigures,
    StepFigures,
    Times,
    TopicTotals,
)
from .reading import Extent, Read, read
from .requests import ReportRequest, report_request
from .result import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .counting import Counted

SHUFFLES = "spark.sql.shuffle.partitions"
ROWS_IN_PART = 50_000

PARTS = 3 + 11
"""The number of tables that are read, plus the number of tables that are counted."""

ONCE = ("new", "back")
"""Values of ``came`` that count as published. Retries, and copies that give a group the past, do not count."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    * ``options``: how ``format("mqueue")`` reaches the database.
    * ``fail_on_data_loss``: whether it is an error that messages above the archive may be deleted. Otherwise a note of
      the report says so.

    Counts are exact, and so are other numbers that the report calls exact; see docs/reference/report.md.

    Raises ``OptionError``, ``NoSuchTopic``, ``NoConnection``, ``NoArchive``, or ``LogGap`` if messages may be missing.
    ``LogGap`` also means that the archive grew while the report read it.
    """
    return build_report(
        spark,
        report_request(
            topics, pattern, archive, live, since, until, by, top, options, fail_on_data_loss, as_of
        ),
    )


def build_report(
    spark: SparkSession, asked: ReportRequest, step: Callable[[], None] = lambda: None
) -> Report:
    """Return the report.

    ``step`` is called ``PARTS`` times, after each part of the work. An exception that it raises ends the work.
    """
    from .counting import counted

    found = read(spark, asked, step)
    with _shuffles_for(spark, found.rows):
        counts = counted(spark, found, asked, step)
    return _ReportBuilder(asked, found, counts).report()


def _shuffles_for(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Use no more shuffle partitions than so many rows need.

    Spark's 200 take longer than the counting of a small log.
    """
    most = int(spark.conf.get(SHUFFLES) or 200)
    return session_settings(spark, {SHUFFLES: str(min(most, max(2, rows // ROWS_IN_PART)))})


class _ReportBuilder:
    def __init__(self, asked: ReportRequest, found: Read, counts: Counted) -> None:
        self.asked, self.extents, self.counts = asked, found.extents, counts
        self.gaps = found.gaps
        self.at = datetime.now(UTC) if found.at is None else _moment(found.at)
        self.published = by(counts.published, "topic")
        self.delivered, self.ended, self.failed, self.letters, self.totals = (
            by(rows, "topic", "reader")
            for rows in (counts.delivered, counts.ended, counts.failures, counts.letters, counts.totals)
        )
        self.key_totals = by(counts.key_totals, "topic")
        self.apart = found.apart.by_group()
        self.standing = Backlogs(found.extents, counts)
        self.pairs = self._pairs()

    def report(self) -> Report:
        groups = [self._group(pair) for pair in self.pairs]
        steps = sorted(self._steps(), key=lambda one: (one.topic, one.group or "", one.start))
        return Report(
            at=self.at,
            by=self.asked.by,
            since=None if self.asked.since is None else _moment(self.asked.since),
            until=None if self.asked.until is None else _moment(self.asked.until),
            archive=self.asked.archive,
            live=self.asked.live,
            topics=[self._topic(topic, extent) for topic, extent in self.extents.items()],
            groups=groups,
            steps=steps,
            errors=[_error(row) for row in sorted(self.counts.errors, key=_place)],
            keys=self._keys(),
            notes=self._notes(groups, steps),
        )

    def _pairs(self) -> list[Pair]:
        """Return the pairs of topic and group that are registered, or about which something is known."""
        pairs = {(topic, group) for topic, extent in self.extents.items() for group in extent.groups}
        return sorted(pairs | {*self.totals, *self.letters})

    def _topic(self, topic: str, extent: Extent) -> TopicTotals:
        rows = [row for row in self.published.get(topic, ()) if row["step"] >= 0]
        firsts = [row for row in rows if row["came"] in ONCE]
        keys: Row = next(iter(self.key_totals.get(topic, ())), {})
        archived = extent.archived.get("messages")
        live = extent.live.get("messages")
        return TopicTotals(
            topic,
            total(firsts),
            total(row for row in firsts if row["target"] and row["came"] != "back"),
            total(row for row in firsts if row["came"] == "back"),
            total(row for row in rows if row["came"] == "retry"),
            _moment(min(row["low"] for row in firsts)) if firsts else None,
            _moment(max(row["high"] for row in firsts)) if firsts else None,
            keys.get("keys", 0),
            keys.get("without_key", 0),
            archived,
            None if live is None else archived or 0,
            live,
            total(row for row in rows if row["came"] == "copy"),
        )

    def _group(self, pair: Pair) -> GroupTotals:
        topic, group = pair
        registered = self.extents[topic].groups.get(group)
        ends: Row = next(iter(self.totals.get(pair, ())), {})
        mine = [row for row in self.standing.mine(topic, group) if row["step"] >= 0 and row["came"] in ONCE]
        return GroupTotals(
            topic,
            group,
            registered is not None if self.asked.live else None,
            registered is not None and registered.reads_log,
            total(mine),
            total(row for row in mine if row["target"]),
            ends.get("finished", 0),
            ends.get("dead", 0) + sum(row["dead"] for row in self.letters.get(pair, ())),
            ends.get("removed", 0),
            sum(row["failures"] for row in self.failed.get(pair, ())),
            ends.get("not_kept", 0),
            ends.get("attempts", 0),
            ends.get("most_attempts", 0),
            ends.get("retried", 0),
            _times(ends.get("waited"), ends.get("waited_of", 0)),
            ends.get("several", 0),
            _times(ends.get("took"), ends.get("took_of", 0)),
            ends.get("in_flight", 0),
            ends.get("waiting", 0) + self.apart.get(pair, 0),
            self.standing.lag(pair),
        )

    def _steps(self) -> Iterable[StepFigures]:
        for topic in self.extents.keys() - {topic for topic, _ in self.pairs}:
            yield from self._nobodys(topic)
        for topic, group in self.pairs:
            registered = self.extents[topic].groups.get(group)
            if registered is None or not registered.reads_log:
                yield from self._of((topic, group))

    def _nobodys(self, topic: str) -> Iterable[StepFigures]:
        found: dict[int, int] = {}
        for row in self.published.get(topic, ()):
            if row["step"] >= 0 and row["came"] in ONCE:
                found[row["step"]] = found.get(row["step"], 0) + row["rows"]
        for step, rows in found.items():
            yield StepFigures(topic, None, self._start(step), rows)

    def _of(self, pair: Pair) -> Iterable[StepFigures]:
        """Yield the steps in which anything happened, each with the backlog at its end."""
        topic, group = pair
        delivered, ended, failed, letters = (
            {row["step"]: row for row in rows.get(pair, ())}
            for rows in (self.delivered, self.ended, self.failed, self.letters)
        )
        published: dict[int, int] = {}
        for row in self.standing.mine(topic, group):
            if row["came"] in ONCE:
                published[row["step"]] = published.get(row["step"], 0) + row["rows"]
        changes = self.standing.changes(pair) or {}
        steps = {*delivered, *ended, *failed, *letters, *published, *changes} - {BEFORE, AFTER}
        backlogs = self.standing.backlogs(pair, steps)
        for step in sorted(steps):
            end: Row = ended.get(step, {})
            first: Row = delivered.get(step, {})
            yield StepFigures(
                topic,
                group,
                self._start(step),
                published.get(step, 0),
                end.get("finished", 0),
                end.get("dead", 0) + letters.get(step, {}).get("dead", 0),
                end.get("removed", 0),
                failed.get(step, {}).get("failures", 0),
                end.get("attempts", 0),
                end.get("most_attempts", 0),
                end.get("retried", 0),
                _times(first.get("waited"), first.get("of", 0)),
                _times(end.get("took"), end.get("took_of", 0)),
                backlogs[step],
            )

    def _keys(self) -> list[KeyFigures]:
        published = {
            topic: total(row for row in rows if row["step"] >= 0 and row["came"] in ONCE)
            for topic, rows in self.published.items()
        }
        rows = sorted(self.counts.keys, key=lambda row: (row["topic"], row["place"]))
        return [
            KeyFigures(row["topic"], row["key"], row["count"], row["count"] / published[row["topic"]])
            for row in rows
        ]

    def _notes(self, groups: Sequence[GroupTotals], steps: Sequence[StepFigures]) -> list[str]:
        notes = list(self.gaps)
        times = [(one.ack, one.first_delivery) for one in groups] + [
            (one.ack, one.first_delivery) for one in steps
        ]
        if not all(one.exact for pair in times for one in pair):
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
        if unknown := sum(sum(self.standing.unknown(pair).values()) for pair in given):
            notes.append(
                f"{unknown:,} messages were archived with incomplete history and then deleted. It is unknown when a"
                " group was done with them, or whether it received them. The backlog of such a group ends before the"
                " first of these messages."
            )
        if self.asked.archive is None:
            notes.append("The report covers only what the log still holds: deleted messages are not counted.")
        elif not self.asked.live:
            notes.append(
                "The report covers only the archive: lag is unknown, and deliveries have the state in which they"
                " were archived."
            )
        return notes

    def _start(self, step: int) -> datetime:
        return _moment(step * self.asked.step)


def _place(row: Row) -> tuple[str, str, int]:
    return row["topic"], row["reader"], row["place"]


def _error(row: Row) -> ErrorFigures:
    return ErrorFigures(
        row["topic"], row["reader"], row["error"], row["is_class"], row["count"], _moment(row["first"]),
        _moment(row["last"]), row["example"],
    )  # fmt: skip


def _times(points: list[int] | None, of: int) -> Times:
    return Times(points[0], points[1], points[2], of) if points else Times()


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
