"""Excuses of a run: its worker stalled, or its answer may not have reached the database."""

from __future__ import annotations

from .breaches import Rules
from .stories import Run
from .world import World

LOCK_WAIT_NS = 6_000_000_000
"""After a lock wait of one second, a group rests for five seconds. Until then it answers nothing."""


def started_late(world: World, run: Run, rules: Rules) -> bool:
    """Return True if another worker may have owned the message when this run started.

    The worker may have been stopped between claim and start, or the lease may have been stolen. The server may have
    been down until the lease expired. A start follows its claim within the slack. So events after the start, or long
    before it, are no excuse.
    """
    return world.shaken(run.started.worker, run.lease, run.at - rules.slack_ns, run.at)


def answer_may_be_lost(world: World, run: Run, rules: Rules) -> bool:
    """Return True if the answer of a finished run may have changed nothing.

    The answer follows within the slack after the run has ended, or after the worker's batch has ended. It follows later
    if its rows may have been locked. The answer does not count if the worker died before it answered, or had lost the
    lease. A broken connection is no excuse: the worker then repeats the answer, and the queue recognises the token.
    """
    if run.finished is None:
        return True
    last = run.batch_end + rules.slack_ns
    if world.locks.count(run.at - rules.slack_ns, last):
        last += LOCK_WAIT_NS
    worker = run.started.worker
    return world.killed(worker, run.end, last) or world.shaken(
        worker, run.lease, run.at - rules.slack_ns, last
    )
