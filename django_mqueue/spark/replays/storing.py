"""Store copies in a Spark job that can be stopped. Each task stores the messages of its lanes in order of offsets."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...service.storing import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT
from ...store.log import NewRow
from ..collecting import collect_all
from ..connecting import ConnectionParameters, RetryingConnection
from ..database import backfilling, copying
from ..database.copied_content import Original, copied, copy_id, headers_of
from ..database.copying import CopyRun
from ..sql.copies import Copy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("offset", "partition", "id", "kind", "encoding", "payload", "headers", "published_ms")
LANE = "lane"
WATCH_EVERY = 1.0
STEP = 0.25
"""With a rate, one statement stores at most the messages of so many seconds."""


@dataclass(frozen=True)
class CopyTask:
    """The instructions for a task."""

    connecting: ConnectionParameters
    run: CopyRun
    topic: str  # Of the originals.
    rate: float | None = None  # The maximum number of messages a second, of all tasks together.

    @property
    def at_once(self) -> int:
        if self.rate is None:
            return ROWS_PER_STATEMENT
        return max(1, min(ROWS_PER_STATEMENT, int(self.rate * STEP)))


def stored(frame: DataFrame, orders: CopyTask) -> DataFrame:
    """Return a frame that stores its messages when it is computed: the number of messages that each task stored."""
    from pyspark.sql import functions as f

    lane = f.pmod(f.hash("partition"), f.lit(orders.run.lanes))
    rows = (
        frame.withColumn("published_ms", f.unix_millis("published_at"))
        .withColumn(LANE, lane)
        .select(LANE, *COLUMNS)
        .repartition(orders.run.lanes, "partition")
        .sortWithinPartitions("offset")
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # Only executors need it here.

        with closing(RetryingConnection(orders.connecting)) as line:
            storing = CopyWriter(orders, line)
            for batch in batches:
                for row in batch.to_pylist():
                    storing.put(row)
            storing.flush()
        yield pa.RecordBatch.from_pydict({"stored": pa.array([storing.stored], pa.int64())})

    return rows.mapInArrow(work, "stored BIGINT")


class CopyWriter:
    """Gathers the rows of each lane, and stores one statement at a time. ``stored``: the number of new copies."""

    def __init__(self, orders: CopyTask, line: RetryingConnection) -> None:
        self.orders, self._line = orders, line
        self.stored = 0
        self._held: dict[int, list[Copy]] = defaultdict(list)
        self._sizes: dict[int, int] = defaultdict(int)

    def put(self, row: Mapping[str, Any]) -> None:
        lane = int(row[LANE])
        copy = self._copy(row)
        size = len(copy.row.content.body) + len(copy.row.content.metadata)
        full = len(self._held[lane]) == self.orders.at_once
        if full or (self._held[lane] and self._sizes[lane] + size > BYTES_PER_STATEMENT):
            self._store(lane)
        self._held[lane].append(copy)
        self._sizes[lane] += size

    def flush(self) -> None:
        for lane in list(self._held):
            self._store(lane)

    def _copy(self, row: Mapping[str, Any]) -> Copy:
        run = self.orders.run
        one = Original(
            offset=int(row["offset"]),
            partition=row["partition"],
            id=row["id"],
            kind=row["kind"] or "",
            encoding=row["encoding"],
            headers=headers_of(row["headers"]),
            body=bytes(row["payload"]),
            published_at=int(row["published_ms"]),
        )
        if run.kind == backfilling.KIND:
            return backfilling.copy_of(one, run)
        content = copied(one, self.orders.topic, run.name)
        return Copy(one.offset, NewRow(one.partition, copy_id(run.name, one.offset), content, run.group))

    def _store(self, lane: int) -> None:
        copies, _ = self._held.pop(lane), self._sizes.pop(lane)
        run, rate = self.orders.run, self.orders.rate
        copies = self._line.run(lambda using: copying.not_stored(using, run, lane, copies))
        if not copies:
            return
        if rate is not None:
            wait = self._line.run(lambda using: copying.wait_us(using, run, len(copies), rate))
            time.sleep(wait / 1_000_000)
        # Safe to retry after a lost connection: the lane knows what a COMMIT without an answer stored.
        self.stored += self._line.run(lambda using: copying.append(using, run, lane, copies))


def lanes_of(spark: SparkSession) -> int:
    """Return the number of lanes of a new run: about as many as tasks that run at once."""
    from ..archives.jobs import parallelism

    return max(1, min(copying.LANES_MAX, parallelism(spark, "spark.sql.shuffle.partitions")))


def computed(
    spark: SparkSession,
    frame: DataFrame,
    stopping: threading.Event | None,
    watch: Callable[[], None],
) -> list[int] | None:
    """Return the numbers in the only column of a frame; None if the job was stopped.

    ``watch`` is called every second while the job runs.
    """
    tag, job, stopped = f"mqueue-{uuid.uuid4().hex}", Future[list[int]](), False
    add, cancel = _tags(spark)

    def work() -> None:
        try:
            add(tag)
            job.set_result([int(row[0]) for row in collect_all(frame)])
        except BaseException as error:
            job.set_exception(error)

    threading.Thread(target=work, name="mqueue-replay", daemon=True).start()
    try:
        while not wait([job], WATCH_EVERY).done:
            watch()
            if stopping is not None and stopping.is_set():
                stopped = True
                cancel(tag)  # Repeat until it ends: before the job begins, this cancels nothing.
    except BaseException:
        cancel(tag)
        raise
    return None if stopped and job.exception() else job.result()


def _tags(spark: SparkSession) -> tuple[Callable[[str], object], Callable[[str], object]]:
    """Return the function that tags this thread's jobs, and the function that cancels all jobs with a tag.

    In PySpark 4.3, ``interruptTag`` finds jobs only on a Spark Connect server.
    """
    try:
        context = spark.sparkContext
    except Exception:
        return spark.addTag, spark.interruptTag
    return context.addJobTag, context.cancelJobsWithTag
