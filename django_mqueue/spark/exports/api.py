"""The export, as a function. Nothing of Arrow is imported before it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..archives.requests import Progress, quiet
from .requests import asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .export_run import Exported


def export(
    spark: SparkSession,
    to: str,
    *,
    options: Mapping[str, str],
    columns: Sequence[str] | None = None,
    compression: str = "zstd",
    progress: Progress | None = None,
) -> Exported:
    """Write what a batch of ``format("mqueue")`` reads into Parquet files of the folder ``to``; how much that was.

    ``options``: as of that format. ``columns``: only these, in this order; all but ``headers``, unless given.
    ``compression``: zstd, snappy, gzip, lz4 or none. ``progress`` is called with (files done, of all).

    The rows do not pass through Spark's Java, which makes it faster than ``load().write.parquet(to)``. Each range of
    offsets is a file; names are in the order of topics and offsets. ``_SUCCESS`` is written last, and names the files:
    where it is missing, the export was not finished, and is begun anew. After an error its files are deleted, if that
    can be done.

    Raises ``OptionError``, ``NoConnection``, ``NoSuchTopic``, ``LogGap`` (messages were deleted meanwhile, unless
    ``failOnDataLoss`` is false) or ``ExportError`` (the folder is not empty, or cannot be written).
    """
    from ..archives.storage import storage_at
    from .export_run import Run

    wanted = asked(options, columns, compression)
    return Run(spark, storage_at(to), wanted, progress or quiet).run()
