"""What is done with archives, as functions. Nothing of Spark or Arrow is imported before one of them is called."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import OptionError
from .asking import BATCH_ROWS, HISTORY_AFTER, Progress, asked, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .checking import Verified
    from .compacting import Compacted
    from .running import Archived


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
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Archived]:
    """Add to the archive at ``to`` what the topics hold beyond it, and let the log forget that; what was added.

    ``topics``: names, or with ``pattern`` all that a regular expression matches as a whole. ``options``: the
    connection's, as of ``format("mqueue")``. ``batch_rows``: messages in a batch, at most. ``history_after``: seconds
    after which a message's delivery history is archived even if a group is not done with the message. ``stopping``:
    when it is set, the run ends after the batch that is under way.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``GroupTaken`` (another run of the group lives),
    ``LogGap`` (messages may be missing, unless ``fail_on_data_loss`` is false) or ``ArchiveError`` (the place cannot
    be written, or holds something else); before the first batch nothing was changed then.
    """
    from .files import files_at
    from .running import Run

    wanted = asked(options or {}, topics, pattern, group, batch_rows, history_after, strict=fail_on_data_loss)
    run = Run(
        spark,
        files_at(to, spark),
        wanted,
        stopping or threading.Event(),
        progress or quiet,
    )
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
    """Put batches that follow each other together, as long as they have at most ``bytes`` in files; what was done.

    ``topics``: all, unless given. Needs no database, and may run beside an archive run. Raises ``NoArchive``,
    ``NoSuchTopic``, ``OptionError``, or ``ArchiveError`` if a file is not what it should be: what is wrong is not
    carried on.
    """
    from .catalog import Archive
    from .compacting import compacted

    if bytes < 1:
        raise OptionError(f"bytes is {bytes}, but must be at least 1")
    archive = Archive.open(to, spark)
    return compacted(
        spark, archive, archive.chosen(topics), bytes, stopping or threading.Event(), progress or quiet
    )


def verify(
    spark: SparkSession,
    to: str,
    *,
    topics: str | Sequence[str] | None = None,
    clean: bool = False,
    stopping: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Verified]:
    """Read all that the archive holds of the topics (all, unless given), and say what is wrong with it.

    Every file must be there, with its checksum, its rows and its offsets, sorted, and nothing twice; manifests must
    follow each other without a gap, and be there for all that was written, as far as that can be told. Needs no
    database. ``clean`` deletes what belongs to nothing for an hour. Raises ``NoArchive``, ``NoSuchTopic``, or
    ``ArchiveError`` for an archive of a newer version.
    """
    from .catalog import Archive
    from .checking import verified

    archive = Archive.open(to, spark)
    return verified(
        spark,
        archive,
        topics,
        clean=clean,
        stopping=stopping or threading.Event(),
        progress=progress or quiet,
    )
