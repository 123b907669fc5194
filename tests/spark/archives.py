"""Small archives written by hand, as the reference of the format defines them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from django_mqueue.spark import Archive
from django_mqueue.spark.archiving.layout import MARKER, data_path, manifest_path
from django_mqueue.spark.archiving.manifest import FileEntry, Manifest, Marker, Part
from django_mqueue.spark.options import Table

DAY = datetime(2026, 11, 21, 12, tzinfo=UTC)


def begin(folder: Path) -> Path:
    folder.mkdir()
    (folder / MARKER).write_bytes(Marker("by-hand", "shop", DAY.isoformat()).json())
    return folder


def data(
    folder: Path,
    topic: str,
    batch: int,
    offsets: Sequence[int],
    columns: int = 12,
    name: Table = "messages",
) -> FileEntry:
    """Write a file of messages into the folder of the table ``name``.

    ``columns``: the number of columns, fewer than 12 for a file of an older version.
    """
    table = pa.table(
        {
            "topic": [topic] * len(offsets),
            "partition": ["ada"] * len(offsets),
            "key": ["ada"] * len(offsets),
            "offset": pa.array(offsets, pa.int64()),
            "id": [f"id-{offset}" for offset in offsets],
            "kind": [""] * len(offsets),
            "encoding": ["json"] * len(offsets),
            "payload": [b"1"] * len(offsets),
            "headers": ["{}"] * len(offsets),
            "target": [""] * len(offsets),
            "published_at": pa.array([DAY] * len(offsets), pa.timestamp("us", "UTC")),
            "created_at": pa.array([DAY] * len(offsets), pa.timestamp("us", "UTC")),
        }
    )
    path = data_path(name, topic, "2026-11-21", batch, "hand", 0)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.select(range(columns)), folder / path, compression="zstd")
    written = (folder / path).read_bytes()
    digest = hashlib.sha256(written).hexdigest()
    return FileEntry(path, len(offsets), offsets[0], offsets[-1], "2026-11-21", len(written), digest)


def batch(
    folder: Path,
    topic: str,
    number: int,
    above: int,
    offsets: Sequence[int],
    *,
    replaces: Sequence[str] = (),
    since: int | None = None,
    compaction: int = 0,
    columns: int = 12,
    life: int = 1,
    table: Table = "messages",
) -> Manifest:
    """Write a batch of messages and its manifest, or the manifest of a compaction.

    ``table``: the table's name in the manifest.
    """
    entry = data(folder, topic, number, offsets, columns, table)
    manifest = Manifest(
        topic=topic,
        group="archive",
        batch=number,
        life=life,
        position=offsets[-1],
        tables={table: Part(above, offsets[-1], len(offsets), (entry,))},
        columns={},
        created_at=DAY.isoformat(),
        since=since,
        replaces=tuple(replaces),
        compaction=compaction,
    )
    place = folder / manifest_path(topic, manifest.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(manifest.json())
    return manifest


def copy_of(folder: Path, topic: str, tables: Mapping[Table, tuple[pa.Table, int]]) -> None:
    """Write one batch from rows that were read from a topic. The last offset differs by table."""
    parts: dict[Table, Part] = {}
    for table, (rows, upto) in tables.items():
        found = rows.filter(pc.less_equal(rows["offset"], upto)).sort_by("offset")
        entries = []
        if found.num_rows:
            path = data_path(table, topic, "2026-11-21", 1, "hand", 0)
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(found, folder / path, compression="zstd")
            written = (folder / path).read_bytes()
            first, last = (found["offset"][place].as_py() for place in (0, -1))
            digest = hashlib.sha256(written).hexdigest()
            entries = [FileEntry(path, found.num_rows, first, last, "2026-11-21", len(written), digest)]
        parts[table] = Part(0, upto, found.num_rows, tuple(entries))
    position = parts["messages"].upto
    manifest = Manifest(topic, "archive", 1, 1, position, parts, {}, DAY.isoformat())
    place = folder / manifest_path(topic, manifest.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(manifest.json())


def rows(folder: Path) -> list[tuple[int, str]]:
    """Return offsets and ids of all messages of ``orders``, read without Spark."""
    return [
        (row["offset"], row["id"])
        for entry in Archive.open(folder).entries("orders")
        for row in pq.ParquetFile(folder / entry.path).read().to_pylist()
    ]


def age(folder: Path) -> None:
    """Make all files two hours older."""
    for path in folder.rglob("*"):
        if path.is_file():
            then = path.stat().st_mtime - 7200
            os.utime(path, (then, then))
