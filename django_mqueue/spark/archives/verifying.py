"""Verification: compare an archive's files with its tables, and delete files that no table names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from ...policy.batching import batches, batches_by_weight
from ..collecting import collect_all
from ..connecting import RetryingConnection, connecting
from ..launching import register
from ..reader.options import Table
from ..sql import bulk
from .catalog import Archive, frame
from .jobs import parallelism, spread
from .parquet import FileEntry, clusters, folder_of, problem, sorted_by
from .requests import KEEP_HOURS, TABLES, Progress, check_clean, check_keep, quiet
from .storage import storage_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES_PER_TASK = 4
FILES_PER_ROUND, BYTES_PER_ROUND = 128, 1 << 30
"""Maximum files and bytes that each core reads between two reports of progress."""


@dataclass
class Verified:
    """The result of the verification of one topic."""

    topic: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    erased: int = 0  # Rows that were ever erased.
    problems: list[str] = field(default_factory=list)  # One text for each problem.
    unused: list[str] = field(default_factory=list)  # Paths of files that the tables do not name.
    deleted: int = 0  # How many of the unused files were deleted.


def verify(
    spark: SparkSession,
    to: str,
    *,
    topics: str | Sequence[str] | None = None,
    clean: bool = False,
    keep_hours: float = KEEP_HOURS,
    log: Mapping[str, str] | None = None,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Verified]:
    """Read and check all files of the topics in an archive. Return the problems of each topic.

    Each file must exist, with the right size, checksums, number of rows, and first and last offset. Its rows must be
    sorted. No row may exist twice. The number of rows must be the number ever added, minus the number erased.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topics``: a name or several names. Default: all topics of the archive.
    * ``clean``: if no topic has a problem, delete all files that no table has named for ``keep_hours``.
    * ``keep_hours``: hours, from 0 to 87,600 (ten years); rounded up to whole hours.
    * ``log``: connection options of ``format("mqueue")``; ``{}`` stands for Django's settings. With them, the archive
      must have all messages that the log still holds up to the archive's end.
    * ``stopping``: an event. When it is set, the verification ends before the next topic, and deletes nothing.
    * ``progress``: called with the number of files done and the total.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``NoConnection``, ``NoSpark`` (no ``deltalake``), or
    ``ArchiveError`` if a table cannot be read or cleaned, or if a task fails.
    """
    check_keep(keep_hours)
    check_clean(clean, topics)
    archive = Archive.open(to)
    names = archive.select_topics(topics)
    total = sum(len(archive.entries(topic, table)) for topic in names for table in TABLES)
    read, report = 0, progress or quiet

    def step(files: int) -> None:
        nonlocal read
        read += files
        report(read, total)

    step(0)
    found: list[Verified] = []
    for topic in names:
        if stopping is not None and stopping.is_set():
            return found
        found.append(_verify_topic(spark, archive, topic, step))
        if log is not None:
            found[-1].problems += _missing_messages(spark, archive, topic, log)
    snapshots = archive.snapshots.values()
    left = unused = set().union(*(snapshot.unused() for snapshot in snapshots))
    is_stopped = stopping is not None and stopping.is_set()
    if clean and not is_stopped and not any(each.problems for each in found):
        for snapshot in snapshots:
            snapshot.vacuum(keep_hours, full=True)
        left = set().union(*(snapshot.unused() for snapshot in snapshots))
    for each in found:
        folders = tuple(f"{table}/{folder_of(each.topic)}/" for table in TABLES)
        each.unused = sorted(path for path in unused if path.startswith(folders))
        # A run may have added an unused file to a table meanwhile. Then it is neither unused nor deleted.
        each.deleted = sum(path not in left and not archive.storage.exists(path) for path in each.unused)
    return found


def _verify_topic(spark: SparkSession, archive: Archive, topic: str, step: Callable[[int], None]) -> Verified:
    found = Verified(topic)
    for table in TABLES:
        entries, snapshot = archive.entries(topic, table), archive.snapshots[table]
        rows, erased = sum(entry.rows for entry in entries), snapshot.number("erased", topic)
        found.files += len(entries)
        found.rows += rows
        found.bytes += sum(entry.bytes for entry in entries)
        found.erased += erased
        problems = list(_file_problems(spark, archive, entries, step))
        if rows + erased != (added := snapshot.number("rows", topic)):
            problems.append(
                f"topic {topic!r}, {table}: {added:,} rows were added and {erased:,} erased, but the table has {rows:,}"
            )
        if entries and (last := max(entry.last for entry in entries)) > archive.upto(topic, table):
            problems.append(
                f"topic {topic!r}, {table}: offset {last} is above {archive.upto(topic, table)}, the end of the archive"
            )
        if not problems:
            problems += _duplicate_rows(spark, archive, topic, table, entries)
        found.problems += problems
    return found


def _file_problems(
    spark: SparkSession, archive: Archive, entries: Sequence[FileEntry], step: Callable[[int], None]
) -> Iterator[str]:
    uri, cores = archive.storage.uri, parallelism(spark)

    def check(some: Sequence[FileEntry]) -> list[str]:
        storage = storage_at(uri)
        return [found for entry in some if (found := problem(storage, entry))]

    rounds = batches_by_weight(entries, attrgetter("bytes"), BYTES_PER_ROUND * cores, FILES_PER_ROUND * cores)
    for some in rounds:  # Each round is one job, because Spark reports no progress before a job ends.
        each = max(1, min(FILES_PER_TASK, len(some) // cores))
        for problems in spread(spark, check, list(batches(some, each)), str):
            yield from problems
        step(len(some))


def _missing_messages(
    spark: SparkSession, archive: Archive, topic: str, options: Mapping[str, str]
) -> Iterator[str]:
    """Yield a problem if the archive lacks more messages of the log than were erased."""
    with closing(RetryingConnection(connecting(options))) as connection:
        if not connection.run(lambda using: bulk.topics(using, topic)):  # All its messages were deleted.
            return
    upto, erased = archive.upto(topic), archive.snapshots["messages"].number("erased", topic)
    read_options = {
        **options, "topic": topic, "includeTargeted": "true", "failOnDataLoss": "false",
        "startingOffsets": "earliest", "endingOffsets": str(upto + 1),
    }  # fmt: skip
    register(spark)
    reader = spark.read.format("mqueue").options(**read_options).schema("`offset` BIGINT, id STRING")
    missing = reader.load().join(archive.frame(spark, topic), ["offset", "id"], "left_anti")
    count, first = collect_all(missing.selectExpr("count(*)", "min(`offset`)"))[0]
    if count > erased:
        yield (
            f"topic {topic!r}: the log holds {count:,} messages up to offset {upto} that the archive does not have, the"
            f" first at offset {first}; {erased:,} were erased"
        )


def _duplicate_rows(
    spark: SparkSession, archive: Archive, topic: str, table: Table, entries: Sequence[FileEntry]
) -> Iterator[str]:
    """Yield a problem for rows that are in several files. Only files with overlapping offsets are read."""
    overlapping = [entry for cluster in clusters(entries) if len(cluster) > 1 for entry in cluster]
    if not overlapping:
        return
    by = sorted_by(table)
    rows = frame(spark, archive.storage, table, overlapping)
    for row in collect_all(rows.groupBy(*by).count().where("count > 1").orderBy("offset").limit(5)):
        what = ", ".join(f"{name} {row[name]}" for name in by)
        yield f"topic {topic!r}, {table}: {what} is in the table {row['count']} times"
