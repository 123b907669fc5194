"""A process that sleeps until a message of a topic wakes it, and then sleeps again at once. It reads no table.

The parent starts it as ``python -m tests.benchmarks.speed.sleeper TOPIC``, with ``DATABASE_URL`` set, and ends it with
SIGTERM. It then prints the number of wake-ups as JSON.
"""

from __future__ import annotations

import json
import signal
import sys


def main(topic: str) -> None:
    import django

    django.setup()

    from django.db import DEFAULT_DB_ALIAS

    from django_mqueue.protocol.waking.sockets import SleepSocket, place_of

    signal.signal(signal.SIGTERM, lambda *received: sys.exit())
    sleeper, woken = SleepSocket(place_of(DEFAULT_DB_ALIAS), [topic]), 0
    try:
        while True:
            sleeper.sleep()
            woken += sleeper.wait(None)
    finally:
        sleeper.close()
        print(json.dumps({"woken": woken}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
