"""The log as a stream of micro-batches.

**When a batch is durable.** Spark 4.2 and 4.3 write ``commits/n``, and then call ``latestOffset`` with the end of batch
n. Then they write ``offsets/n+1``, and only then call ``commit`` with the end of batch n. So ``commit`` is one batch
late, and is never called for the last batch. Before Spark calls ``latestOffset``, it repeats a batch that was planned
and did not commit. So everything below the *start* of that call is durable, and a group moves up to it. A query that is
stopped, or waits long for its next trigger, does not call it. Then only its checkpoint shows what is durable (see
``checkpoint``).

**How a query ends.** Spark closes the connection to the process that plans it, and sends SIGTERM at the same moment.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ..reader.options import ReadOptions
from ..reader.range_reader import RangeReader
from . import incarnations
from .checkpoint import parsed
from .query import Query


class StreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in a process next to the driver, until the query ends. Executors only ``read``."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._query: Query | None = None
        self._created = incarnations.clock()  # Before Spark calls any other method.
        self._ends_by_signal = False

    @property
    def query(self) -> Query:
        """Return the query. The first call creates it, because readers on executors need none."""
        if self._query is None:
            self._query = Query(self.options, self._created)
            self._stop_on_signal()
        return self._query

    def initialOffset(self) -> dict[str, Any]:
        return self.query.initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.query.latest(parsed(start), most).json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self.query.reported.json() if self.query.reported else None

    def prepareForTriggerAvailableNow(self) -> None:
        self.query.set_goal()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(each) for each in self.query.ranges(parsed(start), parsed(end))]

    def commit(self, end: dict[str, Any]) -> None:
        self.query.committed(parsed(end))

    def stop(self) -> None:
        if self._ends_by_signal:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The process is ending already.
        if self._query is not None:
            self._query.stop()

    def _stop_on_signal(self) -> None:
        """Call ``stop`` also on SIGTERM, unless the process already handles this signal."""
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def stop(*_: object) -> None:
            try:
                self.stop()
            finally:
                os._exit(0)

        signal.signal(signal.SIGTERM, stop)
        self._ends_by_signal = True
