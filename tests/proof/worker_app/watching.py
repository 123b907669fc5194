"""Watch a worker from inside: its lots and batches, and the outcomes of handlers that are registered as atomic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import wraps
from unittest.mock import patch

from django_mqueue import Delivery
from django_mqueue.workers import pool, sharing
from django_mqueue.workers.executor import execute
from django_mqueue.workers.handler_calls import HandlerCall, Outcome
from tests.proof.history import Fault, Handed, now
from tests.proof.plan import my_name
from tests.proof.worker_app.acting import ended, history

OUTCOMES = {"ack": "done", "nack": "failed", "reject": "rejected", "postpone": "postponed"}

_open: set[Delivery] = set()


def note_end_of(delivery: Delivery) -> None:
    """Note the end of this run after its commit, which follows when the handler has returned."""
    _open.add(delivery)


def start() -> None:
    """Watch this process, which is ready. With ``PROOF_BACKLOG``, its threads get lots at a small backlog."""
    history().write(Fault(now(), "ready", my_name()))
    start_lot = pool.HandlerPool.start

    @wraps(execute)
    def noted_execute(call: HandlerCall) -> list[Outcome]:
        outcomes = execute(call)
        ones = [outcome for outcome in outcomes if outcome.delivery in _open]
        if ones:
            history().write(*(ended(one.delivery, OUTCOMES[one.verdict.verb]) for one in ones))
            _open.difference_update(one.delivery for one in ones)
        return outcomes

    @wraps(start_lot)
    def noted_start(self: pool.HandlerPool, calls: Sequence[HandlerCall]) -> None:
        messages = sum(len(call.deliveries) for call in calls)
        if messages > 1:
            history().write(Handed(now(), my_name(), calls[0].handler.group, len(calls), messages))
        start_lot(self, calls)

    patch.object(pool, "execute", noted_execute).start()
    patch.object(pool.HandlerPool, "start", noted_start).start()
    if backlog := os.environ.get("PROOF_BACKLOG"):
        patch.object(sharing, "LOTS_FROM", int(backlog)).start()
