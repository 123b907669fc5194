"""A streaming job as a process of its own: ``python -m tests.test_spark.driver OPTIONS CHECKPOINT TARGET``.

Each batch becomes one file named by its number, written whole or not at all: a batch that comes again replaces it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from django_mqueue.spark.launching import environment

from .jobs import FAST_JVM, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(options: dict[str, str], checkpoint: str, target: Path) -> None:
    """Spark finds the format by the name of its module: nothing is registered here."""
    os.environ.update(environment())
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "600m")
    for name, value in {**FAST_JVM, "spark.ui.enabled": "false"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def keep(frame: DataFrame, batch: int) -> None:
        numbers = [json.loads(bytes(row.payload)) for row in frame.collect()]
        part = target / f"{batch}.part"
        part.write_text(json.dumps(numbers))
        os.replace(part, target / f"{batch}.json")

    query = start(spark, options, checkpoint, keep)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
