"""The deliveries and messages of a report: their outcomes, times, and whether the log still holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...policy.outcomes import REMOVED_BY_HAND
from .reading import Read, never_broadcast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = ["topic", "offset", "reader"]
"""The columns that identify a delivery. ``reader`` is the consumer group: ``group`` is a keyword of SQL."""


def starts_of(spark: SparkSession, read: Read) -> DataFrame:
    """Return (topic, reader, start) for each registered group."""
    rows = [
        (topic, group, found.start)
        for topic, extent in read.extents.items()
        for group, found in extent.groups.items()
    ]
    return spark.createDataFrame(rows, "topic STRING, reader STRING, start BIGINT")


def messages_with_in_log(read: Read) -> DataFrame:
    """Return the messages, with a column ``in_log``: whether the log still holds the message."""
    messages = read.tables["messages"]
    if "messages" not in read.overlap:
        return messages.selectExpr("*", "NOT archived AS in_log")
    overlap = never_broadcast(read.overlap["messages"].selectExpr("*", "true AS is_overlap"))
    found = messages.join(overlap, ["topic", "offset"], "left")
    return found.selectExpr("*", "NOT archived OR coalesce(is_overlap, false) AS in_log").drop("is_overlap")


_OUTCOME = f"""CASE
    WHEN NOT done THEN 'open'
    WHEN NOT was_delivered AND errors IS NULL THEN 'copied'
    WHEN ended_by_error AND last.error = '{REMOVED_BY_HAND}' THEN 'removed'
    WHEN is_parked THEN 'parked'
    WHEN ended_by_error AND last.attempt = redeliveries + 1 THEN 'dead'
    ELSE 'finished' END"""
"""The outcome of a delivery state.

``parked``: the retry of the delivery was parked outside the log. Later it becomes another message of the log, whose
times begin with the publication of the original. ``copied``: the group is done with the message without a delivery. A
backfill has copied it, and the copy has the real outcome.
"""

_HANDLER_ERRORS = f"filter(errors, e -> e.error <> '{REMOVED_BY_HAND}')"


def delivery_facts(spark: SparkSession, read: Read) -> DataFrame:
    """Return a row for each delivery state, with its outcome and facts about its message.

    * ``waited``: the time from publish to the first delivery. ``several``: this time is unknown, because there were
      several deliveries.
    * ``took``: the time from the first publication to the end of the delivery.
    * ``lost``: the number of failed attempts whose errors were not kept.
    * ``own_errors``: errors of attempts at this message. A parked retry also carries the errors of the original, which
      must not count twice.
    * ``shrinks_backlog``: whether the end of this delivery makes the group's backlog smaller. An archive cannot know
      that for messages that the log still holds.
    """
    with_messages = _deliveries_with_messages(spark, read).selectExpr(
        "*",
        "try_element_at(errors, -1) AS last",
        "was_delivered AND NOT coalesce(is_retry, false) AS measured",
    )
    with_times = with_messages.selectExpr(
        "*",
        "coalesce(last.at = ended, false) AS ended_by_error",
        "IF(measured AND redeliveries = 0, delivered - published, NULL) AS waited",
    )
    return with_times.selectExpr(
        "topic", "reader", "in_flight", "in_log", "published", "delivered", "ended", "redeliveries + 1 AS attempts",
        f"{_OUTCOME} AS outcome",
        "waited",
        "measured AND waited IS NULL AS several",
        "ended - first AS took",
        f"greatest(failed - {size(_HANDLER_ERRORS)}, 0) AS lost",
        f"filter({_HANDLER_ERRORS}, e -> published IS NULL OR e.at >= published) AS own_errors",
        "published IS NOT NULL AND `offset` > start AND NOT (archived AND in_log) AS shrinks_backlog",
    )  # fmt: skip


def _deliveries_with_messages(spark: SparkSession, read: Read) -> DataFrame:
    """Return the delivery states with columns of their messages, and the start of their groups."""
    messages = messages_with_in_log(read).selectExpr(
        "topic", "`offset`", "published", "first", "origin = 'retry' AS is_retry", "in_log"
    )
    return (
        read.tables["deliveries"]
        .join(never_broadcast(messages), ["topic", "offset"], "left")
        .join(starts_of(spark, read).hint("broadcast"), ["topic", "reader"], "left")
    )


def size(array: str) -> str:
    """Return an SQL expression for the size of an array, with 0 for NULL.

    Spark's ``size`` returns -1 or NULL for NULL, depending on the setting ``spark.sql.ansi.enabled``, which the
    session's owner chooses.
    """
    return f"coalesce(array_size({array}), 0)"


def orphan_dead_letters(read: Read) -> DataFrame:
    """Return each dead letter whose delivery no longer exists, because its message was deleted."""
    from pyspark.sql import functions as f

    orphans = read.tables["dead_letters"].join(never_broadcast(read.tables["deliveries"]), KEY, "left_anti")
    return orphans.groupBy(*KEY).agg(f.max("ended").alias("ended"), f.max("error").alias("error"))
