"""Settings of the tests' worker processes: the tests' settings, with the changes that the test requests.

``TEST_MQUEUE`` and ``TEST_TASKS`` are the settings ``MQUEUE`` and ``TASKS`` as JSON. ``TEST_CLOCK`` is the argument of
``move_clocks``.
"""

from __future__ import annotations

import json
import os
import time

from tests.settings import *  # noqa: F403

MQUEUE = json.loads(os.environ.get("TEST_MQUEUE", "{}"))
if "TEST_TASKS" in os.environ:
    TASKS = json.loads(os.environ["TEST_TASKS"])
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mqueue": {"handlers": ["console"], "level": "INFO"}},
}


def move_clocks(seconds: float) -> None:
    """Simulate a machine with wrong clocks: move the wall clock and the monotonic clock."""
    wall, monotonic, wall_ns, monotonic_ns = time.time, time.monotonic, time.time_ns, time.monotonic_ns
    time.time = lambda: wall() + seconds
    time.monotonic = lambda: monotonic() + seconds
    time.time_ns = lambda: wall_ns() + int(seconds * 1e9)
    time.monotonic_ns = lambda: monotonic_ns() + int(seconds * 1e9)


if shift := float(os.environ.get("TEST_CLOCK", "0")):
    move_clocks(shift)
