"""Compare the creation times of two processes of one query, which their incarnations contain.

A process that is considered dead may only be suspended, while a new process starts from its checkpoint. The process
that was created later must read, no matter which of the two asks first. A creation time is the database's time, minus
the time since the creation by the process's own clock. So the clocks of two machines are never compared.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import cached_property

from ...store.queries import group_rows

_WITH_TIME = "t"
"""The first character of an incarnation that contains the time. All other incarnations are hexadecimal."""


def clock() -> float:
    """Return seconds on a clock that, if the system has one, also runs while the process or its machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class CreationTime:
    """The earliest and the latest possible creation time of a process, in epoch milliseconds of the database."""

    earliest: int
    latest: int

    @classmethod
    def of(cls, created: float, using: str) -> CreationTime:
        """Return the times for a process. ``created``: when it was created, by ``clock``."""
        before = clock()
        now = group_rows.now_ms(using)
        after = clock()
        return cls(now - int((after - created) * 1000) - 1, now - int((before - created) * 1000) + 1)

    @cached_property
    def incarnation(self) -> str:
        return f"{_WITH_TIME}{self.earliest:011x}{secrets.token_hex(10)}"

    def is_before(self, incarnation: str) -> bool:
        """Return whether this process was certainly created before the other one."""
        return incarnation.startswith(_WITH_TIME) and self.latest < int(incarnation[1:12], 16)
