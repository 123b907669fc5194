"""The function that exports topics. It imports Arrow when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..archives.requests import Progress, quiet
from .requests import export_request

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
    """Write the rows that a batch of ``format("mqueue")`` reads into Parquet files. Return how much was written.

    * ``to``: an empty or new folder: a path, or a URI in an object store.
    * ``options``: the options of ``format("mqueue")`` for a batch.
    * ``columns``: the names of the columns to write, in this order. Default: all columns except ``headers``.
    * ``compression``: zstd, snappy, gzip, lz4 or none.
    * ``progress``: called with the number of files done and the total.

    The rows do not pass through Spark's JVM. So this is faster than ``load().write.parquet(to)``. Each range of offsets
    becomes a file, or several files if it is larger than 512 MiB. The names of the files are in the order of topics
    and offsets. ``_SUCCESS`` is written last, and lists the files. If it is missing, the export was not finished, and
    must be started again from scratch. After an error the function deletes its files, if the storage allows it.

    Returns an ``Exported``.

    Raises ``OptionError``, ``NoSpark`` (PySpark is not installed, or has a wrong version), ``NoConnection``,
    ``NoSuchTopic``, ``LogGap`` (messages were deleted during the export, and ``failOnDataLoss`` is not false) or
    ``ExportError`` (the folder is not empty or cannot be written, another export uses it, or a task failed).
    """
    from ..archives.storage import storage_at
    from .export_run import Run

    wanted = export_request(options, columns, compression)
    return Run(spark, storage_at(to), wanted, progress or quiet).run()
