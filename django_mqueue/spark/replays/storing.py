"""Store copies in tasks. Each task has one or several lanes, and stores their messages in the order of offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...service.storing import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT
from ...store.log import NewRow
from ..connecting import ConnectionParameters, RetryingConnection
from ..database import backfilling, copying
from ..database.copied_content import Original, copied, copy_id, headers_of
from ..database.copying import CopyRun
from ..sql.copies import Copy

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COLUMNS = ("offset", "partition", "id", "kind", "encoding", "payload", "headers", "published_ms")
LANE = "lane"
STEP = 0.25
"""With a rate, one statement stores at most the messages of so many seconds."""


@dataclass(frozen=True)
class CopyTask:
    """The instructions for a task.

    ``topic``: the topic of the originals. ``rate``: the maximum number of messages a second, of all tasks together.
    """

    connecting: ConnectionParameters
    run: CopyRun
    topic: str
    rate: float | None = None

    @property
    def at_once(self) -> int:
        if self.rate is None:
            return ROWS_PER_STATEMENT
        return max(1, min(ROWS_PER_STATEMENT, int(self.rate * STEP)))


def stored(frame: DataFrame, orders: CopyTask) -> DataFrame:
    """Return a frame that stores its messages when it is computed.

    Its only column has the number of messages that each task has stored.
    """
    from pyspark.sql import functions as f

    lane = f.pmod(f.hash("partition"), f.lit(orders.run.lanes))
    rows = (
        frame.withColumn("published_ms", f.unix_millis("published_at"))
        .withColumn(LANE, lane)
        .select(LANE, *COLUMNS)
        .repartition(orders.run.lanes, "partition")
        .sortWithinPartitions("offset")
    )
    return rows.mapInArrow(task(orders), "stored BIGINT")


def task(orders: CopyTask) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs on executors."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # Only executors need it here.

        storing = CopyWriter(orders)
        try:
            for batch in batches:
                for row in batch.to_pylist():
                    storing.put(row)
            storing.flush()
        finally:
            storing.close()
        yield pa.RecordBatch.from_pydict({"stored": pa.array([storing.stored], pa.int64())})

    return work


class CopyWriter:
    """Gathers the rows of each lane, and stores one statement at a time. ``stored``: the number of new copies."""

    def __init__(self, orders: CopyTask) -> None:
        self.orders = orders
        self.stored = 0
        self._line = RetryingConnection(orders.connecting)
        self._held: dict[int, list[Copy]] = {}
        self._sizes: dict[int, int] = {}

    def put(self, row: Mapping[str, Any]) -> None:
        lane = int(row[LANE])
        copy = self._copy(row)
        size = len(copy.row.content.body) + len(copy.row.content.metadata)
        held = self._held.setdefault(lane, [])
        if held and (
            len(held) == self.orders.at_once or self._sizes.get(lane, 0) + size > BYTES_PER_STATEMENT
        ):
            self._store(lane)
            held = self._held.setdefault(lane, [])
        held.append(copy)
        self._sizes[lane] = self._sizes.get(lane, 0) + size

    def flush(self) -> None:
        for lane in list(self._held):
            self._store(lane)

    def close(self) -> None:
        self._line.close()

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
        copies = self._held.pop(lane)
        self._sizes.pop(lane, None)
        run, rate = self.orders.run, self.orders.rate
        copies = self._line.run(lambda using: copying.not_stored(using, run, lane, copies))
        if not copies:
            return
        if rate is not None:
            wait = self._line.run(lambda using: copying.wait_us(using, run, len(copies), rate))
            time.sleep(wait / 1_000_000)
        # Safe to retry after a lost connection: the lane knows what a COMMIT without an answer stored.
        self.stored += self._line.run(lambda using: copying.append(using, run, lane, copies))


def with_lanes(run: CopyRun, lanes: int) -> CopyRun:
    return replace(run, lanes=max(1, min(copying.LANES_MAX, lanes)))
