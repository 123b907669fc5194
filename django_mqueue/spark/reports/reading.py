"""Read the messages, deliveries and dead letters for a report.

They come from an archive up to its end, and from the live log above that. Only columns that are counted are read. The
log also shows which archived messages it still holds, and the present state of their deliveries (see ``both`` and
``facts.standing``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...service.registration import groups_of
from ...store import offsets as positions
from ...store.queries import group_rows
from ..connecting import connected
from ..database.backfilling import COPY_IDS
from ..errors import NoSuchTopic
from ..reader.options import Table, read_options
from ..reader.planning import topics_of
from ..reader.settling import readable
from ..sql import bulk
from .apart import ParkedRetries
from .both import merge_history
from .requests import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..archives.catalog import Archive

TABLES: tuple[Table, ...] = ("dead_letters", "deliveries", "messages")
"""The tables in the order in which they are read.

In this order, a message that is deleted while the report reads never seems unfinished.
"""

ERRORS = "ARRAY<STRUCT<at: BIGINT, attempt: INT, error: STRING>>"
HEAD = 200
"""The number of characters of an error that are read: see ``policy.errors``."""

_CAME = f"""CASE
    WHEN retry_of IS NOT NULL THEN 'retry'
    WHEN original_id IS NULL THEN 'new'
    WHEN id RLIKE '{COPY_IDS}' THEN 'copy'
    ELSE 'back' END"""
"""How a message came into the log.

