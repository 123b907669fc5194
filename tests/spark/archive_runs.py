"""Archive runs of the test database into one folder, and the archive's content afterwards."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from django.test import override_settings

from tests.support.subscribers import QUICK, collect, in_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from django_mqueue.spark.archives.archive_run import Archived


class Runs:
    """Call ``runs("orders", …)`` for an archive run. Arguments of the call override the defaults."""

    def __init__(self, spark: SparkSession, options: dict[str, str], place: Path) -> None:
        self.spark, self.options, self.place = spark, options, place

    def __call__(self, topics: Any = "orders", **more: Any) -> list[Archived]:
        from django_mqueue.spark import archive

        return archive(self.spark, topics, **{"to": str(self.place), "options": self.options, **more})

    def held(self, topic: str = "orders", table: Any = "messages") -> list[dict[str, Any]]:
        """Return the rows of the archive, read with pyarrow alone."""
        import pyarrow.parquet as pq

        from django_mqueue.spark import Archive

        entries = Archive.open(self.place).entries(topic, table)
        return [
            row for entry in entries for row in pq.ParquetFile(self.place / entry.path).read().to_pylist()
        ]

    def offsets(self, topic: str = "orders") -> list[int]:
        return [row["offset"] for row in self.held(topic)]


Kind = TypeVar("Kind", bound=Runs)
_built: dict[str, Runs] = {}


def copied(build: Callable[[Path], Kind], name: str, place: Path, folders: pytest.TempPathFactory) -> Kind:
    """Build the archive ``name`` once, and return a copy at ``place``. The log may not have its messages."""
    if name not in _built:
        _built[name] = build(folders.mktemp(name) / "archive")
    found = copy.copy(_built[name])
    found.place = Path(shutil.copytree(found.place, place))
    return found  # type: ignore[return-value]


def left(topic: str = "orders") -> list[int]:
    """Return the offsets in a topic's log after garbage collection."""
    with override_settings(MQUEUE=QUICK):
        collect(topic)
    return in_log(topic)
