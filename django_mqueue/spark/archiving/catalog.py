"""An archive as its manifests tell it. Reading one needs neither a database nor Django's settings."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from ..connecting import Connecting
from ..errors import ArchiveError, NoArchive, NoSuchTopic
from ..options import ReadOptions, Table
from .files import Files, files_at
from .layout import MANIFESTS, MARKER, TABLES, folder_of, is_manifest, manifests_of, topic_of
from .manifest import FileEntry, Manifest, Marker, counting, read_manifest, read_marker
from .vacancy import held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

READERS = 16
"""Manifests that are fetched at once."""


class Archive:
    """A folder that ``archive`` has written.

    What was found of a topic stays so in this object, so that what its methods say fits together: open it again to see
    what was added since.
    """

    def __init__(self, files: Files, marker: Marker) -> None:
        self.files, self.marker = files, marker
        self._known: dict[str, list[Manifest]] = {}

    @classmethod
    def open(cls, to: str | os.PathLike[str], spark: SparkSession | None = None) -> Archive:
        """The archive at a path or URI. Raises ``NoArchive`` saying what is there instead, or ``ArchiveError``.

        ``spark``: for places that only Hadoop knows.
        """
        files = files_at(to, spark)
        try:
            data = files.read(MARKER)
        except (FileNotFoundError, NotADirectoryError):
            raise NoArchive(_instead(files)) from None
        except (OSError, pa.ArrowException) as error:
            raise NoArchive(f"{files.uri} cannot be read: {error}") from error
        return cls(files, read_marker(data, f"{files.uri}/{MARKER}"))

    def topics(self) -> list[str]:
        """All that anything was archived of, by name."""
        folders = {
            path.split("/")[1]
            for path in (each.path for each in self.files.list(MANIFESTS, deep=True))
            if is_manifest(path.rpartition("/")[2])
        }
        return sorted(topic_of(folder) or self._told(folder) for folder in folders)

    def chosen(self, topics: str | Sequence[str] | None) -> list[str]:
        """These topics, or all. Raises ``NoSuchTopic`` for those that are not in the archive."""
        there = self.topics()
        wanted = there if topics is None else [topics] if isinstance(topics, str) else list(topics)
        if unknown := sorted(set(wanted) - set(there)):
            raise NoSuchTopic(
                f"the archive {self.files.uri} has no topic {', '.join(map(repr, unknown))}; it has"
                f" {', '.join(there) or 'none'}"
            )
        return wanted

    def upto(self, topic: str, table: Table = "messages") -> int:
        """Up to which offset the archive has a topic's table: 0 for a topic that is not in it."""
        return max((m.tables[table].upto for m in self.manifests(topic) if table in m.tables), default=0)

    def entries(self, topic: str, table: Table = "messages") -> list[FileEntry]:
        """The files of a topic's table, by offset; none for a topic that is not in it."""
        parts = (m.tables[table] for m in self.manifests(topic) if table in m.tables)
        return sorted(chain.from_iterable(part.files for part in parts), key=lambda e: (e.first, e.path))

    def frame(self, spark: SparkSession, topics: str | Sequence[str], table: Table = "messages") -> DataFrame:
        """What the archive holds of these topics, with all columns that ``format("mqueue")`` has for the table.

        Columns that older files have not are null. In no order. Raises ``NoSuchTopic``.
        """
        wanted = self.chosen(topics)
        found = [
            self.files.spark_path(entry.path) for topic in wanted for entry in self.entries(topic, table)
        ]
        if not found:
            return spark.createDataFrame([], schema(table))
        return read_parquet(spark, table, found)

    def manifests(self, topic: str) -> list[Manifest]:
        """Those with files that count, by offset. Raises ``ArchiveError``."""
        return [manifest for manifest in counting(self.all_manifests(topic)) if manifest.tables]

    def all_manifests(self, topic: str) -> list[Manifest]:
        """Also those that do not count, as long as they are there, and those that only take a number."""
        if topic not in self._known:
            self._known[topic] = self._found(topic)
        return self._known[topic]

    def _found(self, topic: str) -> list[Manifest]:
        """A list of files may miss one that came while it was made, and name one that was deleted since."""
        paths = self._paths(manifests_of(topic))
        while True:
            try:
                return self._whole(topic, paths)
            except (ArchiveError, FileNotFoundError):
                before, paths = paths, self._paths(manifests_of(topic))
                if paths == before:
                    raise

    def _whole(self, topic: str, paths: Sequence[str]) -> list[Manifest]:
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(self._read, paths))
        for manifest in found:
            if manifest.topic != topic:
                raise ArchiveError(
                    f"{self.files.uri}/{manifests_of(topic)}/{manifest.name}.json is of topic {manifest.topic!r}"
                )
        counted = counting(found)
        for table in TABLES:
            self._check_whole(topic, table, [m for m in counted if table in m.tables])
        self._check_numbers(topic, [m for m in counted if m.tables])
        return found

    def _paths(self, folder: str) -> list[str]:
        return [each.path for each in self.files.list(folder) if is_manifest(each.path.rpartition("/")[2])]

    def _read(self, path: str) -> Manifest:
        return read_manifest(self.files.read(path), f"{self.files.uri}/{path}")

    def _told(self, folder: str) -> str:
        """The topic of a folder whose name was cut."""
        manifest = self._read(self._paths(f"{MANIFESTS}/{folder}")[0])
        if folder_of(manifest.topic) != folder:
            raise ArchiveError(
                f"{self.files.uri}/{MANIFESTS}/{folder} holds a manifest of {manifest.topic!r}"
            )
        return manifest.topic

    def _check_whole(self, topic: str, table: Table, manifests: Sequence[Manifest]) -> None:
        """The first manifest must begin at 0, and each other one where the one before it ends."""
        if manifests and manifests[0].tables[table].above:
            raise ArchiveError(
                f"{self.files.uri}: topic {topic!r}, {table}: manifest {manifests[0].name} is the first, but begins"
                f" above {manifests[0].tables[table].above}: those before it are missing"
            )
        for before, after in pairwise(manifests):
            ended, begun = before.tables[table].upto, after.tables[table].above
            if begun != ended:
                raise ArchiveError(
                    f"{self.files.uri}: topic {topic!r}, {table}: manifest {before.name} ends at offset {ended}, but"
                    f" {after.name} begins above {begun}: "
                    + ("one between them is missing" if begun > ended else "both hold what lies between")
                )

    def _check_numbers(self, topic: str, manifests: Sequence[Manifest]) -> None:
        """Every batch from 1 on must be there: one that is the last for each of its tables leaves no gap in offsets."""
        ended, known = 0, "there is no batch before 1"
        for manifest in manifests:
            begun = manifest.since or manifest.batch
            if begun != ended + 1:
                raise ArchiveError(
                    f"{self.files.uri}: topic {topic!r}: {known}, but manifest {manifest.name} begins with batch"
                    f" {begun}: "
                    + ("one before it is missing" if begun > ended else "both hold what lies between")
                )
            ended, known = manifest.batch, f"manifest {manifest.name} ends with batch {manifest.batch}"


def schema(table: Table) -> StructType:
    """All columns of a table."""
    from ..columns import schema_of

    return schema_of(ReadOptions(Connecting(), table=table, include_headers=True))


def read_parquet(spark: SparkSession, table: Table, paths: Sequence[str]) -> DataFrame:
    """Files of a table. One that is missing or damaged is an error, whatever the session is set to."""
    strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
    return spark.read.options(**strict).schema(schema(table)).parquet(*map(patterned, paths))


def patterned(path: str) -> str:
    """A path as a pattern that nothing else matches: that is what Spark takes paths for.

    Its option ``__globPaths__``, which says that they are none, reads several such files several times each (4.3).
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _instead(files: Files) -> str:
    """Why there is no archive."""
    try:
        there = held(files)
    except OSError as error:
        return f"there is no archive at {files.uri}: {error}"
    what = ", ".join(there[:5]) + (" and more" if len(there) > 5 else "") if there else "no file"
    return f"there is no archive at {files.uri}: it holds {what}, but not {MARKER}"