``new``: published. ``retry``: a parked retry that was moved into the log. ``copy``: a copy that gives a group the past.
``back``: redriven from the dead letters.
"""

_COLUMNS: dict[Table, tuple[str, tuple[str, ...]]] = {
    "messages": (
        "topic STRING, key STRING, `offset` BIGINT, id STRING, target STRING, published_at TIMESTAMP_LTZ,"
        " original_id STRING, retry_of BIGINT, first_published_at TIMESTAMP_LTZ",
        (
            "topic", "key", "`offset`", "target", "unix_millis(published_at) AS published",
            "unix_millis(coalesce(first_published_at, published_at)) AS first", "retry_of", f"{_CAME} AS came",
        ),
    ),
    "deliveries": (
        "topic STRING, `offset` BIGINT, `group` STRING, done BOOLEAN, in_flight BOOLEAN, redeliveries INT,"
        " failure_count INT, delivered_to STRING, delivered_at TIMESTAMP_LTZ, done_at TIMESTAMP_LTZ, errors STRING",
        (
            "topic", "`offset`", "`group` AS reader", "done", "in_flight", "redeliveries", "failure_count AS failed",
            "delivered_to <> '' AS given", "unix_millis(delivered_at) AS delivered", "unix_millis(done_at) AS ended",
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

_HELD: dict[Table, tuple[str, tuple[str, ...]]] = {
    "messages": ("topic STRING, `offset` BIGINT", ("topic", "`offset`")),
    "deliveries": _COLUMNS["deliveries"],
}
"""The same for archived rows that the log still holds."""


@dataclass(frozen=True)
class Registered:
    """A group of the live log. ``start``: the group gets the messages above this offset."""

    start: int
    reads_log: bool


@dataclass
class Extent:
    """The offsets up to which each table of a topic is read: in the archive, and in the live log."""

    archived: dict[Table, int] = field(default_factory=dict)
    live: dict[Table, int] = field(default_factory=dict)
    groups: dict[str, Registered] = field(default_factory=dict)

    def above(self, table: Table) -> tuple[int, int]:
        """Return the bounds of the log: it is read above the first offset and up to the second."""
        return self.archived.get(table, 0), self.live.get(table, 0)

    def held(self, table: Table) -> tuple[int, int]:
        """Return the bounds between which the log is searched for archived rows.

        Groups may not be done with messages above the first offset.
        """
        upto = min(self.archived.get(table, 0), self.live.get(table, 0))
        return min((group.start for group in self.groups.values()), default=upto), upto


@dataclass
class Read:
    """The tables that were read, and their sources.

    * ``at``: the time by the database's clock, in epoch milliseconds; None without the live log.
    * ``tables``: their column ``archived`` says whether a row comes from the archive, or belongs to an archived
      message.
    * ``gaps``: sentences about messages that may be missing.
    * ``held``: archived rows that the log still holds, if groups may not be done with them.
    """

    extents: dict[str, Extent]
    at: int | None
    tables: dict[Table, DataFrame]
    rows: int = 0
    apart: ParkedRetries = field(default_factory=ParkedRetries)
    gaps: list[str] = field(default_factory=list)
    held: dict[Table, DataFrame] = field(default_factory=dict)


def read(spark: SparkSession, wanted: ReportRequest, step: Callable[[], None]) -> Read:
    """Return the tables. ``step`` is called after each table.

    Raises ``NoSuchTopic``, ``NoArchive`` or ``NoConnection``. Raises ``LogGap`` if rows were archived while the log was
    read, or if messages may be missing.
    """
    archive, apart = _archive(wanted), ParkedRetries()
    extents, at = _extents(wanted, archive, apart)
    gaps = _gaps(wanted, archive, extents)
    rows = 0
    tables: dict[Table, DataFrame] = {}
    there: dict[Table, DataFrame] = {}
    for table in TABLES:
        held = _live(spark, wanted, table, _HELD, extents, Extent.held) if table in _HELD else []
        frames = _live(spark, wanted, table, _COLUMNS, extents, Extent.above)
        rows += sum(frame.count() for frame in (*held, *frames))
        if held:
            there[table] = _together(held)
        parts = [frame.selectExpr("*", "false AS archived") for frame in frames]
        if archive is not None:
            topics = [topic for topic, extent in extents.items() if extent.archived.get(table)]
            if topics:
                rows += sum(entry.rows for topic in topics for entry in archive.entries(topic, table))
                frame = archive.frame(spark, topics, table).selectExpr(*_COLUMNS[table][1])
                frame = frame.selectExpr("*", "true AS archived")
                if held and table == "deliveries":
                    frame = merge_history(frame, there[table])
                parts.append(frame)
        if not parts:
            empty = spark.createDataFrame([], _COLUMNS[table][0])
            parts = [empty.selectExpr(*_COLUMNS[table][1], "false AS archived")]
        tables[table] = _together(parts)
        step()
    if wanted.live:
        apart.look_again(wanted, extents)
    if archive is not None and wanted.live:
        _check_unmoved(_archive(wanted), extents)
        gaps = _gaps(wanted, archive, extents)  # What was held back until now was there.
    return Read(extents, at, tables, rows, apart, gaps, there)


def _together(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), parts)


def _archive(wanted: ReportRequest) -> Archive | None:
    if wanted.archive is None:
        return None
    from ..archives.catalog import Archive

    return Archive.open(wanted.archive, as_of=wanted.as_of)


def _extents(
    wanted: ReportRequest, archive: Archive | None, apart: ParkedRetries
) -> tuple[dict[str, Extent], int | None]:
    """Return the extents of the topics in the report, sorted by name, and the time by the database's clock."""
    found: dict[str, Extent] = {}
    if archive is not None:
        for topic in filter(wanted.matches, archive.topics()):
            found[topic] = Extent(archived={table: archive.upto(topic, table) for table in TABLES})
    at = None
    if wanted.live:
        with _connected(wanted) as using:
            at = group_rows.now_ms(using)
            there = _live_topics(using, wanted, found)
            apart.look(using, {*there, *found})
            for topic in there:
                _read_live_extent(using, wanted, topic, found.setdefault(topic, Extent()))
    elif unknown := [topic for topic in wanted.topics if topic not in found]:
        raise NoSuchTopic(
            f"the archive {wanted.archive} has no topic {', '.join(map(repr, unknown))};"
            f" it has {', '.join(archive.topics() if archive else ()) or 'none'}"
        )
    if not found:
        raise NoSuchTopic(f"no topic matches {wanted.pattern!r}")
    return dict(sorted(found.items())), at


