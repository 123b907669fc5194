"""Compaction: the small files of many batches become few large ones, under one manifest.

New files are written and read back, then a manifest names them and the manifests that it replaces: from that moment on
these do not count. They are deleted later, by ``verify(clean=True)``, because somebody may be reading them.

**Of several at once.** A compaction of a topic takes, with its manifest, the number after the highest that it knew when
it began to write files. The name is made of the number, and no file is replaced, so of two that know the same only one
gets there, and each knows all those before it. Cleaning takes a number too, before it deletes what a compaction that is
under way may have written: that one comes too late then, and has changed nothing. Neither waits for the other, and
whoever is killed leaves nothing that must be undone: before its manifest it has changed nothing, and with it is done.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ArchiveError
from ..options import Table
from .asking import Progress
from .catalog import Archive
from .files import Files, files_at
from .hadoop import HadoopFiles
from .indirect import merged
from .jobs import spread
from .layout import TABLES, manifest_path
from .manifest import FileEntry, Manifest, Part, counting, now_told
from .parquet import Days, problem
from .writing import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Compacted:
    """Of one topic: how many manifests and files were compacted, and how many there are in their place."""

    topic: str
    manifests: int = 0
    manifests_now: int = 0
    files: int = 0
    files_now: int = 0
    rows: int = 0


@dataclass(frozen=True)
class _Task:
    """Files of one day and table, which become one, or few."""

    topic: str
    batch: int
    table: Table
    date: str
    entries: tuple[FileEntry, ...]


def compacted(
    spark: SparkSession,
    archive: Archive,
    topics: Sequence[str],
    bytes: int,
    stopping: threading.Event,
    progress: Progress,
) -> list[Compacted]:
    """Topic by topic, until ``stopping`` is set."""
    done = [Compacted(topic) for topic in topics]
    expected = {topic: _expected(archive, topic, bytes) for topic in topics}
    total = sum(expected.values())
    progress(0, total)
    for found in done:
        if stopping.is_set():
            break
        # Anew: what was counted may be compacted and deleted since.
        todo = list(_together(Archive.open(archive.files.uri, spark).manifests(found.topic), bytes))
        total += sum(map(_files, todo)) - expected[found.topic]
        for some in todo:
            if stopping.is_set():
                break
            _compact(spark, Archive.open(archive.files.uri, spark), some, found)
            progress(sum(each.files for each in done), total)
    return done


def _expected(archive: Archive, topic: str, bytes: int) -> int:
    """How many files are to be compacted, as it looks now."""
    with suppress(ArchiveError):  # It is raised when the topic's turn comes.
        return sum(map(_files, _together(archive.manifests(topic), bytes)))
    return 0


def next_compaction(archive: Archive, topic: str) -> tuple[int, set[str]]:
    """Its number; and the names of those before it that have no files, and of what they replace: it does, too."""
    found = archive.all_manifests(topic)
    empty = [manifest for manifest in counting(found) if not manifest.tables]
    names = {manifest.name for manifest in empty}.union(*(manifest.replaces for manifest in empty))
    return max((manifest.compaction for manifest in found), default=0) + 1, names


def _together(manifests: Sequence[Manifest], most: int) -> Iterator[list[Manifest]]:
    """Neighbours with at most so many bytes; those without one are left out."""
    some: list[Manifest] = []
    size = 0
    for manifest in manifests:
        own = sum(entry.bytes for part in manifest.tables.values() for entry in part.files)
        if some and size + own > most:
            if len(some) > 1:
                yield some
            some, size = [], 0
        some.append(manifest)
        size += own
    if len(some) > 1:
        yield some


def _compact(spark: SparkSession, archive: Archive, old: Sequence[Manifest], done: Compacted) -> None:
    topic, last, files = old[-1].topic, old[-1], archive.files
    number, empty = next_compaction(archive, topic)
    _check_there(archive, old)
    tasks = list(_tasks(old))
    if isinstance(files, HadoopFiles):
        days = [(task.table, task.date, task.entries) for task in tasks]
        written = merged(spark, files, topic, last.batch, days)
    else:
        written = spread(spark, _merging(files.uri), tasks, FileEntry)
    new: dict[Table, list[FileEntry]] = defaultdict(list)
    for task, entries in zip(tasks, written, strict=True):
        new[task.table] += entries
    manifest = Manifest(
        topic=topic,
        group=last.group,
        batch=last.batch,
        life=last.life,
        position=last.position,
        tables={
            table: _part(old, table, new[table]) for table in TABLES if any(table in m.tables for m in old)
        },
        columns={table: {f.name: str(f.type) for f in arrow_schema(table)} for table in TABLES},
        created_at=now_told(),
        since=old[0].since or old[0].batch,
        replaces=tuple(sorted(empty.union({m.name for m in old}, *(m.replaces for m in old)))),
        compaction=number,
        last=last.last,
    )
    try:
        files.write(manifest_path(topic, manifest.name), manifest.json())
    except FileExistsError:
        raise _too_late(topic) from None
    # Its number may be free because it was another one's, long ago.
    _check_there(Archive.open(files.uri, spark), [manifest])
    done.manifests += len(old)
    done.manifests_now += 1
    done.files += _files(old)
    done.files_now += sum(len(entries) for entries in new.values())
    done.rows += sum(part.rows for part in manifest.tables.values())


def _files(manifests: Sequence[Manifest]) -> int:
    return sum(len(part.files) for manifest in manifests for part in manifest.tables.values())


def _check_there(archive: Archive, manifests: Sequence[Manifest]) -> None:
    """Raise ``ArchiveError`` unless these count."""
    found = {manifest.name: manifest for manifest in archive.manifests(manifests[0].topic)}
    if any(found.get(manifest.name) != manifest for manifest in manifests):
        raise _too_late(manifests[0].topic)


def _too_late(topic: str) -> ArchiveError:
    return ArchiveError(
        f"another compaction or cleaning of topic {topic!r} was done meanwhile: this one has changed nothing. Run it"
        " again, one at a time"
    )


def _part(old: Sequence[Manifest], table: Table, entries: Sequence[FileEntry]) -> Part:
    parts = [manifest.tables[table] for manifest in old if table in manifest.tables]
    rows = sum(part.rows for part in parts)
    if rows != sum(entry.rows for entry in entries):
        raise ArchiveError(
            f"compaction: {table} had {rows} rows, but {sum(entry.rows for entry in entries)} were written"
        )
    return Part(parts[0].above, parts[-1].upto, rows, tuple(entries))


def _tasks(old: Sequence[Manifest]) -> Iterator[_Task]:
    by_day: dict[tuple[Table, str], list[FileEntry]] = defaultdict(list)
    for manifest in old:
        for table, part in manifest.tables.items():
            for entry in part.files:
                by_day[table, entry.date].append(entry)
    for (table, date), entries in sorted(by_day.items()):
        entries.sort(key=lambda entry: (entry.first, entry.path))
        yield _Task(old[-1].topic, old[-1].batch, table, date, tuple(entries))


def _merging(to: str) -> Callable[[_Task], list[FileEntry]]:
    """A function for executors."""

    def merge(task: _Task) -> list[FileEntry]:
        files, schema = files_at(to), arrow_schema(task.table)
        days = Days(files, task.table, task.topic, task.batch, uuid.uuid4().hex[:16], schema)
        with days:
            for cluster in clusters(task.entries):
                for entry in cluster:
                    if found := problem(files, entry):
                        raise ArchiveError(f"{files.uri}: {found}")
                for table in _sorted(files, cluster, schema, task.table):
                    days.put(task.date, table)
        return days.entries

    return merge


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
    files: Files, cluster: Sequence[FileEntry], schema: pa.Schema, table: Table
) -> Iterator[pa.Table]:
    """The rows of one file, a group of rows after the other; or of several, which are held in memory together."""
    if len(cluster) == 1:
        with files.open(cluster[0].path) as stream:
            file = pq.ParquetFile(stream)
            for number in range(file.num_row_groups):
                yield conformed(file.read_row_group(number), schema)
        return
    parts = []
    for entry in cluster:
        with files.open(entry.path) as stream:
            parts.append(conformed(pq.ParquetFile(stream).read(), schema))
    order = [("offset", "ascending")] + ([("group", "ascending")] if table == "deliveries" else [])
    yield pa.concat_tables(parts).sort_by(order)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the columns that files have now: null where an older file has none."""
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
