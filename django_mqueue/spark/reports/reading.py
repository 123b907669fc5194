"""Read the messages, deliveries and dead letters for a report.

They come from an archive up to its end, and from the live log above that. Only columns that are counted are read. The
log also shows which archived messages it still holds, and the present state of their deliveries (see ``merge_history``
and ``deliveries.messages_with_in_log``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from ...policy.outcomes import PARKED_AT
from ..archives import open_archive
from ..archives.requests import TABLES
from ..collecting import collect_all
from ..connecting import connected, connecting
from ..database.backfilling import COPY_IDS
from ..reader.options import Table, read_options
from .extents import (
    Extent,
    Retry,
    check_unmoved,
    extents_of,
    gaps_of,
    parked_retries,
)  # fmt: skip
from .requests import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ERRORS = "ARRAY<STRUCT<at: BIGINT, attempt: INT, error: STRING>>"
HEAD = 200
"""The number of characters of an error that are read: see ``policy.errors``."""

_ORIGIN = f"""CASE
    WHEN retry_of IS NOT NULL THEN 'retry'
    WHEN original_id IS NULL THEN 'new'
    WHEN id RLIKE '{COPY_IDS}' THEN 'copy'
    WHEN id RLIKE '^[0-9]+:' THEN 'new'
    ELSE 'redriven' END"""
"""How a message came into the log.

``new``: published, or stored as a dead letter. ``retry``: a parked retry that was moved into the log. ``copy``: a copy
that a backfill stored. ``redriven``: redriven from the dead letters.
"""

ONCE = ("new", "redriven")
"""The origins of messages that count as published. Retries and copies of a backfill do not count."""

_COLUMNS: dict[Table, tuple[str, tuple[str, ...]]] = {
    "messages": (
        "topic STRING, key STRING, `offset` BIGINT, id STRING, target STRING, published_at TIMESTAMP_LTZ,"
        " original_id STRING, retry_of BIGINT, first_published_at TIMESTAMP_LTZ",
        (
            "topic", "key", "`offset`", "target", "unix_millis(published_at) AS published",
            "unix_millis(coalesce(first_published_at, published_at)) AS first", "retry_of", f"{_ORIGIN} AS origin",
        ),
    ),
    "deliveries": (
        "topic STRING, `offset` BIGINT, `group` STRING, done BOOLEAN, in_flight BOOLEAN, redeliveries INT,"
        " failure_count INT, delivered_to STRING, delivered_at TIMESTAMP_LTZ, done_at TIMESTAMP_LTZ,"
        " due_at TIMESTAMP_LTZ, errors STRING",
        (
            "topic", "`offset`", "`group` AS reader", "done", "in_flight", "redeliveries", "failure_count AS failed",
            "delivered_to <> '' AS was_delivered", "unix_millis(delivered_at) AS delivered",
            "unix_millis(done_at) AS ended", f"unix_millis(due_at) = {PARKED_AT} AS is_parked",
            f"transform(from_json(errors, '{ERRORS}'), e -> struct(e.at, e.attempt, left(e.error, {HEAD}) AS error))"
            " AS errors",
        ),
    ),
    "dead_letters": (
        "id STRING, original_topic STRING, failed_group STRING, failed_at TIMESTAMP_LTZ, last_error STRING",
        (
            # The id of a dead letter contains the message's offset and the group (see store.dead_letters).
            "original_topic AS topic", "try_cast(substring_index(id, ':', 1) AS BIGINT) AS `offset`",
            "failed_group AS reader", "unix_millis(failed_at) AS ended", f"left(last_error, {HEAD}) AS error",
        ),
    ),
}  # fmt: skip
"""For each table, the columns that are read, and the expressions that are computed from them.

