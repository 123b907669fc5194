"""Store copies in a Spark job that can be stopped.

A lane is a fixed share of the topic's partitions. A task stores the messages of one lane in order of offsets.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ...policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ...service.storing import ROWS_PER_STATEMENT
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
CANCEL_EVERY, CANCEL_FOR = 0.2, 30.0
STEP = 0.25
"""Seconds. With a rate, one statement stores at most the messages of this time."""


@dataclass(frozen=True)
class CopyTask:
    """Stores copies in a task on an executor."""

    connecting: ConnectionParameters
    run: CopyRun
    topic: str  # The topic of the originals.
    rate: float | None = None  # The maximum number of messages a second, of all tasks together.

    def copy_of(self, row: Mapping[str, Any]) -> Copy:
        original = Original(
            offset=row["offset"],
            partition=row["partition"],
            id=row["id"],
            kind=row["kind"] or "",
            encoding=row["encoding"],
            headers=headers_of(row["headers"]),
            body=row["payload"],
            published_at=row["published_ms"],
        )
        if self.run.kind == backfilling.KIND:
            return backfilling.copy_of(original, self.run)
        new_id, content = copy_id(self.run.name, original.offset), copied(original, self.topic, self.run.name)
        return Copy(original.offset, NewRow(original.partition, new_id, content, self.run.group))

    def store(self, connection: RetryingConnection, lane: int, copies: list[Copy]) -> int:
        """Store the next copies of a lane, in one statement. Return how many are new."""
        run, rate = self.run, self.rate
        copies = connection.run(lambda using: copying.not_stored(using, run, lane, copies))
        if not copies:
            return 0
        if rate is not None:
            wait = connection.run(lambda using: copying.wait_us(using, run, len(copies), rate))
            time.sleep(wait / 1_000_000)
        # Safe to retry after a lost connection: the lane's mark shows whether the COMMIT succeeded.
        return connection.run(lambda using: copying.append(using, run, lane, copies))


def storing(frame: DataFrame, copy_task: CopyTask) -> DataFrame:
    """Return a frame that stores the messages when Spark computes it. Its rows: how many messages each task stored."""
    from pyspark.sql import functions as f

    by_lane = (
        frame.withColumn("published_ms", f.unix_millis("published_at"))
        .withColumn(LANE, f.pmod(f.hash("partition"), f.lit(copy_task.run.lanes)))
        .select(LANE, *COLUMNS)
        .repartition(copy_task.run.lanes, "partition")  # By the same hash, so each task has one lane.
        .sortWithinPartitions("offset")
    )
    most = ROWS_PER_STATEMENT if copy_task.rate is None else int(copy_task.rate * STEP)
    copies_per_statement = max(1, min(ROWS_PER_STATEMENT, most))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # Only executors need it here.

        rows = (row for batch in batches for row in batch.to_pylist())
        new = 0
        with closing(RetryingConnection(copy_task.connecting)) as connection:
            for lane, some in groupby(rows, itemgetter(LANE)):
                copies = map(copy_task.copy_of, some)
                for batch in batches_by_weight(copies, _size, BYTES_PER_STATEMENT, copies_per_statement):
                    new += copy_task.store(connection, lane, batch)
        yield pa.RecordBatch.from_pydict({"stored": pa.array([new], pa.int64())})

    return by_lane.mapInArrow(work, "stored BIGINT")


def _size(copy: Copy) -> int:
    return len(copy.row.content.body) + len(copy.row.content.metadata)


def lanes_of(spark: SparkSession) -> int:
    """Return the number of lanes of a new run: about as many as tasks that run at once."""
    from ..archives.jobs import parallelism

    return max(1, min(copying.LANES_MAX, parallelism(spark, "spark.sql.shuffle.partitions")))


def compute(
    spark: SparkSession,
    frame: DataFrame,
    stopping: threading.Event | None,
    watch: Callable[[], None],
) -> list[int] | None:
    """Compute a frame, and return the numbers in its only column; None if the job was stopped.

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
        deadline = time.monotonic() + CANCEL_FOR
        while not job.done() and time.monotonic() < deadline:
            cancel(tag)
            wait([job], CANCEL_EVERY)
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
