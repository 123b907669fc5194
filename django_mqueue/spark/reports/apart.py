"""Parked retries. They wait outside the log, and their earlier row is neither dead nor finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...policy.names import TOPIC_MAX
from ...store.scheduling import parked_retries
from ..connecting import connected
from ..reader.options import read_options
from .requests import ReportRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = 5_000
SCHEMA = "topic STRING, `offset` BIGINT, reader STRING"


@dataclass
class ParkedRetries:
    """Parked retries.

    ``waiting``: (topic, offset in the log, group) for each retry that waits when the report begins, or was seen later.
    A retry that moves back into the log meanwhile lies above the offsets that are read there.
    """

    waiting: set[tuple[str, int, str]] = field(default_factory=set)

    def look(self, using: str, topics: Iterable[str]) -> None:
        """Add the parked retries of these topics."""
        for topic in topics:
            above = 0
            while len(topic) <= TOPIC_MAX and (page := parked_retries.waiting(using, topic, above, PAGE)):
                above = page[-1][0]
                self.waiting.update((topic, offset, group) for _, group, offset in page if offset is not None)

    def look_again(self, wanted: ReportRequest, topics: Iterable[str]) -> None:
        """Add retries that were parked while delivery history was read."""
        with connected(read_options({**wanted.options, "topic": "any"}, streaming=False).connecting) as using:
            self.look(using, topics)

    def frame(self, spark: SparkSession) -> DataFrame:
        import pyarrow as pa

        if not self.waiting:
            return spark.createDataFrame([], SCHEMA)
        topics, offsets, groups = zip(*sorted(self.waiting), strict=True)
        table = pa.table({"topic": topics, "offset": pa.array(offsets, pa.int64()), "reader": groups})
        return spark.createDataFrame(table, SCHEMA)

    def by_group(self) -> dict[tuple[str, str], int]:
        """Return the number of retries by topic and group."""
        found: dict[tuple[str, str], int] = {}
        for topic, _, group in self.waiting:
            found[topic, group] = found.get((topic, group), 0) + 1
        return found
