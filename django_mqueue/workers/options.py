"""The options of a worker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """The options of a worker. None means the value of each handler or setting. Times are in seconds.

    ``drain``: stop when nothing is left to do now. ``drain_timeout``: the wait for messages that other workers have
    leased; None: two lease durations.
    """

    threads: int = 4
    name: str | None = None
    batch_size: int | None = None
    poll_interval: float | None = None
    drain: bool = False
    drain_timeout: float | None = None
    max_messages: int | None = None
    max_seconds: float | None = None
    using: str | None = None
