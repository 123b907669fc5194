"""Compaction and erasure: rewrite files of a day, joined or without some rows, and replace them in one commit.

Tasks write the new files and read them back. Then one commit removes the old files from the table and adds the new
files, all or nothing. Of two such commits at once, the second is refused (see ``tables``). The old files stay until
``vacuum``, for readers that still use them.
"""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...policy.batching import batches_by_weight
from ..collecting import collect_all
from ..errors import ArchiveError, OptionError
from ..reader.columns import VALUE, with_value
from ..reader.options import Table
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
    """The compaction of one topic: ``files`` were replaced by ``files_now``, which have ``rows``."""

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
    """Files of one day and table, by offset, to rewrite without the rows at ``offsets``."""

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
    """Compact the topics until ``stopping`` is set, with one commit for each topic and table. Return the results."""
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
            done_tasks = _rewrite(spark, archive, table, topic, tasks)
            found = done[topic]
            for task, new in done_tasks:
                found.files += len(task.entries)
                found.files_now += len(new)
                found.rows += sum(entry.rows for entry in new)
            progress(sum(each.files for each in done.values()), total)
    return list(done.values())


def erased(spark: SparkSession, archive: Archive, topic: str, key: str | None, where: str | None) -> Erased:
    """Remove messages, their dead letters and their deliveries from the tables. Return the result."""
    chosen = _choice(spark, archive, topic, key, where)
    all_messages = archive.frame(spark, topic)
    messages = _offsets(chosen(all_messages))
    letters = _letters(archive.frame(spark, topic, "dead_letters"), chosen, all_messages)
    wanted: dict[Table, list[int]] = {
        "dead_letters": sorted({offset for offset, _ in letters}),
        "deliveries": sorted({*messages, *(of for _, of in letters if of is not None)}),
        "messages": messages,
    }
    found = Erased(topic, dict.fromkeys(TABLES, 0))
    for table in TABLES:
        tasks = list(_without(table, archive.entries(topic, table), wanted[table]))
        for task, new in _rewrite(spark, archive, table, topic, tasks):
            found.rows[table] += sum(entry.rows for entry in task.entries) - sum(entry.rows for entry in new)
            found.files += len(task.entries)
    return found


def _letters(
    letters: DataFrame, chosen: Callable[[DataFrame], DataFrame], messages: DataFrame
) -> list[tuple[int, int | None]]:
    """Return the offsets of the dead letters to erase, each with the offset of its message.

    These are the letters of the chosen messages. Of other letters, the condition decides only if the archive does not
    have the message: a letter's own offset and times are not those of its message.
    """
    # A dead letter's id consists of the message's offset and the group (see store.dead_letters).
    letters = letters.selectExpr("*", "try_cast(substring_index(id, ':', 1) AS BIGINT) AS of_message")
    of_chosen = letters.join(chosen(messages).selectExpr("`offset` AS of_message"), "of_message", "left_semi")
    alone = chosen(letters).join(messages.selectExpr("`offset` AS of_message"), "of_message", "left_anti")
    rows = collect_all(of_chosen.unionByName(alone).select("offset", "of_message"))
    return [
        (int(row["offset"]), None if row["of_message"] is None else int(row["of_message"])) for row in rows
    ]


def _choice(
    spark: SparkSession, archive: Archive, topic: str, key: str | None, where: str | None
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that keeps only the rows of a frame to erase. Raises ``OptionError``."""
    if (key is None) == (where is None):
        raise OptionError("give either key, or where: a condition over the columns of messages")
    if key is not None:  # Not as SQL: Spark replaces ${…} in SQL, even in quotes.
        return lambda frame: frame.where(frame["key"] == key)
    try:
        for table in ("messages", "dead_letters"):
            with_value(archive.frame(spark, topic, table)).where(where).schema  # noqa: B018
    except Exception as error:
        raise OptionError(
            f"where is {where!r}, which is not a condition over the columns of messages: {error}"
        ) from None
    return lambda frame: with_value(frame).where(where).drop(VALUE)


def _offsets(frame: DataFrame) -> list[int]:
    return sorted(int(row["offset"]) for row in collect_all(frame.select("offset").distinct()))


def _without(table: Table, entries: Sequence[FileEntry], offsets: Sequence[int]) -> Iterator[_Task]:
    """Yield a task for each file that may have rows at ``offsets``, which are sorted."""
    for entry in entries:
        place = bisect_left(offsets, entry.first)
        some = tuple(offsets[place : bisect_left(offsets, entry.last + 1)])
        if some:
            yield _Task(table, (entry,), some)


def _together(entries: Sequence[FileEntry], most: int) -> Iterator[tuple[FileEntry, ...]]:
    """Yield files to join: neighbours by offset of one day, of at most ``most`` bytes in total. Skip single files."""
    days: dict[str, list[FileEntry]] = defaultdict(list)
    for entry in entries:
        days[entry.date].append(entry)
    for files in days.values():
        for some in batches_by_weight(files, attrgetter("bytes"), most):
            if len(some) > 1:
                yield tuple(some)


def _rewrite(
    spark: SparkSession, archive: Archive, table: Table, topic: str, tasks: Sequence[_Task]
) -> list[tuple[_Task, list[FileEntry]]]:
    """Rewrite the files of the tasks, and commit the change. Return the tasks that change something, with new files."""
    written = zip(tasks, spread(spark, _rewriting(archive.storage.uri), tasks, FileEntry), strict=True)
    changes = []
    for task, new in written:
        gone = sum(entry.rows for entry in task.entries) - sum(entry.rows for entry in new)
        if gone and not task.offsets:
            raise ArchiveError(f"compaction: table {table} would lose {gone} rows. Nothing was changed")
        if task.offsets and not gone:  # The file has no row at these offsets.
            for entry in new:
                archive.storage.delete(entry.path)
        else:
            changes.append((task, new))
    if changes:
        snapshot = archive.snapshots[table]
        old = [entry for task, _ in changes for entry in task.entries]
        new = [entry for _, entries in changes for entry in entries]
        gone = sum(entry.rows for entry in old) - sum(entry.rows for entry in new)
        numbers: dict[tuple[Kind, str], int] = {}
        if gone:
            numbers["erased", topic] = snapshot.number("erased", topic) + gone
        archive.snapshots[table] = snapshot.commit(numbers, new, old)
    return changes


def _rewriting(to: str) -> Callable[[_Task], list[FileEntry]]:
    """Return a function for executors, which rewrites the files of a task and returns the new files."""

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
    """Yield groups of files whose offsets overlap. ``entries`` are sorted by first offset."""
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
    """Yield the rows in order: a single file by row groups; several files in one table, which is held in memory."""
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
