"""The work of a task of an export: read a range, and write it into files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import pyarrow as pa

from ..archives.parquet import BYTES_PER_FILE, Abandoned, RowGroups
from ..archives.storage import Storage, storage_at
from ..batches import Batches
from ..ranges import Range
from ..reading import read
from .requests import Asked


@dataclass(frozen=True)
class Written:
    path: str
    rows: int
    bytes: int


def writing(to: str, folder: str, asked: Asked) -> Callable[[Range | None], list[Written]]:
    """Return a function for executors, which writes a range into files below ``folder`` and returns them by offset.

    Without a range, it writes one file that has the columns and no rows. The files count only after the driver has
    renamed them.
    """

    def written(wanted: Range | None) -> list[Written]:
        batches = Batches(asked.schema)
        with _Made(storage_at(to), f"{folder}/{uuid.uuid4().hex}", batches.schema, asked.compression) as made:
            if wanted is not None:
                for batch in read(wanted, batches, asked.options):
                    made.add(batch)
        return made.found

    return written


class _Made:
    """The files of a task, written one after the other. A context manager: without an error, they end up durable."""

    def __init__(self, storage: Storage, folder: str, schema: pa.Schema, compression: str) -> None:
        self._storage, self._folder = storage, folder
        self._schema, self._compression = schema, compression
        self.found: list[Written] = []

    def __enter__(self) -> _Made:
        self._begin()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._end()
            return
        with suppress(OSError, pa.ArrowException):
            self._groups.abandon()
        with suppress(OSError, pa.ArrowException, Abandoned), self._stack:
            raise Abandoned

    def add(self, batch: pa.RecordBatch) -> None:
        if self._groups.rows and self._stream.tell() > BYTES_PER_FILE:
            self._end()
            self._begin()
        self._groups.add(batch)

    def _begin(self) -> None:
        self._path = f"{self._folder}/{len(self.found)}.parquet"
        self._stack = ExitStack()
        self._stream = self._stack.enter_context(self._storage.create(self._path))
        self._groups = RowGroups(self._stream, self._schema, self._compression)

    def _end(self) -> None:
        self._groups.close()
        size = self._stream.tell()
        self._stack.close()
        self.found.append(Written(self._path, self._groups.rows, size))
