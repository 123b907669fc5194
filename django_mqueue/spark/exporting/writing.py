"""What a task of an export does: it reads a range, and writes it into one file."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from ..archiving.files import files_at
from ..archiving.groups import Groups
from ..batches import Batches
from ..ranges import Range
from ..reading import read
from .asking import Asked


@dataclass(frozen=True)
class Task:
    """``range`` None: there is nothing, and the file tells the columns alone."""

    number: int
    range: Range | None


@dataclass(frozen=True)
class Written:
    path: str
    rows: int
    bytes: int


def writing(to: str, run: str, asked: Asked) -> Callable[[Task], Written]:
    """A function for executors. Each attempt of a task has a file of its own, and deletes it after an error.

    ``run`` is another for each export, and stands in the names of all its files.
    """

    def written(task: Task) -> Written:
        files, batches = files_at(to), Batches(asked.schema)
        kind = "" if asked.compression == "none" else f".{asked.compression}"
        path = f"part-{task.number:05d}-{run}-{uuid.uuid4().hex[:8]}{kind}.parquet"
        try:
            with files.create(path) as stream:
                groups = Groups(stream, batches.schema, asked.compression)
                if task.range is not None:
                    for batch in read(task.range, batches, asked.options):
                        groups.add(batch)
                groups.close()
                return Written(path, groups.rows, stream.tell())
        except BaseException:
            with suppress(OSError, pa.ArrowException):
                files.delete(path)
            raise

    return written
