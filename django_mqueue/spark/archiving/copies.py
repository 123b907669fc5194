"""Files that no manifest names, and whether the archive has all that is in them.

A batch that has a manifest may have other files, too: of a run that was killed before that one was written, or of
another manifest that was lost then, and after which the batch was archived anew. What the log had forgotten by then
(dead letters that were sent back, say) is in the old files alone. So is what a database that was set back does not
have any more, and gave the offsets of to others.

The driver reads them by the archive's own way to the place, which Spark need not have. A piece of such a file's rows is
in memory, and then, piece after piece, what the archive has between the same offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..options import Table
from .catalog import Archive
from .files import Files
from .indirect import READERS
from .layout import TABLES
from .manifest import FileEntry

PIECE = 1 << 17
"""Rows of a file that are in memory at once."""

_NEVER = -(2**63)


def keys(table: Table) -> list[str]:
    """The columns by which a row is known, of one time of the log."""
    return ["offset", "group"] if table == "deliveries" else ["offset"]


def identity(table: Table) -> list[str]:
    """The columns by which a row is known, whatever the log gives its offset to after a set-back."""
    return [*keys(table), *(["delivered_at", "done_at"] if table == "deliveries" else ["id"])]


def only_copies(archive: Archive, topic: str, paths: Sequence[str]) -> dict[str, str]:
    """Those of the topic's files which hold a row that is in none that counts, or may do so; and why each is kept."""
    counted = {table: archive.entries(topic, table) for table in TABLES}
    files = archive.files

    def look(path: str) -> str | None:
        table = next(table for table in TABLES if path.startswith(f"{table}/"))
        return _why_kept(files, path, table, counted[table])

    with ThreadPoolExecutor(READERS) as pool:
        found = zip(paths, pool.map(look, paths), strict=True)
        return {path: why for path, why in found if why is not None}


def _why_kept(files: Files, path: str, table: Table, counted: Sequence[FileEntry]) -> str | None:
    try:
        with files.open(path) as stream:
            try:
                file = pq.ParquetFile(stream)
            except pa.ArrowInvalid:
                return None  # Never written to its end.
            for rows in _pieces(file, table):
                if left := _elsewhere_not(files, rows, table, counted):
                    return f"{path} is kept: the archive has {left} nowhere else"
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        return f"{path} is kept: what it holds cannot be compared with the archive: {error}"
    return None


def _elsewhere_not(files: Files, rows: pa.Table, table: Table, counted: Sequence[FileEntry]) -> str | None:
    """One of these rows that is in none of the files."""
    bounds = pc.min_max(rows["offset"]).as_py()
    first, last = bounds["min"], bounds["max"]
    for entry in counted:
        if entry.first > last or entry.last < first:
            continue
        try:
            with files.open(entry.path) as stream:
                for some in _pieces(pq.ParquetFile(stream), table, first, last):
                    rows = rows.join(some, identity(table), join_type="left anti")
                    if not rows.num_rows:
                        return None
        except (OSError, pa.ArrowException) as error:
            raise OSError(f"{entry.path}: {error}") from error
    row = rows.sort_by("offset").slice(0, 1).to_pylist()[0]
    return ", ".join(f"{name} {row[name]!r}" for name in ("offset", "id", "group") if name in row)


def _pieces(
    file: pq.ParquetFile, table: Table, first: int | None = None, last: int | None = None
) -> Iterator[pa.Table]:
    """What identifies the rows; ``first`` and ``last``: of groups of rows that may have such offsets."""
    there = file.schema_arrow.names
    if "offset" not in there:
        raise pa.ArrowInvalid("it has no column 'offset'")
    groups = [
        number
        for number in range(file.num_row_groups)
        if first is None or _may_have(file, number, there.index("offset"), first, last)
    ]
    columns = [name for name in identity(table) if name in there]
    for batch in file.iter_batches(PIECE, row_groups=groups, columns=columns):
        if batch.num_rows:
            yield pa.table({name: _values(batch, name) for name in identity(table)})


def _may_have(file: pq.ParquetFile, number: int, column: int, first: int, last: int | None) -> bool:
    bounds = file.metadata.row_group(number).column(column).statistics
    if bounds is None or not bounds.has_min_max:
        return True
    return bool(bounds.max >= first and (last is None or bounds.min <= last))


def _values(batch: pa.RecordBatch, name: str) -> Any:
    """Of one type, whoever wrote them; null is a value here, since in a join it equals nothing."""
    is_there = name in batch.schema.names  # Not in an older version's file.
    found = batch.column(name) if is_there else pa.nulls(batch.num_rows)
    if name in ("id", "group"):
        return pc.fill_null(found.cast(pa.string()), "")
    if pa.types.is_timestamp(found.type):
        found = found.cast(pa.timestamp("us", "UTC"), safe=False)
    return pc.fill_null(found.cast(pa.int64()), _NEVER)
