"""The worklist's own handler: it finishes automated items, returns delayed ones, reminds and escalates."""

from __future__ import annotations

import logging
from dataclasses import replace

from django.db import Error

from ..exceptions import Postpone, Reject, Retry, StaleDelivery
from ..messages import Message
from ..policy.backoff import ExponentialBackoff, policy_of
from ..policy.durations import DURATION_MAX_MS, moment_ms
from ..protocol.delivery import Delivery
from ..store.delivery_state import WORKER_DIED
from ..store.queries import job_rows
from ..store.queries.group_rows import now_ms
from ..workers.handler_calls import Exhausted
from ..workers.registry import Limits
from . import states, steps
from .models import WorkItem
from .registry import Worklist

logger = logging.getLogger("django_mqueue")

TIMER_LIMITS = Limits(20, policy_of(ExponentialBackoff(first=1, factor=2, max=600)), atomic=True)
"""The limits for messages of the source, and for messages that return an item, remind of it, or escalate it.
Their failures are errors in the project's code, or of the database."""

STATE_OF = {steps.WORK: states.AUTOMATED, steps.RETURN: states.DELAYED}
"""The states in which messages of these kinds have an effect. Users who may publish can send such messages at any time.
"""


def limits_of(worklist: Worklist, message: Message) -> Limits:
    options = worklist.options
    if message.kind != steps.WORK:
        return replace(TIMER_LIMITS, max_runtime=options.max_runtime)
    return Limits(options.max_attempts, options.retry, options.max_runtime, atomic=True)


def handle(worklist: Worklist, delivery: Delivery) -> None:
    """React to one of the messages that the worklist sends to itself, in the transaction that acknowledges it.

    A message that is out of date needs no reaction: the item was delayed again or has another due date, a person took
    it from the handler, or it has ended.
    """
    items = WorkItem.objects.using(delivery.status.acknowledger.state.using)
    # Lock it before the row of the history is inserted: its foreign key would take a shared lock first.
    item = items.select_for_update().filter(pk=delivery.payload["item"]).first()
    if item is None or not item.is_open:
        return
    if delivery.kind in (steps.DUE, steps.REMIND) and item.due_at is None:
        return
    if delivery.id != steps.timer_id(item, delivery.kind):
        return
    if item.state != STATE_OF.get(delivery.kind, item.state):
        return
    if delivery.kind == steps.WORK:
        _work(item, delivery)
    elif delivery.status.failures >= TIMER_LIMITS.max_attempts:
        raise Exhausted(WORKER_DIED)
    elif delivery.kind == steps.RETURN:
        state = states.ASSIGNED if item.assignee_id is not None else states.UNASSIGNED
        steps.system_change(item, "returned", state=state, delayed_until=None)
    elif delivery.kind == steps.REMIND:
        _record_once(item, "reminded")
    elif (early_ms := moment_ms("due_at", item.due_at) - now_ms(item.using)) > 0:
        raise Postpone(min(early_ms, DURATION_MAX_MS) / 1000)  # An operator has sent it before its time.
    elif _record_once(item, "overdue"):
        worklist.escalate(item)


def _record_once(item: WorkItem, step: str) -> bool:
    """Record a step of the due date, unless it was recorded since the due date was set. Return whether it is new.

    After a reset or a redelivery, the handler gets the message of a due date a second time.
    """
    found = item.history.filter(step__in=(step, "due_changed")).values_list("step", flat=True)
    if list(found)[-1:] == [step]:
        return False
    steps.record(item, step, None, "", item.state)
    return True


def _work(item: WorkItem, delivery: Delivery) -> None:
    """Finish an automated item. After the last failed attempt, give it to people with the error."""
    if delivery.status.failures >= item.rules.options.max_attempts:
        give_to_people(item, WORKER_DIED)
        return
    try:
        steps.finish(item, None, None, "", is_automated=True)
    except (Postpone, StaleDelivery):
        raise
    except Reject as error:
        give_to_people(item, str(error))
    except Exception as error:
        if isinstance(error, Error) or not _is_last(item, delivery, error):
            raise
        logger.warning("work item given to people: %s %s", item.worklist, item.pk, exc_info=error)
        give_to_people(item, str(error) if isinstance(error, Retry) else f"{type(error).__name__}: {error}")


def _is_last(item: WorkItem, delivery: Delivery, error: Exception) -> bool:
    """Return whether an attempt that fails with this error is the last one, as the worker will decide."""
    options = item.rules.options
    if delivery.status.failures + 1 >= options.max_attempts:
        return True
    if isinstance(error, Retry) and error.delay is not None:
        return False
    try:
        return options.retry(delivery.attempt, error) is None
    except Exception:  # The worker logs it, and then retries.
        return False


def give_to_people(item: WorkItem, error: str) -> None:
    steps.system_change(item, "failed", error=error, state=states.UNASSIGNED)


def after_failure(worklist: Worklist, using: str, offset: int, is_final: bool) -> None:
    """Give an automated item to people if its message becomes a dead letter."""
    row = job_rows.by_offset(using, worklist.topic, offset) if is_final else None
    id = row["id"] if row else ""
    kind, _, rest = id.partition(" ")
    if kind != steps.WORK or not rest:
        return
    try:
        # Without waiting: a handler that hangs holds the row, and the worker's loop calls this.
        items = WorkItem.objects.using(using).select_for_update(nowait=True)
        pk, version = map(int, rest.split(" ")[:2])  # A later version has a later message.
        item = items.filter(pk=pk, version=version, state=states.AUTOMATED).first()
        if item is not None:
            give_to_people(item, "the handler's last attempt ended without a result; see the dead letter")
    except Error:
        raise
    except Exception as error:  # Another error must not prevent the end of the message.
        logger.error("work item not given to people: %s, message %s", worklist.name, id, exc_info=error)
