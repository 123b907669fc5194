"""Run a driver whose Java process is killed while it sends rows: ``python -m tests.spark.dying_java HOW``.

Print how many rows the driver received, or which exception it raised. ``HOW``: ``collect``, ``collect_all`` or
``stream``.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any

from django_mqueue.spark import collect_all, session
from tests.spark.jobs import FAST_JVM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, WIDTH = 50_000, 200
"""Too many rows for any buffer: most are still in Java when Python reads the first ones."""


class KillsJava:
    """A replacement for the file of a connection to Java. After the first megabyte, a read kills Java."""

    def __init__(self, file: IO[bytes], spark: SparkSession) -> None:
        self._file, self._spark, self._rest = file, spark, 1_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(size)
        before, self._rest = self._rest, self._rest - len(found)
        if before > 0 >= self._rest:
            java = self._spark.sparkContext._gateway.proc
            os.kill(java.pid, signal.SIGKILL)
            java.wait()
        return found


def main(how: str) -> None:
    from pyspark import util

    spark = session("dying", master="local[2]", memory="600m", config=FAST_JVM)
    create = util._create_local_socket

    def create_killing(info: Any) -> tuple[Any, Any]:
        file, sock = create(info)
        return KillsJava(file, spark), sock

    util._create_local_socket = create_killing
    if how == "stream":
        stream(spark)
    else:
        frame = spark.range(ROWS).selectExpr("id", f"repeat('x', {WIDTH}) AS wide")
        say(lambda: frame.collect() if how == "collect" else collect_all(frame))
    sys.stdout.flush()
    os._exit(0)  # Without Java, PySpark's cleanup only takes time.


def stream(spark: SparkSession) -> None:
    """Run a batch of a streaming query. Its callback runs in another thread, which outlives Java."""
    said = threading.Event()

    def keep(changed: DataFrame, batch: int) -> None:
        say(lambda: collect_all(changed))
        said.set()

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS)).load()
    writer = rate.selectExpr("value", f"repeat('x', {WIDTH}) AS wide").writeStream.foreachBatch(keep)
    writer.option("checkpointLocation", tempfile.mkdtemp()).start()
    said.wait(150)


def say(work: Any) -> None:
    try:
        print(f"given {len(work())} rows", flush=True)
    except Exception as error:
        print(f"raised {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
