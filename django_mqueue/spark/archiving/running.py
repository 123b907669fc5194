"""The archive run: from where the manifests end to what is settled, batch by batch.

Of each batch the files are written, read back and counted; then comes the manifest, which makes them count; then the
group moves, which lets the messages be deleted. Killed between any two of these and run again, it goes on from the
manifests: files that none names do not count, and a group that was not moved yet is moved.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from ...exceptions import LogGap
from ...service import following
from ...store import bulk, unfinished
from ...store.leases import Holder
from ..connecting import Line
from ..errors import ArchiveError, NoArchive
from ..options import Table
from ..planning import some_topics
from ..settling import settled
from .asking import Asked, Progress
from .batches import Goal, Planner
from .catalog import Archive
from .files import HIDDEN, Files, files_at
from .hadoop import HadoopFiles
from .indirect import probe, written
from .jobs import parallelism, spread
from .layout import MARKER, TABLES, manifest_path
from .lost import check_none_lost
from .manifest import FileEntry, Manifest, Marker, Part, now_told
from .membership import Membership
from .standing import Standing, check, check_last, check_log, move, settle, still, told
from .vacancy import held
from .writing import Task, arrow_schema, writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Archived:
    """What a run has added of one topic: rows by table. ``upto``: what the archive reaches by now.

    ``position``: up to where the group lets messages be deleted.
    """

    topic: str
    upto: dict[Table, int]
    position: int
    rows: dict[Table, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    batches: int = 0
    files: int = 0
    bytes: int = 0


class Run:
    """One run; ``run`` it once."""

    def __init__(
        self, spark: SparkSession, files: Files, wanted: Asked, stopping: threading.Event, progress: Progress
    ) -> None:
        self._spark, self._files, self._group, self._strict = spark, files, wanted.group, wanted.strict
        self._stopping, self._progress = stopping, progress
        self._options = wanted.tables(parallelism(spark))
        self._planner = Planner(self._options, wanted.batch_rows, wanted.history_age_ms)
        self._how = wanted.options.connecting
        self._line = Line(self._how)
        self._standings: dict[str, Standing] = {}
        self._goals: dict[str, Goal] = {}
        self._done: dict[str, Archived] = {}
        self._readers: dict[str, Holder] = {}

    def run(self) -> list[Archived]:
        try:
            database = self._line.run(unfinished.database)
            topics = self._line.run(lambda using: some_topics(using, self._options["messages"]))
            archive = self._opened(database)
            for topic in topics:
                self._check_none_lost(archive, topic)
                self._look(archive, topic)
                self._goals[topic] = self._line.run(partial(self._goal, topic))
            self._probe(is_new=archive is None)
            with Membership(self._how, self._group) as membership:
                for topic in topics:
                    self._readers[topic] = membership.join(self._line, topic)
                archive = self._opened(database)  # Another run may have been at work until now.
                for topic in topics:  # All of them, before the log of any is held for this archive.
                    self._standings[topic] = self._look(archive, topic)
                    self._line.run(partial(self._check_free, topic))
                if archive is None:
                    self._begin(database)
                for topic in topics:
                    self._settle(topic)
                self._batches()
        finally:
            self._line.close()
        return [self._done[topic] for topic in sorted(self._done)]

    def _check_none_lost(self, archive: Archive | None, topic: str) -> None:
        """Also where a gap is allowed: what lies there is not to be written anew without what the log forgot."""
        if archive is None:
            return

        def held(above: int, upto: int) -> int:
            return self._line.run(lambda using: bulk.count(using, topic, above, upto, None))

        def name_at(offset: int) -> tuple[str, str] | None:
            return self._line.run(lambda using: bulk.name_at(using, offset))

        place = self._line.run(lambda using: following.place(topic, self._group, using=using))
        check_none_lost(self._spark, archive, told(archive, topic, self._group), place, held, name_at)

    def _look(self, archive: Archive | None, topic: str) -> Standing:
        """Where a topic stands. Raises ``LogGap`` if the manifests and the group do not fit together."""
        standing = told(archive, topic, self._group)
        if self._strict:
            found = self._line.run(lambda using: following.place(topic, self._group, using=using))
            check(standing, found)
            self._line.run(partial(check_log, standing, found))
        return standing

    def _check_free(self, topic: str, using: str) -> None:
        following.check_free(topic, self._group, using=using)

    def _settle(self, topic: str) -> None:
        found = self._line.run(partial(settle, self._standings[topic]))
        self._standings[topic] = found
        self._done[topic] = Archived(topic, found.upto, found.position)

    def _goal(self, topic: str, using: str) -> Goal:
        options = self._options["messages"]
        letters = options.suffixes.letters(topic)
        return Goal(settled(using, topic, options, told=True), settled(using, letters, options))

    def _opened(self, database: str) -> Archive | None:
        """The archive, if there is one already."""
        try:
            found = Archive.open(self._files.uri, self._spark)
        except NoArchive:
            try:
                there = held(self._files)
            except OSError as error:
                raise ArchiveError(f"{self._files.uri} cannot be written: {error}") from error
            if there:
                raise ArchiveError(
                    f"{self._files.uri} is no archive (there is no {MARKER}), and is not empty (it holds"
                    f" {', '.join(there[:3])}): give a folder that is empty, or not there yet"
                ) from None
            return None
        if found.marker.database != database:
            raise ArchiveError(
                f"the archive {self._files.uri} is of database {found.marker.database!r}, but this is {database!r}:"
                " give each database a folder of its own"
            )
        return found

    def _probe(self, *, is_new: bool) -> None:
        """Raise ``ArchiveError`` unless the place can be written; a new one by executors, as the driver sees."""
        name = f"{HIDDEN}probe-{uuid.uuid4().hex}"
        uri = self._files.uri

        def write(name: str) -> list[str]:
            files_at(uri).write(name, b"")
            return [name]

        try:
            if is_new and not isinstance(self._files, HadoopFiles):
                spread(self._spark, write, [name], str)
            else:
                self._files.write(name, b"")
                if isinstance(self._files, HadoopFiles):
                    probe(self._spark, self._files)
        except (ArchiveError, OSError, pa.ArrowException) as error:
            with suppress(OSError, pa.ArrowException):
                self._files.delete(name)
            raise ArchiveError(f"{uri} cannot be written: {error}") from error
        try:
            self._files.delete(name)
        except FileNotFoundError:
            raise ArchiveError(
                f"{uri}: what an executor writes there is not seen by the driver: give a place that all machines share"
            ) from None
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{uri}: nothing can be deleted there: {error}") from error

    def _begin(self, database: str) -> None:
        try:
            self._files.write(MARKER, Marker(uuid.uuid4().hex, database, now_told()).json())
        except FileExistsError:
            raise ArchiveError(
                f"{self._files.uri}: another run has begun an archive there just now"
            ) from None

    def _batches(self) -> None:
        total = sum(self._left(topic) for topic in self._standings)
        self._progress(0, total)
        while not self._stopping.is_set():
            reached = self._line.run(
                lambda using: self._planner.reaches(using, list(self._standings.values()), self._goals)
            )
            if not reached:
                return
            self._batch({standing.topic: standing for standing in reached})
            self._progress(total - sum(self._left(topic) for topic in self._standings), total)

    def _left(self, topic: str) -> int:
        return max(0, self._goals[topic].messages - self._standings[topic].upto["messages"])

    def _batch(self, reached: Mapping[str, Standing]) -> None:
        tasks = [task for standing in reached.values() for task in self._tasks(standing)]
        if isinstance(self._files, HadoopFiles):
            found = written(self._spark, self._files, self._options, tasks)
        else:
            found = spread(self._spark, writing(self._files.uri, self._options), tasks, FileEntry)
        parts: dict[tuple[str, Table], list[FileEntry]] = defaultdict(list)
        for task, entries in zip(tasks, found, strict=True):
            parts[task.topic, task.table] += entries
        for topic, standing in reached.items():
            self._line.run(partial(self._check_reader, topic))
            self._add(standing, {table: parts[topic, table] for table in TABLES})

    def _check_reader(self, topic: str, using: str) -> None:
        following.check_reader(self._readers[topic], using=using)

    def _tasks(self, reached: Standing) -> list[Task]:
        standing = self._standings[reached.topic]
        return self._line.run(lambda using: self._planner.tasks(using, standing, reached))

    def _add(self, reached: Standing, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        """The manifest, and then the group."""
        before = self._standings[reached.topic]
        reached = replace(reached, life=self._held(before, reached))
        manifest = Manifest(
            topic=reached.topic,
            group=reached.group,
            batch=reached.batch,
            life=reached.life,
            position=reached.position,
            tables={
                table: Part(
                    before.upto[table],
                    reached.upto[table],
                    sum(e.rows for e in files[table]),
                    tuple(files[table]),
                )
                for table in TABLES
                if before.upto[table] < reached.upto[table]
            },
            columns={table: {f.name: str(f.type) for f in arrow_schema(table)} for table in TABLES},
            created_at=now_told(),
            last=reached.last,
        )
        try:
            self._files.write(manifest_path(reached.topic, manifest.name), manifest.json())
        except FileExistsError:
            raise ArchiveError(
                f"{self._files.uri} has a batch {reached.batch} of topic {reached.topic!r} since a moment ago: another"
                " run writes there"
            ) from None
        self._standings[reached.topic] = reached
        self._count(reached, files)
        self._move(reached)

    def _held(self, standing: Standing, reached: Standing) -> int:
        """The life of the group's registration, which must have held back deletion all the time."""
        try:
            self._line.run(partial(still, standing))
            if reached.last != standing.last:
                self._line.run(partial(check_last, reached))
        except LogGap:
            if self._strict:
                raise
            return self._line.run(partial(settle, standing)).life
        return standing.life

    def _move(self, reached: Standing) -> None:
        try:
            self._line.run(partial(move, reached, me=self._readers[reached.topic]))
        except LogGap:
            if self._strict:
                raise

    def _count(self, reached: Standing, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        done = self._done[reached.topic]
        done.upto, done.position = reached.upto, reached.position
        done.batches += 1
        for table, entries in files.items():
            done.rows[table] += sum(entry.rows for entry in entries)
            done.files += len(entries)
            done.bytes += sum(entry.bytes for entry in entries)
