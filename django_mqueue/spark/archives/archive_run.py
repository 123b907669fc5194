"""The archive run: add batches to an archive, from its end up to the settled offset.

For each batch, tasks write the files, read them back and count the rows. Then the run commits the three tables, the
messages last. Then it moves the group, which lets the log delete the messages. A run may be killed between any two of
these steps. The next run continues from the tables. It ignores files that no table names, and moves the group if the
killed run did not.
"""

from __future__ import annotations

import threading
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
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
from ..sql import installation
from ..sql.installation import Installation
from .batches import Planner, Task, writing
from .catalog import FORMAT, FORMAT_PROPERTY, GROUP, ID, INSTALLATION, SERVER, Archive
from .jobs import parallelism, spread
from .membership import Membership
from .parquet import FileEntry
from .requests import BATCH_ROWS, HISTORY_AFTER, TABLES, ArchiveRequest, Progress, archive_request, quiet
from .storage import HIDDEN, Storage, storage_at, visible_files
from .tables import Kind, create_table, open_table
from .topic_state import (
    TopicState,
    check,
    check_group_unchanged,
    check_last,
    check_log,
    move,
    read_state,
    settle,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Archived:
    """The rows, batches, files and bytes that a run has added for one topic."""

    topic: str
    upto: dict[Table, int]  # By table, the offset that the archive reaches now.
    position: int  # The offset up to which the group lets messages be deleted.
    rows: dict[Table, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    batches: int = 0
    files: int = 0
    bytes: int = 0


def archive(
    spark: SparkSession,
    topics: str | Sequence[str] | None,
    to: str,
    *,
    options: Mapping[str, str] | None = None,
    pattern: str | None = None,
    group: str = "archive",
    batch_rows: int = BATCH_ROWS,
    history_after: float = HISTORY_AFTER,
    fail_on_data_loss: bool = True,
    moved: bool = False,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Archived]:
    """Add new messages of the topics to the archive at ``to``, and let the log delete them. Return what was added.

    The run starts where the archive ends, and stops at the offset that was settled when the run began.

    * ``topics`` and ``pattern``: give one of them: a name or several names; or a regular expression for whole names.
    * ``to``: a path, or the URI of a folder in an object store.
    * ``options``: connection options of ``format("mqueue")``, and ``deadLetterSuffix``. Default: Django's settings.
    * ``group``: the consumer group that holds back deletion for the archive.
    * ``batch_rows``: the maximum number of messages in a batch.
    * ``history_after``: seconds. The delivery history of a message of that age is archived even if groups are not done.
    * ``fail_on_data_loss``: whether to raise ``LogGap`` if messages may be missing.
    * ``moved``: confirms that the database moved to another server, and replaces the database on the earlier server.
    * ``stopping``: an event. When it is set, the run ends after the current batch.
    * ``progress``: called with the number of offsets done and the total.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``NoSpark`` (``deltalake`` is not installed),
    ``GroupTaken`` (another run of the group is alive, or workers consume for the group), ``LogGap``, or
    ``ArchiveError`` (the folder cannot be written or holds something else, a file is damaged, the archive belongs to
    another database, server or group, or another run was faster).
    """
    request = archive_request(
        options or {}, topics, pattern, group, batch_rows, history_after,
        strict=fail_on_data_loss, moved=moved,
    )  # fmt: skip
    with closing(RetryingConnection(request.options.connecting)) as connection:
        return Run(spark, storage_at(to), request, connection).run(
            stopping or threading.Event(), progress or quiet
        )


class Run:
    """One archive run. Call ``run`` once."""

    def __init__(
        self, spark: SparkSession, storage: Storage, request: ArchiveRequest, connection: RetryingConnection
    ) -> None:
        self._spark, self._storage, self._request, self._connection = spark, storage, request, connection
        self._group, self._strict = request.group, request.options.fail_on_data_loss
        self._options = request.tables(parallelism(spark))
        self._planner = Planner(self._options, request.batch_rows, request.history_age_ms)
        self._states: dict[str, TopicState] = {}
        self._done: dict[str, Archived] = {}
        self._readers: dict[str, Holder] = {}

    def run(self, stopping: threading.Event, progress: Progress) -> list[Archived]:
        database = self._connection.run(installation.identify)
        topics = self._connection.run(lambda using: some_topics(using, self._options["messages"]))
        archive = self._opened(database)
        for topic in topics:
            self._read_state(archive, topic)
            self._connection.run(partial(self._planner.set_goal, topic=topic))
        self._probe(is_new=archive is None)
        with Membership(self._request.options.connecting, self._group) as membership:
            for topic in topics:
                self._readers[topic] = membership.join(self._connection, topic)
            archive = self._opened(database)  # Another run may have changed it meanwhile.
            for topic in topics:  # Check all topics before the group holds back any deletion.
                self._states[topic] = self._read_state(archive, topic)
                self._connection.run(partial(self._check_free, topic))
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
            self._batches(stopping, progress)
        return [self._done[topic] for topic in sorted(self._done)]

    def _read_state(self, archive: Archive | None, topic: str) -> TopicState:
        """Return the state of a topic. Raises ``LogGap`` if the archive and the group do not fit together."""
        state = read_state(archive, topic, self._group)
        if self._strict:
            found = self._connection.run(lambda using: following.position(topic, self._group, using=using))
            check(state, found)
            self._connection.run(partial(check_log, state, found))
        return state

    def _check_free(self, topic: str, using: str) -> None:
        following.check_free(topic, self._group, using=using)

    def _settle(self, topic: str) -> None:
        """Check that the files of the last batch exist. Move the group to its end if a killed run did not."""
        state = self._states[topic]
        for snapshot in self._snapshots.values():
            snapshot.check_files_exist([e for e in snapshot.files.get(topic, ()) if e.last > state.lowest])
        state = self._states[topic] = self._connection.run(partial(settle, state))
        self._done[topic] = Archived(topic, state.upto, state.position)

    def _opened(self, database: Installation) -> Archive | None:
        """Return the archive; None if there is none yet. Raises ``ArchiveError`` if this run must not write there."""
        try:
            found = Archive.open(self._storage.uri)
        except NoArchive:
            # A run that was killed at its start leaves tables without messages.
            begun = tuple(f"{table}/_delta_log/" for table in TABLES)
            try:
                others = [path for path in visible_files(self._storage) if not path.startswith(begun)]
            except OSError as error:
                raise ArchiveError(f"{self._storage.uri} cannot be written: {error}") from error
            if others:
                raise ArchiveError(
                    f"{self._storage.uri} is not an archive and is not empty (it holds {', '.join(others[:3])}): give"
                    " an empty folder, or a new one"
                ) from None
            return None
        where = self._storage.uri
        if found.properties.get(INSTALLATION) != database.id:
            raise ArchiveError(
                f"the archive {where} belongs to another database: use one folder for each database"
            )
        if found.properties.get(SERVER) != database.server and not self._request.moved:
            raise ArchiveError(
                f"the archive {where} belongs to the database on server {found.properties.get(SERVER)}, but this"
                f" database is a copy of it on server {database.server}. If the copy replaces the original, run once"
                " with moved=True (--moved). Otherwise use a new folder and a new group"
            )
        if found.group != self._group:
            raise ArchiveError(
                f"the archive {where} is written by group {found.group!r}, not {self._group!r}: use that group, or"
                " another folder"
            )
        return found

    def _probe(self, *, is_new: bool) -> None:
        """Raise ``ArchiveError`` unless the driver can use the storage, and in a new folder also the executors."""
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
            # If the storage replaced files, two runs could commit at once, and both would report success.
            with suppress(FileExistsError):
                write(name)
                raise ArchiveError("it overwrote an existing file: the storage has no conditional writes")
            self._storage.delete(name)
        except FileNotFoundError:
            raise ArchiveError(
                f"{uri}: the driver does not see files that an executor writes there: give a location that all"
                " machines share"
            ) from None
        except (ArchiveError, OSError) as error:
            with suppress(OSError):
                self._storage.delete(name)
            raise ArchiveError(f"{uri} cannot be written: {error}") from error

    def _begin(self, database: Installation) -> Archive:
        """Create the tables, the messages last: the archive exists when the table of messages exists."""
        properties = {
            FORMAT_PROPERTY: FORMAT, ID: uuid.uuid4().hex, GROUP: self._group,
            INSTALLATION: database.id, SERVER: database.server,
        }  # fmt: skip
        for table in TABLES:
            if table == "messages" or open_table(self._storage, table) is None:
                create_table(self._storage, table, properties)
        return Archive.open(self._storage.uri)

    def _batches(self, stopping: threading.Event, progress: Progress) -> None:
        total = self._remaining()
        progress(0, total)
        while not stopping.is_set():
            states = list(self._states.values())
            reached = self._connection.run(partial(self._planner.reaches, states=states))
            if not reached:
                return
            self._batch(reached)
            progress(total - self._remaining(), total)

    def _remaining(self) -> int:
        """Return the number of offsets that are not archived yet."""
        goals = self._planner.goals
        return sum(max(0, goals[s.topic]["messages"] - s.upto["messages"]) for s in self._states.values())

    def _batch(self, reached: Sequence[TopicState]) -> None:
        tasks: list[Task] = []
        for state in reached:
            plan = partial(self._planner.tasks, state=self._states[state.topic], reached=state)
            tasks += self._connection.run(plan)
        found = spread(self._spark, writing(self._storage.uri, self._options), tasks, FileEntry)
        files: dict[tuple[str, Table], list[FileEntry]] = defaultdict(list)
        for task, entries in zip(tasks, found, strict=True):
            files[task.topic, task.table] += entries
        for state in reached:
            self._connection.run(partial(self._check_reader, state.topic))
            self._add(state, {table: files[state.topic, table] for table in TABLES})

    def _check_reader(self, topic: str, using: str) -> None:
        following.check_reader(self._readers[topic], using=using)

    def _add(self, reached: TopicState, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        """Commit the tables, then move the group."""
        before = self._states[reached.topic]
        reached = replace(reached, generation=self._check_group_unchanged(before, reached))
        for table in TABLES:
            if table == "messages" or before.upto[table] < reached.upto[table]:
                self._commit(table, before, reached, files[table])
        for table in TABLES:
            self._snapshots[table].check_files_exist(files[table])
        self._states[reached.topic] = reached
        done = self._done[reached.topic]
        done.upto, done.position = reached.upto, reached.position
        done.batches += 1
        for table, entries in files.items():
            done.rows[table] += sum(entry.rows for entry in entries)
            done.files += len(entries)
            done.bytes += sum(entry.bytes for entry in entries)
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
            numbers["life", topic] = reached.generation
        self._snapshots[table] = snapshot.commit(numbers, files)

    def _check_group_unchanged(self, state: TopicState, reached: TopicState) -> int:
        """Return the group's registration generation. Raises ``LogGap`` if it did not always hold back deletion."""
        try:
            self._connection.run(partial(check_group_unchanged, state))
            if reached.last != state.last:
                self._connection.run(partial(check_last, reached))
        except LogGap:
            if self._strict:
                raise
            # Gaps are allowed, so register the group again.
            return self._connection.run(partial(settle, state)).generation
        return state.generation

    def _move(self, reached: TopicState) -> None:
        try:
            self._connection.run(partial(move, reached, reader=self._readers[reached.topic]))
        except LogGap:
            if self._strict:
                raise
