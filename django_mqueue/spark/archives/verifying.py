"""Verification: compare an archive's files with its tables, and delete files that no table names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from ...policy.batching import batches_by_weight
from ..collecting import collect_all
from ..connecting import RetryingConnection, connecting
from ..launching import register
from ..reader.options import Table
from ..sql import bulk
from .catalog import Archive, frame
from .jobs import parallelism, spread
from .parquet import FileEntry, folder_of, problem
from .requests import Progress
from .storage import storage_at
from .tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_PER_TASK = 4
FILES_PER_ROUND, BYTES_PER_ROUND = 128, 1 << 30
"""Maximum files and bytes that each core reads between two reports of progress."""


@dataclass
class Verified:
    """The verification of one topic.

    ``problems``: sentences. ``erased``: the number of rows that were removed. ``unused``: the paths of files that the
    tables never named or no longer name. ``deleted``: how many of these files were deleted.
    """

    topic: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    erased: int = 0
    problems: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    deleted: int = 0


def verified(
    spark: SparkSession,
    archive: Archive,
    topics: Sequence[str] | None,
    *,
    clean: bool,
    keep_hours: float,
    log: Mapping[str, str] | None,
    stopping: threading.Event,
    progress: Progress,
) -> list[Verified]:
    """Verify the topics until ``stopping`` is set. Return the results. Nothing is deleted if a topic has a problem.

    ``log``: options to read the log, which is then also compared.
    """
    wanted = archive.chosen(topics)
    total = sum(len(archive.entries(topic, table)) for topic in wanted for table in TABLES)
    read = 0

    def step(files: int) -> None:
        nonlocal read
        read += files
        progress(read, total)

    step(0)
    found: list[Verified] = []
    for topic in wanted:
        if stopping.is_set():
            return found
        found.append(_verified(spark, archive, topic, step))
        if log is not None:
            found[-1].problems += _only_in_log(spark, archive, topic, log)
    unused = {path for snapshot in archive.snapshots.values() for path in snapshot.unused()}
    left = unused
    if clean and not any(each.problems for each in found):
        for snapshot in archive.snapshots.values():
            snapshot.vacuum(keep_hours, full=True)
        left = {path for snapshot in archive.snapshots.values() for path in snapshot.unused()}
    for each in found:
        mine = tuple(f"{table}/{folder_of(each.topic)}/" for table in TABLES)
        each.unused = sorted(path for path in unused if path.startswith(mine))
        each.deleted = sum(path not in left for path in each.unused)
    return found


def _verified(spark: SparkSession, archive: Archive, topic: str, step: Callable[[int], None]) -> Verified:
    found = Verified(topic)
    for table in TABLES:
        entries, snapshot = archive.entries(topic, table), archive.snapshots[table]
        rows, erased = sum(entry.rows for entry in entries), snapshot.number("erased", topic)
        found.files += len(entries)
        found.rows += rows
        found.bytes += sum(entry.bytes for entry in entries)
        found.erased += erased
        problems = list(_read(spark, archive, entries, step))
        if rows + erased != (added := snapshot.number("rows", topic)):
            problems.append(
                f"topic {topic!r}, {table}: {added:,} rows were added and {erased:,} erased, but the table has {rows:,}"
            )
        if entries and (last := max(entry.last for entry in entries)) > archive.upto(topic, table):
            problems.append(
                f"topic {topic!r}, {table}: offset {last} is above {archive.upto(topic, table)}, the end of the archive"
            )
        if not problems:
            problems += _twice(spark, archive, topic, table, entries)
        found.problems += problems
    return found


def _read(
    spark: SparkSession, archive: Archive, entries: Sequence[FileEntry], step: Callable[[int], None]
) -> Iterator[str]:
    uri, cores = archive.storage.uri, parallelism(spark)

    def look(some: Sequence[FileEntry]) -> list[str]:
        storage = storage_at(uri)
        return [found for entry in some if (found := problem(storage, entry))]

    rounds = batches_by_weight(entries, attrgetter("bytes"), BYTES_PER_ROUND * cores, FILES_PER_ROUND * cores)
    for some in rounds:  # Each round is one job, because Spark reports no progress before a job ends.
        each = max(1, min(FILES_PER_TASK, len(some) // cores))
        tasks = [some[at : at + each] for at in range(0, len(some), each)]
        for told in spread(spark, look, tasks, str):
            yield from told
        step(len(some))


def _only_in_log(
    spark: SparkSession, archive: Archive, topic: str, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield a problem if the archive does not have all messages that the log holds up to the archive's end.

    As many messages as were erased from the archive may be missing.
    """
    line = RetryingConnection(connecting({name.lower(): value for name, value in options.items()}))
    try:
        if not line.run(lambda using: bulk.topics(using, topic)):  # All its messages were deleted.
            return
    finally:
        line.close()
    upto, erased = archive.upto(topic), archive.snapshots["messages"].number("erased", topic)
    wanted = {
        **options, "topic": topic, "includeTargeted": "true", "failOnDataLoss": "false",
        "startingOffsets": "earliest", "endingOffsets": str(upto + 1),
    }  # fmt: skip
    register(spark)
    reader = spark.read.format("mqueue").options(**wanted).schema("`offset` BIGINT, id STRING")
    lacking = reader.load().join(archive.frame(spark, topic), ["offset", "id"], "left_anti")
    count, first = collect_all(lacking.selectExpr("count(*)", "min(`offset`)"))[0]
    if count > erased:
        yield (
            f"topic {topic!r}: the log holds {count:,} messages up to offset {upto} that the archive does not have, the"
            f" first at offset {first}; {erased:,} were erased"
        )


def _twice(
    spark: SparkSession, archive: Archive, topic: str, table: Table, entries: Sequence[FileEntry]
) -> Iterator[str]:
    """Yield a problem for rows that are in several files. Only files with overlapping offsets are read."""
    doubtful = overlapping(entries)
    if not doubtful:
        return
    by = ["offset", "group"] if table == "deliveries" else ["offset"]
    rows = frame(spark, archive.storage, table, doubtful)
    for row in collect_all(rows.groupBy(*by).count().where("count > 1").orderBy("offset").limit(5)):
        what = ", ".join(f"{name} {row[name]}" for name in by)
        yield f"topic {topic!r}, {table}: {what} is there {row['count']} times"


def overlapping(entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Return the files whose offsets overlap with another file. ``entries`` are sorted by first offset."""
    found: dict[str, FileEntry] = {}
    widest: FileEntry | None = None
    for entry in entries:
        if widest is not None and entry.first <= widest.last:
            found[widest.path] = widest
            found[entry.path] = entry
        if widest is None or entry.last > widest.last:
            widest = entry
    return list(found.values())