The expressions have the same meaning under all settings of the session.
"""

WORKLIST = "worklist."
"""The beginning of the topics to which worklists publish the steps of their items."""

ITEM = "STRUCT<kind: STRING, automated: BOOLEAN, seconds: DOUBLE>"
_ITEM_OF_STEP = (
    f"IF(topic LIKE '{WORKLIST}%' AND kind = 'finished', from_json(CAST(payload AS STRING), '{ITEM}'), NULL)"
    " AS item"
)

_OVERLAP: dict[Table, tuple[str, tuple[str, ...]]] = {
    "messages": ("topic STRING, `offset` BIGINT", ("topic", "`offset`")),
    "deliveries": _COLUMNS["deliveries"],
}
"""Like ``_COLUMNS``, for archived rows that the log still holds."""


@dataclass
class Read:
    """The tables that were read, and their sources.

    * ``at``: the time by the database's clock, in epoch milliseconds; None without the live log.
    * ``tables``: their column ``archived`` says whether a row comes from the archive, or belongs to an archived
      message.
    * ``rows``: the number of rows in all tables.
    * ``parked``: the retries that are parked when the reading begins or ends. A retry that moves into the log between
      these times lies above the offsets that are read.
    * ``gaps``: sentences about messages that may be missing.
    * ``overlap``: archived rows that the log still holds, if groups may not be done with them.
    """

    extents: dict[str, Extent]
    at: int | None
    tables: dict[Table, DataFrame]
    rows: int
    parked: set[Retry]
    gaps: list[str]
    overlap: dict[Table, DataFrame]


def read(spark: SparkSession, request: ReportRequest, step: Callable[[], None]) -> Read:
    """Return the tables. ``step`` is called after each table.

    Raises ``NoSuchTopic``, ``NoArchive`` or ``NoConnection``. Raises ``LogGap`` if rows were archived while the log was
    read, or if messages may be missing.
    """
    archive = open_archive(request.archive, request.as_of)
    extents, at, parked = extents_of(request, archive)
    gaps = gaps_of(request, archive, extents)
    columns = _columns(extents)
    rows = 0
    tables: dict[Table, DataFrame] = {}
    overlap: dict[Table, DataFrame] = {}
    for table in TABLES:
        both = (
            _live(spark, request, table, _OVERLAP, extents, Extent.overlap_bounds)
            if table in _OVERLAP
            else []
        )
        frames = _live(spark, request, table, columns, extents, Extent.new_bounds)
        rows += sum(frame.count() for frame in (*both, *frames))
        if both:
            overlap[table] = union_by_name(both)
        parts = [frame.selectExpr("*", "false AS archived") for frame in frames]
        topics = [topic for topic, extent in extents.items() if extent.archived.get(table)]
        if archive is not None and topics:
            rows += sum(entry.rows for topic in topics for entry in archive.entries(topic, table))
            frame = archive.frame(spark, topics, table).selectExpr(*columns[table][1])
            frame = frame.selectExpr("*", "true AS archived")
            if both and table == "deliveries":
                frame = merge_history(frame, overlap[table])
            parts.append(frame)
        if not parts:
            schema, expressions = columns[table]
            parts = [spark.createDataFrame([], schema).selectExpr(*expressions, "false AS archived")]
        tables[table] = union_by_name(parts)
        step()
    if request.live:
        with connected(connecting(request.options)) as using:
            parked |= parked_retries(using, extents)
    if archive is not None and request.live:
        check_unmoved(open_archive(request.archive, request.as_of), extents)
        # If deletion is held back now, it was held back during the read.
        gaps = gaps_of(request, archive, extents)
    return Read(extents, at, tables, rows, parked, gaps, overlap)


def _columns(extents: Mapping[str, Extent]) -> dict[Table, tuple[str, tuple[str, ...]]]:
    """Return the columns of each table; those of messages with ``item`` if a topic has the steps of a worklist."""
    if not any(topic.startswith(WORKLIST) for topic in extents):
        return _COLUMNS
    schema, expressions = _COLUMNS["messages"]
    return {**_COLUMNS, "messages": (f"{schema}, kind STRING, payload BINARY", (*expressions, _ITEM_OF_STEP))}


def union_by_name(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def _live(
    spark: SparkSession,
    request: ReportRequest,
    table: Table,
    columns: Mapping[Table, tuple[str, tuple[str, ...]]],
    extents: Mapping[str, Extent],
    bounds: Callable[[Extent, Table], tuple[int, int]],
) -> list[DataFrame]:
    """Return the rows of the live log between bounds: a frame for each topic with a comma, and one for the others."""
    ranges = {topic: bounds(extent, table) for topic, extent in extents.items()}
    topics = [topic for topic, (above, upto) in ranges.items() if upto > above]
    listed = [topic for topic in topics if "," not in topic]
    selections = [("subscribe", listed)] if listed else []
    selections += [("topic", [topic]) for topic in topics if "," in topic]
    schema, expressions = columns[table]
    found = []
    for option, some in selections:
        options = {
            **request.options,
            option: ",".join(some),
            "table": table,
            "includeTargeted": "true",
            "failOnDataLoss": "false",  # Deletion does not wait for reports.
            "startingOffsets": json.dumps({topic: ranges[topic][0] + 1 for topic in some}),
            "endingOffsets": json.dumps({topic: ranges[topic][1] + 1 for topic in some}),
        }
        read_options(options, streaming=False)
        frame = spark.read.format("mqueue").options(**options).schema(schema).load().selectExpr(*expressions)
        # Read the log only once, so that all counts use the same rows. If an executor with rows is lost, the report
        # fails: a second read would mix two states of the log.
        found.append(frame.localCheckpoint())
    return found


def never_broadcast(frame: DataFrame) -> DataFrame:
    """Mark one side of a join, so that Spark never holds all of it in memory.

    Otherwise Spark broadcasts a table with small files, even if they have many rows.
    """
    return frame.hint("merge")


def merge_history(archived: DataFrame, overlap: DataFrame) -> DataFrame:
    """Return the archived history. Deliveries archived before their end get their state from the log.

    A delivery that had ended stays as it was archived: a ``reset`` may remove it from the log, but it did happen.
    ``overlap``: the log's history of archived messages.
    """
    key = ["topic", "offset", "reader"]
    lowest = collect_all(overlap.agg({"offset": "min"}))[0][0]
    if lowest is None:
        return archived
    overlap = overlap.selectExpr("*", "true AS archived")
    before = archived.where(f"done OR `offset` < {lowest}")
    late = archived.where(f"`offset` >= {lowest}")  # Rows below it are not in the log: they need no join.
    still_open = late.where("NOT done").join(never_broadcast(overlap.select(*key)), key, "left_anti")
    since = overlap.join(never_broadcast(late.where("done").select(*key)), key, "left_anti")
    return before.unionByName(still_open).unionByName(since)
