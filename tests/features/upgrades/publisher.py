"""A process that publishes a steady stream, with the code in its directory: ``python -m … NAME TOPIC …``.

It publishes messages 0, 1, 2 … of each key ``NAME-0`` to ``NAME-2`` in transactions, until a row of ``Door`` with its
name exists. At most ``AHEAD`` messages of a topic wait. Its last line is the number of messages of each key. It counts
the publishes that failed, and repeats them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import django

KEYS, AHEAD = 3, 60


def main(name: str, topics: list[str]) -> None:
    from django.db import transaction

    import django_mqueue
    from django_mqueue import MQueueError, publish
    from django_mqueue.models import DeliveryState
    from tests.support.shop.models import Door

    print(f"code: {Path(django_mqueue.__file__).parents[1]}", flush=True)
    number = failed = 0
    pause = threading.Event()
    while not Door.objects.filter(name=name).exists():
        pause.wait(0.02)
        finished = DeliveryState.objects.filter(partition_key__startswith=f"{name}-", acked=True).count()
        if number * KEYS * len(topics) > finished + AHEAD:
            continue
        try:
            with transaction.atomic():
                for topic in topics:
                    for key in range(KEYS):
                        publish(topic, {"n": number}, key=f"{name}-{key}", id=f"{name}-{key}-{number}")
        except MQueueError as error:
            failed += 1
            print(f"failed: {error}", flush=True)
        else:
            number += 1
    print(f"published {number}, failed {failed}", flush=True)


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1], sys.argv[2:])
