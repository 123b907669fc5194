"""All messages of a topic as one table: the messages of an archive, and above its end the messages of the log.

A group holds back the deletion of messages in the log until they are stored as copies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from ...exceptions import LogGap
from ...policy import names
from ...store import log, offsets
from ..archives import open_archive
from ..archives.topic_state import gap_above
from ..connecting import RetryingConnection, connecting
from ..database import copying, following
from ..database.copying import CopyRun
from ..database.following import ReaderPosition
from ..errors import ArchiveError
from ..reader.conditions import evaluated
from ..reader.options import read_options
from ..reader.planning import topics_of
from ..reader.settling import settled
from .message_filter import MessageFilter
from .storing import CopyTask, compute, storing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..archives.catalog import Archive

INTO = "-into-"


@dataclass(frozen=True)
class Originals:
    """A topic's messages: in the archive up to ``archived``, and above that in the log up to ``upto``."""

    topic: str
    archive: Archive | None
    archived: int  # 0 if the topic is not archived.
    upto: int
    generation: int = 0  # The registration generation of the group that holds back deletion.
    settled: int = 0  # The settled offset of the log. The archive may reach above it.

    def frame(self, spark: SparkSession, options: Mapping[str, str], *, targeted: bool) -> DataFrame:
        """Return the messages as a frame, in no particular order. ``options``: for the connection."""
        found = None
        if self.archive is not None:
            found = self.archive.frame(spark, self.topic).where(f"`offset` <= {self.upto:d}")
        if found is None or self.upto > self.archived:
            log_options = {
                "topic": self.topic,
                "startingOffsets": str(self.archived + 1),
                "endingOffsets": str(self.upto + 1),
                "includeHeaders": "true",
                "includeTargeted": "true" if targeted else "false",
            }
            rest = spark.read.format("mqueue").options(**options, **log_options).load()
            found = rest if found is None else found.unionByName(rest)
        return found


