"""A worker in a separate process. It runs a handler that does nothing, and prints the cost as JSON.

The parent starts it as ``python -m tests.benchmarks.speed.worker SPEC``, with ``DATABASE_URL`` set.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

GROUP = "bench"


@dataclass(frozen=True)
class Spec:
    """The worker stops after ``count`` messages or ``seconds`` seconds. ``options``: options of the handler."""

    topic: str
    server: int
    threads: int = 4
    count: int | None = None
    seconds: float = 300
    options: dict[str, Any] = field(default_factory=dict)
    times: bool = False


def main(spec: Spec) -> None:
    import django

    django.setup()

    from django_mqueue import consumer
    from django_mqueue.workers.registry import handlers
    from django_mqueue.workers.runner import Runner, RunOptions

    from .counters import Meter

    meter, begun, lock = Meter(os.environ["DATABASE_URL"], spec.server), False, threading.Lock()
    times: list[tuple[int, float]] = []

    def handle(argument: Any) -> None:
        nonlocal begun
        if not begun:
            with lock:
                if not begun:
                    meter.start()
                    begun = True
        if spec.times:
            times.append((argument.payload["n"], time.time()))

    consumer(spec.topic, group=GROUP, **spec.options)(handle)
    runner = Runner(
        handlers([spec.topic]),
        RunOptions(threads=spec.threads, max_messages=spec.count, max_seconds=spec.seconds),
    )
    if spec.count is None:
        print("ready", flush=True)
    runner.run()
    found = meter.stop() if begun else {}
    print(json.dumps({**found, "handled": runner.counts["ack"], "times": times}), flush=True)


if __name__ == "__main__":
    main(Spec(**json.loads(sys.argv[1])))
