"""An archive, opened for reading. It needs neither a database nor Django's settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ArchiveError, NoArchive, NoSuchTopic
from ..reader.options import Table
from ..sql.bulk import Last
from .locations import check_as_of
from .parquet import FileEntry, arrow_schema, row_groups, schema
from .requests import TABLES
from .storage import LocalStorage, Storage, storage_at, visible_files
from .tables import Snapshot, commit_times, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "1"
"""The version of the archive format. ``Archive.open`` refuses other versions."""

ID, GROUP, INSTALLATION, SERVER = "mqueue.archive", "mqueue.group", "mqueue.installation", "mqueue.server"
FORMAT_PROPERTY = "mqueue.format"
"""Names of the properties of the tables."""
KEPT = {"delta.deletedFileRetentionDuration": "interval 3660 days"}
"""Properties of each table. ``vacuum`` needs the dates when files were replaced. Delta keeps them for this time, which
is longer than any ``keep_hours``; by default, for a week."""


class Archive:
    """The three Delta tables that ``archive`` has written, each at one version.

    The object does not see later commits; open the archive again to see them. ``id``: the archive's id. ``group``:
    the consumer group that writes it. ``properties``: all properties of the table of messages.
    """

    def __init__(
        self, storage: Storage, snapshots: dict[Table, Snapshot], as_of: int | datetime | None = None
    ) -> None:
        self.storage, self.snapshots, self._as_of = storage, snapshots, as_of
        self.properties = snapshots["messages"].properties
        self.id, self.group = self.properties[ID], self.properties[GROUP]

    @classmethod
    def open(cls, to: str | os.PathLike[str], *, as_of: int | datetime | None = None) -> Archive:
        """Return the archive at a path or URI.

        ``as_of``: open the archive as it was at a version of the table of messages (an int), or at a time (an aware
        datetime). Default: the newest state.

        Raises ``NoArchive`` (the message lists what is there instead), ``ArchiveError`` if the archive cannot be read
        or has another format, ``OptionError``, or ``NoSpark`` if ``deltalake`` is not installed.
        """
        check_as_of(as_of, to, live=False)
        storage = storage_at(to)
        # Open messages first: a batch commits them last, so the other tables have all rows that belong to them.
        if (messages := open_table(storage, "messages", as_of)) is None:
            try:
                paths = visible_files(storage)
            except OSError as error:
                raise NoArchive(f"there is no archive at {storage.uri}: {error}") from error
            what = ", ".join(paths[:5] or ["no file"]) + (" and more" if len(paths) > 5 else "")
            raise NoArchive(
                f"there is no archive at {storage.uri}: it holds {what}, but no Delta table messages"
            )
        if (found := messages.properties.get(FORMAT_PROPERTY)) is None:
            raise ArchiveError(
                f"{storage.uri} is not an archive: its Delta table messages has no property {FORMAT_PROPERTY}. Give"
                " another folder"
            )
        if found != FORMAT:
            raise ArchiveError(
                f"{storage.uri}: the archive's format is {found}, but this version of django_mqueue supports"
                f" {FORMAT}: upgrade django_mqueue, or give another folder"
            )
        at = commit_times(storage, "messages").get(messages.version) if isinstance(as_of, int) else as_of
        snapshots: dict[Table, Snapshot] = {"messages": messages}
        for table in TABLES[:-1]:
            if (snapshot := open_table(storage, table, at)) is None:
                raise ArchiveError(f"{storage.uri}: the table {table} is missing: restore it from a copy")
            snapshots[table] = snapshot
        return cls(storage, snapshots, as_of)

    def topics(self) -> list[str]:
        """Return the names of all topics that have rows in the archive, sorted."""
        return sorted(set(chain.from_iterable(snapshot.files for snapshot in self.snapshots.values())))

    def select_topics(self, topics: str | Sequence[str] | None) -> list[str]:
        """Return the given topics (a name or several names) as a list, or all topics for None.

        Raises ``NoSuchTopic`` if the archive does not have one of them.
        """
        names = self.topics() if topics is None else [topics] if isinstance(topics, str) else list(topics)
        unknown = [t for t in names if not any(snap.has_topic(t) for snap in self.snapshots.values())]
        if unknown:
            raise NoSuchTopic(
                f"the archive {self.storage.uri} has no topic {', '.join(map(repr, sorted(set(unknown))))}; it has"
                f" {', '.join(self.topics()) or 'none'}"
            )
        return list(dict.fromkeys(names))

    def upto(self, topic: str, table: Table = "messages") -> int:
        """Return the offset up to which a topic's table is archived; 0 for an unknown topic."""
        return self.snapshots[table].number("upto", topic)

    def entries(self, topic: str, table: Table = "messages") -> list[FileEntry]:
        """Return the files of a topic's table, by offset; an empty list for an unknown topic."""
        return list(self.snapshots[table].files.get(topic, ()))

    def frame(self, spark: SparkSession, topics: str | Sequence[str], table: Table = "messages") -> DataFrame:
        """Return a DataFrame of the rows of these topics (a name or several names), in no particular order.

        It has all columns that ``format("mqueue")`` has for the table. A column that an older file does not have is
        null. Raises ``NoSuchTopic``, or ``ArchiveError`` if files of the state ``as_of`` were deleted since.
        """
        entries = [entry for topic in self.select_topics(topics) for entry in self.entries(topic, table)]
        if self._as_of is not None and (gone := [e for e in entries if not self.storage.exists(e.path)]):
            raise ArchiveError(
                f"{self.storage.uri} cannot be read as of {self._as_of}: {gone[0].path} was deleted after its rows"
                " were erased or compacted. Give a later as_of"
            )
        return frame(spark, self.storage, table, entries)

    def last(self, topic: str) -> Last | None:
        """Return the message with the highest offset, or None if there are no messages.

        Raises ``ArchiveError`` if its file is missing or damaged.
        """
        if not (entries := self.entries(topic)):
            return None
        entry = max(entries, key=lambda entry: entry.last)
        try:
            with self.storage.open(entry.path) as stream:
                file = pq.ParquetFile(stream, page_checksum_verification=True)
                ids = file.read_row_group(file.num_row_groups - 1, columns=["id"])["id"]
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArchiveError(
                f"{self.storage.uri}: {entry.path} cannot be read: {error}. Restore it from a copy; verify lists what"
                " else is missing"
            ) from error
        return Last(entry.last, ids[-1].as_py())


def frame(spark: SparkSession, storage: Storage, table: Table, entries: Sequence[FileEntry]) -> DataFrame:
    """Return the rows of these files. No setting of the session hides a missing or damaged file."""
    if not entries:
        return spark.createDataFrame([], schema(table))
    if isinstance(storage, LocalStorage):
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        # Spark takes each path as a pattern. Its option __globPaths__ turns that off, but with several files it reads
        # each of them several times (seen in Spark 4.3).
        pattern = re.compile(r"([\\{}\[\]*?])")
        paths = [pattern.sub(r"\\\1", f"file://{storage.uri}/{entry.path}") for entry in entries]
        return spark.read.options(**strict).schema(schema(table)).parquet(*paths)
    to, files = storage.uri, [entry.path for entry in entries]

    # Python reads files of an object store, so that Spark needs no connector and no keys for the store.
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = storage_at(to)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with store.open(files[number]) as stream:
                    for group in row_groups(stream, arrow_schema(table)):
                        yield from group.to_batches()

    return spark.range(0, len(entries), 1, len(entries)).mapInArrow(read, schema(table))