@dataclass
class GuardedSource:
    """The messages of ``topic`` in the archive ``source`` and in the log, as a replay or a backfill reads them.

    ``guard``: the group that holds back deletion.
    """

    spark: SparkSession
    topic: str
    source: str | os.PathLike[str] | None
    options: Mapping[str, str]
    guard: str
    as_of: int | datetime | None = None
    rate: float | None = None
    stopping: threading.Event | None = None
    watch: Callable[[int], object] | None = None

    def __post_init__(self) -> None:
        self.parameters = connecting(self.options)
        self.connection = RetryingConnection(self.parameters)

    @cached_property
    def archive_id(self) -> str:
        """The identity of the archive and its state. It stays the same when the archive's files are moved."""
        archive = open_archive(self.source, self.as_of)
        if archive is None:
            return "none"
        return archive.id if self.as_of is None else f"{archive.id} as of {self.as_of}"

    def find(self, using: str, *, live: bool) -> Originals:
        """Return where the messages are now. Raises ``NoArchive``, ``NoSuchTopic`` or ``ArchiveError``."""
        topic, archive = self.topic, open_archive(self.source, self.as_of)
        archived = archive.upto(topic) if archive else 0
        if archive and not archived:
            archive.select_topics(topic)  # Perhaps mistyped: raise an error before any registration.
        if not live:
            return Originals(topic, archive, archived, archived)
        if not archived:
            topics_of(using, read_options({**self.options, "topic": topic}))
        found = self.settled(using)
        known = max(offsets.settled(using, topic), log.newest(using, topic))
        if archived > known:
            # Archived messages were settled. The topic's row stores the settled offset before they are deleted.
            raise ArchiveError(
                f"the archive holds topic {topic!r} up to offset {archived}, but this database has never had an offset"
                f" above {known}: the archive belongs to another database, or this database was restored to an earlier"
                " state. Give an archive of this database as it is now"
            )
        return Originals(topic, archive, archived, max(archived, found), settled=found)

    def hold_back_deletion(self, using: str, *, begun: bool, gap_is_error: bool) -> Originals:
        """Register the guard, so that the log keeps all messages above the archive. Return where all messages are.

        Before that, the archive may grow and the log may shrink. So the archive is opened again.
        ``begun``: whether an earlier run has checked for a gap; a registered guard does not prove that. Raises
        ``LogGap`` if deletion was not held back all the time, unless ``gap_is_error`` is false.
        """
        topic, group = self.topic, self.guard
        first = self.find(using, live=True)
        if begun and gap_is_error:
            _check_deletion_was_held_back(
                following.position(topic, group, using=using), topic, group, first.archived
            )
        generation = following.follow(
            topic, group, first.archived, first.settled, using=using, lower=True
        ).generation
        archive = open_archive(self.source)
        archived = archive.upto(topic) if archive else 0
        if archive and not begun and gap_is_error and (gap := gap_above(using, archive, topic, archived)):
            self.release(using)
            raise LogGap(". ".join(gap))
        return Originals(topic, archive, archived, max(first.upto, archived), generation)

    def release(self, using: str) -> None:
        """Unsubscribe the guard, so that the messages may be deleted."""
        following.forget(self.topic, self.guard, using=using)

    def settled(self, using: str) -> int:
        """Return the settled offset of the topic; wait a few seconds for open transactions."""
        options = read_options({**self.options, "topic": self.topic})
        return settled(using, [self.topic], options)[self.topic]

    def store(self, run: CopyRun, originals: Originals, message_filter: MessageFilter) -> bool:
        """Store copies of the chosen messages. Return false if stopped before the end. Raises ``ConditionFailed``."""

        def report() -> None:
            if self.watch is not None:
                self.watch(self.copied(run))

        frame = originals.frame(self.spark, self.options, targeted=message_filter.targeted)
        with evaluated(self.spark, message_filter.where):
            # Build the table in this block: a Spark Connect server may keep its analysis of the condition.
            copies = storing(message_filter.of(frame), CopyTask(self.parameters, run, self.topic, self.rate))
            return compute(self.spark, copies, self.stopping, report) is not None

    def copied(self, run: CopyRun) -> int:
        """Return how many copies all runs of this name have stored up to now."""
        return self.connection.run(partial(copying.copied, run=run))


def _check_deletion_was_held_back(
    found: ReaderPosition | None, topic: str, group: str, archived: int
) -> None:
    """Raise ``LogGap`` unless this group has held back deletion above the archive since the run began."""
    if found is None:
        raise LogGap(
            f"group {group!r}, which holds back deletion for this run, was unsubscribed from topic {topic!r} after the"
            " start: messages that are not stored yet may be deleted. Allow the gap to continue with the remaining"
            " messages. Or start again: a replay with another name, a backfill after you unsubscribe its group"
        )
    if found.above > archived:
        raise LogGap(
            f"the archive holds topic {topic!r} up to offset {archived}, but since the start group {group!r} holds"
            f" back deletion only above {found.above}: this is another archive, or an older copy. Give the archive"
            " of the first run; or allow the gap to continue with the remaining messages"
        )


def guard_of_backfill(group: str) -> str:
    """Return the group that holds back deletion during the backfill of ``group``."""
    return _guard("backfill", group)


def guard_of_replay(name: str, topic: str, to: str) -> str:
    """Return the group that holds back deletion while ``topic`` is replayed into ``to``. It differs for each ``to``."""
    full = name if to == topic else f"{name}{INTO}{to}"
    if full.find(INTO) != (-1 if to == topic else full.rfind(INTO)):
        full = _digest(f"{name}\0{to}")  # Otherwise two replays could share a guard.
    return _guard("replay", full)


def _guard(kind: str, name: str) -> str:
    found = f"{kind}-{name}"
    return found if len(found) <= names.GROUP_MAX else f"{kind}-{_digest(name)}"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
