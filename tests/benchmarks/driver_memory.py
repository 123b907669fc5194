"""Memory of the driver while Spark reads: its Python, the planning process, and the JVM's heap."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.long_topic import TOPIC
from tests.benchmarks.race import connection
from tests.benchmarks.served import Served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
LOOKS = 10
PLANNER = b"plan_data_source_read"


def measured(
    spark: SparkSession, server: Served, sizes: Sequence[int], growth: float, say: Callable[[str], None]
) -> bool:
    """Read and discard each number of rows.

    Return True if the last number needs at most ``growth`` MiB more memory than the first.
    """
    reader = spark.read.format("mqueue").options(**connection(server), topic=TOPIC)
    reader.option("endingOffsets", 1000).load().write.format("noop").mode("overwrite").save()
    found: list[dict[str, float]] = []
    for rows in sizes:
        begun = time.monotonic()
        frame = reader.option("endingOffsets", rows + 1).load()
        partitions = frame.rdd.getNumPartitions()
        planned = time.monotonic() - begun
        with watched(spark) as peaks:
            frame.write.format("noop").mode("overwrite").save()
        told = ", ".join(f"{part} {peak:.1f} MiB" for part, peak in peaks.items())
        say(
            f"{rows:,} rows in {time.monotonic() - begun - planned:.1f} s: {told};"
            f" {partitions} ranges, planned in {planned:.2f} s"
        )
        found.append(peaks)
    grown = {part: peak - found[0][part] for part, peak in found[-1].items()}
    worst = max(grown.values())
    say(f"the driver grew by {worst:.1f} MiB at most" + (f", more than {growth:g}" if worst > growth else ""))
    return worst <= growth


@contextmanager
def watched(spark: SparkSession) -> Iterator[dict[str, float]]:
    """Yield the peaks in MiB, complete after the block: the RSS of the processes, and the JVM's live heap.

    A sample of the heap also contains objects created since the last garbage collection. So the smallest of the last
    samples counts.
    """
    peaks = {"Python": 0.0, "planning": 0.0, "heap": 0.0}
    jvm: Any = spark._jvm
    Path("/proc/self/clear_refs").write_text("5")  # Reset the peak of this process.
    over = threading.Event()
    heap: deque[float] = deque(maxlen=LOOKS)

    def look() -> None:
        heap_at = 0.0
        while not over.wait(0.02):
            peaks["planning"] = max(peaks["planning"], _planners())
            if time.monotonic() >= heap_at:
                jvm.System.gc()
                runtime = jvm.Runtime.getRuntime()
                heap.append((runtime.totalMemory() - runtime.freeMemory()) / MIB)
                heap_at = time.monotonic() + 1

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()
        peaks["Python"] = _peak(Path("/proc/self"))
        peaks["heap"] = min(heap, default=0.0)


def _planners() -> float:
    found = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if PLANNER in (process / "cmdline").read_bytes():
                found = max(found, _peak(process))
        except OSError:
            continue
    return found


def _peak(process: Path) -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    return int(match[1]) / 1024 if match else 0.0