def _gaps(wanted: ReportRequest, archive: Archive | None, extents: Mapping[str, Extent]) -> list[str]:
    """Return sentences about topics for which the log may lack messages above the end of the archive.

    For such a topic, no group has held back deletion all the time. If nothing was ever settled above the end of the
    archive, nothing can be missing. But then the log may hold other messages than the archive, or may not have them
    yet. Raises ``LogGap`` unless the request allows gaps.
    """
    if archive is None or not wanted.live:
        return []
    from ..archives.topic_state import check_held

    gaps = []
    with _connected(wanted) as using:
        for topic, extent in extents.items():
            upto = min(extent.archived.get(table, 0) for table in ("messages", "deliveries"))
            end = extent.archived.get("messages", 0)
            known = max(extent.live.get("messages", 0), positions.settled(using, topic))
            if extent.live and end > known:
                # Not an error: reports may read a replica to relieve the primary, and it may be a little behind.
                gaps.append(
                    f"topic {topic!r}: the archive reaches offset {end}, but this database has settled nothing above"
                    f" {known}: it was restored to an earlier state, or is a replica that is behind. At offsets up to"
                    f" {end}, only messages of the archive are counted."
                )
            if upto >= known:
                continue
            try:
                check_held(using, archive, topic, upto)
            except LogGap as gap:
                if wanted.strict:
                    raise
                gaps.append(
                    str(gap).partition(": messages")[0] + ": messages above that offset may be missing here."
                )
    return gaps


def _connected(wanted: ReportRequest) -> AbstractContextManager[str]:
    return connected(read_options({**wanted.options, "topic": "any"}, streaming=False).connecting)


def _live_topics(using: str, wanted: ReportRequest, archived: Collection[str]) -> list[str]:
    """Return the topics that the log holds, or for which a group is registered.

    A named topic must be in the log or in the archive: otherwise this raises ``NoSuchTopic``.
    """
    if wanted.pattern is not None:
        return topics_of(using, read_options({**wanted.options, "subscribePattern": wanted.pattern}))
    for topic in wanted.topics:
        if topic not in archived:
            topics_of(using, read_options({**wanted.options, "topic": topic}))
    return [topic for topic in wanted.topics if bulk.topics(using, topic)]


def _read_live_extent(using: str, wanted: ReportRequest, topic: str, extent: Extent) -> None:
    options = read_options({**wanted.options, "topic": topic})
    dead_topic = options.suffixes.letters(topic)
    last = readable(using, [topic, dead_topic], options)
    extent.live = {"messages": last[topic], "deliveries": last[topic], "dead_letters": last[dead_topic]}
    for group in groups_of(using, topic):
        if registration := positions.registration(using, group, topic):
            extent.groups[group] = Registered(registration.start, registration.reads_log)


def _live(
    spark: SparkSession,
    wanted: ReportRequest,
    table: Table,
    columns: Mapping[Table, tuple[str, tuple[str, ...]]],
    extents: Mapping[str, Extent],
    bounds: Callable[[Extent, Table], tuple[int, int]],
) -> list[DataFrame]:
    """Return the rows of the live log between bounds, as frames. A topic with a comma in its name needs its own frame.

    The log is read only once, so that all counts use the same rows. If an executor with some of the rows is lost, the
    report fails: a second read would mix two states of the log.
    """
    stretches = {topic: bounds(extent, table) for topic, extent in extents.items()}
    topics = [topic for topic, (above, upto) in stretches.items() if upto > above]
    listed = [topic for topic in topics if "," not in topic]
    ways = [({"subscribe": ",".join(listed)}, listed)] if listed else []
    ways += [({"topic": topic}, [topic]) for topic in topics if "," in topic]
    schema, made = columns[table]
    found = []
    for which, some in ways:
        options = {
            **wanted.options,
            **which,
            "table": table,
            "includeTargeted": "true",
            "failOnDataLoss": "false",  # Deletion does not wait for reports.
            "startingOffsets": json.dumps({topic: stretches[topic][0] + 1 for topic in some}),
            "endingOffsets": json.dumps({topic: stretches[topic][1] + 1 for topic in some}),
        }
        read_options(options, streaming=False)
        frame = spark.read.format("mqueue").options(**options).schema(schema).load().selectExpr(*made)
        found.append(frame.localCheckpoint())
    return found


def _check_unmoved(archive: Archive | None, extents: Mapping[str, Extent]) -> None:
    """Raise ``LogGap`` if the archive has grown: rows may have been deleted from the log before they were read."""
    assert archive is not None
    for topic, extent in extents.items():
        for table in TABLES:
            if archive.upto(topic, table) > extent.archived.get(table, 0):
                raise LogGap(
                    f"topic {topic!r} was archived further while it was read, so some messages may have been deleted"
                    " before: make the report again while no archive run is active"
                )
