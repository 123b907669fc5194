"""The worklist's own handler: it finishes automated items, and reacts when a time has come."""

from __future__ import annotations

import logging

from django.db import DatabaseError

from ..exceptions import Postpone, Reject, Retry, StaleDelivery
from ..messages import Message
from ..policy.backoff import ExponentialBackoff, policy_of
from ..protocol.delivery import Delivery
from ..store.queries import job_rows
from ..store.queries.group_rows import now_ms
from ..workers.registry import Limits
from . import states, steps
from .models import WorkItem
from .registry import Worklist

logger = logging.getLogger("django_mqueue")

TIMER_LIMITS = Limits(20, policy_of(ExponentialBackoff(first=1, factor=2, max=600)), atomic=True)
"""The limits of the messages that return, remind and escalate: a failure is an error in the project's code."""


def limits_of(worklist: Worklist, message: Message) -> Limits:
    options = worklist.options
    if message.kind != steps.WORK:
        return TIMER_LIMITS
    return Limits(options.max_attempts, options.retry, options.max_runtime, atomic=True)


def handle(worklist: Worklist, delivery: Delivery) -> None:
    """React to one of the messages that the worklist sends to itself, in the transaction that acknowledges it.

    An item that has changed meanwhile needs no reaction: a person took it from the handler, or it has ended.
    """
    using = delivery.status.acknowledger.context.using
    item = WorkItem.objects.using(using).filter(pk=delivery.payload["item"]).first()
    if item is None:
        return
    if delivery.kind == steps.WORK:
        if item.state == states.AUTOMATED:
            _work(item, delivery)
    elif delivery.kind == steps.RETURN:
        _return(item)
    elif item.is_open and item.due_at is not None:
        if delivery.kind == steps.REMIND:
            steps.record(item, "reminded", None, "", item.state)
        else:
            steps.record(item, "overdue", None, "", item.state)
            worklist.escalate(item)


def _work(item: WorkItem, delivery: Delivery) -> None:
    """Finish an automated item. After the last failed attempt, give it to people with the error."""
    is_last = delivery.status.failures + 1 >= item.rules.options.max_attempts
    try:
        steps.finish_by_handler(item)
    except states.ItemChanged:
        return
    except (Retry, Postpone, StaleDelivery):
        raise
    except Reject as error:
        give_to_people(item, str(error))
    except Exception as error:
        if not is_last or isinstance(error, DatabaseError):
            raise
        logger.warning("work item given to people: %s %s", item.worklist, item.pk, exc_info=error)
        give_to_people(item, f"{type(error).__name__}: {error}")


def give_to_people(item: WorkItem, error: str) -> None:
    steps.system_change(item, "failed", error=error, state=states.UNASSIGNED)


def _return(item: WorkItem) -> None:
    """Return a delayed item to its assignee, or to the unassigned items. Not if it was delayed further meanwhile."""
    if item.state != states.DELAYED or item.delayed_until is None:
        return
    if round(item.delayed_until.timestamp() * 1000) > now_ms(item.using):
        return
    state = states.ASSIGNED if item.assignee_id is not None else states.UNASSIGNED
    steps.system_change(item, "returned", state=state, delayed_until=None)


def after_failure(worklist: Worklist, using: str, offset: int, is_final: bool) -> None:
    """Give an automated item to people if its message becomes a dead letter: its handler killed its worker, or hung."""
    row = job_rows.by_offset(using, worklist.topic, offset) if is_final else None
    kind, _, rest = row["id"].partition(" ") if row else ("", "", "")
    if kind != steps.WORK or not rest:
        return
    try:
        item = WorkItem.objects.using(using).filter(pk=int(rest.split(" ")[0])).first()
        if item is not None and item.state == states.AUTOMATED:
            give_to_people(item, "the handler's attempts have ended without a result; see the dead letter")
    except DatabaseError:
        raise
    except Exception as error:  # Any other error would prevent the end of the message.
        logger.error("work item not given to people: %s: %s", worklist.name, error)
