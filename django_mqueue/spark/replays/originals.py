"""All messages of a topic as one table: those in the archive, and above them those in the log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...store import log, offsets
from ..database import following
from ..database.following import ReaderPosition
from ..errors import ArchiveError
from ..reader.options import read_options
from ..reader.planning import topics_of
from ..reader.settling import settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..archives import Archive


@dataclass(frozen=True)
class Originals:
    """The places of a topic's messages: the archive up to one offset, and the log above that up to another offset.

    * ``archived``: the end of the archive; 0 if the topic is not archived.
    * ``upto``: messages above this offset are not read.
    * ``live``: whether the log is read at all.
    * ``life``: the registration generation of the group that holds back deletion; 0 if there is no such group.
    * ``settled``: the settled offset of the log. An archive from a later time may reach above it.
    """

    topic: str
    archive: Archive | None
    archived: int
    upto: int
    live: bool
    life: int = 0
    settled: int = 0

    def frame(self, spark: SparkSession, options: Mapping[str, str], *, targeted: bool) -> DataFrame:
        """Return the messages as a frame, in no order. ``options``: for the connection."""
        found = None
        if self.archive is not None:
            found = self.archive.frame(spark, self.topic).where(f"`offset` <= {self.upto:d}")
        if self.live and self.upto > self.archived:
            more = {
                "topic": self.topic,
                "startingOffsets": str(self.archived + 1),
                "endingOffsets": str(self.upto + 1),
                "includeHeaders": "true",
                "includeTargeted": "true" if targeted else "false",
            }
            log = spark.read.format("mqueue").options(**options, **more).load()
            found = log if found is None else found.unionByName(log)
        if found is None:
            from ..archives.tasks import schema

            return spark.createDataFrame([], schema("messages"))
        return found


def look(
    using: str,
    topic: str,
    path: str | os.PathLike[str] | None,
    options: Mapping[str, str],
    *,
    live: bool,
    as_of: int | datetime | None = None,
) -> Originals:
    """Return where the messages are now. This changes nothing.

    Raises ``NoArchive``, ``NoSuchTopic`` or ``ArchiveError``.
    """
    archive = opened(path, as_of)
    archived = archive.upto(topic) if archive else 0
    if not archived and archive is not None:
        archive.chosen(topic)  # Perhaps mistyped: raise an error before any registration.
    if not live:
        return Originals(topic, archive, archived, archived, live)
    if not archived:
        topics_of(using, read_options({**options, "topic": topic}))
    found = settle(using, topic, options)
    known = max(offsets.settled(using, topic), log.newest(using, topic))
    if archived > known:
        # Archived messages were settled, and the topic's row stores that before they are deleted.
        raise ArchiveError(
            f"the archive holds topic {topic!r} up to offset {archived}, but this database has never had an offset"
            f" above {known}: the archive belongs to another database. Give the archive of this database"
        )
    return Originals(topic, archive, archived, max(archived, found), live, settled=found)


def hold(
    using: str,
    topic: str,
    path: str | os.PathLike[str] | None,
    options: Mapping[str, str],
    *,
    group: str,
    begun: bool,
    gap_is_error: bool,
) -> Originals:
    """Return where the messages are. From now on, until ``let_go``, messages that only the log holds are not deleted.

    The archive may grow during this call, and messages may then be deleted from the log. So the archive is read again
    after ``group`` holds back deletion. It contains everything that was deleted before, if the archive's own group held
    back deletion all the time.

    ``begun``: whether an earlier run got past this step. The registration of ``group`` does not prove that: a run that
    was killed may not have checked for a gap. After this step, ``group`` itself must have held back deletion all the
    time.

    Raises ``LogGap`` if no group has held back deletion, unless ``gap_is_error`` is false.
    """
    first = look(using, topic, path, options, live=True)
    if begun and gap_is_error:
        _check_still(following.place(topic, group, using=using), topic, group, first.archived)
    life = following.follow(topic, group, first.archived, first.settled, using=using, lower=True).life
    archive = opened(path)
    archived = archive.upto(topic) if archive else 0
    if archive is not None and not begun and gap_is_error:
        from ..archives.topic_state import check_held

        try:
            check_held(using, archive, topic, archived)
        except LogGap:
            following.forget(topic, group, using=using)
            raise
    return Originals(topic, archive, archived, max(first.upto, archived), True, life)


def _check_still(found: ReaderPosition | None, topic: str, group: str, archived: int) -> None:
    """Raise ``LogGap`` unless this group has held back deletion above the archive since the run began."""
    if found is None:
        raise LogGap(
            f"group {group!r}, which holds back deletion for this, was unsubscribed from topic {topic!r} after the"
            " start: messages that are not stored yet may be deleted. Start again; or allow the gap to continue with"
            " the remaining messages"
        )
    if found.above > archived:
        raise LogGap(
            f"the archive holds topic {topic!r} up to offset {archived}, but since the start group {group!r} holds"
            f" back deletion only above {found.above}: this is another archive, or an older copy. Give the archive"
            " from the start; or allow the gap to continue with the remaining messages"
        )


def settle(using: str, topic: str, options: Mapping[str, str]) -> int:
    """Return the settled offset of a topic; wait a few seconds for open transactions."""
    return settled(using, topic, read_options({**options, "topic": topic}))


def opened(path: str | os.PathLike[str] | None, as_of: int | datetime | None = None) -> Archive | None:
    """Open the archive again and return it; None without a path. Raises ``NoArchive``."""
    from ..archives import Archive  # Needs Arrow, so it is imported late.

    return None if path is None else Archive.open(path, as_of=as_of)
