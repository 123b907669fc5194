"""What is done with archives, as functions. Nothing of Spark or Arrow is imported before one of them is called."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import OptionError
from .requests import BATCH_ROWS, HISTORY_AFTER, Progress, asked, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .archive_run import Archived
    from .rewriting import Compacted, Erased
    from .verifying import Verified

KEEP_HOURS = 24.0
"""Hours that files stay which no table names any more: somebody may be reading them, or about to commit them."""


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
    """Add to the archive at ``to`` what the topics hold beyond it, and let the log forget that; what was added.

    ``topics``: names, or with ``pattern`` all that a regular expression matches as a whole. ``options``: the
    connection's, as of ``format("mqueue")``. ``batch_rows``: messages in a batch, at most. ``history_after``: seconds
    after which a message's delivery history is archived even if a group is not done with the message. ``moved``: the
    database is on another server than before, and has taken the place of the one there. ``stopping``: when it is set,
    the run ends after the batch that is under way.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``GroupTaken`` (another run of the group lives),
    ``LogGap`` (messages may be missing, unless ``fail_on_data_loss`` is false) or ``ArchiveError`` (the place cannot
    be written, or holds something else); before the first batch nothing was changed then.
    """
    from .archive_run import Run
    from .storage import storage_at

    wanted = asked(
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
    """Put files of a day together, as long as they have at most ``bytes``; what was done.

    ``topics``: all, unless given. Needs no database, and may run beside an archive run. Raises ``NoArchive``,
    ``NoSuchTopic``, ``OptionError``, or ``ArchiveError`` if a file is not what it should be, or another compaction or
    erasure was faster.
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
    """Take messages out of an archive, with their dead letters and deliveries; how many rows.

    ``key``: those of this key. ``where``: instead, a condition in Spark's SQL over the columns of messages, as
    ``get_json_object(CAST(payload AS STRING), '$.customer') = 'ada'``.

    From then on no reader of the tables sees the rows. The files that held them are deleted ``keep_hours`` later, by
    the next call of ``erase`` or ``verify(clean=True)``, with 0 by this one; until then the archive can be read as it
    was before. What the log still holds is not touched.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError`` or ``ArchiveError``.
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
    """Read all that the archive holds of the topics (all, unless given), and say what is wrong with it.

    Every file must be there, with its size, checksums, rows and offsets, sorted, and no row twice; and as many rows as
    were ever added, but for those that were erased. ``log``: options of ``format("mqueue")`` for the connection, with
    which the archive must have all that the log still holds up to the archive's end. ``clean`` deletes files that no
    table has named for ``keep_hours``, if no topic has a problem.

    Raises ``NoArchive``, ``NoSuchTopic``, ``OptionError`` or ``ArchiveError``.
    """
    from .catalog import Archive
    from .verifying import verified

    check_keep(keep_hours)
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


def check_keep(hours: float) -> None:
    """Raise ``OptionError`` for hours that files cannot be kept."""
    if not 0 <= hours <= 24 * 3650:
        raise OptionError(f"keep_hours is {hours}, but must be from 0 to {24 * 3650}")
