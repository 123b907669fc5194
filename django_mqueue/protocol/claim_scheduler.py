"""Claim messages for all subscribers of a process in turn, and make room for quarantined messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from django.db import DatabaseError

from ..policy.quarantine import Mode, Quarantine, alone_for
from .delivery import Delivery
from .subscriber import Subscriber


def by_call(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Group deliveries by handler call: each call takes one message, or one batch."""
    found: dict[object, list[Delivery]] = {}
    for delivery in deliveries:
        status = delivery.status
        batch = (status.acknowledger, status.receipt.partition)
        found.setdefault(batch if status.acknowledger.state.options.batch else delivery, []).append(delivery)
    return list(found.values())


NOTE_AGAIN = 1.0
"""Seconds until ``ClaimScheduler`` tries again to update a row that another transaction has locked."""


class ClaimScheduler:
    """Decides which subscribers of a process may claim. ``at_work`` counts the deliveries that run or may start."""

    def __init__(
        self, subscribers: list[Subscriber], quarantine: Quarantine, at_work: Callable[[], int] | None = None
    ) -> None:
        self.subscribers, self.quarantine = subscribers, quarantine
        self._at_work = at_work or (lambda: sum(subscriber.in_flight for subscriber in subscribers))
        self._turn = 0
        self._alone_since: tuple[Delivery, float] | None = None
        self._not_noted: list[Delivery] = []
        self._note_at = -math.inf

    def claim_quarantined(self, free: int) -> list[Delivery] | None:
        """Claim a quarantined message if it may run now and at least one thread is ``free``.

        Returns its delivery in a list. None: the caller may claim as usual. An empty list: it must claim nothing.
        """
        mode = self.quarantine.mode(
            alone=self.update_quarantine(),
            in_flight=self._at_work(),
            quarantined=any(subscriber.has_quarantined for subscriber in self.subscribers),
            now=time.monotonic(),
        )
        if mode in (Mode.ALONE, Mode.WITH_OTHERS) and free > 0:
            for subscriber in self.subscribers:
                with subscriber.backoff_after_lock_wait(), subscriber.state.lock:
                    if subscriber.has_quarantined and (
                        one := subscriber.claimer.claim_quarantined(alone=mode is Mode.ALONE)
                    ):
                        return one
            return None
        return None if mode is Mode.NORMAL else []

    def claim(self, capacity: int) -> list[Delivery]:
        """Claim up to ``capacity`` deliveries that start at once. A batch counts as one."""
        quarantined = self.claim_quarantined(capacity)
        if quarantined is not None:
            return quarantined
        got: list[Delivery] = []
        for index in range(len(self.subscribers)):
            if (room := capacity - len(by_call(got))) <= 0:
                break
            subscriber = self.subscribers[(self._turn + index) % len(self.subscribers)]
            try:
                got += subscriber.claim(room, room)
            except DatabaseError:
                if not got:
                    raise
                break  # The deliveries claimed so far must reach their handlers. The next statement fails again.
        self._turn += 1
        return got

    def update_quarantine(self) -> bool:
        """Let others run after a message has run alone for ``alone_for``. Return whether a message still runs alone."""
        now = time.monotonic()
        self._note(now)
        found = (subscriber.quarantined_delivery() for subscriber in self.subscribers)
        alone = next(filter(None, found), None)
        if alone and (self._alone_since is None or self._alone_since[0] is not alone):
            self._alone_since = (alone, now)
        if alone and self._alone_since and now - self._alone_since[1] >= alone_for(alone.attempt):
            self.let_others_run(alone)
            return False
        return alone is not None

    def let_others_run(self, delivery: Delivery) -> None:
        """Let other messages run at the same time as this delivery. Its row is updated when it is not locked."""
        delivery.status.alone = False
        self._not_noted.append(delivery)
        self._note_at = -math.inf
        self._note(time.monotonic())

    def _note(self, now: float) -> None:
        """Record in the database which quarantined messages no longer run alone."""
        if self._not_noted and now >= self._note_at:
            self._not_noted = [d for d in self._not_noted if not d.status.acknowledger.end_quarantine(d)]
            self._note_at = now + NOTE_AGAIN
