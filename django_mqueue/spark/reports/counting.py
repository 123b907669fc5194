"""Count the rows of the tables in Spark. Only the counts return to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...policy.errors import error_signature, is_class
from ..collecting import collect_all
from ..errors import OptionError
from .deliveries import delivery_facts, messages_with_in_log, orphan_dead_letters, size, starts_of
from .figures import ACCURACY, PERCENTILES
from .reading import ITEM, ONCE, Read, never_broadcast, union_by_name
from .requests import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX = 200_000
"""The maximum number of rows that the driver accepts for each table."""

WEEK_MS, MONDAY_MS = 7 * 86_400_000, 3 * 86_400_000
"""Milliseconds of a week, and of the three days from a Monday to a Thursday: 1970-01-01 was a Thursday."""

BEFORE, AFTER = -1, -2
"""Values of ``step`` for a time before, or after, the requested time."""

Rows = list[dict[str, Any]]


@dataclass
class Counted:
    """The counts, as dicts. Steps are numbered from 1970 on.

    * ``published``: counts of messages, by the columns of ``_published``.
    * ``events``: events of a group by step; see ``_COUNTS``. The step of open deliveries is None.
    * ``times``: percentiles of a group over the whole time.
    """

    published: Rows
    events: Rows
    times: Rows
    errors: Rows
    keys: Rows
    key_totals: Rows
    items: Rows


def counted(spark: SparkSession, read: Read, request: ReportRequest, step: Callable[[], None]) -> Counted:
    """Return all counts. Raises ``OptionError`` if a table has too many rows."""

    def collected(frame: DataFrame) -> Rows:
        rows = collect_all(frame.limit(ROWS_MAX + 1))
        if len(rows) > ROWS_MAX:
            days = "by='day', " if request.by == "hour" else ""
            raise OptionError(
                f"the report would have more than {ROWS_MAX:,} rows in one of its tables: ask for {days}fewer topics,"
                " or a shorter time (since, until)"
            )
        step()
        return [row.asDict() for row in rows]

    facts, dead_letters = delivery_facts(spark, read).persist(), orphan_dead_letters(read).persist()
    try:
        events = _events(spark, read, facts, dead_letters, request)
        within = events.where("step >= 0")
        timed = within.where("waited IS NOT NULL OR took IS NOT NULL")
        each_key = _each_key(read, request)
        without_key = "coalesce(sum(count) FILTER (WHERE key IS NULL), 0) AS without_key"
        return Counted(
            published=collected(_published(spark, read, request)),
            events=collected(_grouped(events, ["topic", "reader", "step"], *_COUNTS, *_TIMES)),
            times=collected(_grouped(timed, ["topic", "reader"], *_TIMES)),
            errors=collected(_errors(within, request)),
            keys=collected(_top(each_key.where("key IS NOT NULL"), "topic", "key", request.top)),
            items=collected(_items(read, request)),
            key_totals=collected(_grouped(each_key, ["topic"], "count(key) AS keys", without_key)),
        )
    finally:
        dead_letters.unpersist()
        facts.unpersist()


def _grouped(frame: DataFrame, by: Sequence[str], *aggregates: str) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.groupBy(*by).agg(*map(f.expr, aggregates))


def _events(
    spark: SparkSession, read: Read, facts: DataFrame, dead_letters: DataFrame, request: ReportRequest
) -> DataFrame:
    """Return a row for each event of a group: ``what`` happened, its ``step``, and the columns that ``_COUNTS`` needs.

    * The outcomes of ``delivery_facts``. Instead of ``open``: ``in_flight`` or ``waiting``, which have no step.
    * ``delivered`` for the first time, with ``waited``; or ``redelivered``, if that time is unknown.
    * ``failed``: a failed attempt whose error is known.
    * ``dead_letter``: a dead letter whose delivery no longer exists.
    * ``overlap``: a message that the group is done with, and that is archived and still in the log.
    * ``known``: the known end of a deleted message, in the step in which the message was published.
    """
    ended = facts.where("outcome <> 'open' AND ended IS NOT NULL")
    parts = [
        facts.where("outcome = 'open'").selectExpr(
            "topic", "reader", "CAST(NULL AS BIGINT) AS at", "IF(in_flight, 'in_flight', 'waiting') AS what", "lost"
        ),
        ended.selectExpr(
            "topic", "reader", "ended AS at", "outcome AS what", "shrinks_backlog", "in_log",
            "IF(outcome IN ('finished', 'dead'), attempts, NULL) AS attempts",
            "IF(outcome = 'finished', took, NULL) AS took", "IF(outcome = 'parked', 0, lost) AS lost",
        ),
        facts.where("delivered IS NOT NULL AND (waited IS NOT NULL OR several)").selectExpr(
            "topic", "reader", "delivered AS at", "IF(several, 'redelivered', 'delivered') AS what", "waited"
        ),
        facts.selectExpr("topic", "reader", "explode(own_errors) AS failure").selectExpr(
            "topic", "reader", "failure.at AS at", "'failed' AS what", "failure.error AS error"
        ),
        dead_letters.selectExpr("topic", "reader", "ended AS at", "'failed' AS what", "error"),
        dead_letters.selectExpr("topic", "reader", "ended AS at", "'dead_letter' AS what"),
    ]  # fmt: skip
    if read.overlap:
        known = ended.where("shrinks_backlog AND NOT in_log")
        parts.append(known.selectExpr("topic", "reader", "published AS at", "'known' AS what"))
    if "deliveries" in read.overlap:
        in_log = never_broadcast(messages_with_in_log(read).where("in_log").select("topic", "offset"))
        overlap = (
            read.overlap["deliveries"]
            .where("done AND ended IS NOT NULL")
            .join(in_log, ["topic", "offset"])
            .join(starts_of(spark, read).hint("broadcast"), ["topic", "reader"])
            .where("`offset` > start")
        )
        parts.append(overlap.selectExpr("topic", "reader", "ended AS at", "'overlap' AS what"))
    # Drop errors outside the requested time: alone, they must not add a group to the report.
    return (
        union_by_name(parts)
        .selectExpr("*", f"{_step('at', request)} AS step")
        .where("step >= 0 OR what NOT IN ('failed', 'dead_letter')")
    )


def _percentiles(time: str) -> str:
    points = ", ".join(str(point / 100) for point in PERCENTILES)
    return f"percentile_approx({time}, array({points}), {ACCURACY})"


_COUNTS = (
    "count_if(what = 'finished') AS finished",
    "count_if(what IN ('dead', 'dead_letter')) AS dead",
    "count_if(what = 'removed') AS removed",
    "count_if(what = 'failed') AS failures",
    "coalesce(sum(attempts), 0) AS attempts",
    "coalesce(max(attempts), 0) AS most_attempts",
    "count_if(what = 'finished' AND attempts > 1) AS retried",
    "count_if(what = 'redelivered') AS several_deliveries",
    "coalesce(sum(lost), 0) AS errors_not_kept",
    "count_if(what = 'in_flight') AS in_flight",
    "count_if(what = 'waiting') AS waiting",
    "count_if(what = 'overlap') AS overlap",
    "count_if(what = 'known') AS known",
    "count_if(shrinks_backlog) AS counted",
    "count_if(shrinks_backlog AND in_log) AS counted_in_log",
    "count_if(what <> 'redelivered') AS shown",
)
"""Counts of the events of a group in a step. Most are columns of the report.

