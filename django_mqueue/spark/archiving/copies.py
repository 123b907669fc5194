"""Files that no manifest names, and whether the archive has all that is in them.

A batch that has a manifest may have other files, too: of a run that was killed before that one was written, or of
another manifest that was lost then, and after which the batch was archived anew. What the log had forgotten by then
(dead letters that were sent back, say) is in the old files alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ..options import Table
from .catalog import Archive, read_parquet
from .layout import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def keys(table: Table) -> list[str]:
    """The columns by which a row is known, of one time of the log."""
    return ["offset", "group"] if table == "deliveries" else ["offset"]


def identity(table: Table) -> list[str]:
    """The columns by which a row is known, whatever the log gives its offset to after a set-back."""
    return [*keys(table), *(["delivered_at", "done_at"] if table == "deliveries" else ["id"])]


def only_copies(spark: SparkSession, archive: Archive, topic: str, paths: Iterable[str]) -> set[str]:
    """Those of the topic's files which hold a row that is in none that counts, or may do so: they cannot be read."""
    found: set[str] = set()
    whole: list[str] = []
    for path in paths:
        try:
            with archive.files.open(path) as stream:
                pq.ParquetFile(stream)
        except (FileNotFoundError, pa.ArrowInvalid):
            continue  # Gone, or never written to its end.
        except OSError:
            found.add(path)
        else:
            whole.append(path)
    for table in TABLES:
        if some := [path for path in whole if path.startswith(f"{table}/")]:
            try:
                found.update(_with_more(spark, archive, topic, table, some))
            except Exception:  # Of Spark: one of them is damaged, and it does not say in a word which.
                found.update(some)
    return found


def _with_more(
    spark: SparkSession, archive: Archive, topic: str, table: Table, paths: list[str]
) -> list[str]:
    by, files = identity(table), archive.files
    # None is null, which equals nothing: a history may lack a time.
    by_value = [f"coalesce(cast(`{name}` AS STRING), '') AS `{name}`" for name in by if name != "offset"]
    rows = read_parquet(spark, table, [files.spark_path(path) for path in paths])
    rows = rows.selectExpr("offset", *by_value, "_metadata.file_name AS name")
    first, last = rows.selectExpr("min(offset)", "max(offset)").collect()[0]
    if first is None:
        return []
    counted = [
        files.spark_path(entry.path)
        for entry in archive.entries(topic, table)
        if entry.first <= last and entry.last >= first
    ]
    if counted:
        rows = rows.join(read_parquet(spark, table, counted).selectExpr("offset", *by_value), by, "left_anti")
    names = {row["name"] for row in rows.select("name").distinct().collect()}
    return [path for path in paths if path.rpartition("/")[2] in names]
