"""Several subscribers of one group in one process, each in a thread of its own.

They postpone each message, because a subscriber releases the lease of a partition without open messages.

The parent starts it as ``python -m tests.benchmarks.scale.subscribers TOPIC GROUP NAME NUMBER``, with ``DATABASE_URL``
set, and ends it with a signal. Each thread uses a separate connection and does all periodic work, like a process.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress

LATER = 3000
"""Seconds for which a message is postponed. An hour would move it out of the log."""
POLL = 1.0
"""Seconds between two polls. With shorter pauses, 200 subscribers on two cores would only measure their polls."""


def main(topic: str, group: str, name: str, number: int) -> None:
    import django

    django.setup()

    threads = [
        threading.Thread(target=_subscribe, args=(topic, group, f"{name}-{n:02}")) for n in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _subscribe(topic: str, group: str, name: str) -> None:
    from django_mqueue import StaleDelivery, Subscription

    with Subscription(topic, group, name) as subscription:
        while True:
            for delivery in subscription.poll():
                with suppress(StaleDelivery):  # Another subscriber has the lease now.
                    delivery.postpone(LATER)
            time.sleep(POLL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
