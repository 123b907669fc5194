"""Python processes that publish at the same time, and the SQL with which Spark makes the same messages."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from django_mqueue import OutgoingMessage

TOPIC = "orders"
KIND, SOURCE, NOTE = (
    "order.placed",
    "web",
    "to be delivered in the afternoon, to a neighbour if nobody is there",
)
SQL = (
    f"to_json(struct(id AS order, id % 5000 AS customer, sha2(CAST(id AS STRING), 256) AS digest, '{NOTE}' AS note))"
    " AS payload",
    "CONCAT('customer-', id % 5000) AS key",
    f"'{KIND}' AS kind",
    f"map('source', '{SOURCE}') AS headers",
)
"""Columns computed from ``id``, a number."""


def message(number: int) -> OutgoingMessage:
    """Return the message with this number."""
    from django_mqueue import OutgoingMessage

    payload: dict[str, Any] = {
        "order": number,
        "customer": number % 5000,
        "digest": hashlib.sha256(str(number).encode()).hexdigest(),
        "note": NOTE,
    }
    return OutgoingMessage(payload, key=f"customer-{number % 5000}", kind=KIND, headers={"source": SOURCE})


class Publishers:
    """Processes that wait for ``publish``. Call it once."""

    def __init__(self, processes: int, rows: int, at_once: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready, self._done = context.Barrier(processes + 1), context.Barrier(processes + 1)
        self._processes = [
            context.Process(
                target=_publish, args=(self._ready, self._done, number, processes, rows, at_once), daemon=True
            )
            for number in range(processes)
        ]
        for process in self._processes:
            process.start()

    def publish(self) -> float:
        """Start publishing in all processes. Return the seconds until the last one ends."""
        self._ready.wait(120)
        begun = time.perf_counter()
        self._done.wait(3600)
        return time.perf_counter() - begun

    def __enter__(self) -> Publishers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if error:
                process.kill()
            process.join()


def _publish(ready: Barrier, done: Barrier, number: int, processes: int, rows: int, at_once: int) -> None:
    import django

    django.setup()
    from django.db import connection

    from django_mqueue import publish_many

    connection.ensure_connection()
    ready.wait(120)
    try:
        for some in _batches(range(number, rows, processes), at_once):
            publish_many(TOPIC, map(message, some))
    except BaseException:
        done.abort()  # The parent then fails at once.
        raise
    done.wait(3600)


def _batches(numbers: range, at_once: int) -> Iterator[range]:
    for first in range(0, len(numbers), at_once):
        yield numbers[first : first + at_once]
