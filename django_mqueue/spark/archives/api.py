"""The functions that write, change and check archives. Each function imports Spark and Arrow when it is called."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import OptionError
from .requests import BATCH_ROWS, HISTORY_AFTER, Progress, archive_request, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .archive_run import Archived
    from .rewriting import Compacted, Erased
    from .verifying import Verified

KEEP_HOURS = 24.0
"""Hours before files that no table names are deleted: a reader may still use them, or a run may soon commit them."""


def archive(
    spark: SparkSession,
    topics: str | Sequence[str] | None,
    to: str,
    *,
    options: Mapping[str, str] | None = None,
    pattern: str | None = None,
    group: str = "archive",
    batch_rows: int = BATCH_ROWS,
    history_after: float = HISTORY_AFTER,
    fail_on_data_loss: bool = True,
    moved: bool = False,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Archived]:
    """Add new messages of the topics to the archive at ``to``, and let the log delete them. Return what was added.

    The run starts where the archive ends, and stops at the offset that was settled when the run began.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topics`` and ``pattern``: give one of them. ``topics`` is a name or several names. ``pattern`` is a regular
      expression; it selects the topics whose whole name it matches.
    * ``options``: connection options of ``format("mqueue")``, and ``deadLetterSuffix``. Default: Django's settings.
    * ``group``: the consumer group that holds back deletion for the archive.
    * ``batch_rows``: the maximum number of messages in a batch.
    * ``history_after``: seconds. The delivery history of a message of that age is archived even if a group is not
      done with the message.
    * ``fail_on_data_loss``: whether to raise ``LogGap`` if messages may be missing.
    * ``moved``: the database moved to another server, and replaces the database on the earlier server.
    * ``stopping``: an event. When it is set, the run ends after the current batch.
    * ``progress``: called with the number of offsets done and the total.

    Returns an ``Archived`` for each topic.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``NoSpark`` (``deltalake`` is not installed),
    ``GroupTaken`` (another run of the group is alive, or workers consume for the group), ``LogGap`` (messages may be
    missing, and ``fail_on_data_loss`` is true) or ``ArchiveError`` (the folder cannot be written or holds something
    else, a file is damaged, the archive belongs to another database, server or group, or another run was faster). If it
    raises before the first batch, it has added nothing to the archive.
    """
    from .archive_run import Run
    from .storage import storage_at

    wanted = archive_request(
        options or {}, topics, pattern, group, batch_rows, history_after,
        strict=fail_on_data_loss, moved=moved,
    )  # fmt: skip
    run = Run(spark, storage_at(to), wanted, stopping or threading.Event(), progress or quiet)
    return run.run()


def compact(
    spark: SparkSession,
    to: str,
    *,
    topics: str | Sequence[str] | None = None,
    bytes: int = 1 << 30,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Compacted]:
    """Join small files of the same day into larger files. Return how many files were replaced.

    It needs no database. It may run at the same time as an archive run.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topics``: a name or several names. Default: all topics of the archive.
    * ``bytes``: the maximum total size of the files that are joined into one, in bytes.
    * ``stopping``: an event. When it is set, the compaction ends after the current table of a topic.
    * ``progress``: called with the number of files done and the total.

    Returns a ``Compacted`` for each topic.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``NoSpark`` (``deltalake`` is not installed), or
    ``ArchiveError`` if a file is damaged, or if another compaction or erasure was faster.
    """
    from .catalog import Archive
    from .rewriting import compacted

    if bytes < 1:
        raise OptionError(f"bytes is {bytes}, but must be at least 1")
    found = Archive.open(to)
    return compacted(
        spark, found, found.chosen(topics), bytes, stopping or threading.Event(), progress or quiet
    )


def erase(
    spark: SparkSession,
    to: str,
    topic: str,
    *,
    key: str | None = None,
    where: str | None = None,
    keep_hours: float = KEEP_HOURS,
) -> Erased:
    """Remove messages from an archive, with their dead letters and deliveries. Return how many rows were removed.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topic``: the name of one topic.
    * ``key`` and ``where``: give one of them. ``key`` selects the messages with this key. ``where`` is a condition in
      Spark's SQL over the columns of messages and ``value``, the payload as text, such as
      ``get_json_object(value, '$.customer') = 'ada'``. It also selects dead letters, by the dead
      letters' own columns.
    * ``keep_hours``: hours, from 0 to 87,600 (ten years). How long the replaced files stay; rounded up to whole hours.

    After this call readers of the tables no longer see the rows. The replaced files still hold them. The first call
    of ``erase`` or ``verify(clean=True)`` after ``keep_hours`` deletes these files; with 0 hours this call does.
    Until then the earlier state of the archive can be read. The messages in the log do not change.

    Returns an ``Erased``.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``NoSpark`` (``deltalake`` is not installed), or
    ``ArchiveError`` if a file is damaged, or if another compaction or erasure was faster.
    """
    from .catalog import Archive
    from .rewriting import erased
    from .tables import TABLES

    check_keep(keep_hours)
    found = Archive.open(to)
    found.chosen(topic)
    done = erased(spark, found, topic, key, where)
    for table in TABLES:
        found.snapshots[table].vacuum(keep_hours, full=False)
    return done


def verify(
    spark: SparkSession,
    to: str,
    *,
    topics: str | Sequence[str] | None = None,
    clean: bool = False,
    keep_hours: float = KEEP_HOURS,
    log: Mapping[str, str] | None = None,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Verified]:
    """Read and check all files of the topics in an archive. Return the problems of each topic.

    Each file must exist, with the right size, checksums, number of rows, and first and last offset. Its rows must be
    sorted. No row may exist twice. The number of rows must be the number ever added, minus the number erased.

    * ``to``: a path, or the URI of a folder in an object store.
    * ``topics``: a name or several names. Default: all topics of the archive.
    * ``clean``: delete files that no table has named for ``keep_hours``, if no topic has a problem. It must verify all
      topics, because it deletes files of all topics.
    * ``keep_hours``: hours, from 0 to 87,600 (ten years); rounded up to whole hours.
    * ``log``: connection options of ``format("mqueue")``; ``{}`` stands for Django's settings. With them, the archive
      must have all messages that the log still holds up to the archive's end.
    * ``stopping``: an event. When it is set, the verification ends before the next topic, and deletes nothing.
    * ``progress``: called with the number of files done and the total.

    Returns a ``Verified`` for each topic that was read.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError``, ``NoSpark`` (``deltalake`` is not installed), or
    ``ArchiveError`` if a table cannot be read or cleaned, or if a task fails.
    """
    from .catalog import Archive
    from .verifying import verified

    check_keep(keep_hours)
    check_clean(clean, topics)
    return verified(
        spark,
        Archive.open(to),
        topics,
        clean=clean,
        keep_hours=keep_hours,
        log=log,
        stopping=stopping or threading.Event(),
        progress=progress or quiet,
    )


def check_clean(clean: bool, topics: str | Sequence[str] | None) -> None:
    """Raise ``OptionError`` if only some topics are verified before files of all topics are deleted."""
    if clean and topics is not None:
        raise OptionError(f"clean deletes files of all topics: leave out topics, which is {topics!r}")


def check_keep(hours: float) -> None:
    """Raise ``OptionError`` unless ``hours`` is from 0 to 87,600 (ten years)."""
    if not 0 <= hours <= 24 * 3650:
        raise OptionError(f"keep_hours is {hours}, but must be from 0 to {24 * 3650}")
