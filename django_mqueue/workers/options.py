"""How a worker runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunOptions:
    """How to run; ``None`` is each handler's or setting's own. ``drain``: stop when nothing is left to do now.

    ``drain_timeout``: for how many seconds to wait then for what other workers have leased; None: two lease durations.
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
