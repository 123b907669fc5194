"""Wait until a job has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async

from .. import conf
from ..exceptions import MQueueError
from ..policy.durations import to_ms
from ..store.connection import session
from .compat import TaskResult

FIRST_PAUSE, GROWTH, LONGEST_PAUSE = 0.01, 1.5, 0.5
"""Seconds between two reads of the result: the first, how it grows, and the longest."""


def wait_for_result(result: TaskResult[Any], timeout: float | timedelta = 30) -> TaskResult[Any]:
    """Wait until a job is successful or failed. Return its result, which is refreshed.

    ``timeout``: seconds or a ``timedelta``. Raises ``TimeoutError`` if the job has not ended by then; it continues.
    Raises ``MQueueError`` inside a transaction, because no worker sees the job before the commit. Raises what
    ``get_result`` raises, and ``TypeError`` or ``ValueError`` for a bad ``timeout``.
    """
    _check_transaction(result)
    for pause in _pauses(timeout):
        result.refresh()
        if result.is_finished:
            return result
        time.sleep(pause)
    raise _too_late(result, timeout)


async def await_result(result: TaskResult[Any], timeout: float | timedelta = 30) -> TaskResult[Any]:
    """Do the same as ``wait_for_result``, for asynchronous callers."""
    await sync_to_async(_check_transaction)(result)
    for pause in _pauses(timeout):
        await result.arefresh()
        if result.is_finished:
            return result
        await asyncio.sleep(pause)
    raise _too_late(result, timeout)


def _check_transaction(result: TaskResult[Any]) -> None:
    if session.in_transaction(using := conf.database(None)):
        raise MQueueError(
            f"cannot wait for job {result.id!r} inside a transaction on {using!r}: no worker sees it before the commit."
            " In tests use django_mqueue.testing.drain"
        )


def _pauses(timeout: float | timedelta) -> Iterator[float]:
    """Yield the seconds to wait after each read. After the timeout, yield 0 for one last read."""
    deadline = time.monotonic() + to_ms("timeout", timeout, least=0.001) / 1000
    pause = FIRST_PAUSE
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * GROWTH, LONGEST_PAUSE)
    yield 0


def _too_late(result: TaskResult[Any], timeout: float | timedelta) -> TimeoutError:
    seconds = to_ms("timeout", timeout) / 1000
    return TimeoutError(
        f"job {result.id!r} has not ended within {seconds:g} s, and is {result.status}: it is slow, waits for a retry,"
        " or no worker runs its queue"
    )