``counted``: ends that make the backlog smaller. ``counted_in_log``: only of messages that the log still holds.
``shown``: events that put the step into the report.
"""

_TIMES = (
    f"{_percentiles('waited')} AS first_delivery",
    "count(waited) AS first_delivery_of",
    f"{_percentiles('took')} AS ack",
    "count(took) AS ack_of",
)


def _step(moment: str, request: ReportRequest) -> str:
    """Return an SQL expression: the number of the step that contains a moment."""
    found = f"CAST(floor({moment} / {request.step}) AS BIGINT)"
    if request.until is not None:
        found = f"IF({moment} >= {request.until}, {AFTER}L, {found})"
    if request.since is not None:
        found = f"IF({moment} < {request.since}, {BEFORE}L, {found})"
    return found


def _published(spark: SparkSession, read: Read, request: ReportRequest) -> DataFrame:
    """Count messages. ``above``: how many distinct start offsets of the topic's groups are below the message."""
    starts = _grouped(starts_of(spark, read), ["topic"], "collect_set(start) AS starts").hint("broadcast")
    rows = messages_with_in_log(read).join(starts, "topic", "left")
    columns = ["topic", "target", "step", "origin", "in_log", "above"]
    above = f"{size('filter(starts, start -> start < `offset`)')} AS above"
    rows = rows.selectExpr("*", f"{_step('published', request)} AS step", above)
    return _grouped(rows, columns, "count(*) AS rows", "min(published) AS low", "max(published) AS high")


def _errors(events: DataFrame, request: ReportRequest) -> DataFrame:
    """Return the most frequent kinds of errors for each group."""
    from pyspark.sql import functions as f

    kind = f.udf(kind_of, "error STRING, is_class BOOLEAN, line STRING", useArrow=False)
    failed = events.where("what = 'failed'").select("topic", "reader", "at", kind("error").alias("kind"))
    each = _grouped(
        failed.select("topic", "reader", "at", "kind.*"),
        ["topic", "reader", "error", "is_class"],
        "count(*) AS count",
        "min(at) AS first",
        "max(at) AS last",
        "max_by(line, at) AS example",
    )
    return _top(each, "topic, reader", "error", request.top)


def _each_key(read: Read, request: ReportRequest) -> DataFrame:
    messages = read.tables["messages"].where(f"origin IN {ONCE} AND {_step('published', request)} >= 0")
    return _grouped(messages, ["topic", "key"], "count(*) AS count")


def _items(read: Read, request: ReportRequest) -> DataFrame:
    """Count the work items that were finished, by kind and week. Weeks begin on Monday in UTC."""
    messages = read.tables["messages"]
    if "item" not in messages.columns:
        messages = messages.selectExpr("*", f"CAST(NULL AS {ITEM}) AS item")
    week = f"CAST(floor((published + {MONDAY_MS}) / {WEEK_MS}) AS BIGINT) AS week"
    finished = messages.where(f"item IS NOT NULL AND {_step('published', request)} >= 0")
    return _grouped(
        finished.selectExpr(
            "topic", "coalesce(item.kind, '') AS kind", week, "item.automated", "item.seconds"
        ),
        ["topic", "kind", "week"],
        "count(*) AS count",
        "count_if(automated) AS by_handler",
        "avg(seconds) AS seconds",
    )


def _top(frame: DataFrame, of: str, name: str, most: int) -> DataFrame:
    """Return the ``most`` rows with the highest ``count`` of each group of rows, with their ``rank``."""
    rank = f"row_number() OVER (PARTITION BY {of} ORDER BY count DESC, {name} ASC) AS rank"
    return frame.selectExpr("*", rank).where(f"rank <= {most}")


def kind_of(error: str | None) -> tuple[str, bool, str]:
    """Return the kind of an error, whether it is a class, and the error's first line with # for numbers.

    The kind is the error's class; for an error without a class, its first line. This runs on executors.
    """
    signature = error_signature(error)
    has_class = is_class(signature.name)
    return signature.name if has_class else signature.line, has_class, signature.line
