"""What excuses a run: its worker was stalled, or the answer may not have reached the database."""

from __future__ import annotations

from .breaches import Rules
from .stories import Run
from .world import World


def started_late(world: World, run: Run, rules: Rules) -> bool:
    """Whether the message may rightly have been another's when this run started.

    Between its claim and its start the worker may have been stopped, or its lease stolen; or the server had been
    down for so long that the lease was over when the claim was made. A start follows its claim at once (within
    the slack), so what happened after the start, or long before it, is no excuse.
    """
    return world.shaken(run.started.worker, run.lease, run.at - rules.slack_ns, run.at)


def answer_may_be_lost(world: World, run: Run, rules: Rules) -> bool:
    """Whether a finished run's answer may rightly have changed nothing.

    An answer follows at once (within the slack) when the run has ended, or the batch that its worker had in hand. It
    does not count if the worker died before it was given, or had lost the lease by then. A broken connection
    is no excuse: what was answered then is repeated, and recognised by its token.
    """
    if run.finished is None:
        return True
    last = run.batch_end + rules.slack_ns
    worker = run.started.worker
    return world.killed(worker, run.end, last) or world.shaken(
        worker, run.lease, run.at - rules.slack_ns, last
    )
