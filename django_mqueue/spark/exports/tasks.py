"""The work of a task of an export: read a range, and write it into files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.pandas.types import to_arrow_schema

from ..archives.parquet import NewFile
from ..archives.storage import storage_at
from ..reader.ranges import Range
from ..reader.reading import read
from .requests import ExportRequest


@dataclass(frozen=True)
class Written:
    path: str
    rows: int
    bytes: int


def writing(to: str, folder: str, asked: ExportRequest) -> Callable[[Range | None], list[Written]]:
    """Return a function for executors, which writes a range into files below ``folder`` and returns them by offset.

    Without a range, it writes one file that has the columns and no rows. The files count only after the driver has
    renamed them.
    """

    def written(wanted: Range | None) -> list[Written]:
        storage, schema = storage_at(to), to_arrow_schema(asked.schema, timezone="UTC")
        attempt, found = f"{folder}/{uuid.uuid4().hex}", list[Written]()

        def begin() -> NewFile:
            return NewFile(storage, f"{attempt}/{len(found)}.parquet", schema, asked.compression)

        def end() -> None:
            file.close()
            found.append(Written(file.path, file.rows, file.bytes))

        file = begin()
        try:
            for batch in () if wanted is None else read(wanted, asked.schema, asked.options):
                if file.is_full:
                    end()
                    file = begin()
                file.add(batch)
            end()
        except BaseException:
            file.abandon()
            raise
        return found

    return written
