"""A report on more data than Spark's memory holds: ``python3 -m tests.benchmarks.spark_report``."""

from __future__ import annotations

import argparse
import re
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.benchmarks import stage
from tests.benchmarks.stage import say

if TYPE_CHECKING:
    from django_mqueue.spark.reports import Report

DESCRIPTION = """\
Writes an archive of three days by pyarrow, with two groups that were done with every message, and makes a report on it
on local[2] with a heap that is a fraction of it. Tells sizes, time, and what the processes took.
Exit code 1: a figure is not what was written, or the data would have fit the heap. Needs no server.
"""

TOPIC, GROUPS = "orders", ("billing", "shipping")
CHUNK = 500_000
KEYS = 500_000
HOUR = 3_600_000
HOURS = 72
FIRST_AT = 490_000 * HOUR
MIB = 1 << 20


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = stage.parser("spark_report", DESCRIPTION)
    parser.set_defaults(memory="512m")
    stage.count(parser, "--rows", 10_000_000, "messages; each group has as many deliveries")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with TemporaryDirectory(prefix="mqueue-benchmark-") as folder:
        return run(options, Path(folder) / "archive")


def run(options: argparse.Namespace, place: Path) -> int:
    from django_mqueue.spark import report, session

    data = written(place, options.rows) / MIB
    on_disk = sum(path.stat().st_size for path in place.rglob("*.parquet")) / MIB
    say(
        f"{options.rows:,} messages, {2 * options.rows:,} deliveries: {data:,.0f} MiB, {on_disk:,.0f} in Parquet"
    )
    spark = session(
        "reporting", master="local[2]", memory=options.memory,
        config={"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"},
    )  # fmt: skip
    try:
        jvm: Any = spark._jvm
        heap = jvm.Runtime.getRuntime().maxMemory() / MIB
        java = jvm.java.lang.ProcessHandle.current().pid()
        begun = time.monotonic()
        found = report(spark, TOPIC, archive=str(place), live=False)
        took = time.monotonic() - begun
        say(
            f"the report took {took:.0f} s with a heap of {heap:,.0f} MiB: the data are {data / heap:.1f} times as much"
        )
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(
            f"at most {peak(java):,.0f} MiB were Java's, and {own:,.0f} this process's, who wrote the archive, too"
        )
    finally:
        spark.stop()
    problems = wrong(found, options.rows)
    if data <= heap:
        problems.append("the data fit the heap: give more rows, or less memory")
    say("; ".join(problems) or "all figures are what was written")
    return int(bool(problems))


def written(place: Path, rows: int) -> int:
    """Write one batch, as an archive run would leave it. Return the number of bytes in its rows."""
    from django_mqueue.spark.archives.parquet import FileEntry, arrow_schema, conformed
    from django_mqueue.spark.reader.options import Table
    from tests.spark import archives

    archives.begin(place)
    size = 0
    files: dict[Table, list[FileEntry]] = {"deliveries": [], "messages": []}
    for first in range(0, rows, CHUNK):
        count = min(CHUNK, rows - first)
        made: dict[Table, Any] = {
            "deliveries": deliveries(first, count, rows), "messages": messages(first, count, rows),
        }  # fmt: skip
        for table, found in made.items():
            size += found.nbytes
            whole = conformed(found, arrow_schema(table))
            files[table].append(archives.written(place, TOPIC, table, whole, "2025-11-25"))
    for table, entries in files.items():
        archives.add(place, TOPIC, entries, table=table, upto=rows)
    return size


def messages(first: int, count: int, rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    n = np.arange(first, first + count, dtype=np.int64)
    return pa.table(
        {
            "topic": pa.array([TOPIC]).take(pa.array(np.zeros(count, dtype=np.int64))),
            "key": pa.array([f"customer-{one}" for one in (n * 2654435761 % KEYS)]),
            "offset": pa.array(n + 1),
            "id": pa.array([f"01977420-c2f4-7000-8000-{one:012}" for one in n]),
            "target": pa.array([""]).take(pa.array(np.zeros(count, dtype=np.int64))),
            "published_at": moments(published(n, rows)),
        }
    )


def deliveries(first: int, count: int, rows: int) -> Any:
    import numpy as np
    import pyarrow as pa

    n = np.repeat(np.arange(first, first + count, dtype=np.int64), len(GROUPS))
    delivered = published(n, rows) + n % 997
    nothing = np.zeros(len(n), dtype=np.int32)
    return pa.table(
        {
            "topic": pa.array([TOPIC]).take(pa.array(nothing)),
            "offset": pa.array(n + 1),
            "group": pa.array(GROUPS).take(pa.array(np.tile(np.arange(len(GROUPS)), count))),
            "done": pa.array(nothing == 0),
            "in_flight": pa.array(nothing == 1),
            "redeliveries": pa.array(nothing),
            "failure_count": pa.array(nothing),
            "delivered_to": pa.array(["worker-1"]).take(pa.array(nothing)),
            "delivered_at": moments(delivered),
            "done_at": moments(delivered + 3),
        }
    )


def published(n: Any, rows: int) -> Any:
    """Return times in milliseconds, evenly spread over the hours."""
    return FIRST_AT + n * (HOURS * HOUR) // rows


def moments(milliseconds: Any) -> Any:
    import pyarrow as pa

    return pa.array(milliseconds * 1000).cast(pa.timestamp("us", "UTC"))


def wrong(found: Report, rows: int) -> list[str]:
    """Return the figures that differ from the written data."""
    (topic,) = found.topics
    told: dict[str, tuple[object, object]] = {
        "published": (topic.published, rows),
        "keys": (topic.keys, min(rows, KEYS)),
        "groups": ([one.group for one in found.groups], list(GROUPS)),
        "finished": ([one.finished for one in found.groups], [rows] * len(GROUPS)),
        "times": ([one.ack.of for one in found.groups], [rows] * len(GROUPS)),
        "finished by the hour": (sum(one.finished for one in found.steps), rows * len(GROUPS)),
        "hours": (len({one.start for one in found.steps}) in (HOURS, HOURS + 1), True),
    }
    return [f"{name}: {one}, not {other}" for name, (one, other) in told.items() if one != other]


def peak(pid: int) -> float:
    """Return the peak memory of a process in MiB."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


if __name__ == "__main__":
    stage.begin("spark_report", parse, main)
