"""Wait for events that must happen.

``PATIENCE`` and ``SPARK_PATIENCE`` are the only limits of such a wait. They decide when a test fails, and never
whether a test passes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = float(os.environ.get("MQUEUE_TEST_PATIENCE", "60"))
"""Seconds until a wait fails the test. ``MQUEUE_TEST_PATIENCE`` changes it."""
SPARK_PATIENCE = 10 * PATIENCE
"""The same for a wait in which Spark or its processes start."""

Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value | None], what: str, *, seconds: float = PATIENCE, every: float = 0.02
) -> Value:
    """Return the condition's first true value. Fail with ``what`` if it stays false for ``seconds``."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain: {what}")
        pause.wait(every)
    return value


def gather(poll: Callable[[], list[Value]], count: int, what: str) -> list[Value]:
    """Poll until there are ``count`` items, and return them. Fail if there are more."""
    found: list[Value] = []

    def enough() -> bool:
        found.extend(poll())
        return len(found) >= count

    wait_until(enough, what)
    assert len(found) == count, f"{what}: {len(found)} came, not {count}"
    return found


def wait(seconds: float) -> None:
    """Let time pass. Only tests of time itself may use it, and never as proof that nothing happens."""
    threading.Event().wait(seconds)
