"""Facts about each delivery: its message, its outcome, and the times from publication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...policy.outcomes import REMOVED_BY_HAND
from .both import never_broadcast
from .reading import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    from pyspark.sql import functions as f

    messages = read.tables["messages"]
    if "messages" not in read.held:
        return messages.withColumn("there", f.expr("NOT archived"))
    held = never_broadcast(read.held["messages"].withColumn("held", f.lit(True)))
    found = messages.join(held, ["topic", "offset"], "left")
    return found.withColumn("there", f.expr("NOT archived OR coalesce(held, false)")).drop("held")


def facts_of(spark: SparkSession, read: Read) -> DataFrame:
    """Return a row for each delivery state, with its outcome (``ending``) and facts about its message.

    * ``aside``: the delivery ended because its retry was parked outside the log. The retry comes into the log as
      another message, whose times begin with the publication of the first.
    * ``own``: errors of attempts at this row. A parked retry also carries the errors of the first row, which do not
      count again.
    * ``copied``: the message is done, but was never delivered. It was copied behind the past of its group, and the copy
      has the outcome.
    * ``counts``: whether the group's backlog shrinks by this end. For messages that the log holds, an archive cannot
      know that.
    """
    from pyspark.sql import functions as f

    messages = standing(read).selectExpr(
        "topic", "`offset`", "published", "first", "came = 'retry' AS again", "there"
    )
    asides = (
        read.tables["messages"]
        .where("came = 'retry'")
        .selectExpr("topic", "retry_of AS `offset`", "target AS reader")
        .unionByName(read.apart.frame(spark))
        .distinct()
        .withColumn("aside", f.lit(True))
    )
    joined = (
        read.tables["deliveries"]
        .join(never_broadcast(messages), ["topic", "offset"], "left")
        .join(never_broadcast(asides), ["topic", "offset", "reader"], "left")
        .join(f.broadcast(starts_of(spark, read)), ["topic", "reader"], "left")
        .withColumn("last", f.expr("try_element_at(errors, -1)"))
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
        "topic", "reader", "in_flight", "failed", "published", "delivered", "ended", "redeliveries + 1 AS attempts",
        f"{ending} AS ending",
        f"{first} AS waited",
        f"{first} IS NULL AND given AND NOT coalesce(again, false) AS several",
        "ended - first AS took",
        f"{size(real)} AS kept",
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
    """Return the dead letters whose deliveries no longer exist, because their message was deleted.

    Each appears once.
    """
    letters = read.tables["dead_letters"]
    alone = letters.join(
        never_broadcast(read.tables["deliveries"]), ["topic", "offset", "reader"], "left_anti"
    )
    return alone.groupBy("topic", "offset", "reader").agg({"ended": "max", "error": "max"}).selectExpr(
        "topic", "reader", "`max(ended)` AS ended", "`max(error)` AS error"
    )  # fmt: skip
