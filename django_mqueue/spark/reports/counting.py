"""Count the rows of the tables in Spark. Only the counts return to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...policy import errors as alike_errors
from ...policy.outcomes import REMOVED_BY_HAND
from ..collecting import collect_all
from ..errors import OptionError
from .figures import ACCURACY, PERCENTILES
from .reading import ONCE, Read, never_broadcast, together
from .requests import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX = 200_000
"""The maximum number of rows that the driver accepts for each table."""

BEFORE, AFTER = -1, -2
"""Values of ``step`` for a time before, or after, the requested time."""

KEY = ["topic", "offset", "reader"]

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


PARTS = 6
"""The number of tables that are counted."""


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

    facts, letters = facts_of(spark, read).persist(), letters_alone(read).persist()
    try:
        events = _events(spark, read, facts, letters, request)
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
            key_totals=collected(_grouped(each_key, ["topic"], "count(key) AS keys", without_key)),
        )
    finally:
        letters.unpersist()
        facts.unpersist()


def _grouped(frame: DataFrame, by: Sequence[str], *aggregates: str) -> DataFrame:
    from pyspark.sql import functions as f

    return frame.groupBy(*by).agg(*map(f.expr, aggregates))


def starts_of(spark: SparkSession, read: Read) -> DataFrame:
    """Return (topic, reader, start) for each registered group."""
    rows = [
        (topic, group, found.start)
        for topic, extent in read.extents.items()
        for group, found in extent.groups.items()
    ]
    return spark.createDataFrame(rows, "topic STRING, reader STRING, start BIGINT")


def standing(read: Read) -> DataFrame:
    """Return the messages, with a column ``there``: whether the log still holds the message."""
    messages = read.tables["messages"]
    if "messages" not in read.held:
        return messages.selectExpr("*", "NOT archived AS there")
    held = never_broadcast(read.held["messages"].selectExpr("*", "true AS held"))
    found = messages.join(held, ["topic", "offset"], "left")
    return found.selectExpr("*", "NOT archived OR coalesce(held, false) AS there").drop("held")


def facts_of(spark: SparkSession, read: Read) -> DataFrame:
    """Return a row for each delivery state, with its outcome (``ending``) and facts about its message.

    * ``aside``, an outcome: the retry of the delivery was parked outside the log. Later it becomes another message of
      the log. The times of that message begin with the publication of the original.
    * ``copied``, an outcome: the group is done with the message without a delivery. A backfill has copied it, and the
      copy has the real outcome.
    * ``own``: errors of attempts at this message. A parked retry also carries the errors of the original, which must
      not count twice.
    * ``counts``: whether this end makes the group's backlog smaller. An archive cannot know that for messages that the
      log still holds.
    """
    messages = standing(read).selectExpr(
        "topic", "`offset`", "published", "first", "came = 'retry' AS again", "there"
    )
    parked = spark.createDataFrame(sorted(read.parked), "topic STRING, `offset` BIGINT, reader STRING")
    returned = read.tables["messages"].where("came = 'retry'")
    asides = returned.selectExpr("topic", "retry_of AS `offset`", "target AS reader").unionByName(parked)
    joined = (
        read.tables["deliveries"]
        .join(never_broadcast(messages), ["topic", "offset"], "left")
        .join(never_broadcast(asides.distinct().selectExpr("*", "true AS aside")), KEY, "left")
        .join(starts_of(spark, read).hint("broadcast"), ["topic", "reader"], "left")
        .selectExpr("*", "try_element_at(errors, -1) AS last")
    )
    by_failing = "coalesce(last.at = ended, false)"
    ending = f"""CASE
        WHEN NOT done THEN 'open'
        WHEN NOT given AND errors IS NULL THEN 'copied'
        WHEN {by_failing} AND last.error = '{REMOVED_BY_HAND}' THEN 'removed'
        WHEN aside THEN 'aside'
        WHEN {by_failing} AND last.attempt = redeliveries + 1 THEN 'dead'
        ELSE 'finished' END"""
    first = "IF(given AND NOT coalesce(again, false) AND redeliveries = 0, delivered - published, NULL)"
    real = f"filter(errors, e -> e.error <> '{REMOVED_BY_HAND}')"
    return joined.selectExpr(
        "topic", "reader", "in_flight", "published", "delivered", "ended", "redeliveries + 1 AS attempts",
        f"{ending} AS ending",
        f"{first} AS waited",
        f"{first} IS NULL AND given AND NOT coalesce(again, false) AS several",
        "ended - first AS took",
        f"greatest(failed - {size(real)}, 0) AS lost",
        f"filter({real}, e -> published IS NULL OR e.at >= published) AS own",
        "published IS NOT NULL AND `offset` > start AND NOT (archived AND there) AS counts",
        "there",
    )  # fmt: skip


def size(array: str) -> str:
    """Return an SQL expression for the size of an array, with 0 for NULL.

    Spark's ``size`` returns -1 or NULL for NULL, depending on the setting ``spark.sql.ansi.enabled``, which the
    session's owner chooses.
    """
    return f"coalesce(array_size({array}), 0)"


def letters_alone(read: Read) -> DataFrame:
    """Return each dead letter whose delivery no longer exists, because its message was deleted."""
    alone = read.tables["dead_letters"].join(never_broadcast(read.tables["deliveries"]), KEY, "left_anti")
    return _grouped(alone, KEY, "max(ended) AS ended", "max(error) AS error")


def _events(
    spark: SparkSession, read: Read, facts: DataFrame, letters: DataFrame, request: ReportRequest
) -> DataFrame:
    """Return a row for each event of a group: ``what`` happened, its ``step``, and the columns that ``_COUNTS`` needs.

    * The outcomes of ``facts_of``. Instead of ``open``: ``in_flight`` or ``waiting``, which have no step.
    * ``delivered`` for the first time, with ``waited``; or ``again``, if the time of the first delivery is unknown.
    * ``failed``: a failed attempt whose error is known.
    * ``letter``: a dead letter whose delivery no longer exists.
    * ``held``: a message that the group is done with, and that is archived and still in the log.
    * ``known``: the known end of a deleted message, in the step in which the message was published.
    """
    counted_attempts = "IF(ending IN ('finished', 'dead'), attempts, NULL) AS attempts"
    parts = [
        facts.where("ending = 'open'").selectExpr(
            "topic", "reader", "CAST(NULL AS BIGINT) AS at", "IF(in_flight, 'in_flight', 'waiting') AS what", "lost"
        ),
        facts.where("ending <> 'open' AND ended IS NOT NULL").selectExpr(
            "topic", "reader", "ended AS at", "ending AS what", counted_attempts, "counts", "there",
            "IF(ending = 'finished', took, NULL) AS took", "IF(ending = 'aside', 0, lost) AS lost",
        ),
        facts.where("delivered IS NOT NULL AND (waited IS NOT NULL OR several)").selectExpr(
            "topic", "reader", "delivered AS at", "IF(several, 'again', 'delivered') AS what", "waited"
        ),
        facts.selectExpr("topic", "reader", "explode(own) AS failure").selectExpr(
            "topic", "reader", "failure.at AS at", "'failed' AS what", "failure.error AS error"
        ),
        letters.selectExpr("topic", "reader", "ended AS at", "'failed' AS what", "error"),
        letters.selectExpr("topic", "reader", "ended AS at", "'letter' AS what"),
    ]  # fmt: skip
    if read.held:
        known = facts.where("ending <> 'open' AND ended IS NOT NULL AND counts AND NOT there")
        parts.append(known.selectExpr("topic", "reader", "published AS at", "'known' AS what"))
    if "deliveries" in read.held:
        there = never_broadcast(standing(read).where("there").select("topic", "offset"))
        held = (
            read.held["deliveries"]
            .where("done AND ended IS NOT NULL")
            .join(there, ["topic", "offset"])
            .join(starts_of(spark, read).hint("broadcast"), ["topic", "reader"])
            .where("`offset` > start")
        )
        parts.append(held.selectExpr("topic", "reader", "ended AS at", "'held' AS what"))
    # Leave out a group that has only errors, all outside the requested time.
    return (
        together(parts)
        .selectExpr("*", f"{_step('at', request)} AS step")
        .where("step >= 0 OR what NOT IN ('failed', 'letter')")
    )


def _percentiles(time: str) -> str:
    points = ", ".join(str(point / 100) for point in PERCENTILES)
    return f"percentile_approx({time}, array({points}), {ACCURACY})"


_COUNTS = (
    "count_if(what = 'finished') AS finished",
    "count_if(what IN ('dead', 'letter')) AS dead",
    "count_if(what = 'removed') AS removed",
    "count_if(what = 'failed') AS failures",
    "coalesce(sum(attempts), 0) AS attempts",
    "coalesce(max(attempts), 0) AS most_attempts",
    "count_if(what = 'finished' AND attempts > 1) AS retried",
    "count_if(what = 'again') AS several_deliveries",
    "coalesce(sum(lost), 0) AS errors_not_kept",
    "count_if(what = 'in_flight') AS in_flight",
    "count_if(what = 'waiting') AS waiting",
    "count_if(what = 'held') AS held",
    "count_if(what = 'known') AS known",
    "count_if(counts) AS counted",
    "count_if(counts AND there) AS counted_there",
    "count_if(what <> 'again') AS shown",
)
"""Counts of the events of a group in a step. Most are columns of the report.

``counted``: ends that make the backlog smaller. ``counted_there``: only of messages that the log still holds.
``shown``: whether the step is in the report.
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
    rows = standing(read).join(starts, "topic", "left")
    columns = ["topic", "target", "step", "came", "there", "above"]
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
    messages = read.tables["messages"].where(f"came IN {ONCE} AND {_step('published', request)} >= 0")
    return _grouped(messages, ["topic", "key"], "count(*) AS count")


def _top(frame: DataFrame, of: str, name: str, most: int) -> DataFrame:
    """Return the ``most`` rows with the highest ``count`` of each group of rows, with their ``place``."""
    place = f"row_number() OVER (PARTITION BY {of} ORDER BY count DESC, {name} ASC) AS place"
    return frame.selectExpr("*", place).where(f"place <= {most}")


def kind_of(error: str | None) -> tuple[str, bool, str]:
    """Return the kind of an error, whether it is a class, and the error's first line with # for numbers.

    The kind is the error's class; for an error without a class, its first line. This runs on executors.
    """
    alike = alike_errors.alike(error)
    is_class = alike_errors.is_class(alike.name)
    return alike.name if is_class else alike.line, is_class, alike.line
