"""The archive run: add batches to an archive, from its end up to the settled offset.

For each batch, tasks write the files, read them back and count the rows. Then the run commits the three tables, the
messages last. Then it moves the group, which lets the log delete the messages. A run may be killed between any two of
these steps. The next run continues from the tables: files that no table names do not count, and a group that was not
moved yet is moved.
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

from ...exceptions import LogGap
from ...store.leases import Holder
from ..connecting import RetryingConnection
from ..database import following
from ..errors import ArchiveError, NoArchive
from ..reader.options import Table
from ..reader.planning import some_topics
from ..reader.settling import settled
from ..sql import installation
from ..sql.installation import Installation
from .batches import Goal, Planner
from .catalog import FORMAT, FORMAT_PROPERTY, GROUP, ID, INSTALLATION, SERVER, Archive
from .jobs import parallelism, spread
from .membership import Membership
from .parquet import FileEntry
from .requests import ArchiveRequest, Progress
from .storage import HIDDEN, Storage, held, storage_at
from .tables import TABLES, Kind, created, opened
from .tasks import Task, writing
from .topic_state import TopicState, check, check_last, check_log, move, read_state, settle, still

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Archived:
    """The rows, batches, files and bytes that a run has added for one topic.

    ``upto``: by table, the offset that the archive reaches now. ``position``: the offset up to which the group lets
    messages be deleted. ``rows``: by table.
    """

    topic: str
    upto: dict[Table, int]
    position: int
    rows: dict[Table, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    batches: int = 0
    files: int = 0
    bytes: int = 0


class Run:
    """One archive run. Call ``run`` once."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        wanted: ArchiveRequest,
        stopping: threading.Event,
        progress: Progress,
    ) -> None:
        self._spark, self._storage, self._group = spark, storage, wanted.group
        self._strict, self._moved = wanted.strict, wanted.moved
        self._stopping, self._progress = stopping, progress
        self._options = wanted.tables(parallelism(spark))
        self._planner = Planner(self._options, wanted.batch_rows, wanted.history_age_ms)
        self._how = wanted.options.connecting
        self._line = RetryingConnection(self._how)
        self._standings: dict[str, TopicState] = {}
        self._goals: dict[str, Goal] = {}
        self._done: dict[str, Archived] = {}
        self._readers: dict[str, Holder] = {}

    def run(self) -> list[Archived]:
        try:
            database = self._line.run(installation.look)
            topics = self._line.run(lambda using: some_topics(using, self._options["messages"]))
            archive = self._opened(database)
            for topic in topics:
                self._look(archive, topic)
                self._goals[topic] = self._line.run(partial(self._goal, topic))
            self._probe(is_new=archive is None)
            with Membership(self._how, self._group) as membership:
                for topic in topics:
                    self._readers[topic] = membership.join(self._line, topic)
                archive = self._opened(database)  # Another run may have worked until now.
                for topic in topics:  # Check all topics before any log is held back.
                    self._standings[topic] = self._look(archive, topic)
                    self._line.run(partial(self._check_free, topic))
                if archive is None:
                    archive = self._begin(database)
                elif archive.properties.get(SERVER) != database.server:
                    archive.snapshots["messages"].set_properties({SERVER: database.server})
                    archive = Archive.open(self._storage.uri)
                self._snapshots = {
                    table: snapshot.with_columns_of_now() for table, snapshot in archive.snapshots.items()
                }
                for topic in topics:
                    self._settle(topic)
                self._batches()
        finally:
            self._line.close()
        return [self._done[topic] for topic in sorted(self._done)]

    def _look(self, archive: Archive | None, topic: str) -> TopicState:
        """Return the state of a topic. Raises ``LogGap`` if the archive and the group do not fit together."""
        standing = read_state(archive, topic, self._group)
        if self._strict:
            found = self._line.run(lambda using: following.place(topic, self._group, using=using))
            check(standing, found)
            self._line.run(partial(check_log, standing, found))
        return standing

    def _check_free(self, topic: str, using: str) -> None:
        following.check_free(topic, self._group, using=using)

    def _settle(self, topic: str) -> None:
        """Move the group to the archive's end, if the files of the last batch exist.

        An earlier run may have committed that batch without moving the group.
        """
        standing = self._standings[topic]
        for snapshot in self._snapshots.values():
            snapshot.check_there([e for e in snapshot.files.get(topic, ()) if e.last > standing.lowest])
        found = self._line.run(partial(settle, self._standings[topic]))
        self._standings[topic] = found
        self._done[topic] = Archived(topic, found.upto, found.position)

    def _goal(self, topic: str, using: str) -> Goal:
        options = self._options["messages"]
        letters = options.suffixes.letters(topic)
        return Goal(settled(using, topic, options, told=True), settled(using, letters, options))

    def _opened(self, database: Installation) -> Archive | None:
        """Return the archive, or None if the folder has none yet. Raises ``ArchiveError`` if it does not fit."""
        try:
            found = Archive.open(self._storage.uri)
        except NoArchive:
            self._check_empty()
            return None
        where, group = self._storage.uri, found.properties.get(GROUP)
        if found.properties.get(INSTALLATION) != database.id:
            raise ArchiveError(
                f"the archive {where} belongs to another database: use one folder for each database"
            )
        if found.properties.get(SERVER) != database.server and not self._moved:
            raise ArchiveError(
                f"the archive {where} belongs to the database on server {found.properties.get(SERVER)}, but this"
                f" database is a copy of it on server {database.server}. If the copy replaces the original, run once"
                " with moved=True (--moved). Otherwise use a new folder and a new group"
            )
        if group != self._group:
            raise ArchiveError(
                f"the archive {where} is written by group {group!r}, not {self._group!r}: use that group, or another"
                " folder"
            )
        return found

    def _check_empty(self) -> None:
        """Raise ``ArchiveError`` if the folder holds other files.

        Tables without messages are allowed: a run that was killed at its start leaves them.
        """
        try:
            there = held(self._storage)
        except OSError as error:
            raise ArchiveError(f"{self._storage.uri} cannot be written: {error}") from error
        begun = tuple(f"{table}/_delta_log/" for table in TABLES)
        if others := [path for path in there if not path.startswith(begun)]:
            raise ArchiveError(
                f"{self._storage.uri} is not an archive and is not empty (it holds {', '.join(others[:3])}): give an"
                " empty folder, or a new one"
            )

    def _probe(self, *, is_new: bool) -> None:
        """Raise ``ArchiveError`` unless files can be written, read and deleted in the folder.

        For a new archive, an executor writes the file, and the driver must see it. The folder must also refuse to
        replace a file. Otherwise two runs could commit at once, and both would report success.
        """
        name, uri = f"{HIDDEN}probe-{uuid.uuid4().hex}", self._storage.uri

        def write(name: str) -> list[str]:
            storage_at(uri).write(name, b"")
            return [name]

        try:
            if is_new:
                spread(self._spark, write, [name], str)
            else:
                write(name)
            self._storage.read(name)
            with suppress(FileExistsError):
                write(name)
                raise ArchiveError("it overwrote an existing file: the storage has no conditional writes")
        except FileNotFoundError:
            raise ArchiveError(
                f"{uri}: the driver does not see files that an executor writes there: give a location that all"
                " machines share"
            ) from None
        except (ArchiveError, OSError) as error:
            with suppress(OSError):
                self._storage.delete(name)
            raise ArchiveError(f"{uri} cannot be written: {error}") from error
        try:
            self._storage.delete(name)
        except OSError as error:
            raise ArchiveError(f"{uri}: files cannot be deleted there: {error}") from error

    def _begin(self, database: Installation) -> Archive:
        """Create the tables, the messages last: the archive exists when the table of messages exists."""
        properties = {
            FORMAT_PROPERTY: FORMAT, ID: uuid.uuid4().hex, GROUP: self._group,
            INSTALLATION: database.id, SERVER: database.server,
        }  # fmt: skip
        for table in TABLES:
            if table == "messages" or opened(self._storage, table) is None:
                created(self._storage, table, properties)
        return Archive.open(self._storage.uri)

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

    def _batch(self, reached: Mapping[str, TopicState]) -> None:
        tasks = [task for standing in reached.values() for task in self._tasks(standing)]
        found = spread(self._spark, writing(self._storage.uri, self._options), tasks, FileEntry)
        files: dict[tuple[str, Table], list[FileEntry]] = defaultdict(list)
        for task, entries in zip(tasks, found, strict=True):
            files[task.topic, task.table] += entries
        for topic, standing in reached.items():
            self._line.run(partial(self._check_reader, topic))
            self._add(standing, {table: files[topic, table] for table in TABLES})

    def _check_reader(self, topic: str, using: str) -> None:
        following.check_reader(self._readers[topic], using=using)

    def _tasks(self, reached: TopicState) -> list[Task]:
        standing = self._standings[reached.topic]
        return self._line.run(lambda using: self._planner.tasks(using, standing, reached))

    def _add(self, reached: TopicState, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        """Commit the tables, then move the group."""
        before = self._standings[reached.topic]
        reached = replace(reached, life=self._held(before, reached))
        for table in TABLES:
            if table == "messages" or before.upto[table] < reached.upto[table]:
                self._commit(table, before, reached, files[table])
        for table in TABLES:
            self._snapshots[table].check_there(files[table])
        self._standings[reached.topic] = reached
        self._count(reached, files)
        self._move(reached)

    def _commit(
        self, table: Table, before: TopicState, reached: TopicState, files: Sequence[FileEntry]
    ) -> None:
        topic, snapshot = reached.topic, self._snapshots[table]
        if snapshot.number("upto", topic) != before.upto[table]:
            raise ArchiveError(
                f"{self._storage.uri}: table {table} has topic {topic!r} up to {snapshot.number('upto', topic)}, not"
                f" {before.upto[table]}: another run added to it. Run this again"
            )
        numbers: dict[tuple[Kind, str], int] = {
            ("upto", topic): reached.upto[table],
            ("rows", topic): snapshot.number("rows", topic) + sum(entry.rows for entry in files),
        }
        if table == "messages":
            numbers["position", topic] = reached.position
            numbers["lowest", topic] = before.position
            numbers["life", topic] = reached.life
        self._snapshots[table] = snapshot.commit(numbers, files)

    def _held(self, standing: TopicState, reached: TopicState) -> int:
        """Return the group's registration generation. Raises ``LogGap`` unless it held back deletion all the time.

        Without ``strict``, a gap is no error: the group is registered if it is not, and its generation is returned.
        """
        try:
            self._line.run(partial(still, standing))
            if reached.last != standing.last:
                self._line.run(partial(check_last, reached))
        except LogGap:
            if self._strict:
                raise
            return self._line.run(partial(settle, standing)).life
        return standing.life

    def _move(self, reached: TopicState) -> None:
        try:
            self._line.run(partial(move, reached, me=self._readers[reached.topic]))
        except LogGap:
            if self._strict:
                raise

    def _count(self, reached: TopicState, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        done = self._done[reached.topic]
        done.upto, done.position = reached.upto, reached.position
        done.batches += 1
        for table, entries in files.items():
            done.rows[table] += sum(entry.rows for entry in entries)
            done.files += len(entries)
            done.bytes += sum(entry.bytes for entry in entries)
