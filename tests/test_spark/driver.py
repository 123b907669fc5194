"""A streaming job as a process of its own: ``python -m tests.test_spark.driver OPTIONS CHECKPOINT TARGET``.

Each batch becomes one file named by its number, written whole or not at all: a batch that comes again replaces it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from django_mqueue.spark.launching import session

from .jobs import FAST_JVM, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(options: dict[str, str], checkpoint: str, target: Path) -> None:
    spark = session("job", master="local[2]", memory="600m", config=FAST_JVM)

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
