"""Send the heartbeats of readers of the log in a separate thread, because a batch may take hours."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from ...store import heartbeats
from ...store.connection.session_variables import lock_waits_of_a_second
from ...store.leases import Holder
from ..connecting import ConnectionParameters, connected
from . import following

BEAT_EVERY = following.ALIVE_MS / 3000
"""Seconds between two heartbeats: a third of ``ALIVE_MS``."""


class Heartbeats:
    """The heartbeats of readers that have joined their groups.

    ``after``: called after each round of heartbeats, with the connection's alias. Errors are ignored, because the next
    round may succeed.
    """

    def __init__(
        self, parameters: ConnectionParameters, after: Callable[[str], object] = lambda using: None
    ) -> None:
        self._parameters, self._after = parameters, after
        self._readers: list[Holder] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="mqueue-heartbeat", daemon=True)

    def add(self, readers: Iterable[Holder]) -> None:
        """Send heartbeats also for these readers. The first call starts the thread."""
        self._readers += readers
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Call ``after``, and leave the groups. If that fails, the missing heartbeats show that the readers ended."""
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join()
        with suppress(Exception), connected(self._parameters) as using:
            with suppress(Exception), lock_waits_of_a_second(using):
                self._after(using)
            for reader in self._readers:
                following.leave(reader, using=using)

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_EVERY):
            with suppress(Exception), connected(self._parameters) as using:
                for reader in list(self._readers):
                    heartbeats.beat(using, reader)
                with lock_waits_of_a_second(using):  # The next heartbeat must not wait for it.
                    self._after(using)
