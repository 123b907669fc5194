"""Retry policies for failed messages, and the wait before a dead process is replaced."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..exceptions import Retry
from .durations import to_ms

Wait = float | timedelta | None
"""Seconds, 0 or more, or a ``timedelta``. None: do not retry."""

RetryPolicy = Callable[[int], Wait] | Callable[[int, BaseException], Wait]
"""Takes the number of the attempt that failed (the first is 1) and, if it has a parameter for it, the exception."""

Policy = Callable[[int, BaseException], Wait]


@dataclass(frozen=True)
class ExponentialBackoff:
    """Wait ``first * factor ** (attempt - 1)`` seconds, at most ``max``, reduced at random by up to ``jitter`` of it.

    ``first``, ``max``: seconds or a ``timedelta``. The jitter (0 to 1) keeps messages that failed together from being
    retried together ("Exponential Backoff And Jitter", AWS Architecture Blog, 2015). Raises ``ValueError`` for invalid
    values.
    """

    first: float | timedelta = 1
    factor: float = 2
    max: float | timedelta = 300
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (_seconds(self.first) >= 0 and _seconds(self.max) >= 0):
            raise ValueError(f"first and max must be 0 or more seconds, not {self.first!r} and {self.max!r}")
        if not self.factor >= 1:
            raise ValueError(f"factor must be at least 1, not {self.factor!r}")
        _check_jitter(self.jitter)

    def __call__(self, attempt: int) -> float:
        wait = most = _seconds(self.max)
        with suppress(OverflowError):
            wait = min(_seconds(self.first) * self.factor ** (attempt - 1), most)
        return _shortened(wait, self.jitter)


@dataclass(frozen=True)
class FixedDelay:
    """Wait the same time after each attempt, reduced at random by up to ``jitter`` of it.

    ``delay``: seconds or a ``timedelta``. ``jitter``: 0 to 1. Raises ``TypeError`` or ``ValueError`` for invalid
    values.
    """

    delay: float | timedelta
    jitter: float = 0

    def __post_init__(self) -> None:
        to_ms("delay", self.delay)
        _check_jitter(self.jitter)

    def __call__(self, attempt: int) -> float:
        return _shortened(to_ms("delay", self.delay) / 1000, self.jitter)


class Delays:
    """Wait after each attempt for the next time in a list (seconds or ``timedelta``). The last entry repeats.

    Raises ``TypeError`` or ``ValueError`` for an empty list or an invalid time.
    """

    def __init__(self, delays: Iterable[float | timedelta]) -> None:
        self.seconds = [to_ms(f"delays[{number}]", delay) / 1000 for number, delay in enumerate(delays)]
        if not self.seconds:
            raise ValueError("delays must hold at least one wait; to retry never, use NoRetry()")

    def __repr__(self) -> str:
        return f"Delays({self.seconds!r})"

    def __call__(self, attempt: int) -> float:
        return self.seconds[min(attempt, len(self.seconds)) - 1]


@dataclass(frozen=True)
class NoRetry:
    """Never retry: the first failure dead-letters the message, whatever ``max_attempts`` is."""

    def __call__(self, attempt: int) -> None:
        return None


class RetryOn:
    """Retry only after these types of exceptions or ``Retry``. Any other exception dead-letters the message at once.

    ``policy``: the waits; default ``ExponentialBackoff()``. Raises ``TypeError`` for a value that is not an exception
    type.
    """

    def __init__(self, *exceptions: type[BaseException], policy: RetryPolicy | None = None) -> None:
        for found in exceptions:
            if not (isinstance(found, type) and issubclass(found, BaseException)):
                raise TypeError(f"RetryOn takes types of exceptions, not {found!r}")
        if not exceptions:
            raise TypeError("RetryOn needs at least one type of exception")
        self.exceptions = exceptions
        self.policy = policy_of(ExponentialBackoff() if policy is None else policy)

    def __repr__(self) -> str:
        return f"RetryOn({', '.join(found.__name__ for found in self.exceptions)})"

    def __call__(self, attempt: int, exception: BaseException) -> Wait:
        return self.policy(attempt, exception) if isinstance(exception, (Retry, *self.exceptions)) else None


@dataclass
class RestartBackoff:
    """The wait before a dead process is replaced.

    A process that has lived for 10 seconds is replaced at once. After shorter lives in a row, the waits grow from 1
    second to 30.
    """

    short_lives: int = 0

    def wait_after(self, lived: float) -> float:
        """Return the seconds to wait after the death of a process that has lived for ``lived`` seconds."""
        self.short_lives = 0 if lived >= 10 else self.short_lives + 1
        return ExponentialBackoff(max=30)(self.short_lives) if self.short_lives else 0.0


def policy_of(retry: Any) -> Policy:
    """Return the option ``retry`` of a handler as a callable of attempt and exception.

    ``retry``: a policy, a list of waits, or None for no retry. Raises ``TypeError`` or ``ValueError`` for other values.
    """
    if retry is None:
        retry = NoRetry()
    elif isinstance(retry, (list, tuple)):
        retry = Delays(retry)
    if not callable(retry):
        raise TypeError(
            f"retry must be callable with the attempt's number, a list of waits, or None for no retry, not {retry!r}"
        )
    if _takes_exception(retry):
        return retry  # type: ignore[no-any-return]
    return lambda attempt, exception: retry(attempt)


def _takes_exception(retry: Any) -> bool:
    """Return whether the policy has ``*args``, or a second parameter that is required or named ``exception``."""
    try:
        parameters = list(inspect.signature(retry).parameters.values())
    except (TypeError, ValueError):  # Some builtins have no signature.
        return False
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return True
    second = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    return any(p.default is p.empty or p.name == "exception" for p in second)


def _check_jitter(jitter: float) -> None:
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter must be from 0 to 1, not {jitter!r}")


def _shortened(wait: float, jitter: float) -> float:
    return wait * (1 - jitter * random.random())


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value
