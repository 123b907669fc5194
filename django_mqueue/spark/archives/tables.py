"""The Delta tables of an archive: snapshots of them, and commits to them, through ``deltalake``.

A commit adds files, removes files, and sets numbers by name (``txn`` actions of the Delta protocol), all or nothing. If
two commits start from one snapshot and set the same number, the second is refused. A commit that starts from a later
snapshot is not refused. So the caller first compares the number in the snapshot.

``deltalake`` does not refuse the second of two commits that remove the same file. So each commit that removes files
sets the number ``maintenance``. For the same reason the package never calls ``DeltaTable.optimize``, which duplicates
rows.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..errors import ArchiveError, NoSpark
from ..reader.options import Table
from .parquet import FileEntry, arrow_schema
from .storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

PARTITIONS = ["topic", "date"]

Kind = Literal["upto", "rows", "erased", "position", "lowest", "generation"]
"""Numbers of a topic. ``upto``: the table has all rows up to this offset. ``rows``: rows that were ever added.
``erased``: how many of them were erased. Only in the table of messages: ``position`` and ``lowest``, the group's
position after and before the commit, and ``generation``, of the group's registration."""

MAINTENANCE = "maintenance"
"""The name of the number that counts the commits that removed files."""


def _schema(table: Table) -> pa.Schema:
    """Return the columns of a table: the columns of its files, and the date, which is only in their paths."""
    return arrow_schema(table).append(pa.field("date", pa.date32()))


