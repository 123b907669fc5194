"""A receiver that records the signals of a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_mqueue import signals
from django_mqueue.signals import TopicSignal

NAMES = {id(value): name for name, value in vars(signals).items() if isinstance(value, TopicSignal)}
ALL = [value for value in vars(signals).values() if isinstance(value, TopicSignal)]
LEASES = [signals.lease_won, signals.lease_lost]


class Heard:
    """Record each call, as (name of the signal, arguments), and the names of the threads."""

    def __init__(self, then: Callable[..., object] | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.threads: set[str] = set()
        self._then = then

    def __call__(self, *, signal: TopicSignal, **arguments: Any) -> None:
        self.calls.append((NAMES[id(signal)], arguments))
        self.threads.add(threading.current_thread().name)
        if self._then is not None:
            self._then(signal=signal, **arguments)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.calls if called == name]


@contextmanager
def listening(
    *chosen: TopicSignal, then: Callable[..., object] | None = None, sender: str | None = None
) -> Iterator[Heard]:
    """Record the signals until the block ends. By default, record all signals except lease signals."""
    heard = Heard(then)
    signals_heard = chosen or [signal for signal in ALL if signal not in LEASES]
    for signal in signals_heard:
        signal.connect(heard, sender=sender)
    try:
        yield heard
    finally:
        for signal in signals_heard:
            signal.disconnect(heard, sender=sender)
