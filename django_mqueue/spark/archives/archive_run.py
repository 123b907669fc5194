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
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...store.leases import Holder
from ..connecting import RetryingConnection
from ..database import following
from ..database.heartbeating import Heartbeats
from ..errors import ArchiveError
from ..reader.options import Table
from ..reader.planning import some_topics
from ..sql import installation
from ..sql.installation import Installation
from .batches import Planner, Task, write_task
from .catalog import KEPT, SERVER, Archive
from .jobs import parallelism, spread
from .opening import check_writable, create_archive, open_to_write
from .parquet import FileEntry
from .requests import BATCH_ROWS, HISTORY_AFTER, TABLES, ArchiveRequest, Progress, archive_request, quiet
from .storage import Storage, storage_at
from .tables import Kind
from .topic_state import (
    TopicState,
    catch_up_group,
    check,
    check_group_unchanged,
    check_last,
    move,
    read_state,
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
    * ``moved``: confirms that this database replaces the one on the server that the archive names.
    * ``stopping``: an event. When it is set, the run ends after the current batch.
    * ``progress``: called with the number of offsets done and the total.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``NoSpark`` (``deltalake`` is not installed),
    ``GroupTaken`` (another run of the group is alive, or workers consume for the group), ``LogGap``, or
    ``ArchiveError`` (the folder cannot be written or holds something else, a file is damaged, the archive belongs to
    another database, server or group, or another run added to it first).
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
        self._incarnation, self._heartbeats = uuid.uuid4().hex, Heartbeats(request.options.connecting)

    def run(self, stopping: threading.Event, progress: Progress) -> list[Archived]:
        database = self._connection.run(installation.identify)
        topics = self._connection.run(lambda using: some_topics(using, self._options["messages"]))
        archive = self._open(database)
        for topic in topics:
            self._read_state(archive, topic)
        self._connection.run(partial(self._planner.set_goals, topics=topics))
        check_writable(self._spark, self._storage, is_new=archive is None)
        try:
            for topic in topics:
                self._join(topic)
            archive = self._open(database)  # Another run may have changed it meanwhile.
            for topic in topics:  # Check all topics before the group holds back any deletion.
                self._states[topic] = self._read_state(archive, topic)
                self._connection.run(partial(self._check_free, topic))
            if archive is None:
                archive = create_archive(self._storage, database, self._group)
            elif not (wanted := {SERVER: database.server, **KEPT}).items() <= archive.properties.items():
                for table in TABLES:  # The messages last: the check above reads their properties.
                    archive.snapshots[table].set_properties(wanted)
                archive = Archive.open(self._storage.uri)
            self._snapshots = {
                table: snapshot.with_current_columns() for table, snapshot in archive.snapshots.items()
            }
            for topic in topics:
                self._catch_up_group(topic)
            self._batches(stopping, progress)
        finally:
            self._heartbeats.stop()
        return [self._done[topic] for topic in sorted(self._done)]

    def _open(self, database: Installation) -> Archive | None:
        return open_to_write(self._storage, database, self._group, moved=self._request.moved)

    def _join(self, topic: str) -> None:
        """Become the group's only reader of a topic until the run ends. Raises ``GroupTaken`` if another is alive."""
        name = f"{following.READER_PREFIX}{self._incarnation[:12]}"
        reader = self._readers[topic] = Holder(self._group, topic, name, self._incarnation)
        self._connection.run(lambda using: following.join_all([reader], using=using))
        self._heartbeats.add([reader])

    def _read_state(self, archive: Archive | None, topic: str) -> TopicState:
        """Return the state of a topic. Raises ``LogGap`` if the archive and the group do not fit together."""
        state = read_state(archive, topic, self._group)
        if self._strict:
            self._connection.run(partial(check, state))
        return state

    def _check_free(self, topic: str, using: str) -> None:
        following.check_free(topic, self._group, using=using)

    def _catch_up_group(self, topic: str) -> None:
        """Check that the files of the last batch exist. Register the group, and move it to the archive's position."""
        state = self._states[topic]
        for snapshot in self._snapshots.values():
            snapshot.check_files_exist([e for e in snapshot.files.get(topic, ()) if e.last > state.lowest])
        state = self._states[topic] = self._connection.run(partial(catch_up_group, state))
        self._done[topic] = Archived(topic, state.upto, state.position)

    def _batches(self, stopping: threading.Event, progress: Progress) -> None:
        total = self._remaining()
        progress(0, total)
        while not stopping.is_set():
            states = list(self._states.values())
            next_states = self._connection.run(partial(self._planner.next_states, states=states))
            if not next_states:
                return
            self._batch(next_states)
            progress(total - self._remaining(), total)

    def _remaining(self) -> int:
        """Return the number of offsets that are not archived yet."""
        goals = self._planner.goals
        return sum(max(0, goals[s.topic]["messages"] - s.upto["messages"]) for s in self._states.values())

    def _batch(self, next_states: Sequence[TopicState]) -> None:
        tasks: list[Task] = []
        for after in next_states:
            plan = partial(self._planner.tasks, before=self._states[after.topic], after=after)
            tasks += self._connection.run(plan)
        work = partial(write_task, self._storage.uri, self._options)
        written = spread(self._spark, work, tasks, FileEntry)
        files: dict[tuple[str, Table], list[FileEntry]] = defaultdict(list)
        for task, entries in zip(tasks, written, strict=True):
            files[task.topic, task.table] += entries
        for after in next_states:
            self._add(after, {table: files[after.topic, table] for table in TABLES})

    def _add(self, after: TopicState, files: Mapping[Table, Sequence[FileEntry]]) -> None:
        """Commit the tables, then move the group."""
        before, reader = self._states[after.topic], self._readers[after.topic]
        self._connection.run(lambda using: following.check_reader(reader, using=using))
        after = replace(after, generation=self._check_group_unchanged(before, after))
        for table in TABLES:
            if table == "messages" or before.upto[table] < after.upto[table]:
                self._commit(table, before, after, files[table])
        for table in TABLES:
            self._snapshots[table].check_files_exist(files[table])
        self._states[after.topic] = after
        done = self._done[after.topic]
        done.upto, done.position = after.upto, after.position
        done.batches += 1
        for table, entries in files.items():
            done.rows[table] += sum(entry.rows for entry in entries)
            done.files += len(entries)
            done.bytes += sum(entry.bytes for entry in entries)
        self._move(after)

    def _commit(
        self, table: Table, before: TopicState, after: TopicState, files: Sequence[FileEntry]
    ) -> None:
        topic, snapshot = after.topic, self._snapshots[table]
        if snapshot.number("upto", topic) != before.upto[table]:
            raise ArchiveError(
                f"{self._storage.uri}: table {table} has topic {topic!r} up to {snapshot.number('upto', topic)}, not"
                f" {before.upto[table]}: another run added to it. Run this again"
            )
        numbers: dict[tuple[Kind, str], int] = {
            ("upto", topic): after.upto[table],
            ("rows", topic): snapshot.number("rows", topic) + sum(entry.rows for entry in files),
        }
        if table == "messages":
            numbers["position", topic] = after.position
            numbers["lowest", topic] = before.position
            numbers["generation", topic] = after.generation
        self._snapshots[table] = snapshot.commit(numbers, files)

    def _check_group_unchanged(self, before: TopicState, after: TopicState) -> int:
        """Return the group's registration generation. Raises ``LogGap`` if it did not always hold back deletion."""
        try:
            self._connection.run(partial(check_group_unchanged, before))
            if after.last != before.last:
                self._connection.run(partial(check_last, after))
        except LogGap:
            if self._strict:
                raise
            # Gaps are allowed, so register the group again.
            return self._connection.run(partial(catch_up_group, before)).generation
        return before.generation

    def _move(self, after: TopicState) -> None:
        try:
            self._connection.run(partial(move, after, reader=self._readers[after.topic]))
        except LogGap:
            if self._strict:
                raise
