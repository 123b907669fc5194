"""Verification: whether an archive's files are what its manifests say; and cleaning away what no manifest names.

**What may be deleted.** A file of a batch that has a manifest which does not name it will never be named: batches are
numbered, a manifest is written once. A file of a batch without a manifest may be named by one in a moment. What a
compaction has replaced may still be read by somebody for a while. What no manifest names may be of a compaction that is
under way, however old it is: so the next compaction's number is taken first, with a manifest of no files, after which
that one comes too late. If the number is taken already, that one was faster.

A file that no manifest names may have been named by one that was lost, before its batch was archived anew. So it stays
if it holds a row that the archive has not.

Nothing is deleted of a topic with a problem.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..collecting import collect_all
from ..errors import ArchiveError
from ..options import Table
from .asking import Progress
from .catalog import Archive, read_parquet
from .compacting import next_compaction
from .copies import keys, only_copies
from .files import HIDDEN, Files, Found, files_at
from .hadoop import HadoopFiles
from .indirect import WRITING, problems
from .jobs import parallelism, spread
from .layout import MANIFESTS, MARKER, TABLES, folder_of, manifest_path
from .lost import all_lost, batch_of, behind_the_last, without_manifests
from .manifest import FileEntry, Manifest, counting, now_told
from .parquet import problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP_FOR = 3600.0
"""Seconds that what is of no use is kept: somebody may be reading it, or writing it."""

FILES_PER_TASK = 4
FILES_PER_ROUND, BYTES_PER_ROUND = 128, 1 << 30
"""That each core reads before there is progress to tell."""

_BESIDE = re.compile(rf"{re.escape(HIDDEN)}{{1,2}}(probe-|{re.escape(MARKER)}\.)")


@dataclass
class Verified:
    """Of one topic. ``orphans``: files that do not count, or not any more; ``deleted``: how many of these are gone now.

    ``problems`` are sentences; so is ``kept``: which of the orphans cleaning has left for what is in them, and why.
    """

    topic: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    deleted: int = 0
    kept: list[str] = field(default_factory=list)


def verified(
    spark: SparkSession,
    archive: Archive,
    topics: Sequence[str] | None,
    *,
    clean: bool,
    stopping: threading.Event,
    progress: Progress,
) -> list[Verified]:
    """Topic by topic, until ``stopping`` is set. None: all, and what there is of those that have no manifest."""
    found = []
    wanted = archive.chosen(topics)
    # Looked up for this alone: what a topic has now may be replaced and deleted when its turn comes.
    counted = Archive.open(archive.files.uri, spark)
    expected = {topic: _files(counted, topic) for topic in wanted}
    total, read = sum(expected.values()), 0

    def step(files: int) -> None:
        nonlocal read
        read += files
        progress(read, total)

    step(0)
    for topic in wanted:
        if stopping.is_set():
            break
        total += _files(archive, topic) - expected[topic]
        found.append(_Check(spark, archive, topic, step).run(clean=clean))
    if topics is None and not stopping.is_set():
        for topic, files in without_manifests(spark, archive).items():
            wrong = list(all_lost(topic, files, time.time() - KEEP_FOR))
            found.append(Verified(topic, problems=wrong, orphans=[each.path for each in files]))
    if clean:
        _clean_beside(archive.files)
    return found


def _files(archive: Archive, topic: str) -> int:
    with suppress(ArchiveError):  # It is told when its turn comes.
        return sum(len(archive.entries(topic, table)) for table in TABLES)
    return 0


def _clean_beside(files: Files) -> None:
    """What a run that was killed at its beginning has left beside the marker, or where Spark was writing."""
    for found in files.list(""):
        if _BESIDE.match(found.path) and time.time() - found.modified >= KEEP_FOR:
            with suppress(FileNotFoundError):
                files.delete(found.path)
    newest: dict[str, float] = {}
    for found in files.list(WRITING, deep=True):
        folder = "/".join(found.path.split("/")[:2])
        newest[folder] = max(newest.get(folder, 0), found.modified)
    for folder, modified in newest.items():
        if time.time() - modified >= KEEP_FOR:
            files.discard(folder)


class _Check:
    """Of one topic. ``step``: called with the number of files that were read since the last time."""

    def __init__(
        self, spark: SparkSession, archive: Archive, topic: str, step: Callable[[int], None]
    ) -> None:
        self._spark, self._archive, self._files, self._topic = spark, archive, archive.files, topic
        self._step = step
        self._found = Verified(topic)

    def run(self, *, clean: bool) -> Verified:
        found = self._found
        try:
            self._archive.all_manifests(self._topic)
        except ArchiveError as error:
            found.problems.append(str(error))
            return found
        for table in TABLES:
            entries = self._archive.entries(self._topic, table)
            found.files += len(entries)
            found.rows += sum(entry.rows for entry in entries)
            found.bytes += sum(entry.bytes for entry in entries)
            found.problems += self._read(entries)
            if not found.problems:
                found.problems += self._twice(table, entries)
        self._look_for_useless(clean=clean and not found.problems)
        return found

    def _look_for_useless(self, *, clean: bool) -> None:
        """By what counts now: reading has taken its time."""
        found, now = self._found, time.time()
        archive = Archive.open(self._files.uri, self._spark)
        try:
            counted = {manifest.name for manifest in counting(archive.all_manifests(self._topic))}
            orphans = list(self._orphans(archive, counted))
            found.problems += behind_the_last(self._spark, archive, self._topic, orphans)
        except ArchiveError as error:
            found.problems.append(str(error))
            return
        found.orphans = [each.path for each in orphans]
        if clean and not found.problems:
            self._clean(archive, counted, orphans, now)

    def _read(self, entries: Sequence[FileEntry]) -> Iterator[str]:
        if isinstance(self._files, HadoopFiles):
            for found in problems(self._files, entries):
                self._step(1)
                if found is not None:
                    yield found
            return
        uri, cores = self._files.uri, parallelism(self._spark)

        def look(some: Sequence[FileEntry]) -> list[str]:
            files = files_at(uri)
            return [found for entry in some if (found := problem(files, entry))]

        for some in rounds(entries, FILES_PER_ROUND * cores, BYTES_PER_ROUND * cores):
            each = max(1, min(FILES_PER_TASK, len(some) // cores))
            tasks = [some[at : at + each] for at in range(0, len(some), each)]
            for told in spread(self._spark, look, tasks, str):
                yield from told
            self._step(len(some))

    def _twice(self, table: Table, entries: Sequence[FileEntry]) -> Iterator[str]:
        """Rows that are in two files, of those whose offsets overlap."""
        doubtful = overlapping(entries)
        if not doubtful:
            return
        by = keys(table)
        paths = [self._files.spark_path(entry.path) for entry in doubtful]
        rows = read_parquet(self._spark, table, paths)
        for row in collect_all(rows.groupBy(*by).count().where("count > 1").orderBy("offset").limit(5)):
            what = ", ".join(f"{name} {row[name]}" for name in by)
            yield f"topic {self._topic!r}, {table}: {what} is there {row['count']} times"

    def _orphans(self, archive: Archive, counted: Set[str]) -> Iterator[Found]:
        """What belongs to the topic and counts for nothing."""
        named = _named(m for m in archive.all_manifests(self._topic) if m.name in counted)
        names = {manifest_path(self._topic, name) for name in counted}
        for folder in (*TABLES, MANIFESTS):
            for found in self._files.list(f"{folder}/{folder_of(self._topic)}", deep=True):
                if found.path not in named and found.path not in names:
                    yield found

    def _clean(self, archive: Archive, counted: Set[str], orphans: Sequence[Found], now: float) -> None:
        """``orphans`` were found at ``now`` or later."""
        manifests = archive.all_manifests(self._topic)
        last = max((manifest.batch for manifest in manifests), default=0)
        replaced = {manifest_path(self._topic, m.name) for m in manifests if m.name not in counted}
        since = self._replaced_at(archive, counted)
        useless, doubtful = [], []
        named = _named(manifests)
        for orphan in orphans:
            if now - max(orphan.modified, since) < KEEP_FOR:
                continue
            name = orphan.path.rpartition("/")[2]
            if orphan.path in named or orphan.path in replaced or name.startswith(HIDDEN):
                useless.append(orphan)
            elif 0 < batch_of(name) <= last:
                doubtful.append(orphan)  # Else a run may be about to name it.
        only = only_copies(archive, self._topic, [each.path for each in doubtful])
        self._found.kept = list(only.values())
        doubtful = [each for each in doubtful if each.path not in only]
        if doubtful and self._take_number(archive):
            useless += doubtful
        for orphan in useless:
            with suppress(FileNotFoundError):
                self._files.delete(orphan.path)
                self._found.deleted += 1

    def _take_number(self, archive: Archive) -> bool:
        """The next compaction's, so that none that began before changes anything; False if one has done so."""
        number, empty = next_compaction(archive, self._topic)
        last = archive.manifests(self._topic)[-1]
        manifest = replace(
            last,
            tables={},
            since=None,
            replaces=tuple(sorted(empty)),
            compaction=number,
            created_at=now_told(),
        )
        try:
            self._files.write(manifest_path(self._topic, manifest.name), manifest.json())
        except FileExistsError:
            return False
        return True

    def _replaced_at(self, archive: Archive, counted: Set[str]) -> float:
        """When the newest compaction was done, in seconds since 1970; 0 without one."""
        manifests = archive.all_manifests(self._topic)
        done = {manifest_path(self._topic, m.name) for m in manifests if m.since and m.name in counted}
        there = self._files.list(f"{MANIFESTS}/{folder_of(self._topic)}")
        return max((found.modified for found in there if found.path in done), default=0.0)


def rounds(entries: Sequence[FileEntry], files: int, bytes: int) -> Iterator[list[FileEntry]]:
    """So many neighbours at a time, or so large ones: Spark tells nothing of a job before it is done."""
    some: list[FileEntry] = []
    size = 0
    for entry in entries:
        if some and (len(some) == files or size + entry.bytes > bytes):
            yield some
            some, size = [], 0
        some.append(entry)
        size += entry.bytes
    if some:
        yield some


def _named(manifests: Iterable[Manifest]) -> set[str]:
    """Files."""
    return {e.path for manifest in manifests for part in manifest.tables.values() for e in part.files}


def overlapping(entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Those that share a stretch of offsets with another one. ``entries`` come by their first offsets."""
    found: dict[str, FileEntry] = {}
    widest: FileEntry | None = None
    for entry in entries:
        if widest is not None and entry.first <= widest.last:
            found[widest.path] = widest
            found[entry.path] = entry
        if widest is None or entry.last > widest.last:
            widest = entry
    return list(found.values())