class Snapshot:
    """One version of one table."""

    def __init__(self, storage: Storage, table: Table, delta: DeltaTable) -> None:
        self.table: Table = table
        self._storage, self._delta = storage, delta

    @property
    def version(self) -> int:
        return int(self._delta.version())

    @property
    def properties(self) -> Mapping[str, str]:
        return {name: str(value) for name, value in self._delta.metadata().configuration.items()}

    def number(self, kind: Kind, topic: str) -> int:
        return self._delta.transaction_version(f"{kind}/{topic}") or 0

    def has_topic(self, topic: str) -> bool:
        """Return whether a batch of the topic was ever committed to this table."""
        return self._delta.transaction_version(f"upto/{topic}") is not None

    @cached_property
    def files(self) -> Mapping[str, list[FileEntry]]:
        """The files of each topic, sorted by first offset."""
        found: dict[str, list[FileEntry]] = defaultdict(list)
        for row in pa.table(self._delta.get_add_actions(flatten=True)).to_pylist():
            parts = row["path"].split("/")
            if len(parts) != 3 or any(part in ("", ".", "..") or "\\" in part for part in parts):
                # An account that can write the log must not make this package read or delete any file.
                raise ArchiveError(
                    f"{self._storage.uri}: table {self.table} names the file {row['path'][:200]!r}, which does not"
                    " belong to this archive"
                )
            entry = FileEntry(
                f"{self.table}/{row['path']}", row["partition.topic"], row["partition.date"].isoformat(),
                row["num_records"], row["min.offset"], row["max.offset"], row["size_bytes"],
            )  # fmt: skip
            found[entry.topic].append(entry)
        for entries in found.values():
            entries.sort(key=lambda entry: (entry.first, entry.path))
        return found

    @cached_property
    def _paths(self) -> set[str]:
        return {entry.path for entries in self.files.values() for entry in entries}

    def commit(
        self,
        numbers: Mapping[tuple[Kind, str], int],
        add: Sequence[FileEntry] = (),
        remove: Sequence[FileEntry] = (),
    ) -> Snapshot:
        """Commit durably, and return the newest snapshot.

        Raises ``ArchiveError`` if another commit changed the same numbers or files.
        """
        from deltalake import CommitProperties, Transaction

        by_name = {f"{kind}/{topic}": number for (kind, topic), number in numbers.items()}
        # The caller may have planned from an earlier snapshot than this one.
        if len(self._present(remove)) < len(remove):
            raise ArchiveError(
                f"{self._storage.uri}: table {self.table} was not changed: another compaction or erasure replaced the"
                " same files. Run this again"
            )
        self.check_files_exist(add)
        if remove:
            by_name[MAINTENANCE] = (self._delta.transaction_version(MAINTENANCE) or 0) + 1
        actions = [*map(_removed, remove), *(_added(entry, changes=not remove) for entry in add)]
        transactions = [Transaction(name, number) for name, number in by_name.items()]
        failed: Exception | None = None
        try:
            self._delta.create_write_transaction(
                actions, "append", self._delta.schema(), PARTITIONS,
                commit_properties=CommitProperties(app_transactions=transactions),
            )  # fmt: skip
        except Exception as error:
            failed = error
        found = self.reloaded()  # After an error, it shows whether the commit succeeded.
        if failed and not found.has(by_name, add, remove):
            raise ArchiveError(
                f"{self._storage.uri}: table {self.table} was not changed: {reason(failed)}. If another run works on"
                " the same topic, wait until it ends. Then run this again"
            ) from failed
        for version in range(self.version + 1, found.version + 1):  # Include other commits.
            self._storage.sync(f"{self.table}/_delta_log/{version:020d}.json")
        return found

    def has(self, by_name: Mapping[str, int], add: Sequence[FileEntry], remove: Sequence[FileEntry]) -> bool:
        """Return whether the table has the numbers and files of this commit."""
        are_set = all(self._delta.transaction_version(name) == number for name, number in by_name.items())
        return are_set and len(self._present(add)) == len(add) and not self._present(remove)

    def with_current_columns(self) -> Snapshot:
        """Add the columns of this package's version that the table does not have. In older files they are null."""
        names = {field.name for field in self._delta.schema().fields}
        if missing := [field for field in _schema(self.table) if field.name not in names]:
            from deltalake import Schema

            with _archive_errors(self._storage, self.table, "changed"):
                self._delta.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)
            return self.reloaded()
        return self

    def set_properties(self, properties: Mapping[str, str]) -> None:
        with _archive_errors(self._storage, self.table, "changed"):
            self._delta.alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def unused(self) -> set[str]:
        """Return the paths of existing files that the newest version does not name."""
        # List the files before loading the version: a run may commit new files in between.
        paths = self._storage.list(self.table).keys()
        unused = paths - self.reloaded()._paths
        return {path for path in unused if not path.startswith(f"{self.table}/_delta_log/")}

    def vacuum(self, keep_hours: float, *, full: bool) -> None:
        """Delete files that were removed from the table more than ``keep_hours`` ago (rounded up to whole hours).

        ``full``: also delete files of that age that no version names. Such files of the last hour stay, because a run
        may soon commit them.
        """
        delta, hours = self.reloaded()._delta, math.ceil(keep_hours)
        with _archive_errors(self._storage, self.table, "cleaned"):
            delta.vacuum(hours, dry_run=False, enforce_retention_duration=False)
            if full:
                delta.vacuum(max(hours, 1), dry_run=False, enforce_retention_duration=False, full=True)

    def check_files_exist(self, entries: Sequence[FileEntry]) -> None:
        """Raise ``ArchiveError`` unless all files exist: ``vacuum`` may have deleted new files of a long run."""
        for entry in entries:
            if not self._storage.exists(entry.path):
                raise ArchiveError(
                    f"{self._storage.uri}: a cleanup deleted {entry.path} while this run needed it, because its"
                    " keep_hours is shorter than this run. A compaction or an erasure has not changed this table. An"
                    " archive run has not moved its group, so the log still has the messages. Clean with a longer"
                    " keep_hours, and run this again. If an archive run fails again, a table names the file: restore"
                    " the file from a copy of the archive"
                )

    def reloaded(self) -> Snapshot:
        found = open_table(self._storage, self.table)
        assert found
        return found

    def _present(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Return the given files that this version names."""
        return [entry for entry in entries if entry.path in self._paths]


def _added(entry: FileEntry, *, changes: bool) -> Any:
    """Return the action that adds a file. ``changes``: whether the commit changes the rows of the table."""
    from deltalake.transaction import AddAction

    bounds = {"minValues": {"offset": entry.first}, "maxValues": {"offset": entry.last}}
    statistics = json.dumps({"numRecords": entry.rows, **bounds, "nullCount": {"offset": 0}})
    return AddAction(
        entry.in_table, entry.bytes, entry.partition, int(time.time() * 1000), changes, statistics
    )


def _removed(entry: FileEntry) -> Any:
    from deltalake.transaction import RemoveAction

    return RemoveAction(entry.in_table, False, int(time.time() * 1000), entry.bytes, entry.partition)


def open_table(storage: Storage, table: Table, at: int | datetime | None = None) -> Snapshot | None:
    """Return the newest snapshot of a table, or the snapshot at a version or a time; None if there is no table.

    Raises ``ArchiveError`` or ``NoSpark``.
    """
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError as error:
        raise NoSpark(f"{error.name} is not installed: install this package with its extra spark") from error
    try:
        with _archive_errors(storage, table, "read", TableNotFoundError):
            delta = DeltaTable(f"{storage.uri}/{table}")
    except TableNotFoundError:
        return None
    if at is not None:
        with _archive_errors(storage, table, f"read as of {at}"):
            known = [
                version
                for version, time in commit_times(storage, table).items()
                if (time <= at if isinstance(at, datetime) else version == at)
            ]
            if known:
                delta.load_as_version(max(known))
        if not known:
            if isinstance(at, int) and at > delta.version():
                raise ArchiveError(
                    f"{storage.uri}: table {table} has no version {at}: the newest is {delta.version()}"
                )
            raise ArchiveError(
                f"{storage.uri}: the log of table {table} no longer has its state at {at}, or the table did not exist"
                " then. Give a later as_of"
            )
    return Snapshot(storage, table, delta)


def commit_times(storage: Storage, table: Table) -> dict[int, datetime]:
    """Return the commit time of each version in the table's log, by the clock of the process that committed it.

    ``deltalake`` uses the times of files: a copy does not keep them, and for an earlier version they are wrong.
    """
    from deltalake import DeltaTable

    history = DeltaTable(f"{storage.uri}/{table}").history()
    return {each["version"]: datetime.fromtimestamp(each["timestamp"] / 1000, UTC) for each in history}


def create_table(storage: Storage, table: Table, properties: Mapping[str, str]) -> None:
    """Create a table. Raises ``ArchiveError`` if another process has just created it.

    If two processes create it at once, ``DeltaTable.create`` commits twice. So this creates the table in a temporary
    folder, and then writes its first commit as a file that must not exist yet.
    """
    from deltalake import DeltaTable

    path = f"_delta_log/{0:020d}.json"
    with _archive_errors(storage, table, "created"), TemporaryDirectory() as folder:
        DeltaTable.create(
            folder, _schema(table), partition_by=PARTITIONS, name=table, configuration=dict(properties),
            raise_if_key_not_exists=False,
        )  # fmt: skip
        data = Path(folder, path).read_bytes()
        try:
            storage.write(f"{table}/{path}", data)
        except FileExistsError:  # This call may have written it, and lost the reply.
            if storage.read(f"{table}/{path}") != data:
                raise ArchiveError("another run has just created an archive there") from None


@contextmanager
def _archive_errors(storage: Storage, table: Table, what: str, *excluded: type[Exception]) -> Iterator[None]:
    """Raise errors of the block as ``ArchiveError``, except errors of the types in ``excluded``."""
    try:
        yield
    except excluded:
        raise
    except Exception as error:
        raise ArchiveError(f"{storage.uri}: table {table} cannot be {what}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the text of a ``deltalake`` error in one line, without terminal codes."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).partition("Debug source:")[0]
    return textwrap.shorten(text, 600, placeholder=" …")
