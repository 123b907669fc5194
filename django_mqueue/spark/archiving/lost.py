"""Manifests that are lost, as far as the files tell that they named.

Before the last one numbers tell (see ``catalog``). Behind it, and where none is left, only what lies there does: a
batch writes its files when the manifest of the one before it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .catalog import Archive
from .files import Found
from .layout import TABLES, folder_of, topic_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH = re.compile(r"([0-9]{10})-[^/]*\.parquet")


def batch_of(path: str) -> int:
    """Which batch a data file is of; 0 for what is no data file."""
    data = _BATCH.fullmatch(path.rpartition("/")[2])
    return int(data[1]) if data else 0


def behind_the_last(
    spark: SparkSession, archive: Archive, topic: str, files: Sequence[Found]
) -> Iterator[str]:
    """What is wrong if ``files``, which no manifest names, are of a batch that no run can have begun with."""
    newest = max((batch_of(found.path) for found in files), default=0)
    if newest <= _last(archive, topic) + 1:
        return
    last = _last(
        Archive.open(archive.files.uri, spark), topic
    )  # Runs may have gone on until the files were listed.
    if newest > last + 1:
        yield (
            f"topic {topic!r}: there are files of batch {newest}, but the last manifest is of batch {last}: those"
            " behind it are missing"
        )


def without_manifests(spark: SparkSession, archive: Archive) -> dict[str, list[str]]:
    """Data files by the topic, or the topic's folder where that does not tell, that has no manifest at all."""
    named = {folder_of(topic) for topic in archive.topics()}
    found: dict[str, list[str]] = {}
    for table in TABLES:
        for path, is_folder in archive.files.look(table):
            folder = path.rpartition("/")[2]
            if is_folder and folder not in named:
                there = [each.path for each in archive.files.list(path, deep=True) if batch_of(each.path)]
                found.setdefault(folder, []).extend(there)
    if any(found.values()):  # The first manifest may have come until the files were listed.
        named = {folder_of(topic) for topic in Archive.open(archive.files.uri, spark).topics()}
    return {
        topic_of(folder) or folder: sorted(paths)
        for folder, paths in sorted(found.items())
        if paths and folder not in named
    }


def _last(archive: Archive, topic: str) -> int:
    """The last batch that has a manifest."""
    return max((manifest.batch for manifest in archive.all_manifests(topic)), default=0)
