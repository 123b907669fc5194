"""Which of two processes of one query was made later, as their incarnations tell.

A checkpoint is started anew when its process is taken for dead; it may only stand still, and has perhaps not joined its
group yet. Whoever of the two asks first, the later one is to read. When a process was made is told by the database's
clock, less what has passed here since then: no two machines' clocks are compared.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from ..store import unfinished

_TELLS = "t"
"""How an incarnation begins that tells it: all others are hexadecimal."""


def clock() -> float:
    """Seconds, which pass also while a process, or its machine, sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(frozen=True)
class Birth:
    """Between when a process was made, in the database's milliseconds: what lies between is the way there and back."""

    earliest: int
    latest: int

    @classmethod
    def of(cls, made: float, using: str) -> Birth:
        """``made`` by ``clock``."""
        asked = clock()
        now = unfinished.now_ms(using)
        told = clock()
        return cls(now - int((told - made) * 1000) - 1, now - int((asked - made) * 1000) + 1)

    def incarnation(self) -> str:
        return f"{_TELLS}{self.earliest:011x}{secrets.token_hex(10)}"

    def is_before(self, incarnation: str) -> bool:
        """Whether that one was made later, for certain."""
        return incarnation.startswith(_TELLS) and self.latest < int(incarnation[1:12], 16)
