"""Archive runs of the tests' database into one folder, and what is in it then."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.test import override_settings

from tests.support.subscribers import QUICK, collect, in_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archiving import Archived


class Runs:
    """``runs("orders", …)`` is an archive run; of an option the last one counts."""

    def __init__(self, spark: SparkSession, options: dict[str, str], place: Path) -> None:
        self.spark, self.options, self.place = spark, options, place

    def __call__(self, topics: Any = "orders", **more: Any) -> list[Archived]:
        from django_mqueue.spark import archive

        return archive(self.spark, topics, **{"to": str(self.place), "options": self.options, **more})

    def held(self, topic: str = "orders", table: Any = "messages") -> list[dict[str, Any]]:
        """The rows of the archive, by pyarrow alone."""
        import pyarrow.parquet as pq

        from django_mqueue.spark import Archive

        entries = Archive.open(self.place).entries(topic, table)
        return [
            row for entry in entries for row in pq.ParquetFile(self.place / entry.path).read().to_pylist()
        ]

    def offsets(self, topic: str = "orders") -> list[int]:
        return [row["offset"] for row in self.held(topic)]


def left(topic: str = "orders") -> list[int]:
    """What is in a topic's log after deletion."""
    with override_settings(MQUEUE=QUICK):
        collect(topic)
    return in_log(topic)
