"""Compare ways to read the same rows with Spark and to write them to Parquet, in turns."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
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
    """``schema``: the columns requested from the source. ``jdbc``: SQL for the same columns of the table.

    ``then``: expressions that Spark applies to JDBC's rows, so that all ways write the same; may be empty. ``counts``:
    whether the target applies to these columns.
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
"""The number of first turns that do not count, because Java still compiles the code."""

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
        """Return True if both of our ways take at most ``most`` of JDBC's time, for all columns that count."""
        met = True
        for columns in KINDS:
            ways = {
                "export": partial(self._by_export, columns),
                "mqueue": partial(self._by_mqueue, columns),
                "jdbc": partial(self._by_jdbc, columns),
            }
            spent: dict[str, list[float]] = {name: [] for name in ways}
            cpu: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
            for turn in range(FIRST + times):
                for name, way in ways.items():
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                    meter = Meter(self.server.pid)
                    begun = time.perf_counter()
                    way()
                    seconds = time.perf_counter() - begun
                    if turn >= FIRST:
                        spent[name].append(seconds)
                        cpu[name].append(meter.read())
                    elif not turn:  # Nothing is compiled yet, and no process runs.
                        say(f"{columns.name}: {name} for the first time {seconds:.2f} s")
                if not turn:
                    self._compare(ways)
            medians = {name: statistics.median(values) for name, values in spent.items()}
            for name, values in spent.items():
                parts = ", ".join(
                    f"{part} {statistics.median(one[part] for one in cpu[name]):.2f}" for part in cpu[name][0]
                )
                told = " ".join(f"{value:.2f}" for value in sorted(values))
                say(f"{columns.name}: {name:7}{medians[name]:6.2f} s (of {told}); CPU: {parts}")
            ratios = {name: medians[name] / medians["jdbc"] for name in ("export", "mqueue")}
            slow = [name for name, ratio in ratios.items() if columns.counts and ratio > most]
            told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
            missed = f"; more than {most:g}: {', '.join(slow)}" if slow else ""
            say(f"{columns.name}, of JDBC's time: {told}{missed}")
            met &= not slow
        return met

    def ours(self, columns: Columns) -> DataFrame:
        return self.spark.read.format("mqueue").options(**self._options()).schema(columns.schema).load()

    def theirs(self, columns: Columns) -> DataFrame:
        """Read with JDBC. Without the index hint, MySQL would look up each row by another index."""
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

    def _options(self) -> dict[str, str]:
        return {
            **connection(self.server),
            "topic": TOPIC,
            "minPartitions": str(self.partitions),
            "endingOffsets": str(self.rows + 1),
        }

    def _by_export(self, columns: Columns) -> None:
        from django_mqueue.spark import export

        names = [word.split()[0] for word in columns.schema.split(", ")]
        place, options = str(self.folder / "export"), self._options()
        export(self.spark, place, options=options, columns=names, compression=self.compression)

    def _by_mqueue(self, columns: Columns) -> None:
        self._write(self.ours(columns), "mqueue")

    def _by_jdbc(self, columns: Columns) -> None:
        self._write(self.theirs(columns), "jdbc")

    def _write(self, frame: DataFrame, name: str) -> None:
        frame.write.option("compression", self.compression).parquet(str(self.folder / name))

    def _compare(self, ways: Iterable[str]) -> None:
        """Raise ``AssertionError`` unless all ways have written the same rows."""
        found = [
            self.spark.read.parquet(str(self.folder / name))
            .selectExpr(
                "count(*)", "count(DISTINCT offset)", "sum(xxhash64(offset, partition, payload) >> 16)"
            )
            .first()
            for name in ways
        ]
        assert len(set(found)) == 1, found
        assert found[0] is not None
        assert found[0][0] == found[0][1] == self.rows, found


def connection(server: Served) -> dict[str, str]:
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "database": server.database,
    }
