"""An archive, opened for reading. That needs neither a database nor Django's settings."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from ..errors import ArchiveError, NoArchive, NoSuchTopic
from ..options import Table
from .parquet import FileEntry, row_groups
from .places import check_as_of
from .storage import LocalStorage, Storage, held, storage_at
from .tables import TABLES, Snapshot, opened
from .tasks import arrow_schema, schema
from .topic_state import Last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "1"
"""Of the tables and their numbers. A newer one is refused."""

ID, GROUP, INSTALLATION, SERVER = "mqueue.archive", "mqueue.group", "mqueue.installation", "mqueue.server"
FORMAT_PROPERTY = "mqueue.format"
"""Properties of the table of messages: what the archive is, which group writes it, and which database it is of."""


class Archive:
    """Three Delta tables that ``archive`` has written, each in one state.

    What is committed later is not seen: open it again.
    """

    def __init__(
        self, storage: Storage, snapshots: dict[Table, Snapshot], as_of: int | datetime | None = None
    ) -> None:
        self.storage, self.snapshots, self._as_of = storage, snapshots, as_of
        self.properties = snapshots["messages"].properties
        self.id, self.group = self.properties[ID], self.properties[GROUP]

    @classmethod
    def open(cls, to: str | os.PathLike[str], *, as_of: int | datetime | None = None) -> Archive:
        """The archive at a path or URI.

        ``as_of``: as it was then, by a version of the table of messages, or by a time (aware). Raises ``NoArchive``
        saying what is there instead, ``ArchiveError`` for one that cannot be read, and ``OptionError``.
        """
        check_as_of(as_of, to, live=False)
        storage = storage_at(to)
        # Messages first: the others are committed before them, so what belongs to these messages is there.
        messages = opened(storage, "messages", as_of)
        if messages is None:
            raise NoArchive(_instead(storage))
        if (found := messages.properties.get(FORMAT_PROPERTY)) != FORMAT:
            raise ArchiveError(
                f"{storage.uri}: the archive's format is {found}, but this version of the package knows {FORMAT}:"
                " upgrade it, or give another folder"
            )
        at = messages.committed_at() if isinstance(as_of, int) else as_of
        snapshots: dict[Table, Snapshot] = {"messages": messages}
        for table in TABLES[:-1]:
            snapshot = opened(storage, table, at)
            if snapshot is None:
                raise ArchiveError(f"{storage.uri}: the table {table} is missing: put it back from a copy")
            snapshots[table] = snapshot
        return cls(storage, snapshots, as_of)

    def topics(self) -> list[str]:
        """All topics that have rows in the archive, by name."""
        return sorted(set(chain.from_iterable(snapshot.files for snapshot in self.snapshots.values())))

    def chosen(self, topics: str | Sequence[str] | None) -> list[str]:
        """These topics, or all. Raises ``NoSuchTopic`` for those that are not in the archive."""
        wanted = self.topics() if topics is None else [topics] if isinstance(topics, str) else list(topics)
        unknown = [t for t in wanted if not any(snap.knows(t) for snap in self.snapshots.values())]
        if unknown:
            raise NoSuchTopic(
                f"the archive {self.storage.uri} has no topic {', '.join(map(repr, sorted(set(unknown))))}; it has"
                f" {', '.join(self.topics()) or 'none'}"
            )
        return wanted

    def upto(self, topic: str, table: Table = "messages") -> int:
        """Up to which offset the archive has a topic's table: 0 for a topic that is not in it."""
        return self.snapshots[table].number("upto", topic)

    def entries(self, topic: str, table: Table = "messages") -> list[FileEntry]:
        """The files of a topic's table, by offset; none for a topic that is not in it."""
        return list(self.snapshots[table].files.get(topic, ()))

    def frame(self, spark: SparkSession, topics: str | Sequence[str], table: Table = "messages") -> DataFrame:
        """What the archive holds of these topics, with all columns that ``format("mqueue")`` has for the table.

        Columns that older files have not are null. In no order. Raises ``NoSuchTopic``.
        """
        entries = [entry for topic in self.chosen(topics) for entry in self.entries(topic, table)]
        if self._as_of is not None and (gone := [e for e in entries if not self.storage.exists(e.path)]):
            raise ArchiveError(
                f"{self.storage.uri} cannot be read as it was at {self._as_of}: {gone[0].path} was deleted since, when"
                " its rows had been erased or compacted"
            )
        return frame(spark, self.storage, table, entries)

    def last(self, topic: str) -> Last | None:
        """The message with the highest offset. Raises ``ArchiveError`` if its file is missing or damaged."""
        if not (entries := self.entries(topic)):
            return None
        entry = max(entries, key=lambda entry: entry.last)
        try:
            with self.storage.open(entry.path) as stream:
                *_, group = row_groups(stream)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ArchiveError(
                f"{self.storage.uri}: {entry.path} cannot be read: {error}. Put it back from a copy; verify tells what"
                " else is missing"
            ) from error
        return Last(entry.last, group.column("id")[-1].as_py())


def frame(spark: SparkSession, storage: Storage, table: Table, entries: Sequence[FileEntry]) -> DataFrame:
    """The rows of these files. One that is missing or damaged is an error, whatever the session is set to.

    Spark reads files of a local disk itself. Those of an object store are read by Python, for which Spark needs no
    module and no keys of its own.
    """
    if not entries:
        return spark.createDataFrame([], schema(table))
    if isinstance(storage, LocalStorage):
        strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        paths = [patterned(f"file://{storage.uri}/{entry.path}") for entry in entries]
        return spark.read.options(**strict).schema(schema(table)).parquet(*paths)
    numbers = spark.range(0, len(entries), 1, len(entries))
    return numbers.mapInArrow(_reading(storage.uri, table, entries), schema(table))


def _reading(
    to: str, table: Table, entries: Sequence[FileEntry]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for executors."""
    paths = [entry.path for entry in entries]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = storage_at(to)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with storage.open(paths[number]) as stream:
                    for group in row_groups(stream, arrow_schema(table)):
                        yield from group.to_batches()

    return read


def patterned(path: str) -> str:
    """A path as a pattern that nothing else matches: that is what Spark takes paths for.

    Its option ``__globPaths__``, which says that they are none, reads several such files several times each (4.3).
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _instead(storage: Storage) -> str:
    """Why there is no archive."""
    try:
        there = held(storage)
    except OSError as error:
        return f"there is no archive at {storage.uri}: {error}"
    what = ", ".join(there[:5]) + (" and more" if len(there) > 5 else "") if there else "no file"
    return f"there is no archive at {storage.uri}: it holds {what}, but no Delta table messages"
