"""Manifests that are lost, as far as the files tell that they named.

Before the last one numbers tell (see ``catalog``). Behind it, and where none is left, only what lies there does: a
batch writes its files when the manifest of the one before it is there. Files of the batch that comes next may be of a
lost manifest, or of a run that was killed before it wrote one; the group is moved after a manifest, and only then does
the log forget what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...service.following import Place
from ..errors import ArchiveError
from .catalog import Archive
from .files import Files, Found
from .layout import TABLES, folder_of, topic_of
from .standing import Standing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAYS_OUT = (
    "Put it back from a copy of the archive; without one, keep this folder, and begin another archive with a group of"
    " its own"
)

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
        yield _behind(topic, newest, last)


def check_none_lost(
    spark: SparkSession,
    archive: Archive,
    standing: Standing,
    place: Place | None,
    held: Callable[[int, int], int],
    name_at: Callable[[int], tuple[str, str] | None],
) -> None:
    """Raise ``ArchiveError`` if a manifest behind the last one is lost, as far as that can be told.

    ``place``: the group's, from before. ``held``: how many messages the log has above one offset and up to another;
    ``name_at``: topic and id of what it has at an offset. After a set-back these may be others than the files'.
    """
    topic, files, last = standing.topic, archive.files, standing.batch
    there = [found for table in TABLES for found in files.list(f"{table}/{folder_of(topic)}", deep=True)]
    if all(batch_of(found.path) <= last for found in there):
        return
    last = _last(Archive.open(files.uri, spark), topic)  # As in ``behind_the_last``.
    unnamed = [found.path for found in there if batch_of(found.path) > last]
    newest = max(map(batch_of, unnamed), default=0)
    if newest > last + 1:
        raise ArchiveError(f"{files.uri}: {_behind(topic, newest, last)}. {_WAYS_OUT}")
    if last > standing.batch or _holds_back(standing, place):
        return  # Another run has been at work just now; or whatever is not in the archive is in the log.
    for path in unnamed:
        there_was = None if path.startswith("dead_letters/") else _offsets(files, path)
        if there_was is None:
            continue
        first, upto, count, id = there_was
        if held(first - 1, upto) < count or (id is not None and name_at(upto) != (topic, id)):
            raise ArchiveError(
                f"{files.uri}: topic {topic!r}: {path} is of messages that the log does not have any more, and the last"
                f" manifest is of batch {last}: that of batch {newest} is missing. {_WAYS_OUT}. If a run was killed"
                f" before it wrote that manifest, move the files of batch {newest} elsewhere, and run it again"
            )


def without_manifests(spark: SparkSession, archive: Archive) -> dict[str, list[Found]]:
    """Data files by the topic, or the topic's folder where that does not tell, that has no manifest at all."""
    named = {folder_of(topic) for topic in archive.topics()}
    found: dict[str, list[Found]] = {}
    for table in TABLES:
        for path, is_folder in archive.files.look(table):
            folder = path.rpartition("/")[2]
            if is_folder and folder not in named:
                there = [each for each in archive.files.list(path, deep=True) if batch_of(each.path)]
                found.setdefault(folder, []).extend(there)
    if any(found.values()):  # The first manifest may have come until the files were listed.
        named = {folder_of(topic) for topic in Archive.open(archive.files.uri, spark).topics()}
    return {
        topic_of(folder) or folder: sorted(files, key=lambda each: each.path)
        for folder, files in sorted(found.items())
        if files and folder not in named
    }


def all_lost(topic: str, files: Sequence[Found], since: float) -> Iterator[str]:
    """What is wrong if a topic has these files and no manifest: nothing as long as its first batch may be under way.

    ``since``: what was changed after that may be of a run that goes on.
    """
    newest = max(batch_of(found.path) for found in files)
    if newest > 1:
        yield _behind(topic, newest, 0)
    elif max(found.modified for found in files) <= since:
        yield (
            f"topic {topic!r}: there are files of it, and no manifest names any: it is missing, or a run was killed in"
            " the topic's first batch. The next run archives that anew; if there is to be none, delete these files"
        )


def _last(archive: Archive, topic: str) -> int:
    """The last batch that has a manifest."""
    return max((manifest.batch for manifest in archive.all_manifests(topic)), default=0)


def _behind(topic: str, newest: int, last: int) -> str:
    known = f"the last manifest is of batch {last}: those behind it" if last else "no manifest: all"
    return f"topic {topic!r}: there are files of batch {newest}, but {known} are missing"


def _holds_back(standing: Standing, place: Place | None) -> bool:
    """Whether the group is where the last manifest has it, or before that: nothing behind that was deleted."""
    if place is None or place.above > standing.position:
        return False
    return standing.batch == 0 or place.life == standing.life


def _offsets(files: Files, path: str) -> tuple[int, int, int, str | None] | None:
    """The first, the last, how many, and of messages the last one's id, which is another if any is, since what a
    database gives anew comes last. None for a file without any, or that was never written to its end."""
    id = None
    try:
        with files.open(path) as stream:
            file = pq.ParquetFile(stream)
            offsets = file.read(columns=["offset"])["offset"]
            if len(offsets) and path.startswith("messages/"):
                id = file.read_row_group(file.num_row_groups - 1, columns=["id"])["id"][-1].as_py()
    except pa.ArrowInvalid:
        return None
    except OSError as error:
        raise ArchiveError(f"{files.uri}/{path} cannot be read: {error}") from error
    if not len(offsets):
        return None
    return pc.min(offsets).as_py(), pc.max(offsets).as_py(), pc.count_distinct(offsets).as_py(), id
