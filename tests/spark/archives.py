"""Small archives, committed as an archive run commits them, but without a database and without Spark."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from django_mqueue.spark import Archive
from django_mqueue.spark.archives.catalog import FORMAT, FORMAT_PROPERTY, GROUP, ID
from django_mqueue.spark.archives.parquet import FileEntry, arrow_schema, conformed, files_of
from django_mqueue.spark.archives.requests import TABLES
from django_mqueue.spark.archives.storage import storage_at
from django_mqueue.spark.archives.tables import Kind, create_table
from django_mqueue.spark.reader.options import Table

DAY = datetime(2026, 11, 21, 12, tzinfo=UTC)
DATE = "2026-11-21"


def begin(folder: Path) -> Path:
    """Create the three tables of an archive, which holds no topic yet."""
    for table in TABLES:
        create_table(
            storage_at(folder), table, {FORMAT_PROPERTY: FORMAT, ID: uuid.uuid4().hex, GROUP: "archive"}
        )
    return folder


def data(
    folder: Path,
    topic: str,
    offsets: Sequence[int],
    *,
    table: Table = "messages",
    date: str = DATE,
    columns: int | None = None,
    **values: Any,
) -> FileEntry:
    """Write a file that the table does not name.

    ``columns``: the number of columns, for a file of an older version. ``values``: the value of a column in all rows.
    """
    known: dict[str, Any] = {
        "topic": topic, "partition": "ada", "key": "ada", "kind": "", "encoding": "json", "payload": b"1",
        "headers": "{}", "target": "", "published_at": DAY, "created_at": DAY, "group": "billing",
    }  # fmt: skip
    all_rows = [{**known, "offset": offset, "id": f"id-{offset}", **values} for offset in offsets]
    schema = pa.schema(list(arrow_schema(table))[:columns])
    return written(folder, topic, table, pa.Table.from_pylist(all_rows, schema), date)


def written(folder: Path, topic: str, table: Table, rows: pa.Table, date: str = DATE) -> FileEntry:
    with files_of(storage_at(folder), table, topic, rows.schema) as files:
        files.put(date, rows)
    (entry,) = files.entries
    return entry


def add(
    folder: Path,
    topic: str,
    entries: Sequence[FileEntry],
    *,
    table: Table = "messages",
    upto: int | None = None,
    life: int = 1,
) -> None:
    """Commit files to a table as a batch of an archive run. ``upto``: the last offset, unless it is given."""
    snapshot = Archive.open(folder).snapshots[table]
    end = max(entry.last for entry in entries) if upto is None else upto
    rows = snapshot.number("rows", topic) + sum(entry.rows for entry in entries)
    numbers: dict[tuple[Kind, str], int] = {("upto", topic): end, ("rows", topic): rows}
    if table == "messages":
        numbers |= {("position", topic): end, ("generation", topic): life}
        numbers["lowest", topic] = snapshot.number("position", topic)
    snapshot.commit(numbers, entries)


def batch(
    folder: Path,
    topic: str,
    offsets: Sequence[int],
    *,
    table: Table = "messages",
    life: int = 1,
    columns: int | None = None,
    **values: Any,
) -> FileEntry:
    """Write one file and commit it."""
    entry = data(folder, topic, offsets, table=table, columns=columns, **values)
    add(folder, topic, [entry], table=table, life=life)
    return entry


def copy_of(folder: Path, topic: str, tables: Mapping[Table, tuple[pa.Table, int]]) -> None:
    """Archive rows that were read from a topic. The last offset differs by table."""
    for table, (rows, upto) in tables.items():
        found = rows.filter(pc.less_equal(rows["offset"], upto)).sort_by("offset")
        entries = []
        if found.num_rows:
            entries = [written(folder, topic, table, conformed(found, arrow_schema(table)))]
        add(folder, topic, entries, table=table, upto=upto)


def rows(folder: Path, topic: str = "orders", table: Table = "messages") -> list[tuple[int, str]]:
    """Return offsets and ids of a topic, or offsets and groups, in the order of the files, read without Spark."""
    return [
        (row["offset"], row["group" if table == "deliveries" else "id"])
        for entry in Archive.open(folder).entries(topic, table)
        for row in pq.ParquetFile(folder / entry.path).read().to_pylist()
    ]


def age(folder: Path, hours: int = 25) -> None:
    """Make all files older. A table knows by itself when it removed a file: this does not change that."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - hours * 3600
            os.utime(path, (then, then))
