"""An export to where executors have no way but Spark's own: its writer writes it, and the rows pass through Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...exceptions import LogGap, MQueueError
from ..archiving.indirect import AS_ARROW_WRITES
from ..archiving.jobs import last_line
from ..configuring import configured
from ..errors import ExportError, NoConnection, NoSuchTopic, OptionError
from ..explaining import raised
from ..launching import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..archiving.hadoop import HadoopFiles
    from .asking import Asked

_ERRORS: dict[str, type[MQueueError]] = {
    kind.__name__: kind for kind in (LogGap, NoConnection, NoSuchTopic, OptionError)
}


def by_spark(spark: SparkSession, files: HadoopFiles, wanted: Asked) -> int:
    """How many rows there are now. The files are as Arrow would have written them, and ``_SUCCESS`` is Hadoop's."""
    register(spark)
    reader = spark.read.format("mqueue").options(**wanted.given).schema(wanted.schema)
    place = files.spark_path("")
    try:
        with configured(spark, AS_ARROW_WRITES):
            writer = reader.load().write.option("compression", wanted.compression)
            writer.mode("append").parquet(place)  # The folder may be there: it is empty.
        return int(spark.read.schema(wanted.schema).parquet(place).count())
    except Exception as error:
        kind, text = raised(error) or ("", "")
        if kind in _ERRORS:
            raise _ERRORS[kind](text) from error
        raise ExportError(f"{files.uri}: {last_line(error)}") from error
