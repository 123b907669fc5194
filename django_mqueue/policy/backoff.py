"""How long a failed message waits before it is tried again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

RetryPolicy = Callable[[int], float]
"""Takes the attempt that just failed (the first is 1), gives seconds to wait, 0 or more."""


@dataclass(frozen=True)
class ExponentialBackoff:
    """``first * factor ** (attempt - 1)`` seconds, at most ``max``, shortened at random by up to ``jitter`` of it.

    The jitter keeps messages that failed together from coming back together ("Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015). Raises ``ValueError`` for values that give no waiting time.
    """

    first: float = 1
    factor: float = 2
    max: float = 300
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (self.first >= 0 and self.max >= 0):
            raise ValueError(f"first and max must be 0 or more seconds, not {self.first!r} and {self.max!r}")
        if not self.factor >= 1:
            raise ValueError(f"factor must be at least 1, not {self.factor!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, not {self.jitter!r}")

    def __call__(self, attempt: int) -> float:
        try:
            wait = self.first * self.factor ** (attempt - 1)
        except OverflowError:
            wait = self.max
        wait = min(wait, self.max)
        return wait * (1 - self.jitter * random.random())
