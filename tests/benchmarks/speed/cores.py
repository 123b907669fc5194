"""A supervisor with handlers that compute. It drains a topic, and prints the seconds and the count as JSON.

The parent starts it as ``python -m tests.benchmarks.speed.cores TOPIC PROCESSES``, with ``DATABASE_URL`` set.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .worker import GROUP

LOOPS = 100_000
"""Iterations of a handler: a few milliseconds of processor time."""


def main(topic: str, processes: int) -> None:
    import django

    django.setup()

    from django_mqueue import consumer
    from django_mqueue.workers.processes.child import Recycling
    from django_mqueue.workers.processes.supervisor import Supervisor
    from django_mqueue.workers.registry import handlers
    from django_mqueue.workers.runner import RunOptions

    def compute(argument: Any) -> None:
        sum(number * number for number in range(LOOPS))

    consumer(topic, group=GROUP)(compute)
    supervisor = Supervisor(handlers([topic]), RunOptions(drain=True), processes, Recycling())
    begun = time.perf_counter()
    supervisor.run()
    found = {"seconds": time.perf_counter() - begun, "handled": supervisor.counts["ack"]}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
