"""Compaction joins the files of a day. Erasure removes rows from files.

For both, tasks write new files and read them back. Then one commit removes the old files from the table and adds the
new files. Of two such commits at once, the second is refused (see ``tables``). The old files stay until
``vacuum``, for readers that still use them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...policy.batching import batches_by_weight
from ..collecting import collect_all
from ..errors import ArchiveError, OptionError
from ..reader.columns import VALUE, with_value
from ..reader.conditions import chosen, evaluated
from ..reader.options import Table
from .catalog import Archive
from .jobs import spread
from .parquet import FileEntry, arrow_schema, clusters, files_of, problem, row_groups, sorted_by
from .requests import KEEP_HOURS, TABLES, Progress, check_keep, quiet
from .storage import Storage, storage_at
from .tables import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Compacted:
    """The compaction of one topic: ``files`` were replaced by ``files_now`` new files, which have ``rows`` rows."""

    topic: str
    files: int = 0
    files_now: int = 0
    rows: int = 0


@dataclass
class Erased:
    """The erasure in one topic. ``rows``: removed rows, by table. ``files``: the number of rewritten files."""

    topic: str
    rows: dict[Table, int]
    files: int = 0


@dataclass(frozen=True)
class _Task:
    """Files of one day and table, by offset, to rewrite without the rows at ``offsets``.

    ``most``: the bytes after which a new file begins. Default: ``BYTES_PER_FILE``.
    """

    table: Table
    entries: Sequence[FileEntry]
    offsets: Sequence[int] = ()
    most: int | None = None


def compact(
    spark: SparkSession,
    to: str,
    *,
    topics: str | Sequence[str] | None = None,
    bytes: int = 1 << 30,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Compacted]:
    """Join small files of the same day into larger files. Return how many files were replaced.

    It needs no database. It may run at the same time as an archive run.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topics``: a name or several names. Default: all topics of the archive.
    * ``bytes``: the maximum total size of the files that are joined into one, in bytes.
    * ``stopping``: an event. When it is set, the compaction ends after the current table of a topic.
    * ``progress``: called with the number of files done and the total.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``NoSpark`` (``deltalake`` is not installed), or
    ``ArchiveError`` if a file is damaged, or if another run rewrote the same files first.
    """
    if bytes < 1:
        raise OptionError(f"bytes is {bytes}, but must be at least 1")
    archive = Archive.open(to)
    done = {topic: Compacted(topic) for topic in archive.select_topics(topics)}
    todo = {
        (topic, table): list(_compaction_tasks(table, archive.entries(topic, table), bytes))
        for topic in done
        for table in TABLES
    }
    total = sum(len(task.entries) for tasks in todo.values() for task in tasks)
    progress = progress or quiet
    progress(0, total)
    for (topic, table), tasks in todo.items():
        if stopping is not None and stopping.is_set():
            break
        if tasks:
            old, new = _rewrite(spark, archive, table, topic, tasks)
            done[topic].files += len(old)
            done[topic].files_now += len(new)
            done[topic].rows += _rows(new)
            progress(sum(each.files for each in done.values()), total)
    return list(done.values())


def erase(
    spark: SparkSession,
    to: str,
    topic: str,
    *,
    key: str | None = None,
    where: str | None = None,
    keep_hours: float = KEEP_HOURS,
) -> Erased:
    """Remove messages from an archive, with their dead letters and deliveries. Return how many rows were removed.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topic``: the name of one topic.
    * ``key`` and ``where``: give one of them: the key of the messages; or a condition in Spark's SQL over the columns
      of messages and ``value``, the payload as text, such as ``get_json_object(value, '$.customer') = 'ada'``. Times
      in it are UTC.
    * ``keep_hours``: how long the replaced files stay, from 0 to 87,600 hours; rounded up to whole hours.

    Readers of the tables no longer see the rows. The replaced files still hold them, until the first call of ``erase``
    or ``verify(clean=True)`` after ``keep_hours``; with 0 hours this call deletes them. The log does not change.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError`` (also if the condition fails for a message), ``NoSpark``
    (``deltalake`` is not installed), or ``ArchiveError`` if a file is damaged, or if another compaction or erasure
    replaced the same files first.
    """
    check_keep(keep_hours)
    archive = Archive.open(to)
    archive.select_topics(topic)
    select = _rows_to_erase(key, where)
    with evaluated(spark, where):
        all_messages = archive.frame(spark, topic)
        selected = collect_all(select(all_messages).select("offset").distinct())
        messages = sorted(row["offset"] for row in selected)
        dead_letters = _dead_letters_to_erase(
            archive.frame(spark, topic, "dead_letters"), select, all_messages
        )
    offsets: dict[Table, list[int]] = {
        "dead_letters": sorted({offset for offset, _ in dead_letters}),
        "deliveries": sorted({*messages, *(of for _, of in dead_letters if of is not None)}),
        "messages": messages,
    }
    done = Erased(topic, dict.fromkeys(TABLES, 0))
    for table in TABLES:
        tasks = list(_erasure_tasks(table, archive.entries(topic, table), offsets[table]))
        old, new = _rewrite(spark, archive, table, topic, tasks)
        done.rows[table] = _rows(old) - _rows(new)
        done.files += len(old)
    for snapshot in archive.snapshots.values():
        snapshot.vacuum(keep_hours, full=False)
    return done


def _dead_letters_to_erase(
    dead_letters: DataFrame, select: Callable[[DataFrame], DataFrame], messages: DataFrame
) -> list[tuple[int, int | None]]:
    """Return the offsets of the dead letters to erase, each with the offset of its message."""
    # A dead letter's id consists of the message's offset and the group (see store.dead_letters).
    of_message = "try_cast(substring_index(id, ':', 1) AS BIGINT) AS of_message"
    missing = [
        f"CAST(NULL AS {kind}) AS {name}"
        for name, kind in messages.dtypes
        if name not in dead_letters.columns
    ]
    dead_letters = dead_letters.selectExpr("*", of_message, *missing)
    of_selected = dead_letters.join(
        select(messages).selectExpr("`offset` AS of_message"), "of_message", "left_semi"
    )
    # If the message is not in the archive, the condition applies to the dead letter itself.
    unarchived = select(dead_letters).join(
        messages.selectExpr("`offset` AS of_message"), "of_message", "left_anti"
    )
    rows = collect_all(of_selected.unionByName(unarchived).select("offset", "of_message"))
    return [(row["offset"], row["of_message"]) for row in rows]


def _rows_to_erase(key: str | None, where: str | None) -> Callable[[DataFrame], DataFrame]:
    """Return a function that keeps only the rows of a frame to erase. Raises ``OptionError``."""
    if key is not None and where is None:  # Not as SQL: Spark replaces ${…} in SQL, even in quotes.
        return lambda frame: frame.where(frame["key"] == key)
    if where is not None and key is None:
        return lambda frame: chosen(with_value(frame), where).drop(VALUE)
    raise OptionError("give either key, or where: a condition over the columns of messages")


def _erasure_tasks(table: Table, entries: Sequence[FileEntry], offsets: Sequence[int]) -> Iterator[_Task]:
    """Yield a task for each file that may have rows at ``offsets``, which are sorted."""
    for entry in entries:
        part = offsets[bisect_left(offsets, entry.first) : bisect_right(offsets, entry.last)]
        if part:
            yield _Task(table, [entry], part)


def _compaction_tasks(table: Table, entries: Sequence[FileEntry], most: int) -> Iterator[_Task]:
    """Yield tasks that join adjacent files of one day. The files of a task have at most ``most`` bytes in total."""
    days: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in entries:
        days[entry.date].append(entry)
    for files in days.values():
        for part in batches_by_weight(files, attrgetter("bytes"), most):
            if len(part) > 1:
                yield _Task(table, part, most=most)


def _rewrite(
    spark: SparkSession, archive: Archive, table: Table, topic: str, tasks: Sequence[_Task]
) -> tuple[list[FileEntry], list[FileEntry]]:
    """Rewrite the files of the tasks, and commit the change. Return the replaced files and the new files."""
    old, new = list[FileEntry](), list[FileEntry]()
    work = partial(_rewrite_task, archive.storage.uri)
    for task, entries in zip(tasks, spread(spark, work, tasks, FileEntry), strict=True):
        removed = _rows(task.entries) - _rows(entries)
        if removed and not task.offsets:
            raise ArchiveError(
                f"compaction: table {table} would lose {removed} rows. Nothing was changed. Run verify, which lists"
                " damaged files"
            )
        if task.offsets and not removed:  # The file has no row at these offsets.
            for entry in entries:
                archive.storage.delete(entry.path)
        else:
            old += task.entries
            new += entries
    if old:
        snapshot = archive.snapshots[table]
        numbers: dict[tuple[Kind, str], int] = {}
        if removed := _rows(old) - _rows(new):
            numbers["erased", topic] = snapshot.number("erased", topic) + removed
        archive.snapshots[table] = snapshot.commit(numbers, new, old)
    return old, new


def _rows(entries: Sequence[FileEntry]) -> int:
    return sum(entry.rows for entry in entries)


def _rewrite_task(uri: str, task: _Task) -> list[FileEntry]:
    """Rewrite the files of a task, on an executor. Return the new files."""
    storage, schema, first = storage_at(uri), arrow_schema(task.table), task.entries[0]
    with files_of(storage, task.table, first.topic, schema, task.most) as files:
        for cluster in clusters(task.entries):
            for entry in cluster:
                if found := problem(storage, entry):
                    raise ArchiveError(f"{uri}: {found}")
            for rows in _sorted(storage, cluster, schema, task.table):
                if task.offsets:
                    removed = pc.is_in(rows["offset"], value_set=pa.array(task.offsets, pa.int64()))
                    rows = rows.filter(pc.invert(removed))
                if rows.num_rows:
                    files.put(first.date, rows)
    return files.entries


def _sorted(
    storage: Storage, cluster: Sequence[FileEntry], schema: pa.Schema, table: Table
) -> Iterator[pa.Table]:
    """Yield the rows in order: a single file by row groups; several files in one table."""
    parts = chain.from_iterable(_parts(storage, entry, schema) for entry in cluster)
    if len(cluster) == 1:
        yield from parts
    else:
        yield pa.concat_tables(parts).sort_by([(name, "ascending") for name in sorted_by(table)])


def _parts(storage: Storage, entry: FileEntry, schema: pa.Schema) -> Iterator[pa.Table]:
    with storage.open(entry.path) as stream:
        yield from row_groups(stream, schema)
