"""Two ways to read the same rows with Spark, in turns."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.cpu import Meter
from tests.benchmarks.long_topic import TOPIC
from tests.benchmarks.served import Served

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TAKEN_OUT = "JSON_VALUE(metadata, '$.kind') AS kind, JSON_VALUE(metadata, '$.encoding') AS encoding"


@dataclass(frozen=True)
class Columns:
    """``schema``: what the source is asked for; ``jdbc``: the same as the table has it.

    ``then``: what Spark makes of JDBC's, so that both write the same; empty: nothing. ``counts``: whether the target is
    about these.
    """

    name: str
    schema: str
    jdbc: str
    then: Sequence[str] = ()
    counts: bool = True


_ALL = (
    "topic, partition_key AS `partition`, `offset`, id, {} payload, consumer_group AS target, published_at,"
    " created_at"
)
_SCHEMA = (
    "topic STRING, partition STRING, offset BIGINT, id STRING, kind STRING, encoding STRING, payload BINARY,"
    " target STRING, published_at TIMESTAMP, created_at TIMESTAMP"
)
_MOMENTS = [f"timestamp_millis({name}) AS {name}" for name in ("published_at", "created_at")]
_SAME = ["topic", "partition", "offset", "id", "kind", "encoding", "payload", "target", *_MOMENTS]
FIRST = 3
"""Turns that do not count: until then Java still compiles what both need."""

KINDS = (
    Columns("ten columns", _SCHEMA, _ALL.format(f"{TAKEN_OUT},"), _SAME),
    Columns(
        "three columns",
        "offset BIGINT, partition STRING, payload BINARY",
        "`offset`, partition_key AS `partition`, payload",
    ),
    Columns("ten columns, JDBC as the table has them", _SCHEMA, _ALL.format("metadata,"), counts=False),
)


@dataclass(frozen=True)
class Race:
    spark: SparkSession
    server: Served
    rows: int
    partitions: int
    compression: str
    folder: Path

    def run(self, times: int, most: float, say: Callable[[str], None]) -> bool:
        """Whether no kind of columns that counts takes more than ``most`` of JDBC's time."""
        met = True
        for columns in KINDS:
            ways = {"mqueue": self.ours, "jdbc": self.theirs}
            spent: dict[str, list[float]] = {name: [] for name in ways}
            cpu: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for turn in range(FIRST + times):
                for name, way in ways.items():
                    meter = Meter(self.server.pid)
                    begun = time.perf_counter()
                    self._write(way(columns), name)
                    seconds = time.perf_counter() - begun
                    if turn >= FIRST:
                        spent[name].append(seconds)
                        cpu[name].append(meter.read())
                    elif not turn:  # Nothing is compiled, and no process runs.
                        say(f"{columns.name}: {name} for the first time {seconds:.2f} s")
                if not turn:
                    self._compare()
            medians = {name: statistics.median(values) for name, values in spent.items()}
            for name, values in spent.items():
                parts = ", ".join(
                    f"{part} {statistics.median(one[part] for one in cpu[name]):.2f}" for part in cpu[name][0]
                )
                told = " ".join(f"{value:.2f}" for value in sorted(values))
                say(f"{columns.name}: {name:7}{medians[name]:6.2f} s (of {told}); CPU: {parts}")
            ratio = medians["mqueue"] / medians["jdbc"]
            good = ratio <= most or not columns.counts
            say(f"{columns.name}: {ratio:.2f} of JDBC's time{'' if good else f', more than {most:g}'}")
            met &= good
        return met

    def ours(self, columns: Columns) -> DataFrame:
        reader = self.spark.read.format("mqueue").options(**connection(self.server), topic=TOPIC)
        reader = reader.option("minPartitions", self.partitions).option("endingOffsets", self.rows + 1)
        return reader.schema(columns.schema).load()

    def theirs(self, columns: Columns) -> DataFrame:
        """As one writes it who knows the table: MySQL would look up each row by another index."""
        reader = self.spark.read.format("jdbc").options(
            url=f"jdbc:mysql://{self.server.host}:{self.server.port}/{self.server.database}"
            "?permitMysqlScheme&allowPublicKeyRetrieval=true",
            driver="org.mariadb.jdbc.Driver",
            user=self.server.user,
            password=self.server.password,
            dbtable=f"(SELECT {columns.jdbc} FROM queue_messages FORCE INDEX (PRIMARY) WHERE topic = '{TOPIC}'"
            f" AND consumer_group = '' AND `offset` <= {self.rows}) log",
            partitionColumn="offset",
            lowerBound=1,
            upperBound=self.rows + 1,
            numPartitions=self.partitions,
            fetchsize=10_000,
        )
        frame = reader.load()
        return frame.selectExpr(*columns.then) if columns.then else frame

    def _write(self, frame: DataFrame, name: str) -> None:
        target = self.folder / name
        shutil.rmtree(target, ignore_errors=True)
        frame.write.option("compression", self.compression).parquet(str(target))

    def _compare(self) -> None:
        """Raise ``AssertionError`` unless both have written the same."""
        found = [
            self.spark.read.parquet(str(self.folder / name))
            .selectExpr(
                "count(*)", "count(DISTINCT offset)", "sum(xxhash64(offset, partition, payload) >> 16)"
            )
            .first()
            for name in ("mqueue", "jdbc")
        ]
        assert found[0] == found[1], found
        assert found[0] is not None
        assert found[0][0] == found[0][1] == self.rows, found


def connection(server: Served) -> dict[str, str]:
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "database": server.database,
    }
