"""Compaction and erasure: files of a day are written anew, together or without some rows, and replaced in one commit.

New files are written and read back first. Then one commit removes the old files from the table and adds the new ones:
before it nothing has changed, and behind it all has. Of two at once the second is refused (see ``tables``). The old
files stay until ``vacuum``, for those who are reading them.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..collecting import collect_all
from ..errors import ArchiveError, OptionError
from ..options import Table
from .catalog import Archive
from .jobs import spread
from .parquet import Days, FileEntry, problem, row_groups
from .requests import Progress
from .storage import Storage, storage_at
from .tables import TABLES, Kind
from .tasks import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Compacted:
    """Of one topic: how many files were compacted, with how many rows, and how many files there are in their place."""

    topic: str
    files: int = 0
    files_now: int = 0
    rows: int = 0


@dataclass
class Erased:
    """Of one topic: rows that were taken out, by table, and how many files were written anew for it."""

    topic: str
    rows: dict[Table, int]
    files: int = 0


@dataclass(frozen=True)
class _Task:
    """Files of one day and table, by offset, which are written anew without some ``offsets``."""

    table: Table
    entries: tuple[FileEntry, ...]
    offsets: tuple[int, ...] = ()


def compacted(
    spark: SparkSession,
    archive: Archive,
    topics: Sequence[str],
    bytes: int,
    stopping: threading.Event,
    progress: Progress,
) -> list[Compacted]:
    """Topic by topic, until ``stopping`` is set: one commit for each topic and table."""
    todo = {
        (topic, table): [_Task(table, some) for some in _together(archive.entries(topic, table), bytes)]
        for topic in topics
        for table in TABLES
    }
    total = sum(len(task.entries) for tasks in todo.values() for task in tasks)
    done = {topic: Compacted(topic) for topic in topics}
    progress(0, total)
    for (topic, table), tasks in todo.items():
        if stopping.is_set():
            break
        if tasks:
            new = _rewrite(spark, archive, table, topic, tasks)
            found = done[topic]
            found.files += sum(len(task.entries) for task in tasks)
            found.files_now += len(new)
            found.rows += sum(entry.rows for entry in new)
            progress(sum(each.files for each in done.values()), total)
    return list(done.values())


def erased(spark: SparkSession, archive: Archive, topic: str, key: str | None, where: str | None) -> Erased:
    """Take messages, their dead letters and their deliveries out of the tables."""
    chosen = _choice(spark, archive, topic, key, where)
    messages = _offsets(chosen(archive.frame(spark, topic)))
    letters = chosen(archive.frame(spark, topic, "dead_letters"))
    # A letter's id is made of the message's offset and the group (see store.dead).
    of_letters = {
        int(row["id"].partition(":")[0])
        for row in collect_all(letters.select("id").distinct())
        if row["id"].partition(":")[0].isdecimal()
    }
    wanted: dict[Table, list[int]] = {
        "dead_letters": _offsets(letters),
        "deliveries": sorted({*messages, *of_letters}),
        "messages": messages,
    }
    found = Erased(topic, dict.fromkeys(TABLES, 0))
    for table in TABLES:
        tasks = list(_without(table, archive.entries(topic, table), wanted[table]))
        if tasks:
            before = sum(entry.rows for task in tasks for entry in task.entries)
            new = _rewrite(spark, archive, table, topic, tasks)
            found.rows[table] = before - sum(entry.rows for entry in new)
            found.files += sum(len(task.entries) for task in tasks)
    return found


def _choice(
    spark: SparkSession, archive: Archive, topic: str, key: str | None, where: str | None
) -> Callable[[DataFrame], DataFrame]:
    """A function that keeps the rows of a frame which are to be erased."""
    if (key is None) == (where is None):
        raise OptionError("give either key, or where: a condition over the columns of messages")
    if key is not None:  # Not as SQL: Spark replaces ${…} there, also in quoted text.
        return lambda frame: frame.where(frame["key"] == key)
    try:
        for table in ("messages", "dead_letters"):
            archive.frame(spark, topic, table).where(where).schema  # noqa: B018
    except Exception as error:
        raise OptionError(f"where is {where!r}, which is no condition over messages: {error}") from None
    return lambda frame: frame.where(where)


def _offsets(frame: DataFrame) -> list[int]:
    return sorted(int(row["offset"]) for row in collect_all(frame.select("offset").distinct()))


def _without(table: Table, entries: Sequence[FileEntry], offsets: Sequence[int]) -> Iterator[_Task]:
    """The files that may have rows at these offsets, which are sorted: each in a task of its own."""
    for entry in entries:
        place = bisect_left(offsets, entry.first)
        some = tuple(offsets[place : bisect_left(offsets, entry.last + 1)])
        if some:
            yield _Task(table, (entry,), some)


def _together(entries: Sequence[FileEntry], most: int) -> Iterator[tuple[FileEntry, ...]]:
    """Files of one day, neighbours by offset, of at most so many bytes; those without a neighbour are left out."""
    days: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in entries:
        days[entry.date].append(entry)
    for files in days.values():
        some: list[FileEntry] = []
        size = 0
        for file in files:
            if some and size + file.bytes > most:
                if len(some) > 1:
                    yield tuple(some)
                some, size = [], 0
            some.append(file)
            size += file.bytes
        if len(some) > 1:
            yield tuple(some)


def _rewrite(
    spark: SparkSession, archive: Archive, table: Table, topic: str, tasks: Sequence[_Task]
) -> list[FileEntry]:
    """Write the files of the tasks anew, and commit that; the new files."""
    new = [
        entry
        for entries in spread(spark, _rewriting(archive.storage.uri), tasks, FileEntry)
        for entry in entries
    ]
    old = [entry for task in tasks for entry in task.entries]
    snapshot = archive.snapshots[table]
    gone = sum(entry.rows for entry in old) - sum(entry.rows for entry in new)
    if gone and not any(task.offsets for task in tasks):
        raise ArchiveError(f"compaction: table {table} would lose {gone} rows. Nothing was changed")
    numbers: dict[tuple[Kind, str], int] = {}
    if gone:
        numbers["erased", topic] = snapshot.number("erased", topic) + gone
    if new != old and (gone or not any(task.offsets for task in tasks)):
        archive.snapshots[table] = snapshot.commit(numbers, new, old)
    return new


def _rewriting(to: str) -> Callable[[_Task], list[FileEntry]]:
    """A function for executors."""

    def rewrite(task: _Task) -> list[FileEntry]:
        storage, schema = storage_at(to), arrow_schema(task.table)
        first = task.entries[0]
        days = Days(storage, task.table, first.topic, uuid.uuid4().hex, schema)
        with days:
            for cluster in clusters(task.entries):
                for entry in cluster:
                    if found := problem(storage, entry):
                        raise ArchiveError(f"{storage.uri}: {found}")
                for rows in _sorted(storage, cluster, schema, task.table):
                    left = rows
                    if task.offsets:
                        gone = pc.is_in(rows["offset"], value_set=pa.array(task.offsets, pa.int64()))
                        left = rows.filter(pc.invert(gone))
                    if left.num_rows:
                        days.put(first.date, left)
        return days.entries

    return rewrite


def clusters(entries: Sequence[FileEntry]) -> Iterator[list[FileEntry]]:
    """Files that come by their first offsets, those together whose offsets overlap."""
    some: list[FileEntry] = []
    for entry in entries:
        if some and entry.first > max(each.last for each in some):
            yield some
            some = []
        some.append(entry)
    if some:
        yield some


def _sorted(
    storage: Storage, cluster: Sequence[FileEntry], schema: pa.Schema, table: Table
) -> Iterator[pa.Table]:
    """The rows of one file, a group of rows after the other; or of several, which are held in memory together."""
    if len(cluster) == 1:
        with storage.open(cluster[0].path) as stream:
            yield from row_groups(stream, schema)
        return
    parts = []
    for entry in cluster:
        with storage.open(entry.path) as stream:
            parts += list(row_groups(stream, schema))
    order = [("offset", "ascending")] + ([("group", "ascending")] if table == "deliveries" else [])
    yield pa.concat_tables(parts).sort_by(order)
