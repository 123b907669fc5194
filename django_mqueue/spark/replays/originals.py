"""Messages of a topic as one table: what the archive holds of them, and above that what the log does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...service import following
from ...service.following import Place
from ...store import log, offsets
from ..errors import ArchiveError
from ..options import read_options
from ..planning import topics_of
from ..settling import settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..archives import Archive


@dataclass(frozen=True)
class Originals:
    """Where the messages of a topic are: archived up to an offset (0: none is), and in the log up to another.

    ``upto``: nothing above it is of interest. ``live``: whether the log is read at all. ``life``: of the registration
    of the group that holds back their deletion; 0 where nobody does. ``settled``: of the log, which an archive of a
    later time may reach above.
    """

    topic: str
    archive: Archive | None
    archived: int
    upto: int
    live: bool
    life: int = 0
    settled: int = 0

    def frame(self, spark: SparkSession, options: Mapping[str, str], *, targeted: bool) -> DataFrame:
        """Their table, in no order. ``options``: for the connection."""
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
    """Where they are now, changing nothing. Raises ``NoArchive``, ``NoSuchTopic``, ``ArchiveError``."""
    archive = opened(path, as_of)
    archived = archive.upto(topic) if archive else 0
    if not archived and archive is not None:
        archive.chosen(topic)  # Mistyped, perhaps: that is said before anything is registered for it.
    if not live:
        return Originals(topic, archive, archived, archived, live)
    if not archived:
        topics_of(using, read_options({**options, "topic": topic}))
    found = settle(using, topic, options)
    known = max(offsets.settled(using, topic), log.newest(using, topic))
    if archived > known:
        # What was archived was settled, and is deleted only when the topic's row says so, too.
        raise ArchiveError(
            f"the archive holds topic {topic!r} up to offset {archived}, but this database has never had one above"
            f" {known}: it is the archive of another one, above which this one's log does not go on"
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
    """The same of archive and log; from now on nothing is deleted that only the log has, until ``let_go``.

    The archive may grow while this looks, and deletion follow it. So it is looked at again when ``group`` holds back
    deletion: what was deleted before is in it then, if the archive's own group held deletion back all the time.

    ``begun``: whether an earlier run has come further than this. That ``group`` is registered does not say so: one that
    was killed may not have looked for a gap. From then on ``group`` must have held deletion back, whatever others did.

    Raises ``LogGap`` where nobody has, unless that is allowed.
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


def _check_still(found: Place | None, topic: str, group: str, archived: int) -> None:
    """Raise ``LogGap`` unless this group has held back deletion above the archive since the run was begun."""
    if found is None:
        raise LogGap(
            f"group {group!r}, which holds back deletion for this, was unsubscribed from topic {topic!r} since it was"
            " begun: what is not stored yet may be deleted. Begin anew; or allow the gap, and go on with what is there"
        )
    if found.above > archived:
        raise LogGap(
            f"the archive holds topic {topic!r} up to offset {archived}, but since this was begun group {group!r} holds"
            f" back deletion only above {found.above}: this is another archive, or an older copy of it. Give the one"
            " that it was begun with; or allow the gap, and go on with what is there"
        )


def settle(using: str, topic: str, options: Mapping[str, str]) -> int:
    """The offset up to which all is decided, as far as that can be found out in a few seconds."""
    return settled(using, topic, read_options({**options, "topic": topic}))


def opened(path: str | os.PathLike[str] | None, as_of: int | datetime | None = None) -> Archive | None:
    """The archive, opened anew. Raises ``NoArchive``."""
    from ..archives import Archive  # Arrow, without which this can be named.

    return None if path is None else Archive.open(path, as_of=as_of)
