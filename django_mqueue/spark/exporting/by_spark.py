"""An export to where executors have no way but Spark's own: its writer writes it, and the rows pass through Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ...exceptions import LogGap, MQueueError
from ..archiving.indirect import AS_ARROW_WRITES
from ..archiving.jobs import last_line
from ..configuring import configured
from ..errors import ExportError, NoConnection, NoSuchTopic, OptionError
from ..explaining import raised
from ..launching import register
from .writing import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..archiving.hadoop import HadoopFiles
    from .asking import Asked

_ERRORS: dict[str, type[MQueueError]] = {
    kind.__name__: kind for kind in (LogGap, NoConnection, NoSuchTopic, OptionError)
}

_CODECS = {"lz4": "lz4_raw"}
"""What Spark calls them otherwise: its lz4 is a frame of Hadoop's, which others do not read."""


def by_spark(spark: SparkSession, files: HadoopFiles, folder: str, wanted: Asked) -> list[Written]:
    """The files, below ``folder``, by topic and offset; as Arrow would have written them."""
    register(spark)
    reader = spark.read.format("mqueue").options(**wanted.given).schema(wanted.schema)
    try:
        with configured(spark, AS_ARROW_WRITES):
            writer = reader.load().write.option(
                "compression", _CODECS.get(wanted.compression, wanted.compression)
            )
            writer.parquet(files.spark_path(folder))
    except Exception as error:
        kind, text = raised(error) or ("", "")
        if kind in _ERRORS:
            raise _ERRORS[kind](text) from error
        raise ExportError(f"{files.uri}: {last_line(error)}") from error
    there = [each for each in files.list(folder) if each.path.rpartition("/")[2].startswith("part-")]
    return [Written(each.path, _rows(files, each.path), each.bytes) for each in there]


def _rows(files: HadoopFiles, path: str) -> int:
    with files.open(path) as stream:
        return int(pq.ParquetFile(stream).metadata.num_rows)
