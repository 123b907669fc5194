"""A separate process that runs ``runconsumer`` with a handler that does nothing. It prints the cost as JSON.

The parent starts it as ``python -m tests.benchmarks.speed.worker SPEC``, with ``DATABASE_URL`` set.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

GROUP = "bench"


@dataclass(frozen=True)
class Spec:
    """The worker stops after ``count`` messages or ``seconds`` seconds, or at SIGTERM.

    ``options``: options of the handler. ``times``: also return the time of each message with a number from 0 on.
    ``profile``: also sample what the threads do.
    """

    topic: str
    server: int
    threads: int = 4
    count: int | None = None
    seconds: float = 600
    options: dict[str, Any] = field(default_factory=dict)
    times: bool = False
    profile: bool = False


def main(spec: Spec) -> None:
    import django

    django.setup()

    from django.core.management import call_command

    from django_mqueue import consumer

    from .counters import Meter, cpu_of
    from .profiling import Profile

    meter, begun, lock = (
        Meter(os.environ["DATABASE_URL"], partial(cpu_of, spec.server)),
        False,
        threading.Lock(),
    )
    profile = Profile()
    times: list[tuple[int, float]] = []

    def handle(argument: Any) -> None:
        nonlocal begun
        if not begun:
            with lock:
                if not begun:
                    meter.start()
                    if spec.profile:
                        profile.start()
                    begun = True
        if spec.times and argument.payload["n"] >= 0:
            times.append((argument.payload["n"], time.time()))

    consumer(spec.topic, group=GROUP, **spec.options)(handle)
    output, limit = io.StringIO(), {} if spec.count is None else {"max_messages": spec.count}
    call_command(
        "runconsumer", spec.topic, threads=spec.threads, max_seconds=spec.seconds, stdout=output, **limit
    )
    found = meter.stop() if begun else {}
    handled = re.search(r"\back (\d+)", output.getvalue())
    result = {
        **found,
        "handled": int(handled[1]) if handled else 0,
        "times": times,
        "profile": profile.stop(),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Spec(**json.loads(sys.argv[1])))
