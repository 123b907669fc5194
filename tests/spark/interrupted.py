"""A planner that receives SIGTERM while it holds a topic's lock: ``python -m tests.spark.interrupted OPTIONS``.

Spark sends the signal at any time and cannot aim. Here the process sends it to itself, when its first batch is durable.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from django.db.backends.utils import CursorWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from django_mqueue.spark.reader.options import read_options
from django_mqueue.spark.streams.stream_reader import StreamReader
from django_mqueue.store import offsets


def main(options: dict[str, str]) -> None:
    reader = StreamReader(StructType(), read_options(options, streaming=True))
    ended = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    make_durable(Path(options["checkpointLocation"]), ended)
    lock = offsets.lock_topic

    def lock_and_signal(cursor: CursorWrapper, topic: str) -> int:
        found = lock(cursor, topic)
        offsets.lock_topic = lock
        print("the signal was sent", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        print("it went on", flush=True)
        return found

    offsets.lock_topic = lock_and_signal
    reader.latestOffset(ended, ReadAllAvailable())


def make_durable(checkpoint: Path, ended: dict[str, Any]) -> None:
    """Write the files that make the first batch durable, as Spark does."""
    for folder, text in (("offsets", json.dumps(ended)), ("commits", "{}")):
        (checkpoint / folder).mkdir(parents=True)
        (checkpoint / folder / "0").write_text(f"v1\n{text}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
